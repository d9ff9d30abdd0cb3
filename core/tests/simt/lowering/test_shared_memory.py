"""Explicit shared memory in the emulator, with tiles in any shared layout.

Tests stores, loads, asynchronous copies, and matmuls that read it.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from tilewright.ir import Builder, Function, Value
from tilewright.ir.types import (
    BF16,
    F16,
    F32,
    F64,
    I1,
    I8,
    I32,
    I64,
    FloatType,
    PointerType,
    TileType,
    Type,
)
from tilewright.passes.analysis.axis import AxisInfo
from tilewright.simt import emulator
from tilewright.simt.dialect.attributes import WARPS as NUM_WARPS
from tilewright.simt.dialect.ops import SIMT_TABLE
from tilewright.simt.dialect.types import COPIES, BufferType
from tilewright.simt.layouts.linear_layout import Basis, LinearLayout, SharedLayout, blocked, log2
from tilewright.simt.lowering.lower_function import lower_function
from tilewright.simt.passes.allocate_shared import allocate
from tilewright.simt.passes.insert_membar import insert_barriers
from tilewright.simt.target.cost_model import copy_width
from tilewright.simt.target.fma_plan import fma_plan
from tilewright.simt.target.matmul_plan import Matmul, MatmulPlan
from tilewright.testing.random_layouts import random_layout

WARPS, LANES = 2, 8
NUMPY = {
    I1: np.bool_,
    I8: np.int8,
    I32: np.int32,
    I64: np.int64,
    F16: np.float16,
    BF16: np.uint16,
    F32: np.float32,
    F64: np.float64,
}


def any_shared(rng: random.Random, shape: tuple[int, ...], keep: int = 0) -> SharedLayout:
    """Any one-to-one map; the lowest ``keep`` bits of an element's number stay where they are, and
    with 4 bits no other bit touches these."""
    bits = log2(int(np.prod(shape)))
    basis = Basis([1 << bit for bit in range(keep)])
    images = [1 << bit for bit in range(keep)]
    while len(images) < bits:
        image = rng.randrange(1 << bits) & (-16 if keep == 4 else -1)
        if basis.add(image):
            images.append(image)
    return SharedLayout(shape, tuple(images))


class Kernel:
    """A function whose layouts are given by hand."""

    def __init__(self, types: list[Type], target: emulator.EmulatedTarget | None = None) -> None:
        self.function = Function("kernel", types)
        self.function.attributes[NUM_WARPS] = WARPS
        self.target = target or emulator.EmulatedTarget(LANES)
        self.b = Builder.at_end(self.function.body)

    def put(self, value: Value, layout: LinearLayout) -> Value:
        value.layout = layout
        return value

    def pointers(self, base: Value, layout: LinearLayout) -> Value:
        count = int(np.prod(layout.shape))
        flat = self.put(self.b.arange(start=0, end=count), layout.reshape((count,)))
        tile = self.put(self.b.reshape(flat, result=TileType(layout.shape, I32)), layout)
        spread = self.put(self.b.splat(base, result=TileType(layout.shape, base.type)), layout)
        return self.put(self.b.addptr(spread, tile), layout)

    def simt(
        self, name: str, *groups: list[Value], result: Type | None = None, **attributes: Any
    ) -> Value | None:
        """An operation of the toolkit; operands by group."""
        operation = self.b.create(
            SIMT_TABLE[name], list(groups), attributes, () if result is None else (result,)
        )
        return operation.results[0] if operation.results else None

    def slot(self, shape: tuple[int, ...], element: Type, shared: SharedLayout) -> Value:
        """The only slot of a new buffer."""
        buffer = self.simt("simt.buffer", result=BufferType(1, shape, element, shared))
        assert buffer is not None
        slot = self.simt("simt.slot", [buffer], [self.b.constant(value=0, result=I32)])
        assert slot is not None
        return slot

    def read(self, slot: Value, layout: LinearLayout) -> Value:
        """The tile in a slot."""
        found = self.simt("simt.load", [slot])
        assert found is not None
        return self.put(found, layout)

    def dot(self, a: Value, b: Value, c: Value, plan: MatmulPlan) -> Value:
        """A matmul by a plan."""
        found = self.simt("simt.dot", [a], [b], [c], plan=plan.name)
        assert found is not None
        return self.put(found, plan.c)

    def run(self, arguments: list[np.ndarray]) -> str:
        self.b.return_()
        allocate(self.function, self.target)
        insert_barriers(self.function, self.target)
        text = lower_function(self.function, self.target, {})
        emulator.run_text(
            text,
            self.target,
            [argument.type for argument in self.function.arguments],
            arguments,
            (1, 1, 1),
            WARPS,
        )
        return text


def bits(element: Type, count: int) -> np.ndarray:
    rng = np.random.default_rng(count)
    if element is I1:
        return rng.integers(0, 2, count).astype(np.bool_)
    type_ = np.dtype(NUMPY.get(element, np.uint8))
    return rng.integers(0, 120, count * type_.itemsize, np.uint8).view(type_)


@pytest.mark.parametrize("element", [I1, I8, F16, BF16, F32, F64, I64], ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_stores_and_loads_in_any_layout(element: Type, seed: int) -> None:
    rng = random.Random(f"{element} {seed}")
    shape = (1 << rng.randint(0, 4), 1 << rng.randint(0, 4))
    kernel = Kernel([PointerType(element)] * 2)
    source, out = kernel.function.arguments
    tile = TileType(shape, element)
    written, found = (random_layout(rng, shape, LANES, WARPS) for _ in range(2))
    shared = any_shared(rng, shape)
    x = kernel.put(kernel.b.load(kernel.pointers(source, written)), written)
    slot = kernel.slot(shape, element, shared)
    kernel.simt("simt.store", [slot], [x])
    kernel.b.store(kernel.pointers(out, found), kernel.read(slot, found))
    given = bits(element, tile.numel)
    result = np.zeros_like(given)
    kernel.run([given, result])
    np.testing.assert_array_equal(result, given)


@pytest.mark.each_value
@pytest.mark.parametrize("element", [I8, F16, F32, F64, FloatType("f8e5m2")], ids=str)
@pytest.mark.parametrize("widths", [(4, 8, 16), (16,), (8,)], ids=str)
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("keep", [0, 2, 4])
def test_asynchronous_copies_into_any_layout(
    element: Type, widths: tuple[int, ...], masked: bool, keep: int
) -> None:
    """Whatever cannot be copied in pieces of the machine's widths goes through registers."""
    rng = random.Random(f"{element} {widths} {masked} {keep}")
    shape = (16, 16)
    kernel = Kernel([PointerType(element)] * 2, emulator.EmulatedTarget(LANES, copy_widths=widths))
    for attributes in kernel.function.argument_attributes:
        attributes["divisibility"] = 16
    source, out = kernel.function.arguments
    vector = rng.choice((4, 16))
    given_to = (
        blocked(shape, (1, 0), vector, LANES, WARPS)
        if keep
        else random_layout(rng, shape, LANES, WARPS)
    )
    found = random_layout(rng, shape, LANES, WARPS)
    shared = any_shared(rng, shape, keep)
    pointer = kernel.pointers(source, given_to)
    mask = []
    limit = 96
    if masked:
        flat = kernel.put(kernel.b.arange(start=0, end=256), given_to.reshape((256,)))
        bound = kernel.put(
            kernel.b.splat(
                kernel.b.constant(value=limit, result=I32), result=TileType((256,), I32)
            ),
            given_to.reshape((256,)),
        )
        below = kernel.put(kernel.b.cmp(flat, bound, predicate="lt"), given_to.reshape((256,)))
        mask.append(kernel.put(kernel.b.reshape(below, result=TileType(shape, I1)), given_to))
    slot = kernel.slot(shape, element, shared)
    (mechanism,) = kernel.target.async_copy.mechanisms
    kernel.simt("simt.copy_start", [slot], [pointer], mask, by=mechanism.name)
    token = kernel.simt("simt.commit", result=COPIES)
    assert token is not None
    kernel.simt("simt.wait", [token], [], [])
    kernel.b.store(kernel.pointers(out, found), kernel.read(slot, found))
    given = bits(element, 256)
    result = np.full_like(given, 7)
    text = kernel.run([given, result])
    expected = given.copy()
    if masked:
        expected[limit:] = 0
    np.testing.assert_array_equal(result, expected)
    if keep == 4:
        assert ("call void @emulated_copy" in text) == (min(widths) <= vector * given.itemsize)


