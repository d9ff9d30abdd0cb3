"""Tensor descriptors, made in the kernel and given as arguments."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tilewright.ir import Value
from tilewright.ir.types import (
    BF16,
    F16,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    U8,
    U32,
    U64,
    DescriptorType,
    FloatType,
    TileType,
    Type,
)
from tilewright_conformance.op_samples.kernel import (
    ANY,
    INTEGRAL,
    Draw,
    Sample,
    SampleKernel,
    shape_text,
)

Samples = Iterator[Sample]
Extents = tuple[int, ...]

#: (tensor, block, offsets): inside, over each edge, and beyond
_PLACES: tuple[tuple[Extents, Extents, Extents], ...] = (
    ((32,), (16,), (8,)),
    ((20,), (16,), (10,)),
    ((20,), (8,), (-3,)),
    ((16, 32), (4, 8), (4, 16)),
    ((10, 20), (4, 8), (8, 16)),
    ((10, 20), (4, 8), (-2, -3)),
    ((10, 20), (4, 8), (40, 0)),
    ((4, 6, 8), (2, 4, 8), (3, 4, 0)),
    ((2, 3, 4, 8), (1, 2, 2, 8), (1, 2, 3, -4)),
)
_ELEMENTS: tuple[Type, ...] = (F32, F16, I8, BF16, I32, F64, U8, I64, FloatType("f8e5m2"), I16)


def _make(
    kernel: SampleKernel,
    element: Type,
    tensor: Extents,
    block: Extents,
    draw: Draw = ANY,
    *,
    output: bool = False,
    **attributes: Any,
) -> Value:
    """A descriptor of a dense tensor that is a pointer argument, its extents scalar arguments."""
    base = kernel.pointer(element, tensor, draw, output=output)
    extents = [kernel.scalar(I64, Draw(extent, extent)) for extent in tensor]
    strides = [kernel.constant(I64, math.prod(tensor[axis + 1 :])) for axis in range(len(tensor))]
    made: Value = kernel.b.make_descriptor(
        base, extents, strides, result=DescriptorType(block, element), **attributes
    )
    return made


def _offsets(kernel: SampleKernel, offsets: Sequence[int], type_: Type = I32) -> list[Value]:
    return [kernel.scalar(type_, Draw(offset, offset)) for offset in offsets]


def _make_descriptor() -> Samples:
    for index, (tensor, block, offsets) in enumerate(_PLACES):
        element = _ELEMENTS[index % len(_ELEMENTS)]
        for padding in ("zero", "nan") if isinstance(element, FloatType) else ("zero",):
            kernel = SampleKernel(f"make_descriptor/{element}/{shape_text(tensor)}/{padding}")
            descriptor = _make(kernel, element, tensor, block, padding=padding)
            kernel.store(kernel.b.descriptor_load(descriptor, _offsets(kernel, offsets)))
            yield kernel.finish()
    kernel = SampleKernel("make_descriptor/f32/strided")
    extents, strides = (
        [kernel.constant(I64, value) for value in values] for values in ((7, 5), (16, 2))
    )
    descriptor = kernel.b.make_descriptor(
        kernel.pointer(F32, (7, 16)), extents, strides, result=DescriptorType((8, 8), F32)
    )
    kernel.store(kernel.b.descriptor_load(descriptor, _offsets(kernel, (0, 1))))
    yield kernel.finish()
    for tensor, block, offsets in (
        ((7, 16), (8, 32), (-1, 4)),
        ((2, 3, 12), (2, 4, 32), (1, -2, 8)),
    ):
        kernel = SampleKernel(f"make_descriptor/f32/aligned/{shape_text(tensor)}")
        aligned = _make(kernel, F32, tensor, block, aligned=True)
        kernel.store(
            kernel.b.descriptor_load(aligned, [kernel.constant(I32, offset) for offset in offsets])
        )
        yield kernel.finish()


def _numbers(operation: str) -> Samples:
    """Each extent, or each stride, of descriptors: arguments or kernel-made, dense or not."""
    for index, (tensor, block, _) in enumerate(_PLACES):
        element = _ELEMENTS[(index + 2) % len(_ELEMENTS)]
        for made in (True, False):
            origin = "made" if made else "argument"
            kernel = SampleKernel(
                f"{operation}/{element}/{origin}/{shape_text(tensor)}/{index}",
            )
            descriptor = (
                _make(kernel, element, tensor, block)
                if made
                else kernel.descriptor(element, tensor, block)
            )
            for axis in range(len(tensor)):
                kernel.store(getattr(kernel.b, operation)(descriptor, axis=axis))
            yield kernel.finish()
    kernel = SampleKernel(f"{operation}/f32/strided")
    extents, strides = (
        [kernel.scalar(I64, Draw(value, value)) for value in values]
        for values in ((7, 5), (2**33 + 16, 2))
    )
    descriptor = kernel.b.make_descriptor(
        kernel.pointer(F32, (1,)), extents, strides, result=DescriptorType((8, 8), F32)
    )
    for axis in range(2):
        kernel.store(getattr(kernel.b, operation)(descriptor, axis=axis))
    yield kernel.finish()


def _descriptor_load() -> Samples:
    for index, (tensor, block, offsets) in enumerate(_PLACES):
        element = _ELEMENTS[(index + 3) % len(_ELEMENTS)]
        kernel = SampleKernel(
            f"descriptor_load/{element}/made/{shape_text(tensor)}/{shape_text(offsets)}"
        )
        descriptor = _make(kernel, element, tensor, block)
        kernel.store(
            kernel.b.descriptor_load(descriptor, _offsets(kernel, offsets, (I32, I64)[index % 2]))
        )
        yield kernel.finish()
        kernel = SampleKernel(
            f"descriptor_load/{element}/argument/{shape_text(tensor)}/{shape_text(offsets)}"
        )
        kernel.store(
            kernel.b.descriptor_load(
                kernel.descriptor(element, tensor, block), _offsets(kernel, offsets)
            )
        )
        yield kernel.finish()


def _descriptor_store() -> Samples:
    for index, (tensor, block, offsets) in enumerate(_PLACES):
        element = _ELEMENTS[(index + 5) % len(_ELEMENTS)]
        for made in (True, False):
            origin = "made" if made else "argument"
            kernel = SampleKernel(
                f"descriptor_store/{element}/{origin}/{shape_text(tensor)}/{shape_text(offsets)}"
            )
            if made:
                descriptor = _make(kernel, element, tensor, block, output=True)
            else:
                descriptor = kernel.descriptor(element, tensor, block, output=True)
            kernel.b.descriptor_store(
                descriptor, _offsets(kernel, offsets), kernel.load(element, block)
            )
            yield kernel.finish()


_REDUCED: dict[str, tuple[Type, ...]] = {
    "add": (I32, U64, F32, F16, BF16),
    "min": (I32, U32, F32),
    "max": (I64, U32, F64),
    "and": (I32,),
    "or": (U32,),
    "xor": (I64,),
}


def _descriptor_reduce() -> Samples:
    index = 0
    for kind, types in _REDUCED.items():
        for element in types:
            index += 1
            tensor, block, offsets = _PLACES[index % len(_PLACES)]
            draw = INTEGRAL if isinstance(element, FloatType) and kind == "add" else ANY
            kernel = SampleKernel(
                f"descriptor_reduce/{kind}/{element}/{shape_text(tensor)}", grid=(2, 1, 1)
            )
            descriptor = _make(kernel, element, tensor, block, draw, output=True)
            kernel.b.descriptor_reduce(
                descriptor, _offsets(kernel, offsets), kernel.load(element, block, draw), kind=kind
            )
            yield kernel.finish()


def _rows(
    kernel: SampleKernel, count: int, tensor: Extents, type_: Type, *, distinct: bool = False
) -> Value:
    """Row numbers, some outside the tensor."""
    draw = (
        Draw(array=lambda rng, n: rng.permutation(tensor[0] + 4)[:n] - 2)
        if distinct
        else Draw(-1, tensor[0])
    )
    return kernel.load(type_, (count,), draw)


def _descriptor_gather() -> Samples:
    for index, (element, count, width, column) in enumerate(
        ((F32, 8, 16, 0), (F16, 16, 8, 16), (I8, 8, 32, -2), (BF16, 32, 8, 20))
    ):
        tensor, rows_type = (12, 24), (I32, I64)[index % 2]
        kernel = SampleKernel(f"descriptor_gather/{element}/{count}x{width}/{column}")
        descriptor = _make(kernel, element, tensor, (1, width))
        rows = _rows(kernel, count, tensor, rows_type)
        kernel.store(
            kernel.b.descriptor_gather(descriptor, rows, kernel.scalar(I32, Draw(column, column)))
        )
        yield kernel.finish()


def _descriptor_scatter() -> Samples:
    for element, count, width, column in ((F32, 8, 16, 0), (F16, 16, 8, 20), (I32, 8, 8, -2)):
        tensor = (14, 24)
        kernel = SampleKernel(f"descriptor_scatter/{element}/{count}x{width}/{column}")
        descriptor = _make(kernel, element, tensor, (1, width), output=True)
        rows = _rows(kernel, count, tensor, I32, distinct=True)
        value = kernel.load(element, TileType((count, width), element).shape)
        kernel.b.descriptor_scatter(
            descriptor, rows, kernel.scalar(I32, Draw(column, column)), value
        )
        yield kernel.finish()


SAMPLES: dict[str, Callable[[], Samples]] = {
    "make_descriptor": _make_descriptor,
    "descriptor_extent": lambda: _numbers("descriptor_extent"),
    "descriptor_stride": lambda: _numbers("descriptor_stride"),
    "descriptor_load": _descriptor_load,
    "descriptor_store": _descriptor_store,
    "descriptor_reduce": _descriptor_reduce,
    "descriptor_gather": _descriptor_gather,
    "descriptor_scatter": _descriptor_scatter,
}
