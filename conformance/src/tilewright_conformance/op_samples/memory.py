"""Loads, stores, atomics, barriers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tilewright.ir.types import (
    BF16,
    F16,
    F32,
    F64,
    I1,
    I16,
    I32,
    I64,
    U16,
    U32,
    U64,
    FloatType,
    PointerType,
    TileType,
    Type,
)
from tilewright_conformance.op_samples.kernel import (
    ANY,
    FP8_KINDS,
    INTEGRAL,
    SHAPES,
    SPECIAL,
    STANDARD_FLOATS,
    WIDE_INTEGERS,
    ZEROS,
    Draw,
    Sample,
    SampleKernel,
    shape_text,
    shapes_for,
)

Samples = Iterator[Sample]
_STORED: tuple[Type, ...] = (*WIDE_INTEGERS, I1, *STANDARD_FLOATS, *FP8_KINDS)


def _draw(type_: Type) -> Draw:
    return SPECIAL if isinstance(type_, FloatType) and not type_.is_fp8 else ANY


def _load() -> Samples:
    for index, type_ in enumerate(_STORED):
        for shape in shapes_for(index):
            kernel = SampleKernel(f"load/{type_}/{shape_text(shape)}")
            kernel.store(kernel.load(type_, shape, _draw(type_)))
            yield kernel.finish()
        shape = SHAPES[(index + 1) % len(SHAPES)] if index % 3 else ()
        kernel = SampleKernel(f"load/{type_}/{shape_text(shape)}/other")
        mask, other = kernel.load(I1, shape), kernel.load(type_, shape)
        kernel.store(
            kernel.b.load(
                kernel.pointers(kernel.pointer(type_, shape or (1,), _draw(type_)), shape),
                mask=mask,
                other=other,
            )
        )
        yield kernel.finish()
        kernel = SampleKernel(f"load/{type_}/{shape_text(shape)}/mask")
        mask = kernel.load(I1, shape)
        kernel.store(
            kernel.b.load(
                kernel.pointers(kernel.pointer(type_, shape or (1,), _draw(type_)), shape),
                mask=mask,
            ),
            mask,
        )
        yield kernel.finish()
        kernel = SampleKernel(f"load/{type_}/{shape_text(shape)}/masked_off")
        mask = kernel.load(I1, shape)
        kernel.store(
            kernel.b.load(
                kernel.pointers(kernel.pointer(type_, shape or (1,), _draw(type_)), shape),
                mask=mask,
            )
        )
        yield kernel.finish()
    for attributes in (
        {"cache": "ca"},
        {"cache": "cg"},
        {"cache": "cs"},
        {"cache": "cv"},
        {"eviction": "first"},
        {"eviction": "last"},
        {"volatile": True},
    ):
        ((name, setting),) = attributes.items()
        kernel = SampleKernel(f"load/f32/{name}_{setting}")
        given: dict[str, Any] = dict(attributes)
        kernel.store(kernel.b.load(kernel.pointers(kernel.pointer(F32, (64,)), (64,)), **given))
        yield kernel.finish()
    yield _tail()
    yield _gathered("load")
    yield _reversed()
    yield _through_table("load")


def _tail() -> Sample:
    """The idiom of a loop's tail: a mask of offsets below a length, in a grid of programs."""
    length, block = 1000, 256
    kernel = SampleKernel("load/f32/tail", grid=(4, 1, 1))
    b = kernel.b
    source, target = (
        kernel.pointer(F32, (length,)),
        kernel.pointer(F32, (length,), ZEROS, output=True),
    )
    n = kernel.scalar(I32, Draw(length, length))
    first = b.mul(b.program_id(axis=0), kernel.constant(I32, block))
    offsets = b.add(b.splat(first, result=TileType((block,), I32)), kernel.offsets((block,)))
    mask = b.cmp(offsets, b.splat(n, result=offsets.type), predicate="lt")
    pointers = [
        b.addptr(b.splat(pointer, result=TileType((block,), pointer.type)), offsets)
        for pointer in (source, target)
    ]
    b.store(
        pointers[1],
        b.load(pointers[0], mask=mask, other=kernel.constant(TileType((block,), F32), 1.0)),
        mask=mask,
    )
    return kernel.finish()


def _gathered(name: str) -> Sample:
    """Addresses in no order, some of them twice."""
    kernel = SampleKernel(f"{name}/f32/gathered")
    base = kernel.pointer(F32, (64,))
    index = kernel.load(I64, (4, 8), Draw(0, 63))
    kernel.store(
        kernel.b.load(
            kernel.b.addptr(kernel.b.splat(base, result=TileType((4, 8), base.type)), index)
        )
    )
    return kernel.finish()


def _reversed() -> Sample:
    kernel = SampleKernel("load/i32/reversed_rows")
    b = kernel.b
    base = kernel.pointer(I32, (8, 16))
    row, column = (
        b.expand_dims(kernel.offsets((extent,)), axis=axis) for extent, axis in ((8, 1), (16, 0))
    )
    last = b.sub(kernel.constant(row.type, 7), row)
    start = b.broadcast(b.mul(last, kernel.constant(row.type, 16)), result=TileType((8, 16), I32))
    offsets = b.add(start, b.broadcast(column, result=TileType((8, 16), I32)))
    kernel.store(b.load(b.addptr(b.splat(base, result=TileType((8, 16), base.type)), offsets)))
    return kernel.finish()