def test_a_copy_is_as_wide_as_all_three_sides_allow() -> None:
    layout = blocked((16, 16), (1, 0), 8, LANES, WARPS)
    straight = SharedLayout((16, 16), tuple(1 << bit for bit in range(8)))
    swapped = SharedLayout((16, 16), (1, 4, 2, *(1 << bit for bit in range(3, 8))))
    twisted = SharedLayout(
        (16, 16), (1, 2, 4, *(1 << bit for bit in range(3, 7)), 128 | 2)
    )  # a warp's places begin inside a copy
    known = AxisInfo((1, 16), (16, 16), (1, 1))
    mask = AxisInfo((1, 1), (1, 1), (1, 4))
    widths = (4, 8, 16)
    assert copy_width(layout, straight, known, None, 2, widths) == 8
    assert copy_width(layout, straight, known, mask, 2, widths) == 4
    assert copy_width(layout, swapped, known, None, 2, widths) == 2
    assert copy_width(layout, twisted, known, None, 2, widths) == 2
    assert copy_width(layout, straight, known, None, 2, ()) == 0
    assert copy_width(layout, straight, AxisInfo((1, 1), (2, 2), (1, 1)), None, 2, widths) == 0
    assert copy_width(layout, straight, known, None, 2, (4,)) == 2


