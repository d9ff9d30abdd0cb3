"""Programs that several CTAs run: what each of them does, on the emulated machine, against the
reference interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from descriptor_kernels import differ

import tilewright.language as tl
from tilewright.frontend.compile import compile_function
from tilewright.ir import Module, Operation
from tilewright.language.definitions.callable import device_function
from tilewright.passes.pipeline import run as run_passes
from tilewright.reference.interpreter import run as run_reference
from tilewright.simt import emulator
from tilewright.simt.compile import kernel_of
from tilewright.simt.dialect.attributes import CLUSTER, notes_of
from tilewright.testing.emulator_check import small
from tilewright.testing.toy_targets import BulkTarget


@device_function
def product(a, b, c, steps, DIVIDED: tl.constexpr):
    pid = tl.program_id(0)
    total = tl.zeros((16, 32), dtype=tl.float32)
    for k in tl.range(steps, num_stages=3, warp_specialize=DIVIDED):
        total = tl.dot(a.load([pid * 16, k * 16]), b.load([k * 16, 0]), total)
    c.store([pid * 16, 0], total)


BLOCKS = {"a": (16, 16), "b": (16, 32), "c": (16, 32)}


@device_function
def persistent(a, b, c, tiles, steps):
    for tile in tl.range(tiles, warp_specialize=True):
        total = tl.zeros((16, 32), dtype=tl.float32)
        for k in tl.range(steps, num_stages=3):
            total = tl.dot(a.load([tile * 16, k * 16]), b.load([k * 16, 0]), total)
        c.store([tile * 16, 0], total)


@pytest.mark.parametrize("completion", ["late", "random"])
@pytest.mark.parametrize("steps", [1, 2, 5])
def test_a_ring_goes_on_from_tile_to_tile(steps: int, completion: str) -> None:
    rng = np.random.default_rng(steps)
    arrays = [small(rng, 48, 80), small(rng, 80, 32), np.full((48, 32), np.nan, np.float32)]
    compiled: list[Module] = []
    differ(
        persistent,
        BLOCKS,
        arrays,
        [3, steps],
        BulkTarget(8, completion=completion, seed=steps),
        compiled,
        num_warps=2,
        num_ctas=2,
    )
    assert any(operation.name == "simt.partition" for operation in kernel_of(compiled[0]).walk())
    assert any(operation.attribute("to_all") for operation in starts(compiled[0]))


def starts(module: Module) -> list[Operation]:
    return [
        operation
        for operation in kernel_of(module).walk()
        if operation.name == "simt.block_load_start"
    ]


@pytest.mark.each_value
@pytest.mark.parametrize("completion", ["late", "early", "random"])
@pytest.mark.parametrize("divided", [False, True])
@pytest.mark.parametrize(("steps", "blocks"), [(0, 2), (1, 4), (7, 2), (5, 4)])
def test_blocks_copy_parts_of_what_all_need(
    steps: int, blocks: int, divided: bool, completion: str
) -> None:
    rng = np.random.default_rng(steps)
    arrays = [small(rng, 16, 112), small(rng, 112, 32), np.full((16, 32), np.nan, np.float32)]
    compiled: list[Module] = []
    target = BulkTarget(8, completion=completion, seed=steps)
    differ(
        product,
        BLOCKS,
        arrays,
        [steps],
        target,
        compiled,
        {"DIVIDED": divided},
        num_warps=2,
        num_ctas=blocks,
    )
    assert kernel_of(compiled[0]).attributes[CLUSTER] == blocks
    shared = {
        operation.operands[0].type.shape: bool(operation.attribute("to_all"))
        for operation in starts(compiled[0])
    }
    assert shared == {(16, 16): True, (16, 32 // blocks): False}


@device_function
def tall(a, b, c, steps):
    total = tl.zeros((32, 16), dtype=tl.float32)
    for k in tl.range(steps, num_stages=2):
        total = tl.dot(a.load([0, k * 16]), tl.trans(b.load([0, k * 16])), total)
    c.store([0, 0], total)


def test_the_longer_axis_is_divided() -> None:
    rng = np.random.default_rng(3)
    arrays, compiled = (
        [small(rng, 32, 48), small(rng, 16, 48), np.zeros((32, 16), np.float32)],
        list[Module](),
    )
    differ(
        tall,
        {"a": (32, 16), "b": (16, 16), "c": (32, 16)},
        arrays,
        [3],
        BulkTarget(8),
        compiled,
        num_warps=2,
        num_ctas=2,
    )
    assert {operation.operands[0].type.shape for operation in starts(compiled[0])} == {
        (16, 16)
    }  # of a half of the rows, and all of b
    assert sorted(bool(operation.attribute("to_all")) for operation in starts(compiled[0])) == [
        False,
        False,
        True,
        True,
    ]


# ---- kernels of pointers


def run_pointers(
    fn: Any,
    arguments: list[Any],
    constants: dict[str, Any],
    grid: tuple[int, int, int],
    **options: Any,
) -> Module:
    """Run a kernel of f32 pointers, i32 numbers and constants on the reference interpreter and the
    emulated machine, which must leave the same."""

    def module() -> Module:
        names = [name for name in fn.arg_names if name not in constants]
        types = {
            name: "*fp32" if isinstance(value, np.ndarray) else "i32"
            for name, value in zip(names, arguments, strict=True)
        }
        made = compile_function(fn, types, constants)
        run_passes(made)
        return made

    expected, found = (
        [value.copy() if isinstance(value, np.ndarray) else value for value in arguments]
        for _ in range(2)
    )
    run_reference(module(), expected, grid)
    made = module()
    target = BulkTarget(8, raises=16, completion=options.pop("completion", "late"))
    emulator.run(made, found, grid, target=target, **options)
    for one, other in zip(expected, found, strict=True):
        if isinstance(one, np.ndarray):
            np.testing.assert_array_equal(other, one)
    return made


@device_function
def by_pointers(a, b, c, sums, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    pid = tl.program_id(0)
    across = tl.cdiv(N, BN)
    rows, columns = pid // across * BM + tl.arange(0, BM), pid % across * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in tl.range(0, K, BK, num_stages=3):
        x = tl.load(
            a + rows[:, None] * K + (k + inner)[None, :],
            mask=(rows[:, None] < M) & ((k + inner)[None, :] < K),
            other=0.0,
        )
        y = tl.load(
            b + (k + inner)[:, None] * N + columns[None, :],
            mask=((k + inner)[:, None] < K) & (columns[None, :] < N),
            other=0.0,
        )
        total = tl.dot(x, y, total)
    tl.store(
        c + rows[:, None] * N + columns[None, :],
        total,
        mask=(rows[:, None] < M) & (columns[None, :] < N),
    )
    tl.store(sums + pid, across)
    tl.atomic_add(sums + 19, 1.0)


@pytest.mark.each_value
@pytest.mark.parametrize("completion", ["late", "random"])
@pytest.mark.parametrize(
    ("shape", "block"),
    [((40, 52, 36), (16, 16, 16)), ((36, 60, 20), (16, 32, 8)), ((48, 20, 44), (32, 16, 16))],
)
def test_pointers_with_masks(
    shape: tuple[int, int, int], block: tuple[int, int, int], completion: str
) -> None:
    (m, n, k), (bm, bn, bk) = shape, block
    rng = np.random.default_rng(m)
    arrays = [
        small(rng, m, k),
        small(rng, k, n),
        np.full((m, n), np.nan, np.float32),
        np.zeros(20, np.float32),
    ]
    grid = (-(-m // bm) * -(-n // bn), 1, 1)
    constants = {"BM": bm, "BN": bn, "BK": bk}
    for blocks in (2, 4):
        made = run_pointers(
            by_pointers,
            [*arrays, m, n, k],
            constants,
            grid,
            num_warps=2,
            num_ctas=blocks,
            completion=completion,
        )
        assert kernel_of(made).attributes[CLUSTER] == blocks


@device_function
def attention(q, k, v, out, n, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    rows, columns, inner = (
        tl.program_id(0) * BM + tl.arange(0, BM),
        tl.arange(0, BN),
        tl.arange(0, D),
    )
    x = tl.load(q + rows[:, None] * D + inner[None, :])
    most, sums = tl.full((BM,), -1e30, tl.float32), tl.zeros((BM,), tl.float32)
    total = tl.zeros((BM, D), dtype=tl.float32)
    for start in range(0, n, BN):
        keys = tl.load(k + (start + columns)[:, None] * D + inner[None, :])
        values = tl.load(v + (start + columns)[:, None] * D + inner[None, :])
        scores = tl.dot(x, tl.trans(keys))
        now = tl.maximum(most, tl.max(scores, 1))
        weights = tl.where(scores > now[:, None] - 4, 1.0, 0.0)
        sums = sums + tl.sum(weights, 1)
        total = tl.dot(weights, values, total)
        most = now
    tl.store(out + rows[:, None] * D + inner[None, :], total - sums[:, None])


def test_two_products_with_a_chain_between_them_are_divided_by_rows() -> None:
    rng = np.random.default_rng(1)
    arrays = [
        small(rng, 32, 16),
        small(rng, 64, 16),
        small(rng, 64, 16),
        np.full((32, 16), np.nan, np.float32),
    ]
    made = run_pointers(
        attention, [*arrays, 64], {"BM": 16, "BN": 32, "D": 16}, (2, 1, 1), num_warps=2, num_ctas=2
    )
    assert kernel_of(made).attributes[CLUSTER] == 2
    products = [
        operation.results[0].type.shape
        for operation in kernel_of(made).walk()
        if operation.name.startswith("simt.dot")
    ]
    assert {shape[0] for shape in products} == {8}


@device_function
def chain(q, k, v, out, steps):
    x = q.load([0, 0])
    sums, total = tl.zeros((32,), tl.float32), tl.zeros((32, 16), dtype=tl.float32)
    for step in tl.range(steps, num_stages=2, warp_specialize=True):
        scores = tl.dot(x, tl.trans(k.load([step * 16, 0])))
        weights = tl.where(scores > 0.0, 1.0, 0.0)
        sums += tl.sum(weights, 1)
        total = tl.dot(weights, v.load([step * 16, 0]), total)
    out.store([0, 0], total - sums[:, None])


@pytest.mark.parametrize("completion", ["late", "random"])
@pytest.mark.parametrize("steps", [1, 4])
def test_chains_of_products_bring_keys_and_values_once(steps: int, completion: str) -> None:
    rng = np.random.default_rng(steps)
    arrays = [
        small(rng, 32, 16),
        small(rng, 64, 16),
        small(rng, 64, 16),
        np.full((32, 16), np.nan, np.float32),
    ]
    blocks, compiled = (
        {"q": (32, 16), "k": (16, 16), "v": (16, 16), "out": (32, 16)},
        list[Module](),
    )
    differ(
        chain,
        blocks,
        arrays,
        [steps],
        BulkTarget(8, rows=True, completion=completion),
        compiled,
        num_warps=2,
        num_ctas=2,
    )
    assert sum(bool(operation.attribute("to_all")) for operation in starts(compiled[0])) >= 2


@device_function
def pages(q, k, out, steps):
    x = q.load([0, 0])
    total = tl.zeros((32, 16), dtype=tl.float32)
    for step in tl.range(steps, num_stages=2, warp_specialize=True):
        keys = k.load([step, 0, 0]).reshape(16, 16)
        total = tl.dot(tl.dot(x, tl.trans(keys)), keys, total)
    out.store([0, 0], total)


@pytest.mark.parametrize("completion", ["late", "crossed", "random"])
def test_parts_of_a_block_with_a_leading_axis_of_one_are_along_its_rows(completion: str) -> None:
    rng = np.random.default_rng(0)
    q, k = small(rng, 32, 16), small(rng, 64, 16).reshape(4, 16, 16)
    out = np.full((32, 16), np.nan, np.float32)
    blocks = {"q": "32,16", "k": "1,16,16", "out": "32,16"}
    signature = {name: f"tensordesc<fp32[{block}]>" for name, block in blocks.items()}
    module = compile_function(pages, {**signature, "steps": "i32"}, {})
    run_passes(module)
    target = BulkTarget(8, rows=True, completion=completion)
    arguments = [*map(emulator.EmulatedDescriptor, (q, k, out)), 4]
    emulator.run(module, arguments, target=target, num_warps=2, num_ctas=2)
    np.testing.assert_array_equal(out, sum(q @ each.T @ each for each in k))
    shared = {
        operation.operands[0].type.shape
        for operation in starts(module)
        if operation.attribute("to_all")
    }
    assert shared == {(1, 16, 16)}


@device_function
def halves(a, b, c, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows, columns, inner = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        x = tl.load(a + rows[:, None] * K + (k + inner)[None, :])
        y = tl.load(b + (k + inner)[:, None] * BN + columns[None, :])
        total = tl.dot(x, y, total)
    left, right = total.reshape(BM, 2, BN // 2).permute(0, 2, 1).split()
    part = tl.arange(0, BN // 2)
    tl.store(c + rows[:, None] * BN + part[None, :], left)
    tl.store(c + rows[:, None] * BN + BN // 2 + part[None, :], right)


def test_what_columns_cannot_be_divided_by_is_divided_by_rows() -> None:
    rng = np.random.default_rng(5)
    arrays = [small(rng, 16, 32), small(rng, 32, 32), np.full((16, 32), np.nan, np.float32)]
    made = run_pointers(
        halves, [*arrays, 32], {"BM": 16, "BN": 32, "BK": 16}, (1, 1, 1), num_warps=2, num_ctas=2
    )
    assert {
        operation.results[0].type.shape
        for operation in kernel_of(made).walk()
        if operation.name.startswith("simt.dot")
    } == {(8, 32)}


# ---- what is not divided


@device_function
def counts(a, b, c, BM: tl.constexpr):
    rows, columns = tl.arange(0, BM), tl.arange(0, BM)
    place = tl.atomic_add(c + BM * BM, 1.0)
    x = tl.load(a + rows[:, None] * BM + columns[None, :])
    tl.store(
        c + rows[:, None] * BM + columns[None, :],
        tl.dot(x, tl.load(b + rows[:, None] * BM + columns[None, :])) + place,
    )


@device_function
def in_place(a, b, c, BM: tl.constexpr):
    rows, columns = tl.arange(0, BM), tl.arange(0, BM)
    x = tl.load(a + rows[:, None] * BM + columns[None, :])
    tl.store(
        a + rows[:, None] * BM + columns[None, :],
        tl.dot(x, tl.load(b + rows[:, None] * BM + columns[None, :])),
    )


@device_function
def softmax(a, b, c, BM: tl.constexpr):
    rows, columns = tl.arange(0, BM), tl.arange(0, BM)
    x = tl.load(a + rows[:, None] * BM + columns[None, :])
    tl.store(c + rows[:, None] * BM + columns[None, :], x - tl.max(x, 1)[:, None])


@device_function
def twice(a, b, c, BM: tl.constexpr):
    rows, columns = tl.arange(0, BM), tl.arange(0, BM)
    tl.store(c + tl.sum(rows), 3.0)
    x = tl.load(a + rows[:, None] * BM + columns[None, :])
    tl.store(
        c + rows[:, None] * BM + columns[None, :],
        tl.dot(x, tl.load(b + rows[:, None] * BM + columns[None, :])),
    )


@pytest.mark.parametrize(
    ("kernel", "why"),
    [
        (counts, "it may read what it writes"),
        (in_place, "it may read what it writes"),
        (softmax, "it multiplies no matrices"),
        (twice, "in another way than"),
    ],
)
def test_other_kernels_run_in_one_block(kernel: Any, why: str) -> None:
    rng = np.random.default_rng(7)
    arrays = [small(rng, 16, 16), small(rng, 16, 16), np.zeros(257, np.float32)]
    made = run_pointers(kernel, arrays, {"BM": 16}, (1, 1, 1), num_warps=2, num_ctas=2)
    assert CLUSTER not in kernel_of(made).attributes
    (told,) = [text for _, text in notes_of(kernel_of(made)) if text.startswith("num_ctas=2")]
    assert (
        told.startswith("num_ctas=2: each program runs in one block all the same (") and why in told
    )
