"""Blocks of tensors through descriptors: every place relative to the bounds, strides, padding, row
lists."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tilewright.ir import Value
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
    U8,
    U32,
    DescriptorType,
    FloatType,
    Type,
)
from tilewright_conformance.op_samples.kernel import ANY, INTEGRAL, Draw, SampleKernel

_ELEMENTS: list[Type] = [
    F32,
    F64,
    F16,
    BF16,
    I8,
    I32,
    I64,
    FloatType("f8e4m3fn"),
    FloatType("f8e5m2fnuz"),
]
_PLACES = [
    ((40,), (16,), (8,)),
    ((40,), (16,), (30,)),
    ((40,), (16,), (-5,)),
    ((9,), (32,), (-4,)),
    ((40,), (16,), (40,)),
    ((40,), (16,), (-16,)),
    ((12, 37), (4, 20), (2, 3)),
    ((12, 37), (4, 20), (10, 25)),
    ((12, 37), (4, 20), (-3, -7)),
    ((12, 37), (4, 20), (12, 0)),
    ((12, 37), (16, 64), (-2, -11)),
    ((5, 6, 9), (2, 4, 16), (4, -1, -2)),
    ((2, 3, 4, 5), (2, 2, 3, 4), (-1, 2, 2, 3)),
    ((2, 2, 2, 2, 20), (1, 2, 1, 2, 16), (1, 1, 0, -1, 2)),
]


def _made(
    kernel: SampleKernel,
    element: Type,
    tensor: Sequence[int],
    block: Sequence[int],
    *,
    pitch: Sequence[int] = (),
    **named: Any,
) -> Value:
    """A descriptor of a tensor of extents ``tensor`` that lies in an array with ``pitch`` extents
    (as wide or wider)."""
    pitch = tuple(pitch) or tuple(tensor)
    output = named.pop("output", False)
    draw = named.pop("draw", ANY)
    base = kernel.pointer(element, pitch, draw, output=output)
    extents = [kernel.scalar(I64, Draw(extent, extent)) for extent in tensor]
    strides = [kernel.constant(I64, math.prod(pitch[axis + 1 :])) for axis in range(len(pitch))]
    value: Value = kernel.b.make_descriptor(
        base, extents, strides, result=DescriptorType(tuple(block), element), **named
    )
    return value


def _offsets(kernel: SampleKernel, offsets: Sequence[int], type_: Type = I32) -> list[Value]:
    return [kernel.scalar(type_, Draw(offset, offset)) for offset in offsets]


@pytest.mark.each_value
@pytest.mark.parametrize("padding", ["zero", "nan"])
@pytest.mark.parametrize("place", _PLACES, ids=str)
@pytest.mark.parametrize("element", _ELEMENTS, ids=str)
def test_load(
    element: Type, place: tuple[tuple[int, ...], ...], padding: str, agree: Callable[..., Any]
) -> None:
    tensor, block, offsets = place
    kernel = SampleKernel("descriptor_load")
    pitch = tuple(extent + axis for axis, extent in enumerate(tensor))
    descriptor = _made(kernel, element, tensor, block, pitch=pitch, padding=padding)
    kernel.store(
        kernel.b.descriptor_load(descriptor, _offsets(kernel, offsets, (I32, I64)[len(block) % 2]))
    )
    agree(kernel.finish())


@pytest.mark.each_value
@pytest.mark.parametrize("place", _PLACES, ids=str)
@pytest.mark.parametrize("element", _ELEMENTS, ids=str)
def test_store(
    element: Type, place: tuple[tuple[int, ...], ...], agree: Callable[..., Any]
) -> None:
    tensor, block, offsets = place
    kernel = SampleKernel("descriptor_store")
    pitch = tuple(extent + axis for axis, extent in enumerate(tensor))
    descriptor = _made(kernel, element, tensor, block, pitch=pitch, output=True)
    kernel.b.descriptor_store(descriptor, _offsets(kernel, offsets), kernel.load(element, block))
    agree(kernel.finish())


@pytest.mark.parametrize("place", _PLACES, ids=str)
def test_descriptor_arguments(
    place: tuple[tuple[int, ...], ...], agree: Callable[..., Any]
) -> None:
    tensor, block, offsets = place
    kernel = SampleKernel("descriptor")
    source = kernel.descriptor(F32, tensor, block)
    target = kernel.descriptor(F32, tensor, block, output=True)
    where = _offsets(kernel, offsets)
    tile = kernel.b.descriptor_load(source, where)
    kernel.b.descriptor_store(target, where, kernel.b.add(tile, tile))
    kernel.store(tile)
    agree(kernel.finish())


def test_last_axis_with_a_stride(agree: Callable[..., Any]) -> None:
    """Elements that do not follow each other: a stride known when compiling, and one that is an
    argument."""
    for known in (True, False):
        kernel = SampleKernel("descriptor")
        strides = [
            kernel.constant(I64, value) if known else kernel.scalar(I64, Draw(value, value))
            for value in (30, 3)
        ]
        extents = [kernel.constant(I64, value) for value in (6, 9)]
        kind = DescriptorType((4, 8), F32)
        source = kernel.b.make_descriptor(
            kernel.pointer(F32, (6, 30)), extents, strides, result=kind
        )
        target = kernel.b.make_descriptor(
            kernel.pointer(F32, (6, 30), output=True), extents, strides, result=kind
        )
        for place in ((0, 0), (3, 4), (-1, -2)):
            where = [kernel.constant(I32, value) for value in place]
            tile = kernel.b.descriptor_load(source, where)
            kernel.store(tile)
            kernel.b.descriptor_store(target, where, tile)
        agree(kernel.finish())


def test_unit_stride_that_is_an_argument(agree: Callable[..., Any]) -> None:
    kernel = SampleKernel("descriptor")
    strides = [kernel.scalar(I64, Draw(value, value)) for value in (32, 1)]
    extents = [kernel.constant(I64, value) for value in (6, 32)]
    source = kernel.b.make_descriptor(
        kernel.pointer(F32, (6, 32)), extents, strides, result=DescriptorType((4, 16), F32)
    )
    kernel.store(
        kernel.b.descriptor_load(source, [kernel.constant(I32, value) for value in (1, 8)])
    )
    agree(kernel.finish())


def test_extents_and_offsets_beyond_32_bits(agree: Callable[..., Any]) -> None:
    """A bound of 2**33 does not wrap to zero, nor does an offset of 2**32 to the start."""
    for extent, offset in ((2**33, 0), (2**33 + 4, 2), (16, 2**32), (16, -(2**32)), (2**31 + 1, 4)):
        kernel = SampleKernel("descriptor")
        base = kernel.pointer(F32, (64,))
        descriptor = kernel.b.make_descriptor(
            base,
            [kernel.scalar(I64, Draw(extent, extent))],
            [kernel.constant(I64, 1)],
            result=DescriptorType((16,), F32),
        )
        kernel.store(
            kernel.b.descriptor_load(descriptor, [kernel.scalar(I64, Draw(offset, offset))])
        )
        agree(kernel.finish())


_REDUCED = [
    *(("add", element) for element in (I32, U32, I64, F16, BF16, F32, F64)),
    *((kind, element) for kind in ("min", "max") for element in (I32, U32, I64, F32, F64)),
    *((kind, element) for kind in ("and", "or", "xor") for element in (I32, I64)),
]


@pytest.mark.each_value
@pytest.mark.parametrize(("kind", "element"), _REDUCED, ids=str)
@pytest.mark.parametrize("place", _PLACES[5:13:2], ids=str)
def test_reduce(
    kind: str, element: Type, place: tuple[tuple[int, ...], ...], agree: Callable[..., Any]
) -> None:
    tensor, block, offsets = place
    draw = INTEGRAL if isinstance(element, FloatType) and kind == "add" else ANY
    kernel = SampleKernel("descriptor_reduce", grid=(3, 1, 1))
    descriptor = _made(kernel, element, tensor, block, draw=draw, output=True)
    kernel.b.descriptor_reduce(
        descriptor, _offsets(kernel, offsets), kernel.load(element, block, draw), kind=kind
    )
    agree(kernel.finish())


@pytest.mark.parametrize("rows_type", [I16, I32, I64, U8, U32], ids=str)
@pytest.mark.parametrize(
    ("width", "column"), [(16, 0), (16, 20), (8, -3), (32, 24), (5, 2)], ids=str
)
@pytest.mark.parametrize("element", [F32, BF16, I8], ids=str)
def test_gather_and_scatter_of_rows(
    element: Type, width: int, column: int, rows_type: Type, agree: Callable[..., Any]
) -> None:
    """Rows outside the tensor are padding and are dropped; no row is written twice."""
    tensor, count = (14, 24), 8
    signed = rows_type in (I16, I32, I64)
    draw = Draw(array=lambda rng, n: rng.permutation(tensor[0] + 4)[:n] - (2 if signed else 0))
    kernel = SampleKernel("descriptor_gather")
    rows = kernel.load(rows_type, (count,), draw)
    where = kernel.scalar(I32, Draw(column, column))
    for padding in ("zero", "nan"):
        source = _made(kernel, element, tensor, (1, width), padding=padding)
        kernel.store(kernel.b.descriptor_gather(source, rows, where))
    target = _made(kernel, element, tensor, (1, width), output=True)
    kernel.b.descriptor_scatter(target, rows, where, kernel.load(element, (count, width)))
    agree(kernel.finish())


@pytest.mark.parametrize("padding", ["zero", "nan"])
def test_a_selected_descriptor(padding: str, agree: Callable[..., Any]) -> None:
    kernel = SampleKernel("descriptor_select")
    first = _made(kernel, F32, (5, 6), (4, 8), padding=padding)
    second = _made(kernel, F32, (7, 9), (4, 8))
    selected = kernel.b.select(kernel.load(I1), first, second)
    kernel.store(kernel.b.descriptor_load(selected, _offsets(kernel, (3, 2))))
    agree(kernel.finish())
