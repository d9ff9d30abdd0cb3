"""Pipelined loops on the emulated machine, which copies only when it is waited for and fills shared
memory with a pattern."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest
from looped_kernels import STEPS, advancing, attending, counting_to, several_readers, steps

import tilewright.language as tl
from tilewright.language.definitions.callable import device_function
from tilewright.simt import emulator
from tilewright.simt.compile import compile_kernel
from tilewright.simt.dialect.async_groups import Tokens
from tilewright.simt.dialect.attributes import notes_of
from tilewright.testing.emulator_check import LANES, WARPS, build, compare, inside, small
from tilewright.testing.matrix_target import MatrixTarget


@pytest.mark.each_value
@pytest.mark.parametrize("stages", [2, 3, 5])
@pytest.mark.parametrize("trips", [0, 1, 2, 3, 4, 7])
def test_any_number_of_iterations(stages: int, trips: int) -> None:
    rng = np.random.default_rng(trips)
    arguments = [
        small(rng, 16, 128),
        small(rng, 128, 8),
        np.full((16, 8), 7, np.float32),
        0,
        16 * trips,
        16,
        128,
    ]
    kernel, (loop,), _ = compare(steps, STEPS, arguments, stages=stages, BK=16, M=16, N=8)
    assert (
        len(inside(loop, "simt.copy_start")) == 2
        and len(inside(loop, "simt.slot")) == 4
        and not inside(loop, "load")
    )
    tokens = Tokens(kernel)
    assert tokens.pending(inside(loop, "simt.wait")[0]) == [("copies", stages - 2)]
    assert len(inside(loop, "barrier")) == 1
    # what was started for iterations past the end has arrived before the memory is used for
    # something else
    assert (
        loop.next is not None
        and loop.next.name == "simt.wait"
        and tokens.pending(loop.next) == [("copies", 0)]
    )


@pytest.mark.each_value
@pytest.mark.parametrize("type_", ["i32", "u32", "i64", "u64", "i16"])
@pytest.mark.parametrize(
    "bounds", [(5, 5, 4), (3, 120, 25), (100, 3, 4), (0, 127, 16), (1, 2, 1)], ids=str
)
def test_bounds_and_steps_known_at_run_time(type_: str, bounds: tuple[int, int, int]) -> None:
    rng = np.random.default_rng(0)
    arguments = [
        small(rng, 16, 128),
        small(rng, 128, 8),
        np.full((16, 8), 7, np.float32),
        *bounds,
        90,
    ]
    signature = {**STEPS, **dict.fromkeys(("first", "last", "step"), type_)}
    compare(steps, signature, arguments, stages=3, BK=4, M=16, N=8)


@pytest.mark.parametrize(
    ("type_", "top"), [("i32", 2**31), ("u32", 2**32), ("i64", 2**63), ("i16", 2**15)]
)
def test_counters_near_the_end_of_their_type(type_: str, top: int) -> None:
    """Three iterations, the last at the type's last values: the counter ahead wraps around, and
    nothing past the end is copied."""

    _, (loop,), _ = compare(*counting_to(top, type_), stages=4, BK=16, M=16, N=8)
    assert inside(loop, "simt.copy_start")


@pytest.mark.parametrize("trips", [0, 1, 4])
def test_pointers_that_advance_by_a_carried_distance(trips: int) -> None:
    _, (loop,), _ = compare(*advancing(trips), stages=3, divisibility=16, BK=16, M=16, N=16)
    assert len(inside(loop, "simt.copy_start")) == 2
    # the transposed operand is read from where it lies
    assert not inside(loop, "permute") and not inside(loop, "simt.convert")


@pytest.mark.parametrize("n", [0, 16, 33, 64])
def test_two_products_that_depend_on_each_other(n: int) -> None:
    _, (loop,), _ = compare(*attending(n), stages=3, D=16, BLOCK=16)
    assert len(inside(loop, "simt.copy_start")) == 2


def test_loads_with_several_readers() -> None:
    _, (loop,), _ = compare(*several_readers(), stages=3, M=16)
    assert len(inside(loop, "simt.copy_start")) == 2


@device_function
def scaled_rows(x, scales, out, n, step, D: tl.constexpr, SAME: tl.constexpr):
    """Rows times what each is loaded with; with SAME they are written where the next ones are
    read."""
    at = tl.arange(0, D)
    for i in tl.range(0, n, step, num_stages=3):
        row = tl.load(x + i * D + at)
        factor = tl.load(scales + i)
        to = x if SAME else out
        tl.store(to + i * D + at, row * factor + tl.max(row))


@pytest.mark.parametrize("trips", [0, 1, 2, 3, 7])
@pytest.mark.parametrize("same", [False, True])
def test_loops_without_products_are_pipelined_where_they_ask(trips: int, same: bool) -> None:
    rng = np.random.default_rng(trips)
    arguments = [small(rng, 16, 64), small(rng, 16), np.full((16, 64), 7, np.float32), 2 * trips, 2]
    signature = {"x": "*fp32", "scales": "*fp32", "out": "*fp32", "n": "i32", "step": "i32"}
    _, (loop,), _ = compare(
        scaled_rows, signature, arguments, divisibility=16, D=64, SAME=same, stages=1
    )
    assert (
        len(inside(loop, "simt.copy_start")) == (not same) and len(inside(loop, "load")) == 1 + same
    )
    if not same:
        assert (
            len(inside(loop, "simt.slot")) == 2
            and loop.next is not None
            and loop.next.name == "simt.wait"
        )


@device_function
def paged(table, pages, x, out, n, M: tl.constexpr):
    rows, inner = tl.arange(0, M), tl.arange(0, M)
    total = tl.zeros((M, M), dtype=tl.float32)
    page = tl.load(table)
    for i in range(n):
        at = tl.load(table + i) + page - page
        left = tl.load(x + rows[:, None] * M + inner[None, :] + i * M * M)
        right = tl.load(pages + at * M * M + rows[:, None] * M + inner[None, :])
        total = tl.dot(left, right, total)
        page = at
    tl.store(out + rows[:, None] * M + inner[None, :], total)


@pytest.mark.parametrize("trips", [0, 1, 5])
def test_addresses_that_are_loaded(trips: int) -> None:
    """The table holds garbage past its end: what would be loaded there is not."""
    rng = np.random.default_rng(trips)
    table = np.full(8, 2**30, np.int32)
    table[: max(trips, 1)] = rng.permutation(6)[: max(trips, 1)]
    arguments = [
        table,
        small(rng, 6, 16, 16),
        small(rng, 6, 16, 16),
        np.full((16, 16), 7, np.float32),
        trips,
    ]
    signature = {"table": "*i32", "pages": "*fp32", "x": "*fp32", "out": "*fp32", "n": "i32"}
    _, (loop,), _ = compare(paged, signature, arguments, stages=3, M=16)
    assert len(inside(loop, "simt.copy_start")) == 2 and len(inside(loop, "load")) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a process to lose")
@pytest.mark.parametrize("trips", [0, 1, 2, 3, 5])
def test_nothing_is_read_for_iterations_past_the_end(trips: int) -> None:
    """The table's entries past its end lead to where no memory is: reading there kills the process,
    so it is another one that runs the kernel."""
    rng = np.random.default_rng(trips)
    table = np.full(16, 2**30, np.int32)
    table[:trips] = rng.permutation(6)[:trips]
    module = build(far_pages, {"table": "*i32", "pages": "*fp32", "out": "*fp32", "n": "i32"}, M=16)
    target = emulator.EmulatedTarget(LANES)
    text = compile_kernel(
        module, target, {"num_warps": WARPS, "num_stages": 4, "enable_fp_fusion": False}
    )
    assert "call void @emulated_copy" in text
    pages, out = small(rng, 6, 16, 16), np.full((16, 16), 7, np.float32)
    types = [argument.type for argument in module.kernel.arguments]
    child = os.fork()
    if not child:
        emulator.run_text(text, target, types, [table, pages, out, trips], (1, 1, 1), WARPS)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status == 0


@device_function
def far_pages(table, pages, out, n, M: tl.constexpr):
    rows, inner = tl.arange(0, M), tl.arange(0, M)
    total = tl.zeros((M, M), dtype=tl.float32)
    for i in range(n):
        page = pages + tl.load(table + i).to(tl.int64) * M * M
        x = tl.load(page + rows[:, None] * M + inner[None, :])
        total = tl.dot(x, x, total)
    tl.store(out + rows[:, None] * M + inner[None, :], total)


@device_function
def nested(a, b, out, n, M: tl.constexpr):
    rows, inner = tl.arange(0, M), tl.arange(0, M)
    for j in range(3):
        total = tl.zeros((M, M), dtype=tl.float32)
        for i in range(n - j):
            x = tl.load(a + i * M * M + rows[:, None] * M + inner[None, :])
            y = tl.load(b + (i + j) * M * M + rows[:, None] * M + inner[None, :])
            total = tl.dot(x, y, total)
        tl.store(out + j * M * M + rows[:, None] * M + inner[None, :], total)


def test_a_pipelined_loop_inside_another() -> None:
    rng = np.random.default_rng(3)
    arguments = [
        small(rng, 5, 16, 16),
        small(rng, 5, 16, 16),
        np.full((3, 16, 16), 7, np.float32),
        4,
    ]
    signature = {"a": "*fp32", "b": "*fp32", "out": "*fp32", "n": "i32"}
    _, (outer, loop), _ = compare(nested, signature, arguments, stages=4, M=16)
    assert len(inside(loop, "simt.copy_start")) == 2
    assert len(inside(outer, "simt.copy_start")) == 2 * 3 + 2


@device_function
def in_place(a, n, M: tl.constexpr):
    rows, inner = tl.arange(0, M), tl.arange(0, M)
    at = rows[:, None] * M + inner[None, :]
    for i in range(n):
        x = tl.load(a + i * M * M + at)
        tl.store(a + (i + 1) * M * M + at, tl.dot(x, x) * 0.25)


def test_a_loop_that_stores_is_left_alone() -> None:
    arguments = [small(np.random.default_rng(3), 5, 16, 16), 2]
    kernel, (loop,), _ = compare(in_place, {"a": "*fp32", "n": "i32"}, arguments, stages=3, M=16)
    assert not inside(loop, "simt.copy_start")
    assert any("not pipelined: store" in text for _, text in notes_of(kernel))


@device_function
def keeping_each(a, b, kept, sums, out, n, M: tl.constexpr, USED: tl.constexpr):
    at = tl.arange(0, M)[:, None] * M + tl.arange(0, M)[None, :]
    total = tl.zeros((M, M), dtype=tl.float32)
    for i in range(n):
        product = tl.dot(tl.load(a + i * M * M + at), tl.load(b + i * M * M + at))
        tl.store(kept + i * M * M + at, product)
        before = tl.atomic_add(sums + tl.arange(0, M), tl.sum(product, 1))
        if USED:
            total += before[:, None]
        total += product
    tl.store(out + at, total)


@pytest.mark.parametrize("used", [False, True])
@pytest.mark.parametrize("trips", [0, 1, 2, 5])
def test_a_loop_that_writes_other_memory_than_it_loads(trips: int, used: bool) -> None:
    """What an atomic operation returns, where the program looks at it, may say that other programs
    wrote what is loaded next."""
    rng = np.random.default_rng(trips)
    a, b = (small(rng, 5, 16, 16) for _ in range(2))
    arguments = [
        a,
        b,
        np.full((5, 16, 16), 7, np.float32),
        np.zeros(16, np.float32),
        np.full((16, 16), 7, np.float32),
        trips,
    ]
    signature = {**dict.fromkeys(("a", "b", "kept", "sums", "out"), "*fp32"), "n": "i32"}
    kernel, (loop,), _ = compare(keeping_each, signature, arguments, stages=3, M=16, USED=used)
    assert len(inside(loop, "simt.copy_start")) == (0 if used else 2)
    assert any("not pipelined: atomic_rmw" in text for _, text in notes_of(kernel)) == used


@device_function
def staged(a, b, out, n, M: tl.constexpr, STAGES: tl.constexpr):
    rows, inner = tl.arange(0, M), tl.arange(0, M)
    total = tl.zeros((M, M), dtype=tl.float32)
    for i in tl.range(n, num_stages=STAGES):
        x = tl.load(a + i * M * M + rows[:, None] * M + inner[None, :])
        y = tl.load(
            b + i * M * M + rows[:, None] * M + inner[None, :], mask=inner[None, :] < 9, other=1.0
        )
        total = tl.dot(x, y, total)
    tl.store(out + rows[:, None] * M + inner[None, :], total)


def test_a_loop_has_its_own_number_of_stages_and_other_values_than_zero_are_loaded_in_place() -> (
    None
):
    rng = np.random.default_rng(3)
    arguments = [small(rng, 5, 16, 16), small(rng, 5, 16, 16), np.full((16, 16), 7, np.float32), 5]
    signature = {"a": "*fp32", "b": "*fp32", "out": "*fp32", "n": "i32"}
    kernel, (loop,), _ = compare(staged, signature, arguments, stages=2, M=16, STAGES=4)
    assert Tokens(kernel).pending(inside(loop, "simt.wait")[0]) == [("copies", 2)]
    assert len(inside(loop, "simt.copy_start")) == 1 and len(inside(loop, "load")) == 1
    _, (loop,), _ = compare(staged, signature, arguments, stages=3, M=16, STAGES=1)
    assert not inside(loop, "simt.copy_start")


def test_depth_is_limited_by_shared_memory() -> None:
    rng = np.random.default_rng(3)
    arguments = [
        small(rng, 16, 128),
        small(rng, 128, 8),
        np.full((16, 8), 7, np.float32),
        0,
        128,
        16,
        128,
    ]
    each = (16 * 16 + 16 * 8) * 4
    for memory, pending in (
        (3 * each, [("copies", 1)]),
        (2 * each, [("copies", 0)]),
        (2 * each - 16, None),
    ):
        target = emulator.EmulatedTarget(LANES, shared_memory=max(memory, 1))
        kernel, (loop,), _ = compare(
            steps, STEPS, arguments, stages=6, target=target, BK=16, M=16, N=8
        )
        waits = inside(loop, "simt.wait")
        assert (Tokens(kernel).pending(waits[0]) if waits else None) == pending
        assert any("shared memory" in text for _, text in notes_of(kernel))


@pytest.mark.parametrize("divisibility", [1, 4, 8, 16])
def test_copies_are_as_wide_as_the_pointers_allow(divisibility: int) -> None:
    rng = np.random.default_rng(3)
    arguments = [small(rng, 5, 16, 16), small(rng, 5, 16, 16), np.full((16, 16), 7, np.float32), 5]
    signature = {"a": "*fp32", "b": "*fp32", "out": "*fp32", "n": "i32"}
    _, _, text = compare(
        staged, signature, arguments, stages=2, divisibility=divisibility, M=16, STAGES=2
    )
    sizes = {
        int(line.rsplit("i64 ", 1)[1].rstrip(")"))
        for line in text.splitlines()
        if "call void @emulated_copy" in line
    }
    assert max(sizes) == max(4, divisibility)


@pytest.mark.each_value
@pytest.mark.parametrize("k_step", [0, 4, 8])
@pytest.mark.parametrize(("fragments", "wish"), [(True, True), (True, False), (False, False)])
def test_matrix_instructions_read_their_fragments_from_shared_memory(
    k_step: int, fragments: bool, wish: bool
) -> None:
    rng = np.random.default_rng(3)
    target = MatrixTarget(k_step, fragments, wish)
    arguments = [
        small(rng, 16, 128),
        small(rng, 128, 8),
        np.full((16, 8), 7, np.float32),
        0,
        80,
        16,
        100,
    ]
    _, (loop,), _ = compare(steps, STEPS, arguments, stages=3, target=target, BK=16, M=16, N=8)
    assert len(inside(loop, "simt.copy_start")) == 2 and not inside(loop, "simt.convert")
    calls = 16 // k_step if k_step else 1
    assert len(target.matrix.calls) == calls
    # in steps, the first one's fragments are loaded before the loop, and then in the iteration
    # before
    expected = [0, *range(k_step, 16, k_step), 0] if k_step else [0]
    assert target.matrix.loads == (
        [first for first in expected if wish or not first] if fragments else []
    )


@pytest.mark.each_value
@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize("stages", [2, 3, 5])
@pytest.mark.parametrize("trips", [0, 1, 2, 3, 4, 7])
def test_a_product_in_steps(stages: int, trips: int, early: bool) -> None:
    """The order of one iteration.

    Fragments of the next step come before each matmul, copies after the fragments of the second,
    and one barrier after the wait.

    The barrier stands before the last matmul, whose next fragments belong to the next iteration, or
    first of all if there are no registers for them.
    """
    rng = np.random.default_rng(3)
    target = MatrixTarget(4, True, True)
    target.resources = replace(target.resources, registers=255 if early else 48)
    arguments = [
        small(rng, 16, 128),
        small(rng, 128, 8),
        np.full((16, 8), 7, np.float32),
        0,
        16 * trips,
        16,
        100,
    ]
    kernel, (loop,), _ = compare(
        steps, STEPS, arguments, stages=stages, target=target, BK=16, M=16, N=8
    )
    names = (
        "simt.fragment",
        "simt.copy_start",
        "simt.commit",
        "simt.wait",
        "barrier",
        "simt.dot_step",
    )
    order = [
        operation.name.removeprefix("simt.")
        for operation in loop.regions[0]
        if operation.name in names
    ]
    load, product, arrival = ["fragment"] * 2, ["dot_step"], ["wait", "barrier"]
    middle = [
        *load,
        "copy_start",
        *product,
        *load,
        "copy_start",
        "commit",
        *product,
        *load,
        *product,
    ]
    assert order == (
        [*middle, *arrival, *load, *product] if early else [*arrival, *load, *middle, *product]
    )
    assert not inside(loop, "dot") and len(inside(loop, "barrier")) == 1
    (wait,) = inside(loop, "simt.wait")
    assert Tokens(kernel).pending(wait) == [("copies", stages - 2)]


@device_function
def two_products(a, b, c, out, n, LAST: tl.constexpr, M: tl.constexpr):
    rows, inner = tl.arange(0, M), tl.arange(0, M)
    at = rows[:, None] * M + inner[None, :]
    total = tl.zeros((M, M), dtype=tl.float32)
    for i in range(n):
        x = tl.load(a + i * M * M + at)
        y = tl.load(b + i * M * M + at)
        z = tl.load(c + i * M * M + at)
        if LAST == 0:
            total = tl.dot(x, tl.trans(y), total)
            total = tl.dot(total, z, total)
        elif LAST == 1:
            total = tl.dot(z, z, total)
            total = tl.dot(x, tl.trans(y), total)
        else:
            w = z + z
            total = tl.dot(x, y, total) + w
    tl.store(out + at, total)


@pytest.mark.parametrize(("last", "stepped"), [(0, False), (1, True), (2, True)])
def test_a_product_is_in_steps_only_if_nothing_is_read_after_it(last: int, stepped: bool) -> None:
    rng = np.random.default_rng(5)
    a, b, c = (rng.integers(-1, 2, (4, 16, 16)).astype(np.float32) for _ in range(3))
    arguments = [a, b, c, np.full((16, 16), 7, np.float32), 4]
    signature = {"a": "*fp32", "b": "*fp32", "c": "*fp32", "out": "*fp32", "n": "i32"}
    _, (loop,), _ = compare(
        two_products,
        signature,
        arguments,
        stages=3,
        target=MatrixTarget(4, True, False),
        LAST=last,
        M=16,
    )
    assert len(inside(loop, "simt.copy_start")) == (3 if last < 2 else 2)
    assert bool(inside(loop, "simt.dot_step")) is stepped
