"""``simt.convert`` on the emulated machine: every way a tile can take, for every kind of
element."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from tilewright.ir import Builder, Function
from tilewright.ir.types import (
    BF16,
    F16,
    F32,
    F64,
    I1,
    I8,
    I16,
    I32,
    I64,
    FloatType,
    PointerType,
    TileType,
    Type,
)
from tilewright.simt.dialect.attributes import WARPS
from tilewright.simt.dialect.ops import SIMT_TABLE
from tilewright.simt.emulator import EmulatedTarget, run_text
from tilewright.simt.layouts.linear_layout import LinearLayout, blocked
from tilewright.simt.lowering.lower_function import lower_function
from tilewright.simt.passes.allocate_shared import allocate
from tilewright.simt.passes.insert_membar import insert_barriers
from tilewright.simt.target.conversion_plan import SharedMove, WarpMove, plan_conversion
from tilewright.testing.random_layouts import random_layout

NUMPY = {
    I1: np.bool_,
    I8: np.int8,
    I16: np.int16,
    I32: np.int32,
    I64: np.int64,
    F16: np.uint16,
    BF16: np.uint16,
    F32: np.uint32,
    F64: np.uint64,
}


def convert(
    a: LinearLayout,
    b: LinearLayout,
    element: Type,
    target: EmulatedTarget,
    num_warps: int,
    repeat: int = 1,
) -> tuple[np.ndarray, np.ndarray]:
    """Load a tile of random bits in layout ``a``, convert it to ``b`` and store it; ``repeat``
    times in a loop. (in, out)."""
    count = int(np.prod(a.shape))
    function = Function("kernel", [PointerType(element), PointerType(element)])
    source, result = function.arguments

    def pointers(builder: Builder, base: Any, layout: LinearLayout) -> Any:
        flat = builder.arange(start=0, end=count)
        tile = builder.reshape(flat, result=TileType(a.shape, I32))
        spread = builder.splat(base, result=TileType(a.shape, base.type))
        moved = builder.addptr(spread, tile)
        flat.layout = layout.reshape((count,))
        for value in (tile, spread, moved):
            value.layout = layout
        return moved

    builder = Builder.at_end(function.body)
    for _ in range(repeat):
        loaded = builder.load(pointers(builder, source, a))
        loaded.layout = a
        operation = builder.create(SIMT_TABLE["simt.convert"], [[loaded]], {})
        operation.results[0].layout = b
        builder.store(pointers(builder, result, b), operation.results[0])
    builder.return_()
    function.attributes[WARPS] = num_warps
    allocate(function, target)
    insert_barriers(function, target)
    text = lower_function(function, target, {})
    rng = np.random.default_rng(count)
    if isinstance(element, PointerType):
        given = rng.integers(0, 2**62, count, np.int64)
    elif element is I1:
        given = rng.integers(0, 2, count).astype(np.bool_)
    else:
        given = rng.integers(0, 256, count * np.dtype(NUMPY[element]).itemsize, np.uint8).view(
            NUMPY[element]
        )
    out = np.zeros_like(given)
    run_text(
        text,
        target,
        [argument.type for argument in function.arguments],
        [given, out],
        (1, 1, 1),
        num_warps,
    )
    return given, out


@pytest.mark.each_value
@pytest.mark.parametrize("element", [*NUMPY, FloatType("f8e4m3fn"), PointerType(F32)], ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_any_layout_to_any_other(element: Type, seed: int) -> None:
    if element not in NUMPY:
        NUMPY[element] = np.uint8
    rng = random.Random(f"{element} {seed}")
    lanes, warps = rng.choice((4, 8, 16)), rng.choice((1, 2, 4))
    shape = (1 << rng.randint(0, 4), 1 << rng.randint(0, 5))
    a, b = (random_layout(rng, shape, lanes, warps) for _ in range(2))
    given, out = convert(a, b, element, EmulatedTarget(lanes), warps, repeat=2)
    np.testing.assert_array_equal(given, out)


@pytest.mark.parametrize("element", [I1, I8, F16, F32, F64, PointerType(F32)], ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_within_a_warp_no_shared_memory_is_used(element: Type, seed: int) -> None:
    rng = random.Random(f"{element} {seed} warp")
    pool = [1, 2, 4, 8, 16]
    layouts = []
    for _ in range(2):
        images = list(pool)
        rng.shuffle(images)
        if rng.random() < 0.5:
            images[0] ^= images[1]
        layouts.append(LinearLayout((64,), tuple(images[:2]), tuple(images[2:]), (32,)))
    target = EmulatedTarget(8)
    assert isinstance(plan_conversion(layouts[0], layouts[1], element, target), WarpMove)
    given, out = convert(layouts[0], layouts[1], element, target, 2)
    np.testing.assert_array_equal(given, out)


@pytest.mark.each_value
@pytest.mark.parametrize("element", [I1, I8, F16, BF16, I16, F32], ids=str)
@pytest.mark.parametrize(
    "images",
    [
        ((1, 2, 16, 32), (4, 8)),
        ((1, 2, 16, 32), (12, 8)),
        ((2, 1, 17, 32), (5, 8)),
        ((4, 3, 16, 32), (1, 8)),
    ],
    ids=str,
)
def test_narrow_elements_share_words_while_lanes_and_registers_are_exchanged(
    element: Type, images: tuple[tuple[int, ...], tuple[int, ...]]
) -> None:
    a, b = LinearLayout((64,), (1, 2, 4, 8), (16, 32), ()), LinearLayout((64,), *images, ())
    given, out = convert(a, b, element, EmulatedTarget(4), 1)
    np.testing.assert_array_equal(given, out)


@pytest.mark.each_value
@pytest.mark.parametrize(("element", "rounds"), [(F32, 1), (F32, 3), (I1, 2), (F16, 2), (F64, 2)])
@pytest.mark.parametrize("kind", ["transposed", "twisted", "blocked"])
def test_tiles_go_through_little_memory_in_rounds(element: Type, rounds: int, kind: str) -> None:
    shape = (32, 32)
    size = 8 if element is F64 else 4 if element is F32 else 2 if element is F16 else 1
    target = EmulatedTarget(8, shared_memory=1024 * size >> rounds)
    a = blocked(shape, (1, 0), 4, 8, 2)
    if kind == "transposed":
        b = blocked(shape, (0, 1), 4, 8, 2)
    elif kind == "twisted":
        b = random_layout(random.Random(rounds), shape, 8, 2)
    else:
        b = LinearLayout(a.shape, a.registers, (*a.lanes[:2], a.warps[0]), (a.lanes[2],))
    plan = plan_conversion(a, b, element, target)
    assert isinstance(plan, SharedMove) and plan.round_bits == rounds
    given, out = convert(a, b, element, target, 2, repeat=2)
    np.testing.assert_array_equal(given, out)
