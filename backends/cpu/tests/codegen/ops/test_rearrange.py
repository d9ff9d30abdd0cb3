"""cat, join, split, gather, unsplat, histogram, map."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilewright.ir import Value
from tilewright.ir.types import (
    BF16,
    F16,
    F32,
    F64,
    FLOATS,
    I1,
    I8,
    I16,
    I32,
    I64,
    INTEGERS,
    U8,
    U32,
    U64,
    FloatType,
    PointerType,
    TileType,
    Type,
)
from tilewright_conformance.op_samples.kernel import ANY, Draw, SampleKernel

_ELEMENTS: list[Type] = [*INTEGERS, *FLOATS]


@pytest.mark.each_value
@pytest.mark.parametrize("element", _ELEMENTS, ids=str)
@pytest.mark.parametrize(
    ("first", "second", "axis"),
    [
        ((5,), (9,), 0),
        ((64,), (64,), 0),
        ((3, 4), (2, 4), 0),
        ((3, 4), (3, 7), 1),
        ((2, 3, 5), (2, 1, 5), 1),
    ],
    ids=str,
)
def test_cat(
    element: Type,
    first: tuple[int, ...],
    second: tuple[int, ...],
    axis: int,
    agree: Callable[..., Any],
) -> None:
    kernel = SampleKernel("cat")
    kernel.store(kernel.b.cat(kernel.load(element, first), kernel.load(element, second), axis=axis))
    agree(kernel.finish())


@pytest.mark.each_value
@pytest.mark.parametrize("element", _ELEMENTS, ids=str)
@pytest.mark.parametrize("shape", [(1,), (3,), (16,), (67,), (4, 8), (3, 5, 2)], ids=str)
def test_join_and_split(element: Type, shape: tuple[int, ...], agree: Callable[..., Any]) -> None:
    kernel = SampleKernel("join")
    joined = kernel.b.join(kernel.load(element, shape), kernel.load(element, shape))
    kernel.store(joined)
    for half in kernel.b.split(joined):
        kernel.store(half)
    for half in kernel.b.split(kernel.load(element, (*shape, 2))):
        kernel.store(half)
    for scalar in kernel.b.split(kernel.load(element, (2,))):
        kernel.store(scalar)
    agree(kernel.finish())


@pytest.mark.each_value
@pytest.mark.parametrize("element", [I1, I8, I16, F16, BF16, F32, I64, F64], ids=str)
@pytest.mark.parametrize("index_type", [I8, I32, I64, U8, U32, U64], ids=str)
@pytest.mark.parametrize(
    ("source", "picked", "axis"),
    [
        ((9,), 33, 0),
        ((100,), 64, 0),
        ((6, 20), 7, 1),
        ((6, 20), 11, 0),
        ((3, 5, 17), 4, 1),
        ((3, 5, 1), 9, 1),
    ],
    ids=str,
)
def test_gather(
    element: Type,
    index_type: Type,
    source: tuple[int, ...],
    picked: int,
    axis: int,
    agree: Callable[..., Any],
) -> None:
    kernel = SampleKernel("gather")
    shape = (*source[:axis], picked, *source[axis + 1 :])
    index = kernel.load(index_type, shape, Draw(0, source[axis] - 1))
    kernel.store(kernel.b.gather(kernel.load(element, source), index, axis=axis))
    agree(kernel.finish())


def test_gather_out_of_range_reads_nothing_else(compiled: Any, guarded: Any) -> None:
    """Undefined, but it must neither trap nor reach other memory: every value is one of the
    tile's."""
    for index_type, width in ((I64, 64), (I32, 5)):
        kernel = SampleKernel("gather")
        kernel.store(
            kernel.b.gather(
                kernel.load(F32, (8,), Draw(1, 2)), kernel.load(index_type, (width,)), axis=0
            )
        )
        sample = kernel.finish()
        arguments = sample.make_arguments(np.random.default_rng(0))
        found = guarded(compiled(sample.module), arguments, sample.grid)[2]
        assert np.isin(found, arguments[0]).all()


def test_gather_of_pointers(agree: Callable[..., Any]) -> None:
    kernel = SampleKernel("gather")
    pointers = kernel.pointers(kernel.pointer(F32, (32,)), (32,))
    index = kernel.load(I32, (20,), Draw(0, 31))
    assert isinstance(pointers.type, TileType) and isinstance(pointers.type.element, PointerType)
    kernel.store(kernel.b.load(kernel.b.gather(pointers, index, axis=0)))
    agree(kernel.finish())


@pytest.mark.parametrize("element", _ELEMENTS, ids=str)
def test_unsplat(element: Type, agree: Callable[..., Any]) -> None:
    kernel = SampleKernel("unsplat")
    for shape in ((1,), (1, 1, 1)):
        kernel.store(kernel.b.unsplat(kernel.load(element, shape)))
    agree(kernel.finish())


