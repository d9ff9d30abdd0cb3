"""Device-side tensor maps in the emulator.

Copies read them as late as possible, and the emulator reports a map that is overwritten too early.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from back_to_back_kernels import span
from device_descriptor_kernels import batched, copied, grouped, kept, met, surrounded, updated

import tilewright.language as tl
from tilewright.errors import KernelError
from tilewright.frontend.compile import compile_function
from tilewright.ir import Module
from tilewright.ir.core import Operation
from tilewright.language.definitions.callable import device_function
from tilewright.passes.pipeline import run as run_passes
from tilewright.simt import emulator
from tilewright.simt.compile import STAGES, kernel_of
from tilewright.simt.target.simt_target import Stage
from tilewright.testing.toy_targets import BulkTarget

COMPLETIONS = ["late", "early", "crossed", "random"]


def compiled(fn: Any, signature: dict[str, str], constants: dict[str, Any]) -> Module:
    module = compile_function(device_function(fn), signature, constants)
    run_passes(module)
    return module


def names_in(module: Module) -> list[str]:
    return [operation.name for operation in kernel_of(module).walk()]


def addresses_of(*tensors: list[np.ndarray]) -> np.ndarray:
    return np.array(
        [[tensor.ctypes.data for tensor in row] for row in zip(*tensors, strict=True)], np.int64
    )


def run_grouped(
    sizes: list[tuple[int, int, int]], target: BulkTarget, seed: int = 0, stages: int = 3
) -> Module:
    """Run grouped matmuls and check them."""
    rng = np.random.default_rng(seed)
    lefts = [rng.integers(-3, 4, (m, k)).astype(np.float32) for m, _, k in sizes]
    rights = [rng.integers(-3, 4, (n, k)).astype(np.float32) for _, n, k in sizes]
    results = [np.full((m, n), 7, np.float32) for m, n, _ in sizes]
    module = compiled(
        grouped,
        {"addresses": "*i64", "sizes": "*i32", "groups": "i32"},
        {"TYPE": tl.float32, "PROGRAMS": 2, "M": 16, "N": 16, "K": 16},
    )
    arguments = [addresses_of(lefts, rights, results), np.array(sizes, np.int32), len(sizes)]
    emulator.run(module, arguments, (2, 1, 1), target=target, num_warps=2, num_stages=stages)
    for left, right, result in zip(lefts, rights, results, strict=True):
        np.testing.assert_array_equal(result, left @ right.T)
    return module


@pytest.mark.each_value
@pytest.mark.parametrize("completion", COMPLETIONS)
@pytest.mark.parametrize("stages", [1, 3])
def test_products_of_groups_whose_tensors_are_loaded(completion: str, stages: int) -> None:
    sizes = [(20, 24, 40), (3, 16, 4), (16, 4, 0), (40, 36, 20)]
    module = run_grouped(sizes, BulkTarget(8, completion=completion, seed=stages), stages, stages)
    names = names_in(module)
    assert names.count("simt.make_descriptor") == 3 and "load" in names and "store" not in names
    assert names.count("simt.descriptors") == names.count("simt.free_descriptors") == 1


def test_products_of_groups_in_any_order_of_events() -> None:
    for seed in range(6):
        rng = np.random.default_rng(seed)
        sizes = [
            (int(rng.integers(1, 40)), 4 * int(rng.integers(1, 9)), 4 * int(rng.integers(0, 9)))
            for _ in range(3)
        ]
        run_grouped(sizes, BulkTarget(8, completion="random", seed=seed), seed)


@pytest.mark.each_value
@pytest.mark.parametrize("completion", ["late", "random"])
@pytest.mark.parametrize("rank", [1, 2, 3, 4, 5])
def test_tensors_of_every_rank(rank: int, completion: str) -> None:
    rng = np.random.default_rng(rank)
    shapes = [tuple(int(extent) for extent in rng.integers(1, 6, rank)) for _ in range(3)]
    sources = [rng.integers(-9, 9, (*shape[:-1], 8)).astype(np.float32) for shape in shapes]
    results = [np.full((*shape[:-1], 8), 7, np.float32) for shape in shapes]
    numbers = np.array([[*shape[::-1], *[1] * (5 - rank), 8] for shape in shapes], np.int32)
    constants = {"TYPE": tl.float32, "RANK": rank, "B": 2, "LAST": 4}
    module = compiled(copied, {"addresses": "*i64", "numbers": "*i32", "count": "i32"}, constants)
    emulator.run(
        module,
        [addresses_of(sources, results), numbers, 3],
        (2, 1, 1),
        target=BulkTarget(8, completion=completion),
        num_warps=1,
    )
    for source, result, shape in zip(sources, results, shapes, strict=True):
        expected = np.full_like(result, 7)
        expected[..., : shape[-1]] = source[..., : shape[-1]]
        np.testing.assert_array_equal(result, expected)
    names = names_in(module)
    assert (
        names.count("simt.make_descriptor") == 2
        and "simt.block_load_start" in names
        and "simt.block_store_start" in names
    )


@pytest.mark.parametrize("padding", ["zero", "nan"])
def test_what_is_outside_of_a_tensor(padding: str) -> None:
    shapes = [(3, 8), (9, 5), (0, 8), (4, 0)]
    sources = [np.arange(80, dtype=np.float32).reshape(10, 8) + 100 * number for number in range(4)]
    y = np.full((16, 8), 7, np.float32)
    constants = {"TYPE": tl.float32, "PADDING": padding, "B": 4, "LAST": 8}
    module = compiled(
        surrounded,
        {"addresses": "*i64", "numbers": "*i32", "count": "i32", "y": "*fp32"},
        constants,
    )
    emulator.run(
        module,
        [addresses_of(sources), np.array(shapes, np.int32), 4, y],
        target=BulkTarget(8),
        num_warps=1,
    )
    expected = np.full((4, 4, 8), np.nan if padding == "nan" else 0, np.float32)
    for block, source, (rows, columns) in zip(expected, sources, shapes, strict=True):
        block[1 : 1 + rows, :columns] = source[: min(3, rows), :columns]
    np.testing.assert_array_equal(y, expected.reshape(16, 8))
    assert "simt.make_descriptor" in names_in(module)


BATCHED = dict.fromkeys(("a_ptr", "b_ptr", "c_ptr"), "*fp32") | dict.fromkeys(
    ("batches", "m", "n", "k"), "i32"
)


def run_batched(
    specialize: bool, target: BulkTarget, sizes: tuple[int, int, int, int] = (3, 20, 24, 36)
) -> Module:
    """Run batched matmuls with different numbers of rows and check them."""
    batches, m, n, k = sizes
    rng = np.random.default_rng(k)
    a, b = (
        rng.integers(-3, 4, shape).astype(np.float32)
        for shape in ((batches, m, k), (batches, n, k))
    )
    c = np.full((batches, m, n), 7, np.float32)
    module = compiled(
        batched, BATCHED, {"TYPE": tl.float32, "M": 16, "N": 16, "K": 16, "SPECIALIZE": specialize}
    )
    emulator.run(module, [a, b, c, *sizes], target=target, num_warps=2, num_stages=3)
    expected = a @ b.transpose(0, 2, 1)
    for batch in range(batches):
        expected[batch, m - batch :] = 7
    np.testing.assert_array_equal(c, expected)
    return module


@pytest.mark.each_value
@pytest.mark.parametrize("completion", COMPLETIONS)
@pytest.mark.parametrize("specialize", [False, True])
def test_descriptors_made_anew_for_each_batch(specialize: bool, completion: str) -> None:
    for sizes in ((3, 20, 24, 36), (4, 5, 4, 0), (2, 33, 16, 68)):
        module = run_batched(specialize, BulkTarget(8, completion=completion, seed=sizes[1]), sizes)
        names = names_in(module)
        assert names.count("simt.part") == 2 * specialize
        # each part that copies makes its own
        assert (
            names.count("simt.make_descriptor") == 3
            and names.count("simt.descriptors") == 1 + specialize
        )


@pytest.mark.parametrize("completion", ["late", "random"])
def test_what_was_stored_by_one_descriptor_is_read_by_another(completion: str) -> None:
    sources = [
        np.random.default_rng(number).integers(-9, 9, (6, 8)).astype(np.float32)
        for number in range(5)
    ]
    c = np.zeros((5, 8), np.float32)
    module = compiled(
        kept,
        {"addresses": "*i64", "numbers": "*i32", "count": "i32", "c_ptr": "*fp32"},
        {"B": 4, "LAST": 8},
    )
    rows = [1, 4, 6, 2, 3]
    emulator.run(
        module,
        [addresses_of(sources), np.array(rows, np.int32), 5, c],
        target=BulkTarget(8, completion=completion),
        num_warps=2,
    )
    expected = np.zeros((5, 8), np.float32)
    for number, (source, count) in enumerate(zip(sources, rows, strict=True)):
        first = number % 2
        expected[first : first + min(4, count)] += source[: min(4, count)]
    np.testing.assert_array_equal(c, expected)
    assert names_in(module).count("simt.make_descriptor") == 2


@device_function
def of_heads(
    q_ptr,
    k_ptr,
    v_ptr,
    out,
    heads,
    n,
    causal,
    BM: tl.constexpr,
    BN: tl.constexpr,
    HEAD: tl.constexpr,
    CAUSAL: tl.constexpr,
):
    """Attention of one block of queries of each head, of whose tensors descriptors are made
    anew."""
    rows, dims = tl.arange(0, BM), tl.arange(0, HEAD)
    for head in range(heads):
        size = n + head * BN
        q = tl.make_tensor_descriptor(q_ptr + head * BM * HEAD, [BM, HEAD], [HEAD, 1], [BM, HEAD])
        k = tl.make_tensor_descriptor(
            k_ptr + head * head * BN * HEAD, [size, HEAD], [HEAD, 1], [BN, HEAD]
        )
        v = tl.make_tensor_descriptor(
            v_ptr + head * head * BN * HEAD, [size, HEAD], [HEAD, 1], [BN, HEAD]
        )
        highest, total = (
            tl.full([BM], -float("inf"), dtype=tl.float32),
            tl.zeros([BM], dtype=tl.float32),
        )
        acc = tl.zeros([BM, HEAD], dtype=tl.float32)
        queries = q.load([0, 0])
        if CAUSAL:
            acc, total, highest = span(
                acc, total, highest, queries, k, v, rows, 0, causal, BN, BN, False
            )
            acc, total, highest = span(
                acc, total, highest, queries, k, v, rows, causal, size, BN, BN, True
            )
        else:
            acc, total, highest = span(
                acc, total, highest, queries, k, v, rows, 0, size, BN, BN, False
            )
        tl.store(out + (head * BM + rows[:, None]) * HEAD + dims[None, :], acc / total[:, None])


@pytest.mark.each_value
@pytest.mark.parametrize("completion", COMPLETIONS)
@pytest.mark.parametrize("masked", [False, True])
def test_chains_of_products_by_descriptors_that_are_made_anew(
    masked: bool, completion: str
) -> None:
    heads, n, causal, block, step, width = 4, 16, 8, 16, 8, 8
    rng = np.random.default_rng(masked)
    q = rng.standard_normal((heads, block, width)).astype(np.float32)
    k, v = rng.standard_normal((2, heads * heads * step + n, width)).astype(np.float32)
    out = np.full_like(q, np.nan)
    signature = dict.fromkeys(("q_ptr", "k_ptr", "v_ptr", "out"), "*fp32") | dict.fromkeys(
        ("heads", "n", "causal"), "i32"
    )
    module = compile_function(
        of_heads, signature, {"BM": block, "BN": step, "HEAD": width, "CAUSAL": masked}
    )
    run_passes(module)
    emulator.run(
        module,
        [q, k, v, out, heads, n, causal],
        target=BulkTarget(8, rows=True, completion=completion),
        num_warps=2,
        num_stages=3,
    )
    for head in range(heads):
        first, size = head * head * step, n + head * step
        keys, values = (x[first : first + size].astype(np.float64) for x in (k, v))
        scores = q[head].astype(np.float64) @ keys.T
        if masked:
            column = np.arange(size)
            scores = np.where(
                (column[None, :] < causal) | (np.arange(block)[:, None] >= column[None, :]),
                scores,
                -1e6,
            )
        weights = np.exp2(scores - scores.max(axis=1, keepdims=True))
        np.testing.assert_allclose(
            out[head], weights @ values / weights.sum(axis=1, keepdims=True), rtol=1e-4, atol=1e-5
        )
    names = names_in(module)
    assert names.count("simt.part") == 2 and names.count("simt.dot_start") == 4 * (1 + masked)
    assert names.count("simt.make_descriptor") == 3 and names.count("simt.descriptors") == 2


# ---- errors of the emulator


class _Without(BulkTarget):
    """Some operations of what the stage of blocks wrote are gone."""

    def __init__(self, gone: Callable[[Operation], bool], **options: Any) -> None:
        super().__init__(8, **options)
        self.gone = gone
        self.count = 0

    def stages(self, stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
        def run(module: Module, target: Any, options: Any) -> None:
            for operation in [
                operation for operation in kernel_of(module).walk() if self.gone(operation)
            ]:
                operation.erase()
                self.count += 1

        place = [stage.name for stage in stages].index("blocks") + 1
        return (*stages[:place], Stage("gone", run, "what a test takes away"), *stages[place:])


def _waits_for_loads(operation: Operation) -> bool:
    """The waits of the part that starts copies for what it started."""
    return (
        operation.name == "simt.await"
        and operation.attribute("alone")
        and len(operation.operands[0].uses) > 3
        and _is_full(operation)
    )


def _is_full(operation: Operation) -> bool:
    return any(user.name == "simt.block_load_start" for user in operation.operands[0].uses)


def test_the_stages_are_those_of_the_toolkit() -> None:
    assert [
        stage.name
        for stage in _Without(lambda operation: False).stages(STAGES)
        if stage.name != "gone"
    ] == [stage.name for stage in STAGES]


def test_a_descriptor_is_not_made_anew_while_loads_by_it_are_in_flight() -> None:
    target = _Without(_waits_for_loads)
    with pytest.raises(
        KernelError,
        match=r"a descriptor is (made anew|given back) while \d+ copies that read it are in flight",
    ):
        run_batched(True, target)
    assert target.count


def test_a_descriptor_is_not_made_anew_while_stores_by_it_are_in_flight() -> None:
    target = _Without(
        lambda operation: (
            operation.name == "simt.wait" and not operation.results and not _writes_slot(operation)
        )
    )
    with pytest.raises(
        KernelError,
        match=r"a descriptor is (made anew|given back) while \d+ copies that read it are in flight",
    ):
        run_batched(False, target, (3, 20, 24, 0))
    assert target.count


def _writes_slot(wait: Operation) -> bool:
    """Return whether a wait is for a slot that is written after it."""
    return wait.next is not None and wait.next.name == "simt.store"


def test_a_copy_reads_no_descriptor_that_was_not_shown() -> None:
    with pytest.raises(
        KernelError,
        match=re.escape("a copy of a block reads a descriptor that was not shown to it"),
    ):
        run_grouped(
            [(20, 24, 40)], _Without(lambda operation: operation.name == "simt.show_descriptor")
        )


def test_memory_for_descriptors_is_given_back() -> None:
    with pytest.raises(
        KernelError, match="a program ends that has not given back its memory for descriptors"
    ):
        run_grouped(
            [(20, 24, 40)], _Without(lambda operation: operation.name == "simt.free_descriptors")
        )


# ---- what is not the machine's


def _stored_to_by_threads(addresses: Any, n: Any) -> None:
    for i in range(n):
        x = tl.load(addresses + i).to(tl.pointer_type(tl.float32))
        source = tl.make_tensor_descriptor(x, [4, 8], [8, 1], [4, 8])
        value = source.load([0, 0])
        tl.store(x + tl.arange(0, 4)[:, None] * 8 + tl.arange(0, 8)[None, :], value + 1)


def _carried(addresses: Any, n: Any) -> None:
    x = tl.load(addresses).to(tl.pointer_type(tl.float32))
    one = tl.make_tensor_descriptor(x, [4, 8], [8, 1], [4, 8])
    for i in range(n):
        one.store([0, 0], one.load([0, 0]) + 1)
        one = tl.make_tensor_descriptor(x + i % 2 * 4, [4, 4], [8, 1], [4, 8])


def _by_a_number(number: Any, y: Any, n: Any) -> None:
    for i in range(n):
        source = tl.make_tensor_descriptor(
            number.to(tl.pointer_type(tl.float32)), [4, 8], [8, 1], [4, 8]
        )
        tl.store(
            y + tl.arange(0, 4)[:, None] * 8 + tl.arange(0, 8)[None, :], source.load([0, 0]) + i
        )


def test_a_number_may_be_the_address_of_what_is_written() -> None:
    module = compiled(_by_a_number, {"number": "i64", "y": "*fp32", "n": "i32"}, {})
    y = np.zeros((4, 8), np.float32)
    emulator.run(module, [y.ctypes.data, y, 4], target=BulkTarget(8), num_warps=1)
    np.testing.assert_array_equal(y, np.full((4, 8), 6))
    assert_unfenced(names_in(module))


def assert_unfenced(names: list[str]) -> None:
    """A proxy fence follows threads' stores that later copies may read."""
    assert "simt.block_load_start" in names
    store = names.index("store")
    assert names[store + 1 : store + 3] == ["simt.publish", "barrier"]


