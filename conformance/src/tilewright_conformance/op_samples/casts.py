"""Casts and bitcasts between every pair of types."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tilewright.ir.types import (
    F32,
    FLOATS,
    I64,
    INTEGERS,
    FloatType,
    IntType,
    PointerType,
    Type,
    bit_width,
    with_element,
)
from tilewright.passes.math.float_formats import max_finite
from tilewright_conformance.op_samples.kernel import (
    ANY,
    SHAPES,
    SPECIAL,
    Draw,
    Sample,
    SampleKernel,
    shape_text,
    tile_or_scalar,
)

_NUMBERS: tuple[IntType | FloatType, ...] = (*INTEGERS, *FLOATS)


def _range(source: IntType | FloatType, target: IntType | FloatType) -> Draw:
    """Values of ``source`` for which a cast to ``target`` is defined and within range."""
    if target.bits == 1 or (isinstance(source, IntType) and isinstance(target, IntType)):
        return SPECIAL
    maximum = float(source.maximum) if isinstance(source, IntType) else max_finite(source)
    minimum = float(source.minimum) if isinstance(source, IntType) else -maximum
    if isinstance(target, IntType):
        # A float below the limit by one bit of its own precision truncates into range.
        assert isinstance(source, FloatType)
        shrink = 1.0 - 2.0 ** -min(source.mantissa, 40)
        return Draw(
            max(minimum, float(target.minimum)), min(maximum, float(target.maximum) * shrink)
        )
    limit = max_finite(target)
    if isinstance(source, IntType):
        low, high = int(max(minimum, -min(limit, 2.0**62))), int(min(maximum, min(limit, 2.0**62)))
        return Draw(max(low, source.minimum), min(high, source.maximum), special=True)
    return SPECIAL if limit >= maximum else Draw(-limit * 0.9, limit * 0.9, special=True)


def _one(
    source: Type,
    target: Type,
    shape: tuple[int, ...],
    draw: Draw,
    variant: str = "",
    rounding: str = "rtne",
) -> Sample:
    name = "/".join(filter(None, (f"cast/{source}_{target}", shape_text(shape), variant)))
    kernel = SampleKernel(name)
    kernel.store(
        kernel.b.cast(
            kernel.load(source, shape, draw),
            rounding=rounding,
            result=tile_or_scalar(shape, target),
        )
    )
    return kernel.finish()


def _cast() -> Iterator[Sample]:
    index = 0
    for source in _NUMBERS:
        for target in _NUMBERS:
            index += 1
            shape = () if index % 5 == 0 else SHAPES[index % len(SHAPES)]
            yield _one(source, target, shape, _range(source, target))
            if isinstance(source, FloatType) and isinstance(target, FloatType):
                if bit_width(target) < bit_width(source):
                    limit = min(max_finite(target), max_finite(source))
                    yield _one(source, target, (64,), Draw(-limit * 0.9, limit * 0.9), "rtz", "rtz")
                    yield _one(source, target, (64,), Draw(-limit * 1e-3, limit * 1e-3), "small")
                if max_finite(target) < max_finite(source):
                    yield _one(source, target, (64,), SPECIAL, "overflow")


def _bitcast() -> Iterator[Sample]:
    index = 0
    for source in _NUMBERS:
        for target in _NUMBERS:
            if source is target or source.bits != target.bits or source.bits == 1:
                continue
            index += 1
            shape = () if index % 5 == 0 else SHAPES[index % len(SHAPES)]
            kernel = SampleKernel(f"bitcast/{source}_{target}/{shape_text(shape)}")
            value = kernel.load(source, shape, ANY)
            kernel.store(kernel.b.bitcast(value, result=with_element(value.type, target)))
            yield kernel.finish()
    for shape in ((), (16,)):
        kernel = SampleKernel(f"bitcast/ptr_i64/{shape_text(shape)}")
        b = kernel.b
        pointers = kernel.pointers(kernel.pointer(F32, shape or (1,)), shape)
        address = b.bitcast(pointers, result=with_element(pointers.type, I64))
        other = b.bitcast(pointers, result=with_element(pointers.type, PointerType(I64)))
        back = b.bitcast(b.add(address, kernel.constant(address.type, 0)), result=pointers.type)
        kernel.store(b.load(back))
        kernel.store(b.sub(b.bitcast(other, result=address.type), address))
        yield kernel.finish()


SAMPLES: dict[str, Callable[[], Iterator[Sample]]] = {"cast": _cast, "bitcast": _bitcast}