def _through_table(name: str) -> Sample:
    """Pointers written to memory and read back."""
    kernel = SampleKernel(f"{name}/ptr/table")
    b = kernel.b
    values = kernel.pointers(kernel.pointer(F32, (8,)), (8,))
    table = kernel.pointers(kernel.pointer(PointerType(F32), (8,), ZEROS), (8,))
    b.store(table, values)
    b.barrier()
    kernel.store(b.load(b.load(table)))
    return kernel.finish()


def _store() -> Samples:
    for index, type_ in enumerate(_STORED):
        for shape in shapes_for(index):
            for masked in (False, True):
                kernel = SampleKernel(
                    f"store/{type_}/{shape_text(shape)}{'/mask' if masked else ''}"
                )
                target = kernel.pointers(
                    kernel.pointer(type_, shape or (1,), _draw(type_), output=True), shape
                )
                value = kernel.load(type_, shape, _draw(type_))
                kernel.b.store(target, value, mask=kernel.load(I1, shape) if masked else None)
                yield kernel.finish()
    for name, setting in (
        *(("cache", value) for value in ("wb", "cg", "cs", "wt")),
        ("eviction", "first"),
        ("eviction", "last"),
    ):
        kernel = SampleKernel(f"store/f32/{name}_{setting}")
        target = kernel.pointers(kernel.pointer(F32, (64,), ZEROS, output=True), (64,))
        kernel.b.store(target, kernel.load(F32, (64,)), **{name: setting})
        yield kernel.finish()
    kernel = SampleKernel("store/i32/permuted")
    base = kernel.pointer(I32, (64,), ZEROS, output=True)
    index_value = kernel.load(I32, (64,), Draw(array=lambda rng, count: rng.permutation(count)))
    kernel.b.store(
        kernel.b.addptr(kernel.b.splat(base, result=TileType((64,), base.type)), index_value),
        kernel.load(I32, (64,)),
    )
    yield kernel.finish()
    kernel = SampleKernel("store/i32/then_load")
    target = kernel.pointers(kernel.pointer(I32, (16,), output=True), (16,))
    before = kernel.b.load(target)
    kernel.b.store(target, kernel.b.add(before, kernel.constant(before.type, 3)))
    kernel.store(before)
    kernel.store(kernel.b.load(target))
    yield kernel.finish()
    yield _through_table("store")


_KINDS: dict[str, tuple[Type, ...]] = {
    "add": (I32, U32, I64, U64, F16, BF16, F32, F64),
    "min": (I32, U32, I64, U64, F32, F64),
    "max": (I32, U32, I64, U64, F32, F64),
    "and": (I32, U64),
    "or": (U32, I64),
    "xor": (I32, I64),
    "xchg": (I16, U16, I32, U32, I64, U64, F16, BF16, F32, F64),
}
_ORDERS = ("acq_rel", "relaxed", "acquire", "release")
_SCOPES = ("device", "program", "system")


def _numbers(kind: str, type_: Type) -> Draw:
    """Values that give one result in any order."""
    return INTEGRAL if isinstance(type_, FloatType) and kind == "add" else ANY


def _atomic_rmw() -> Samples:
    index = 0
    for kind, types in _KINDS.items():
        for type_ in types:
            index += 1
            draw = _numbers(kind, type_)
            settings: dict[str, Any] = {
                "kind": kind,
                "order": _ORDERS[index % 4],
                "scope": _SCOPES[index % 3],
            }
            for shape in shapes_for(index):
                kernel = SampleKernel(f"atomic_rmw/{kind}/{type_}/{shape_text(shape)}")
                target = kernel.pointers(
                    kernel.pointer(type_, shape or (1,), draw, output=True), shape
                )
                kernel.store(
                    kernel.b.atomic_rmw(target, kernel.load(type_, shape, draw), **settings)
                )
                yield kernel.finish()
            kernel = SampleKernel(f"atomic_rmw/{kind}/{type_}/mask")
            mask = kernel.load(I1, (32,))
            target = kernel.pointers(kernel.pointer(type_, (32,), draw, output=True), (32,))
            kernel.store(
                kernel.b.atomic_rmw(target, kernel.load(type_, (32,), draw), mask=mask, **settings),
                mask,
            )
            yield kernel.finish()
            if kind != "xchg":
                yield _colliding(kind, type_, draw, settings)


def _colliding(kind: str, type_: Type, draw: Draw, settings: dict[str, Any]) -> Sample:
    """Atomics of lanes and programs that collide at few addresses.

    Old values depend on the order and stay unread.
    """
    kernel = SampleKernel(f"atomic_rmw/{kind}/{type_}/collisions", grid=(3, 2, 1))
    base = kernel.pointer(type_, (4,), draw, output=True)
    index = kernel.load(I32, (16,), Draw(0, 3))
    kernel.b.atomic_rmw(
        kernel.b.addptr(kernel.b.splat(base, result=TileType((16,), base.type)), index),
        kernel.load(type_, (16,), draw),
        **settings,
    )
    return kernel.finish()


