"""Constants, program ids and elementwise operations, casts excepted."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tilewright.ir.types import (
    BF16,
    F16,
    F32,
    F64,
    I1,
    I8,
    I32,
    I64,
    U8,
    U32,
    U64,
    FloatType,
    IntType,
    PointerType,
    TileType,
    Type,
)
from tilewright_conformance.op_samples.kernel import (
    ANY,
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


def apply(
    name: str,
    types: Sequence[Type],
    shape: tuple[int, ...],
    draws: Sequence[Draw],
    *,
    variant: str = "",
    ulp: float = 0.0,
    **attributes: Any,
) -> Sample:
    """One application of an elementwise operation to inputs of ``types``."""
    kernel = SampleKernel(
        "/".join(
            filter(
                None, (name, "_".join(dict.fromkeys(map(str, types))), shape_text(shape), variant)
            )
        )
    )
    inputs = [kernel.load(type_, shape, draw) for type_, draw in zip(types, draws, strict=True)]
    method = getattr(kernel.b, f"{name}_" if name in ("and", "or") else name)
    kernel.store(method(*inputs, **attributes))
    return kernel.finish(ulp=ulp)


def _constant() -> Samples:
    values: dict[Type, tuple[float, ...]] = {
        type_: (type_.minimum, 0, 1, type_.maximum) for type_ in WIDE_INTEGERS
    }
    values[I1] = (True, False)
    values[F16] = (0.0, -0.0, 1.5, 65504.0, -math.inf, math.nan, 2.0**-24)
    values[BF16] = (0.0, -0.0, 1.5, 3.0e38, math.inf, math.nan)
    values[F32] = (0.0, -0.0, 0.1, -1e-38, 3.4028234663852886e38, math.inf, math.nan)
    values[F64] = (0.0, -0.0, 0.1, 5e-324, 1.7976931348623157e308, -math.inf, math.nan)
    for type_, numbers in values.items():
        kernel = SampleKernel(f"constant/{type_}")
        for number in numbers:
            kernel.store(kernel.b.constant(value=number, result=type_))
            kernel.store(kernel.constant(TileType((8,), type_), number))
        yield kernel.finish()
    kernel = SampleKernel("constant/ptr")
    null = kernel.b.constant(value=0, result=PointerType(F32))
    kernel.store(kernel.b.bitcast(null, result=I64))
    yield kernel.finish()


def _arange() -> Samples:
    for start, end in (
        (0, 1),
        (0, 8),
        (-4, 4),
        (3, 19),
        (0, 1024),
        (2**31 - 16, 2**31),
        (-(2**31), -(2**31) + 2),
    ):
        kernel = SampleKernel(f"arange/{start}_{end}")
        kernel.store(kernel.b.arange(start=start, end=end))
        yield kernel.finish()


def _grid(name: str) -> Samples:
    grid = (3, 2, 4)
    for axis in range(3):
        kernel = SampleKernel(f"{name}/axis{axis}", grid=grid)
        b = kernel.b
        x, y, z = (b.program_id(axis=i) for i in range(3))
        width, height = (kernel.constant(I32, extent) for extent in grid[:2])
        linear = b.add(x, b.mul(width, b.add(y, b.mul(height, z))))
        out = kernel.pointer(I32, (math.prod(grid),), ZEROS, output=True)
        b.store(b.addptr(out, linear), getattr(b, name)(axis=axis))
        yield kernel.finish()


def _binary(name: str, types: Sequence[Type], **attributes: Any) -> Samples:
    variant = "_".join(f"{key}_{value}" for key, value in attributes.items())
    for index, type_ in enumerate(types):
        draw = SPECIAL if isinstance(type_, FloatType) else ANY
        for shape in shapes_for(index):
            yield apply(name, (type_, type_), shape, (draw, draw), variant=variant, **attributes)


def _division(name: str) -> Samples:
    for index, type_ in enumerate(WIDE_INTEGERS):
        for shape in shapes_for(index):
            dividend = Draw(
                type_.minimum + 1 if type_.signed else 0, type_.maximum, special=True
            )  # the minimum / -1 overflows
            small = Draw(1, 9) if not type_.signed else Draw(array=functools.partial(_nonzero, 9))
            large = (
                Draw(1, type_.maximum, special=True)
                if not type_.signed
                else Draw(array=functools.partial(_nonzero, type_.maximum))
            )
            yield apply(name, (type_, type_), shape, (dividend, small), variant="small")
            if shape:
                yield apply(name, (type_, type_), shape, (dividend, large), variant="large")
    yield from _binary(name, STANDARD_FLOATS)
    if name == "div":
        yield apply(
            "div",
            (F32, F32),
            (64,),
            (Draw(-1e3, 1e3), Draw(0.1, 1e3)),
            variant="approximate",
            ulp=2,
            approximate=True,
        )
        yield apply(
            "div",
            (F32, F32),
            (64,),
            (Draw(-1e3, 1e3), Draw(0.1, 1e3)),
            variant="exact",
            ulp=0,
            exact=True,
        )
        yield apply(
            "div",
            (F32, F32),
            (64,),
            (Draw(-1e3, 1e3), Draw(0.1, 1e3)),
            variant="fast",
            ulp=3,
            fast=True,
        )


def _nonzero(limit: int, rng: np.random.Generator, count: int) -> Any:
    return rng.integers(1, limit, count, np.int64, endpoint=True) * rng.choice([-1, 1], count)


def _shift(name: str) -> Samples:
    for index, type_ in enumerate(WIDE_INTEGERS):
        for shape in shapes_for(index):
            yield apply(name, (type_, type_), shape, (ANY, Draw(0, type_.bits - 1, special=True)))


def _extreme(name: str) -> Samples:
    yield from _binary(name, (*WIDE_INTEGERS, I1))
    for nan in ("ignore", "propagate"):
        yield from _binary(name, STANDARD_FLOATS, nan=nan)


def _cmp() -> Samples:
    for row, predicate in enumerate(("eq", "ne", "lt", "le", "gt", "ge")):
        for index, type_ in enumerate((*WIDE_INTEGERS, I1, *STANDARD_FLOATS)):
            shape = SHAPES[(row + index) % len(SHAPES)] if (row + index) % 4 else ()
            draw = SPECIAL if isinstance(type_, FloatType) else Draw(0, 3) if index % 2 else ANY
            yield apply(
                "cmp", (type_, type_), shape, (draw, draw), variant=predicate, predicate=predicate
            )
        kernel = SampleKernel(f"cmp/ptr/{predicate}")
        pointers = kernel.pointers(kernel.pointer(F32, (8,)), (8,))
        moved = kernel.b.addptr(pointers, kernel.load(I32, (8,), Draw(-1, 1)))
        kernel.store(kernel.b.cmp(pointers, moved, predicate=predicate))
        yield kernel.finish()


def _select() -> Samples:
    for index, type_ in enumerate((*WIDE_INTEGERS, I1, *STANDARD_FLOATS)):
        for shape in shapes_for(index):
            draw = SPECIAL if isinstance(type_, FloatType) else ANY
            yield apply("select", (I1, type_, type_), shape, (ANY, draw, draw))
    kernel = SampleKernel("select/ptr")
    a, b = (kernel.pointers(kernel.pointer(F32, (16,)), (16,)) for _ in range(2))
    kernel.store(kernel.b.load(kernel.b.select(kernel.load(I1, (16,)), a, b)))
    yield kernel.finish()


def _fma() -> Samples:
    for index, type_ in enumerate(STANDARD_FLOATS):
        for shape in shapes_for(index):
            yield apply("fma", (type_,) * 3, shape, (ANY,) * 3)
        yield apply("fma", (type_,) * 3, SHAPES[index], (SPECIAL,) * 3, variant="special")


def _addptr() -> Samples:
    for index, offset in enumerate((*WIDE_INTEGERS, I1)):
        for shape in shapes_for(index):
            kernel = SampleKernel(f"addptr/{offset}/{shape_text(shape)}")
            b = kernel.b
            signed = isinstance(offset, IntType) and offset.signed
            element = (F32, I8, F64, F16)[index % 4]
            middle = b.addptr(
                kernel.pointer(element, (32,)), kernel.constant(I32, 16 if signed else 0)
            )
            base = b.splat(middle, result=TileType(shape, middle.type)) if shape else middle
            # An unsigned offset above its signed range must not count as negative.
            draw = Draw(-16, 15) if signed else Draw(0, 31)
            kernel.store(b.load(b.addptr(base, kernel.load(offset, shape, draw))))
            yield kernel.finish()
    kernel = SampleKernel("addptr/u8/large")
    moved = kernel.b.addptr(kernel.pointer(F32, (256,)), kernel.load(U8, (), Draw(200, 255)))
    kernel.store(kernel.b.load(moved))
    yield kernel.finish()


#: name -> (low, high) of the argument, units in the last place
_MATH: dict[str, tuple[float, float, float]] = {
    "exp": (-80.0, 80.0, 4),
    "exp2": (-120.0, 120.0, 4),
    "log": (1e-30, 1e30, 4),
    "log2": (1e-30, 1e30, 4),
    "sin": (-30.0, 30.0, 4),
    "cos": (-30.0, 30.0, 4),
    "tanh": (-10.0, 10.0, 4),
    "erf": (-5.0, 5.0, 4),
    "rsqrt": (1e-30, 1e30, 4),
    "sqrt": (0.0, 1e30, 0),
    "floor": (-1e3, 1e3, 0),
    "ceil": (-1e3, 1e3, 0),
    "round_even": (-1e3, 1e3, 0),
    "trunc": (-1e3, 1e3, 0),
}
#: Arguments whose results IEEE 754 or C's Annex F settles.
_SETTLED: dict[str, tuple[float, ...]] = {
    "exp": (0.0, -0.0, math.inf, -math.inf, math.nan, 1000.0, -2000.0),
    "exp2": (0.0, -0.0, 1.0, 3.0, -4.0, math.inf, -math.inf, math.nan),
    "log": (1.0, 0.0, -0.0, math.inf, -1.0, math.nan),
    "log2": (1.0, 8.0, 0.25, 0.0, -0.0, math.inf, -1.0, math.nan),
    "sin": (0.0, -0.0, math.inf, math.nan),
    "cos": (0.0, -0.0, -math.inf, math.nan),
    "tanh": (0.0, -0.0, math.inf, -math.inf, 100.0, -100.0, math.nan),
    "erf": (0.0, -0.0, math.inf, -math.inf, math.nan),
    "rsqrt": (1.0, 4.0, 0.0, -0.0, math.inf, -1.0, math.nan),
    "sqrt": (0.0, -0.0, 4.0, math.inf, -1.0, math.nan),
    "floor": (0.5, -0.5, -0.0, 2.5, 1e30, math.inf, -math.inf, math.nan),
    "ceil": (0.5, -0.5, -0.0, 2.5, 1e30, math.inf, -math.inf, math.nan),
    "round_even": (0.5, -0.5, -0.0, 1.5, 2.5, -2.5, 8388609.0, math.inf, math.nan),
    "trunc": (0.5, -0.5, -0.0, 2.5, 1e30, math.inf, -math.inf, math.nan),
}


def _choose(values: tuple[float, ...], rng: np.random.Generator, count: int) -> Any:
    return rng.choice(np.array(values), count)


def _math(name: str) -> Samples:
    low, high, ulp = _MATH[name]
    for index, type_ in enumerate((F32, F64)):
        for shape in (*shapes_for(index), (128,)):
            yield apply(name, (type_,), shape, (Draw(low, high),), ulp=ulp)
        settled = Draw(array=functools.partial(_choose, _SETTLED[name]))
        yield apply(name, (type_,), (32,), (settled,), variant="settled", ulp=ulp)
    if name == "sqrt":
        yield apply(
            "sqrt",
            (F32,),
            (64,),
            (Draw(low, high),),
            variant="approximate",
            ulp=2,
            approximate=True,
        )


def _copysign() -> Samples:
    yield from _binary("copysign", (F32, F64))


def _ldexp() -> Samples:
    for index, type_ in enumerate((F32, F64)):
        far = 1080 if type_ is F64 else 160
        for shape in shapes_for(index):
            yield apply("ldexp", (type_, I32), shape, (ANY, Draw(-40, 40)))
        yield apply(
            "ldexp",
            (type_, I32),
            (64,),
            (Draw(-2.0, 2.0, special=True), Draw(-far, far)),
            variant="far",
        )
        yield apply("ldexp", (type_, I32), (64,), (SPECIAL, ANY), variant="any")


def _unary_int(name: str) -> Samples:
    for index, type_ in enumerate(WIDE_INTEGERS):
        for shape in shapes_for(index):
            yield apply(name, (type_,), shape, (ANY,))


def _sign(name: str) -> Samples:
    yield from _unary_int(name)
    for index, type_ in enumerate(STANDARD_FLOATS):
        for shape in shapes_for(index):
            yield apply(name, (type_,), shape, (SPECIAL,))


_NUMBERS: tuple[Type, ...] = (*WIDE_INTEGERS, *STANDARD_FLOATS)
_BITS: tuple[Type, ...] = (*WIDE_INTEGERS, I1)

SAMPLES: dict[str, Callable[[], Samples]] = {
    "constant": _constant,
    "arange": _arange,
    "program_id": functools.partial(_grid, "program_id"),
    "num_programs": functools.partial(_grid, "num_programs"),
    **{name: functools.partial(_binary, name, _NUMBERS) for name in ("add", "sub", "mul")},
    **{name: functools.partial(_division, name) for name in ("div", "rem")},
    **{name: functools.partial(_sign, name) for name in ("neg", "abs")},
    **{name: functools.partial(_binary, name, _BITS) for name in ("and", "or", "xor")},
    **{name: functools.partial(_shift, name) for name in ("shl", "shr")},
    "mulhi": functools.partial(_binary, "mulhi", (I32, U32, I64, U64)),
    **{name: functools.partial(_extreme, name) for name in ("min", "max")},
    "cmp": _cmp,
    "select": _select,
    "fma": _fma,
    "addptr": _addptr,
    **{name: functools.partial(_math, name) for name in _MATH},
    "copysign": _copysign,
    "ldexp": _ldexp,
}