@pytest.mark.parametrize("completion", ["late", "early", "random"])
def test_what_threads_store_is_published_for_loads_that_come_after(completion: str) -> None:
    module = compiled(_stored_to_by_threads, {"addresses": "*i64", "n": "i32"}, {})
    array = np.zeros((4, 8), np.float32)
    emulator.run(
        module,
        [addresses_of([array] * 5), 5],
        target=BulkTarget(8, completion=completion),
        num_warps=2,
    )
    np.testing.assert_array_equal(array, np.full((4, 8), 5))
    assert_unfenced(names_in(module))


def test_what_control_flow_carries_is_accessed_by_threads() -> None:
    module = compiled(_carried, {"addresses": "*i64", "n": "i32"}, {})
    arrays = [np.zeros((4, 8), np.float32) for _ in range(3)]
    emulator.run(module, [addresses_of(arrays), 3], target=BulkTarget(8), num_warps=1)
    names = names_in(module)
    assert "simt.make_descriptor" not in names and "simt.block_load_start" not in names
    expected = np.ones((4, 8))
    expected[:, :4] += 1  # the second iteration
    expected[:, 4:] += 1  # the third
    np.testing.assert_array_equal(arrays[0], expected)


def test_updates_by_atomics_are_of_threads_where_the_machine_has_none() -> None:
    arrays = [np.full((4, 8), number, np.int32) for number in range(2)]
    x = np.ones((8, 8), np.int32)
    signature = {"addresses": "*i64", "numbers": "*i32", "x": "*i32", "count": "i32"}
    module = compiled(updated, signature, {"TYPE": tl.int32, "KIND": "add", "B": 4, "LAST": 8})
    emulator.run(
        module,
        [addresses_of(arrays), np.array([[4, 8], [2, 5]], np.int32), x, 2],
        target=BulkTarget(8),
        num_warps=1,
    )
    np.testing.assert_array_equal(arrays[0], np.full((4, 8), 3))
    expected = np.ones((4, 8))
    expected[:2, :5] += 3
    np.testing.assert_array_equal(arrays[1], expected)
    assert "simt.make_descriptor" not in names_in(module)


@pytest.mark.parametrize("turns", [0, 1, 2])
def test_descriptors_of_different_padding_that_meet(turns: int) -> None:
    x, y = np.arange(40, dtype=np.float32).reshape(5, 8), np.full((8, 8), 7, np.float32)
    module = compiled(met, {"x": "*fp32", "y": "*fp32", "turns": "i32"}, {})
    emulator.run(module, [x, y, turns], target=BulkTarget(8), num_warps=1)
    expected = np.full((8, 8), np.nan, np.float32)
    expected[:2] = expected[4:6] = x[3:]
    expected[2:4] = np.nan if turns % 2 else 0
    np.testing.assert_array_equal(y, expected)
