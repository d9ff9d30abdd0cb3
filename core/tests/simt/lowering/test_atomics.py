"""Atomic accesses: how many elements one updates, which lanes do, in which order; on the emulated
machine against the reference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import tilewright.language as tl
from tilewright.language.definitions.callable import device_function
from tilewright.simt.assign_layouts.coalesce import spread
from tilewright.simt.compile import compile_kernel
from tilewright.simt.dialect.attributes import layout_of
from tilewright.simt.emulator import EmulatedTarget
from tilewright.simt.emulator.memory import EmulatedMemory
from tilewright.simt.emulator.record import EmissionRecord
from tilewright.simt.layouts.linear_layout import LinearLayout
from tilewright.simt.lowering.emission.context import SimtContext
from tilewright.simt.target.capabilities.global_memory import Update
from tilewright.testing.emulator_check import LANES, WARPS, build, compare, small
from tilewright.testing.stage_text import after

THREADS = WARPS * LANES


class Recording(EmulatedTarget):
    """The emulated machine with a memory that records."""

    def __init__(self) -> None:
        super().__init__(LANES)
        self.memory: RecordingMemory = RecordingMemory(self.record)


class RecordingMemory(EmulatedMemory):
    """Records the elements, order and use of each update that it writes, and the fences."""

    def __init__(self, record: EmissionRecord) -> None:
        super().__init__(record)
        self.updates: list[tuple[int, str, bool]] = []
        self.fences: list[str] = []

    def atomic_rmw(
        self,
        context: SimtContext,
        update: Update,
        pointer: str,
        values: Sequence[str],
        predicate: str | None,
    ) -> list[str]:
        self.updates.append((len(values), update.order, update.used))
        return super().atomic_rmw(context, update, pointer, values, predicate)

    def fence(self, *arguments: Any) -> None:
        self.fences.append(arguments[1])
        super().fence(*arguments)

    @property
    def widths(self) -> list[int]:
        return [width for width, _, _ in self.updates]


@device_function
def add_row(x, out, n, BLOCK: tl.constexpr, ROUND: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.atomic_add(out + offsets, tl.load(x + offsets), mask=offsets < n * ROUND, sem="relaxed")


@pytest.mark.parametrize(
    ("type_", "dtype", "width"),
    [
        ("fp32", np.float32, 4),
        ("fp16", np.float16, 8),
        ("fp64", np.float64, 1),
        ("i32", np.int32, 1),
    ],
)
def test_one_update_adds_what_the_target_allows(type_: str, dtype: type, width: int) -> None:
    """Each thread has two updates of the widest kind; the mask has one value for 16 elements."""
    block, rng, target = 16 * THREADS, np.random.default_rng(0), Recording()
    signature = {"x": f"*{type_}", "out": f"*{type_}", "n": "i32"}
    compare(
        add_row,
        signature,
        [small(rng, block).astype(dtype), small(rng, block).astype(dtype), 5],
        stages=1,
        target=target,
        BLOCK=block,
        ROUND=16,
    )
    assert target.memory.widths == [width] * (16 // width)


@pytest.mark.parametrize(
    ("round_", "divisibility", "width"), [(4, 16, 4), (2, 16, 2), (1, 16, 1), (4, 8, 2), (4, 4, 1)]
)
def test_one_mask_and_alignment_hold_for_all_elements_of_an_update(
    round_: int, divisibility: int, width: int
) -> None:
    block, rng, target = 8 * THREADS, np.random.default_rng(0), Recording()
    signature = {"x": "*fp32", "out": "*fp32", "n": "i32"}
    arguments = [small(rng, block), small(rng, block), 77 // round_]
    compare(
        add_row,
        signature,
        arguments,
        stages=1,
        target=target,
        divisibility=divisibility,
        BLOCK=block,
        ROUND=round_,
    )
    assert set(target.memory.widths) == {width}


def test_where_threads_are_many_each_updates_one_element() -> None:
    rng, target = np.random.default_rng(0), Recording()
    arguments = [small(rng, THREADS // 2), small(rng, THREADS // 2), 5]
    compare(
        add_row,
        {"x": "*fp32", "out": "*fp32", "n": "i32"},
        arguments,
        stages=1,
        target=target,
        BLOCK=THREADS // 2,
        ROUND=1,
    )
    assert target.memory.widths == [1]


@device_function
def add_and_keep(x, out, old, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(old + offsets, tl.atomic_add(out + offsets, tl.load(x + offsets)))


@pytest.mark.parametrize("block", [2, THREADS // 2, 8 * THREADS])
def test_old_values_of_updates_of_several_elements(block: int) -> None:
    rng, target = np.random.default_rng(0), Recording()
    signature = {"x": "*fp32", "out": "*fp32", "old": "*fp32"}
    compare(
        add_and_keep,
        signature,
        [small(rng, block), small(rng, block), np.zeros(block, np.float32)],
        stages=1,
        target=target,
        BLOCK=block,
    )
    assert set(target.memory.widths) == {4 if block > THREADS else 1} and all(
        used for _, _, used in target.memory.updates
    )


@device_function
def add_to_few(x, out, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.atomic_add(out + offsets // 4, tl.load(x + offsets), mask=offsets < BLOCK - 3)


def test_several_elements_may_have_one_address() -> None:
    rng, target, block = np.random.default_rng(0), Recording(), 8 * THREADS
    compare(
        add_to_few,
        {"x": "*fp32", "out": "*fp32"},
        [small(rng, block), np.zeros(block, np.float32)],
        stages=1,
        target=target,
        BLOCK=block,
    )
    assert set(target.memory.widths) == {1}


# ---- layouts


@device_function
def add_sums_of_rows(x, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr, STRIDE: tl.constexpr):
    rows, columns = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    tl.atomic_add(
        out + rows * STRIDE,
        tl.sum(tl.load(x + rows[:, None] * COLUMNS + columns[None, :]), 1),
        mask=rows < ROWS - 3,
    )


@pytest.mark.parametrize("stride", [1, 3])
def test_lanes_that_hold_the_same_sums_add_different_ones(stride: int) -> None:
    """A warp sums a row; of each of its eight rows all lanes then have the sum, and each lane adds
    one to memory."""
    rows, columns, target = 8 * WARPS, 4 * LANES, Recording()
    arguments = [
        small(np.random.default_rng(0), rows, columns),
        np.zeros(rows * stride, np.float32),
    ]
    function, _, _ = compare(
        add_sums_of_rows,
        {"x": "*fp32", "out": "*fp32"},
        arguments,
        stages=1,
        target=target,
        ROWS=rows,
        COLUMNS=columns,
        STRIDE=stride,
    )
    assert target.memory.widths == [1]
    (update,) = (operation for operation in function.walk() if operation.name == "atomic_rmw")
    assert layout_of(update.operands[0]).register_count == 1


@pytest.mark.parametrize(
    ("type_", "dtype", "width"), [("fp32", np.float32, 4), ("i32", np.int32, 1)]
)
def test_neighboring_lanes_have_neighboring_updates(type_: str, dtype: type, width: int) -> None:
    """A thread has neighbors in its registers only as far as one update takes them, whatever the
    loads may have."""
    block, rng = 8 * THREADS, np.random.default_rng(0)
    signature = {"x": f"*{type_}", "out": f"*{type_}", "n": "i32"}
    arguments = [small(rng, block).astype(dtype), small(rng, block).astype(dtype), 5]
    function, _, _ = compare(add_row, signature, arguments, stages=1, BLOCK=block, ROUND=16)
    (update,) = (operation for operation in function.walk() if operation.name == "atomic_rmw")
    assert layout_of(update.operands[0]).lanes[0] == width


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        (
            "64, registers [(1) (2) (4)], lanes [(8) (0) (16)], warps [(32)]",
            "64, registers [(1) (2)], lanes [(8) (4) (16)], warps [(32)]",
        ),
        (
            "16, registers [(1) (2)], lanes [(0) (0) (0)], warps [(4) (8)]",
            "16, registers [], lanes [(1) (2) (0)], warps [(4) (8)]",
        ),
        (
            "16, registers [(1) (2) (4)], lanes [(8) (0)], warps [(0)]",
            "16, registers [(1)], lanes [(8) (2)], warps [(4)]",
        ),
        (
            "8, registers [(1)], lanes [(2) (4)], warps [(6)]",
            "8, registers [(1)], lanes [(2) (4)], warps [(6)]",
        ),
    ],
)
def test_registers_go_to_idle_lanes_and_then_to_idle_warps(before: str, expected: str) -> None:
    found = spread(LinearLayout.parse(before))
    assert found == LinearLayout.parse(expected) and found.covers


# ---- order


@device_function
def ordered(x, out, flag, BLOCK: tl.constexpr, ORDER: tl.constexpr, SCALE: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.atomic_add(out + offsets * SCALE, tl.load(x + offsets), sem=ORDER)
    tl.store(flag, 1)


@pytest.mark.parametrize(
    ("order", "fences"),
    [
        ("relaxed", []),
        ("acquire", ["acquire"]),
        ("release", ["release"]),
        ("acq_rel", ["release", "acquire"]),
    ],
)
def test_one_fence_orders_all_updates_of_a_thread(order: str, fences: list[str]) -> None:
    block, target = 4 * THREADS, Recording()
    arguments = [
        small(np.random.default_rng(0), block),
        np.zeros(2 * block, np.float32),
        np.zeros(1, np.int32),
    ]
    signature = {"x": "*fp32", "out": "*fp32", "flag": "*i32"}
    _, _, text = compare(
        ordered, signature, arguments, stages=1, target=target, BLOCK=block, ORDER=order, SCALE=2
    )
    assert (
        target.memory.updates == [(1, "relaxed", "acq" in order)] * 4
        and target.memory.fences == fences
    )
    places = [text.find(f"fence {fence}") for fence in fences]
    updates = [text.find("atomicrmw"), text.rfind("atomicrmw")]
    assert all(
        (place < updates[0]) if fence == "release" else (place > updates[1])
        for place, fence in zip(places, fences, strict=True)
    )


@pytest.mark.parametrize("order", ["acquire", "release", "acq_rel"])
def test_a_single_update_of_a_thread_has_its_own_order(order: str) -> None:
    block, target = 4 * THREADS, Recording()
    module = build(
        ordered, {"x": "*fp32", "out": "*fp32", "flag": "*i32"}, BLOCK=block, ORDER=order, SCALE=1
    )
    compile_kernel(module, target, {"num_warps": WARPS, "num_stages": 1, "enable_fp_fusion": False})
    assert target.memory.updates == [(4, order, "acq" in order)] and not target.memory.fences


UPDATE = "%{0} = atomic_rmw %p, %n {{kind = add, order = {1}}} : i32"
BRANCHED = "if %c then {{\n{0}\nyield\n}} else {{\nyield\n}}\n{1}"


@pytest.mark.parametrize(
    ("body", "orders"),
    [
        (UPDATE.format("a", "acq_rel"), ["release"]),
        (UPDATE.format("a", "acquire"), ["relaxed"]),
        (UPDATE.format("a", "release"), ["release"]),
        (
            f"{UPDATE.format('a', 'acq_rel')}\n{UPDATE.format('b', 'acq_rel')}",
            ["acq_rel", "release"],
        ),
        (f"{UPDATE.format('a', 'acq_rel')}\nstore %q, %n", ["acq_rel"]),
        (f"{UPDATE.format('a', 'acq_rel')}\nbarrier", ["acq_rel"]),
        (BRANCHED.format(UPDATE.format("a", "acq_rel"), ""), ["release"]),
        (BRANCHED.format(UPDATE.format("a", "acq_rel"), "store %q, %n"), ["acq_rel"]),
        (
            f"for %n, %n, %n body(%i: i32) {{\n{UPDATE.format('a', 'acq_rel')}\nyield\n}}",
            ["acq_rel"],
        ),
    ],
)
def test_updates_that_nothing_follows_do_not_acquire(body: str, orders: list[str]) -> None:
    text = after(
        f"kernel @k(%p: ptr<i32>, %q: ptr<i32>, %n: i32, %c: i1) {{\n{body}\nreturn\n}}", "atomics"
    )
    updates = [line for line in text.splitlines() if "atomic_rmw" in line]
    assert [
        line.partition("order = ")[2].partition("}")[0].partition(",")[0] or "acq_rel"
        for line in updates
    ] == orders
