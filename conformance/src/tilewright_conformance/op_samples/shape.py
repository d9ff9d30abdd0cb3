"""Operations that move or repeat elements."""

from __future__ import annotations

from collections.abc import Callable, Iterator

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
    U16,
    U32,
    FloatType,
    TileType,
    Type,
)
from tilewright_conformance.op_samples.kernel import (
    FP8_KINDS,
    SHAPES,
    Draw,
    Sample,
    SampleKernel,
    shape_text,
)

Samples = Iterator[Sample]
Extents = tuple[int, ...]

#: Element types to move: one of each width and kind.
_MOVED: tuple[Type, ...] = (F32, I32, F16, I8, I1, F64, BF16, I64, U16, FloatType("f8e4m3fn"))


def _elements(index: int) -> Type:
    return _MOVED[index % len(_MOVED)]


def _splat() -> Samples:
    for index, type_ in enumerate((*_MOVED, *FP8_KINDS[1:])):
        shape = SHAPES[index % len(SHAPES)]
        kernel = SampleKernel(f"splat/{type_}/{shape_text(shape)}")
        kernel.store(kernel.b.splat(kernel.load(type_), result=TileType(shape, type_)))
        yield kernel.finish()
    kernel = SampleKernel("splat/ptr")
    pointer = kernel.pointer(F32, (1,))
    kernel.store(kernel.b.load(kernel.b.splat(pointer, result=TileType((4, 4), pointer.type))))
    yield kernel.finish()


def _unsplat() -> Samples:
    for index, shape in enumerate(((1,), (1, 1), (1, 1, 1))):
        for type_ in (_elements(index), _elements(index + 3)):
            kernel = SampleKernel(f"unsplat/{type_}/{shape_text(shape)}")
            kernel.store(kernel.b.unsplat(kernel.load(type_, shape)))
            yield kernel.finish()


def _broadcast() -> Samples:
    pairs: tuple[tuple[Extents, Extents], ...] = (
        ((1,), (16,)),
        ((4, 1), (4, 8)),
        ((1, 8), (4, 8)),
        ((1, 1), (2, 4)),
        ((2, 1, 4), (2, 8, 4)),
        ((1, 4, 1), (2, 4, 16)),
        ((8, 16), (8, 16)),
        ((64, 1), (64, 2)),
    )
    for index, (before, after) in enumerate(pairs):
        for type_ in (_elements(index), _elements(index + 5)):
            kernel = SampleKernel(f"broadcast/{type_}/{shape_text(before)}_{shape_text(after)}")
            kernel.store(
                kernel.b.broadcast(kernel.load(type_, before), result=TileType(after, type_))
            )
            yield kernel.finish()


def _expand_dims() -> Samples:
    for index, (shape, axis) in enumerate(
        (((16,), 0), ((16,), 1), ((4, 8), 0), ((4, 8), 1), ((4, 8), 2), ((1,), 0), ((2, 1, 4), 3))
    ):
        type_ = _elements(index)
        kernel = SampleKernel(f"expand_dims/{type_}/{shape_text(shape)}/{axis}")
        kernel.store(kernel.b.expand_dims(kernel.load(type_, shape), axis=axis))
        yield kernel.finish()


def _reshape() -> Samples:
    pairs: tuple[tuple[Extents, Extents], ...] = (
        ((16,), (4, 4)),
        ((4, 8), (32,)),
        ((4, 8), (8, 4)),
        ((2, 4, 8), (8, 8)),
        ((64,), (2, 8, 4)),
        ((1, 16), (16, 1)),
        ((1,), (1, 1, 1)),
        ((2, 2, 2), (4, 1, 2)),
    )
    for index, (before, after) in enumerate(pairs):
        for type_ in (_elements(index), _elements(index + 4)):
            kernel = SampleKernel(f"reshape/{type_}/{shape_text(before)}_{shape_text(after)}")
            kernel.store(
                kernel.b.reshape(kernel.load(type_, before), result=TileType(after, type_))
            )
            yield kernel.finish()
    kernel = SampleKernel("reshape/f32/reorder")
    value = kernel.b.reshape(
        kernel.load(F32, (4, 8), Draw(integral=True)), reorder=True, result=TileType((32,), F32)
    )
    combine = kernel.region(
        (F32, F32), lambda a, b: kernel.b.add(a, b)
    )  # any order: only their sum is known
    kernel.store(kernel.b.region_op("reduce", [value], regions=[combine], axis=0).result)
    yield kernel.finish()