@pytest.mark.parametrize("element", [F32, I1, BF16, I64, I8], ids=str)
@pytest.mark.parametrize(
    ("source", "result"),
    [
        ((12,), (3, 4)),
        ((4, 6), (3, 8)),
        ((2, 3, 4), (24,)),
        ((16, 4), (4, 16)),
        ((5, 1, 7), (7, 5)),
    ],
    ids=str,
)
def test_reshape_of_computed_and_permuted_tiles(
    element: Type, source: tuple[int, ...], result: tuple[int, ...], agree: Callable[..., Any]
) -> None:
    kernel = SampleKernel("reshape")
    tile = kernel.load(element, source)
    kernel.store(kernel.b.reshape(tile, result=TileType(result, element)))
    turned = kernel.b.permute(tile, order=tuple(reversed(range(len(source)))))
    kernel.store(kernel.b.reshape(turned, result=TileType(result, element)))
    both = kernel.b.join(tile, tile)
    kernel.store(kernel.b.reshape(both, result=TileType((2, *result), element)))
    agree(kernel.finish())


@pytest.mark.parametrize("masked", [False, True], ids=["all", "masked"])
@pytest.mark.parametrize("element", INTEGERS, ids=str)
@pytest.mark.parametrize(("count", "bins"), [(1, 1), (37, 10), (256, 64), (1000, 3)], ids=str)
def test_histogram(
    element: Type, count: int, bins: int, masked: bool, agree: Callable[..., Any]
) -> None:
    """Values out of range, negative ones among them, are ignored."""
    kernel = SampleKernel("histogram")
    draw = (
        ANY
        if element is I1
        else Draw(-4 if element in (I8, I16, I32, I64) else 0, min(bins + 6, 100))
    )
    x = kernel.load(element, (count,), draw)
    mask = kernel.load(I1, (count,)) if masked else None
    kernel.store(kernel.b.histogram(x, mask, bins=bins))
    agree(kernel.finish())


@pytest.mark.parametrize("shape", [(1,), (16,), (45,), (3, 22)], ids=str)
def test_map_of_straight_line_code(shape: tuple[int, ...], agree: Callable[..., Any]) -> None:
    kernel = SampleKernel("map")
    tiles = [
        kernel.load(F32, shape, Draw(-9, 9, integral=True)),
        kernel.load(I16, shape, Draw(-99, 99)),
    ]

    def body(x: Value, n: Value) -> Any:
        b = kernel.b
        wide = b.cast(n, result=F32)
        return b.mul(x, wide), b.cmp(x, wide, predicate="lt")

    region = kernel.region((F32, I16), body)
    for result in kernel.b.region_op(
        "map", tiles, regions=[region], results=[TileType(shape, F32), TileType(shape, I1)]
    ).results:
        kernel.store(result)
    agree(kernel.finish())


@pytest.mark.parametrize("pack", [1, 2, 3, 6])
def test_map_of_groups_with_control_flow(pack: int, agree: Callable[..., Any]) -> None:
    """Each group counts down from its maximum element in a loop."""
    kernel = SampleKernel("map")
    tile = kernel.load(I32, (4, 6), Draw(0, 9))

    def body(*group: Value) -> Any:
        b = kernel.b
        top = group[0]
        for value in group[1:]:
            top = b.max(top, value)
        zero, one = kernel.constant(I32, 0), kernel.constant(I32, 1)
        before = kernel.region(
            (I32, I32),
            lambda n, steps: (b.cmp(n, zero, predicate="gt"), n, steps),
            terminator="condition",
        )
        after = kernel.region(
            (I32, I32), lambda n, steps: (b.sub(n, kernel.constant(I32, 2)), b.add(steps, one))
        )
        loop = b.region_op("while", [top, zero], regions=[before, after], results=[I32, I32])
        return [b.add(loop.results[1], value) for value in group]

    region = kernel.region((I32,) * pack, body)
    kernel.store(
        kernel.b.region_op("map", tile, regions=[region], results=[tile.type], pack=pack).result
    )
    agree(kernel.finish())


def test_map_of_narrow_floats(agree: Callable[..., Any]) -> None:
    for element in (F16, BF16, FloatType("f8e5m2")):
        kernel = SampleKernel("map")
        tile = kernel.load(element, (50,), Draw(-2, 2, integral=True))
        region = kernel.region((element,), lambda x, kernel=kernel: kernel.b.mul(x, x))
        kernel.store(kernel.b.region_op("map", tile, regions=[region], results=[tile.type]).result)
        agree(kernel.finish())
