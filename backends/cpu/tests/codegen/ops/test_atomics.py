"""Atomic updates: every kind and element, masks, lanes that share an address, many threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

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
    IntType,
    TileType,
    Type,
)
from tilewright.reference.numerics import decode
from tilewright.testing.threads import side_by_side
from tilewright_conformance.op_samples.kernel import ANY, INTEGRAL, SPECIAL, Draw, SampleKernel

_WORDS: list[Type] = [I32, U32, I64, U64]
_KINDS: list[tuple[str, Type]] = [
    *(("add", element) for element in (*_WORDS, F16, BF16, F32, F64)),
    *((kind, element) for kind in ("min", "max") for element in (*_WORDS, F32, F64)),
    *((kind, element) for kind in ("and", "or", "xor") for element in _WORDS),
    *(("xchg", element) for element in (*_WORDS, I16, U16, F16, BF16, F32, F64)),
]


def _draw(kind: str, element: Type) -> Draw:
    if isinstance(element, FloatType):
        return INTEGRAL if kind == "add" else SPECIAL
    return ANY


@pytest.mark.each_value
@pytest.mark.parametrize("order", ["relaxed", "acquire", "release", "acq_rel"])
@pytest.mark.parametrize(("kind", "element"), _KINDS, ids=str)
def test_tile_with_shared_addresses_and_mask(
    kind: str, element: Type, order: str, agree: Callable[..., Any]
) -> None:
    """Lanes with the same address execute in lane order, and each returns the value it found."""
    kernel = SampleKernel("atomic_rmw")
    b, shape = kernel.b, (5, 9)
    base = kernel.pointer(element, (8,), _draw(kind, element), output=True)
    places = kernel.load(I32, shape, Draw(0, 7))
    pointers = b.addptr(b.splat(base, result=TileType(shape, base.type)), places)
    mask = kernel.load(I1, shape) if order in ("relaxed", "acq_rel") else None
    old = b.atomic_rmw(
        pointers, kernel.load(element, shape, _draw(kind, element)), mask, kind=kind, order=order
    )
    if mask is not None:
        old = b.select(mask, old, kernel.constant(old.type, 0))
    kernel.store(old)
    agree(kernel.finish(), seed=len(kind))


@pytest.mark.parametrize(("kind", "element"), _KINDS, ids=str)
def test_scalar(kind: str, element: Type, agree: Callable[..., Any]) -> None:
    for masked in (None, False, True):
        kernel = SampleKernel("atomic_rmw", grid=(3, 1, 1))
        base = kernel.pointer(element, (1,), _draw(kind, element), output=True)
        mask = None if masked is None else kernel.constant(I1, masked)
        kernel.b.atomic_rmw(base, kernel.load(element, (), _draw(kind, element)), mask, kind=kind)
        agree(kernel.finish())


@pytest.mark.parametrize("scope", ["program", "device", "system"])
def test_scopes(scope: str, agree: Callable[..., Any]) -> None:
    kernel = SampleKernel("atomic_rmw", grid=(4, 1, 1))
    kernel.b.atomic_rmw(
        kernel.pointer(I64, (1,), output=True), kernel.constant(I64, 3), kind="add", scope=scope
    )
    agree(kernel.finish())


@pytest.mark.each_value
@pytest.mark.parametrize("element", [I16, U16, F16, BF16, I32, U32, F32, I64, U64, F64], ids=str)
@pytest.mark.parametrize("order", ["relaxed", "acquire", "release", "acq_rel"])
def test_compare_and_swap(element: Type, order: str, agree: Callable[..., Any]) -> None:
    """About half of the lanes find what they compare with; floats compare as bits, so NaN is
    found."""
    values = (
        Draw(array=lambda rng, count: rng.integers(0, 2, count))
        if isinstance(element, IntType)
        else _few_floats(element)
    )
    for shape in ((), (40,), (3, 7)):
        kernel = SampleKernel("atomic_cas")
        b = kernel.b
        base = kernel.pointer(element, (6,), values, output=True)
        if shape:
            pointers = b.addptr(
                b.splat(base, result=TileType(shape, base.type)),
                kernel.load(I32, shape, Draw(0, 5)),
            )
        else:
            pointers = base
        kernel.store(
            b.atomic_cas(
                pointers,
                kernel.load(element, shape, values),
                kernel.load(element, shape, values),
                order=order,
            )
        )
        agree(kernel.finish())


def _few_floats(element: Type) -> Draw:
    bits = {
        16: [0x0000, 0x8000, 0x7FC0],
        32: [0x00000000, 0x80000000, 0x7FC00000],
        64: [0, 1 << 63, 0x7FF8 << 48],
    }
    assert isinstance(element, FloatType)
    dtype = np.dtype(f"u{element.bits // 8}")
    choices = np.array(bits[element.bits], dtype)
    return Draw(
        array=lambda rng, count: rng.choice(choices, count).view(
            np.float16
            if element is F16
            else np.uint16
            if element is BF16
            else f"f{element.bits // 8}"
        )
    )


def test_unread_result(agree: Callable[..., Any]) -> None:
    kernel = SampleKernel("atomic_rmw")
    base = kernel.pointer(F32, (16,), INTEGRAL, output=True)
    kernel.b.atomic_rmw(kernel.pointers(base, (16,)), kernel.load(F32, (16,), INTEGRAL), kind="add")
    agree(kernel.finish())


@pytest.mark.parametrize(
    ("kind", "element", "total"),
    [
        ("add", F32, 20000.0),
        ("add", F16, 2048.0),
        ("add", BF16, 256.0),
        ("add", I64, 20000),
        ("max", F32, 19999.0),
    ],
    ids=str,
)
def test_threads_lose_no_update(kind: str, element: Type, total: float, compiled: Any) -> None:
    """20000 programs on four threads. Narrow floats stop growing where one is half a unit in the
    last place: at 2048 (f16) and 256 (bf16)."""
    kernel = SampleKernel("atomic_rmw")
    b = kernel.b
    base = kernel.pointer(element, (1,), output=True)
    program = b.program_id(axis=0)
    number = b.cast(program, result=element) if kind == "max" else kernel.constant(element, 1)
    b.atomic_rmw(base, number, kind=kind)
    sample = kernel.finish()
    run = compiled(sample.module)
    memory = np.zeros(
        1,
        np.uint16
        if element is BF16
        else np.float16
        if element is F16
        else np.int64
        if element is I64
        else np.float32,
    )
    programs, threads = 20000, 4
    slots = run.pack([memory], (programs, 1, 1))
    step = programs // threads
    side_by_side(threads, lambda i: run.function(slots.ctypes.data, i * step, (i + 1) * step))
    found = decode(memory, element)[0] if isinstance(element, FloatType) else memory[0]
    assert found == total