def _permute() -> Samples:
    cases: tuple[tuple[Extents, Extents], ...] = (
        ((16,), (0,)),
        ((4, 8), (1, 0)),
        ((64, 16), (1, 0)),
        ((1, 16), (1, 0)),
        ((2, 4, 8), (2, 0, 1)),
        ((2, 4, 8), (0, 2, 1)),
        ((2, 4, 8), (1, 0, 2)),
        ((2, 2, 4, 2), (3, 1, 0, 2)),
    )
    for index, (shape, order) in enumerate(cases):
        for type_ in (_elements(index), _elements(index + 7)):
            kernel = SampleKernel(f"permute/{type_}/{shape_text(shape)}/{shape_text(order)}")
            kernel.store(kernel.b.permute(kernel.load(type_, shape), order=order))
            yield kernel.finish()


def _cat() -> Samples:
    cases: tuple[tuple[Extents, Extents, int], ...] = (
        ((16,), (16,), 0),
        ((1,), (1,), 0),
        ((4, 8), (4, 8), 0),
        ((4, 8), (4, 8), 1),
        ((2, 4, 4), (2, 4, 4), 1),
        ((4, 2), (4, 6), 1),
    )
    for index, (left, right, axis) in enumerate(cases):
        type_ = _elements(index)
        kernel = SampleKernel(f"cat/{type_}/{shape_text(left)}_{shape_text(right)}/{axis}")
        kernel.store(kernel.b.cat(kernel.load(type_, left), kernel.load(type_, right), axis=axis))
        yield kernel.finish()


def _join() -> Samples:
    for index, shape in enumerate(((1,), (16,), (4, 8), (2, 4, 8))):
        type_ = _elements(index)
        kernel = SampleKernel(f"join/{type_}/{shape_text(shape)}")
        kernel.store(kernel.b.join(kernel.load(type_, shape), kernel.load(type_, shape)))
        yield kernel.finish()


def _split() -> Samples:
    for index, shape in enumerate(((2,), (16, 2), (4, 8, 2), (1, 2))):
        type_ = _elements(index)
        kernel = SampleKernel(f"split/{type_}/{shape_text(shape)}")
        for part in kernel.b.split(kernel.load(type_, shape)):
            kernel.store(part)
        yield kernel.finish()


def _gather() -> Samples:
    cases: tuple[tuple[Extents, Extents, int], ...] = (
        ((16,), (16,), 0),
        ((16,), (4,), 0),
        ((4,), (32,), 0),
        ((4, 8), (16, 8), 0),
        ((4, 8), (4, 2), 1),
        ((2, 4, 8), (2, 16, 8), 1),
    )
    for index, (shape, indices, axis) in enumerate(cases):
        for index_type in (I32, (I64, U8, I16, U32)[index % 4]):
            type_ = _elements(index)
            kernel = SampleKernel(
                f"gather/{type_}_{index_type}/{shape_text(shape)}_{shape_text(indices)}/{axis}"
            )
            index_value = kernel.load(index_type, indices, Draw(0, shape[axis] - 1))
            kernel.store(kernel.b.gather(kernel.load(type_, shape), index_value, axis=axis))
            yield kernel.finish()


def _histogram() -> Samples:
    for index, type_ in enumerate((I32, U8, I64, I8, U32)):
        for masked in (False, True):
            count, bins = (16, 256, 128)[index % 3], (8, 16, 128, 1)[index % 4]
            kernel = SampleKernel(f"histogram/{type_}/{count}_{bins}{'_mask' if masked else ''}")
            signed = type_ not in (U8, U32)
            value = kernel.load(type_, (count,), Draw(-2 if signed else 0, min(bins + 1, 127)))
            mask = kernel.load(I1, (count,)) if masked else None
            kernel.store(kernel.b.histogram(value, mask=mask, bins=bins))
            yield kernel.finish()


SAMPLES: dict[str, Callable[[], Samples]] = {
    "splat": _splat,
    "unsplat": _unsplat,
    "broadcast": _broadcast,
    "expand_dims": _expand_dims,
    "reshape": _reshape,
    "permute": _permute,
    "cat": _cat,
    "join": _join,
    "split": _split,
    "gather": _gather,
    "histogram": _histogram,
}
