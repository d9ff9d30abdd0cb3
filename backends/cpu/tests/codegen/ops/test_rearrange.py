"""Gathers out of range and of pointers, unsplat, reshapes of lazy tiles, maps of narrow floats.

The suite's cases test that these operations and cat, join, split and histogram compute what the
reference does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilewright.ir.types import (
    BF16,
    F16,
    F32,
    FLOATS,
    I1,
    I8,
    I32,
    I64,
    INTEGERS,
    FloatType,
    PointerType,
    TileType,
    Type,
)
from tilewright_conformance.op_samples.kernel import Draw, SampleKernel

_ELEMENTS: list[Type] = [*INTEGERS, *FLOATS]


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


def test_map_of_narrow_floats(agree: Callable[..., Any]) -> None:
    for element in (F16, BF16, FloatType("f8e5m2")):
        kernel = SampleKernel("map")
        tile = kernel.load(element, (50,), Draw(-2, 2, integral=True))
        region = kernel.region((element,), lambda x, kernel=kernel: kernel.b.mul(x, x))
        kernel.store(kernel.b.region_op("map", tile, regions=[region], results=[tile.type]).result)
        agree(kernel.finish())