@pytest.mark.parametrize("seed", range(8))
def test_products_read_operands_that_lie_anyhow_in_shared_memory(seed: int) -> None:
    rng = random.Random(seed)
    m, n, k = (1 << rng.randint(0, 4), 1 << rng.randint(0, 4), 1 << rng.randint(3, 6))
    element, accumulator = rng.choice(((F32, F32), (F16, F32), (F64, F64)))
    kernel = Kernel(
        [
            PointerType(element),
            PointerType(element),
            PointerType(accumulator),
            PointerType(accumulator),
        ]
    )
    plan = fma_plan(
        kernel.target, Matmul((m, n), k, element, element, accumulator, "ieee", 0, WARPS)
    )
    slots = []
    for shape, pointer in zip(((m, k), (k, n)), kernel.function.arguments, strict=False):
        layout, shared = (
            random_layout(rng, shape, LANES, WARPS),
            any_shared(rng, shape, rng.choice((0, 2))),
        )
        slots.append(kernel.slot(shape, element, shared))
        kernel.simt(
            "simt.store",
            [slots[-1]],
            [kernel.put(kernel.b.load(kernel.pointers(pointer, layout)), layout)],
        )
    c = kernel.put(kernel.b.load(kernel.pointers(kernel.function.arguments[2], plan.c)), plan.c)
    kernel.b.store(
        kernel.pointers(kernel.function.arguments[3], plan.c),
        kernel.dot(slots[0], slots[1], c, plan),
    )
    values = np.random.default_rng(seed)
    arrays = [
        values.integers(-3, 4, shape).astype(NUMPY[kind])
        for shape, kind in (((m, k), element), ((k, n), element), ((m, n), accumulator))
    ]
    out = np.full((m, n), 7, NUMPY[accumulator])
    kernel.run([*arrays, out])
    np.testing.assert_array_equal(
        out, arrays[0].astype(np.float64) @ arrays[1].astype(np.float64) + arrays[2]
    )


def test_a_slot_may_be_written_again_once_a_product_has_read_it() -> None:
    """What threads still read is not written: barriers follow from what the operations say they
    touch."""
    kernel = Kernel([PointerType(F32)] * 2)
    layout, tile = blocked((8, 8), (1, 0), 1, LANES, WARPS), TileType((8, 8), F32)
    plan = fma_plan(kernel.target, Matmul((8, 8), 8, F32, F32, F32, "ieee", 0, WARPS))
    x = kernel.put(kernel.b.load(kernel.pointers(kernel.function.arguments[0], layout)), layout)
    zero = kernel.put(kernel.b.splat(kernel.b.constant(value=0.0, result=F32), result=tile), plan.c)
    slot = kernel.slot((8, 8), F32, SharedLayout.row_major((8, 8)))
    kernel.simt("simt.store", [slot], [x])
    square = kernel.dot(slot, slot, zero, plan)
    kernel.simt("simt.store", [slot], [kernel.put(kernel.b.add(x, x), layout)])
    kernel.b.store(
        kernel.pointers(kernel.function.arguments[1], plan.c), kernel.dot(slot, slot, square, plan)
    )
    given, out = (
        np.random.default_rng(0).integers(-3, 4, (8, 8)).astype(np.float32),
        np.zeros((8, 8), np.float32),
    )
    kernel.run([given, out])
    np.testing.assert_array_equal(out, 5 * given @ given)
    assert sum(operation.name == "barrier" for operation in kernel.function.walk()) == 3