def _few(rng: np.random.Generator, count: int) -> Any:
    return rng.integers(0, 2, count)


def _atomic_cas() -> Samples:
    few = Draw(array=_few)
    for index, type_ in enumerate((I16, U16, I32, U32, I64, U64, F16, F32, F64)):
        for shape in shapes_for(index):
            kernel = SampleKernel(f"atomic_cas/{type_}/{shape_text(shape)}")
            target = kernel.pointers(kernel.pointer(type_, shape or (1,), few, output=True), shape)
            compare, value = kernel.load(type_, shape, few), kernel.load(type_, shape, ANY)
            kernel.store(
                kernel.b.atomic_cas(
                    target, compare, value, order=_ORDERS[index % 4], scope=_SCOPES[index % 3]
                )
            )
            yield kernel.finish()
    kernel = SampleKernel("atomic_cas/i32/one_winner", grid=(4, 1, 1))
    b = kernel.b
    lock, winners = (
        kernel.pointer(I32, (1,), ZEROS, output=True),
        kernel.pointer(I32, (1,), ZEROS, output=True),
    )
    zero, one = kernel.constant(I32, 0), kernel.constant(I32, 1)
    won = b.cmp(b.atomic_cas(lock, zero, one), zero, predicate="eq")
    b.atomic_rmw(winners, one, mask=won, kind="add")
    yield kernel.finish()


_WHOLE: tuple[Type, ...] = (*WIDE_INTEGERS, *STANDARD_FLOATS, *FP8_KINDS)


def _atomic_load() -> Samples:
    for index, type_ in enumerate(_WHOLE):
        settings: dict[str, Any] = {
            "order": ("relaxed", "acquire")[index % 2],
            "scope": _SCOPES[index % 3],
        }
        for shape in shapes_for(index):
            kernel = SampleKernel(f"atomic_load/{type_}/{shape_text(shape)}")
            kernel.store(
                kernel.b.atomic_load(
                    kernel.pointers(kernel.pointer(type_, shape or (1,), _draw(type_)), shape),
                    **settings,
                )
            )
            yield kernel.finish()
        kernel = SampleKernel(f"atomic_load/{type_}/mask")
        mask = kernel.load(I1, (32,))
        kernel.store(
            kernel.b.atomic_load(
                kernel.pointers(kernel.pointer(type_, (32,), _draw(type_)), (32,)),
                mask=mask,
                **settings,
            ),
            mask,
        )
        yield kernel.finish()


def _atomic_store() -> Samples:
    for index, type_ in enumerate(_WHOLE):
        settings: dict[str, Any] = {
            "order": ("relaxed", "release")[index % 2],
            "scope": _SCOPES[index % 3],
        }
        for shape in shapes_for(index):
            kernel = SampleKernel(f"atomic_store/{type_}/{shape_text(shape)}")
            target = kernel.pointers(
                kernel.pointer(type_, shape or (1,), ZEROS, output=True), shape
            )
            kernel.b.atomic_store(target, kernel.load(type_, shape, _draw(type_)), **settings)
            yield kernel.finish()
        kernel = SampleKernel(f"atomic_store/{type_}/mask")
        mask = kernel.load(I1, (32,))
        target = kernel.pointers(kernel.pointer(type_, (32,), ZEROS, output=True), (32,))
        kernel.b.atomic_store(
            target, kernel.load(type_, (32,), _draw(type_)), mask=mask, **settings
        )
        yield kernel.finish()


def _clock() -> Samples:
    """The difference of two readings of the clock, which lies between zero and an hour."""
    kernel = SampleKernel("clock/difference")
    b = kernel.b
    passed = b.sub(b.sub(b.constant(value=0, result=I64), b.clock()), b.neg(b.clock()))
    hour = b.constant(value=3600 * 10**9, result=I64)
    within = b.and_(
        b.cmp(passed, b.constant(value=0, result=I64), predicate="ge"),
        b.cmp(passed, hour, predicate="lt"),
    )
    kernel.store(b.cast(within, result=I32))
    yield kernel.finish()


def _barrier() -> Samples:
    for type_ in (I32, F16):
        kernel = SampleKernel(f"barrier/{type_}")
        b = kernel.b
        base = kernel.pointer(type_, (32,), ZEROS, output=True)
        b.store(kernel.pointers(base, (32,)), kernel.load(type_, (32,)))
        b.barrier()
        backwards = b.sub(kernel.constant(TileType((32,), I32), 31), kernel.offsets((32,)))
        kernel.store(b.load(b.addptr(b.splat(base, result=TileType((32,), base.type)), backwards)))
        yield kernel.finish()


SAMPLES: dict[str, Callable[[], Samples]] = {
    "load": _load,
    "store": _store,
    "atomic_rmw": _atomic_rmw,
    "atomic_cas": _atomic_cas,
    "atomic_load": _atomic_load,
    "atomic_store": _atomic_store,
    "clock": _clock,
    "barrier": _barrier,
}
