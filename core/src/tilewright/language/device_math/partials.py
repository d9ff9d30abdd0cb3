"""Derivatives of the library's functions, each as the factors of its operands' tangents.

A row is called with the library, the operands and the result, and returns a factor for each operand
or None where the derivative is zero. Functions without a row are derived from their bodies.
Derivatives of functions that fp32 computes in fp64 are computed in fp64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from tilewright.ir import types as ir_types
from tilewright.ir.expressions import fma, select
from tilewright.language.definitions.custom_derivative import JVP, VJP, DifferentiableCall
from tilewright.language.device_math import elementary, special
from tilewright.language.device_math.numbers import DIFFERENTIABLE, INFINITY, MathValue, polynomial
from tilewright.language.device_math.rounding import MODES
from tilewright.language.value_types.dtypes import dtype, float32, float64
from tilewright.language.value_types.tensors import tensor
from tilewright.language.value_types.tuples import tuple as tl_tuple
from tilewright.language.value_types.values import constexpr


class Library:
    """The library's functions of MathValues, while a rule is built.

    Attributes:
        is_rounded: whether operands and results were rounded from fp64 to fp32.
    """

    def __init__(self, semantic: Any, *, is_rounded: bool) -> None:
        self._semantic, self.is_rounded = semantic, is_rounded

    def __call__(self, name: str, *numbers: MathValue) -> MathValue:
        """Append a function by its name."""
        values = [self._semantic.wrap(x.value, float64 if x.wide else float32) for x in numbers]
        found = _FUNCTIONS[name](*values, _semantic=self._semantic)
        return MathValue(self._semantic.builder, found.handle)


#: The functions that rows call.
_FUNCTIONS = {**elementary.FUNCTIONS, **special.FUNCTIONS}

Row = Callable[..., Sequence[MathValue | None]]

_TWO_OVER_ROOT_PI = 2 / math.sqrt(math.pi)


def _pow(f: Library, x: MathValue, y: MathValue, r: MathValue) -> Sequence[MathValue]:
    by_base = select(y.equals(0.0), 0.0, y * f("pow", x, y - 1.0))
    # 0 ** y is 0 for all y above 0
    is_zero = x.equals(0.0) & (y >= 0.0)
    return by_base, select(is_zero, 0.0, r * select(is_zero, 1.0, x).apply("log"))


def _exp_of_half_square(x: MathValue, sign: float) -> MathValue:
    """exp(sign * x * x / 2), the square in two floats."""
    square = x * x
    value = (square * (0.5 * sign)).apply("exp")
    error = select(square < INFINITY, fma(x, x, -square), 0.0)
    return select(value < INFINITY, fma(value, error * (0.5 * sign), value), value)


def _exp_of_square(x: MathValue, sign: float) -> MathValue:
    return _exp_of_half_square(x * math.sqrt(2), sign)


def _erfcx(f: Library, x: MathValue, y: MathValue) -> Sequence[MathValue]:
    """2 x y - 2 / sqrt(pi); for large x, where that cancels, by the series in 1 / (2 x x)."""
    exact = f("erfcx", x) if f.is_rounded else y
    far = x > 10.0
    t = 0.5 / select(far, x * x, 100.0)
    terms = [float((-1) ** n * math.prod(range(1, 2 * n, 2))) for n in range(1, 13)]
    series = t * polynomial(t, terms) * _TWO_OVER_ROOT_PI
    return (select(far, series, fma(x * 2.0, exact, -_TWO_OVER_ROOT_PI)),)


def _erfinv(f: Library, x: MathValue, y: MathValue) -> Sequence[MathValue]:
    slope = _exp_of_square(y, 1.0) * (1 / _TWO_OVER_ROOT_PI)
    if f.is_rounded:
        y = y + select(abs(y) < INFINITY, (x - y.apply("erf")) * slope, 0.0)
        slope = _exp_of_square(y, 1.0) * (1 / _TWO_OVER_ROOT_PI)
    return (slope,)


def _erfcinv(f: Library, q: MathValue, y: MathValue) -> Sequence[MathValue]:
    slope = _exp_of_square(y, 1.0) * (1 / _TWO_OVER_ROOT_PI)
    if f.is_rounded:
        y = y + select(abs(y) < INFINITY, (f("erfc", y) - q) * slope, 0.0)
        slope = _exp_of_square(y, 1.0) * (1 / _TWO_OVER_ROOT_PI)
    return (-slope,)


def _normcdfinv(f: Library, p: MathValue, y: MathValue) -> Sequence[MathValue]:
    slope = _exp_of_half_square(y, 1.0) * math.sqrt(2 * math.pi)
    if f.is_rounded:
        y = y + select(abs(y) < INFINITY, (p - f("normcdf", y)) * slope, 0.0)
        slope = _exp_of_half_square(y, 1.0) * math.sqrt(2 * math.pi)
    return (slope,)


def _digamma(f: Library, x: MathValue) -> MathValue:
    """The derivative of lgamma: by its recurrence up to 10, then by its asymptotic series.

    Below 1/2 by reflection.
    """
    mirrored = x < 0.5
    size = select(mirrored, 1.0 - x, x)
    below = size.like(0.0)
    for _ in range(10):
        small = size < 10.0
        below = select(small, below + 1.0 / size, below)
        size = select(small, size + 1.0, size)
    inverse = 1.0 / size
    square = inverse * inverse
    series = square * polynomial(
        square, [1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12]
    )
    value = size.apply("log") - inverse * 0.5 - series - below
    inner = select(mirrored, x, 0.25)
    cotangent = f("cospi", inner) / f("sinpi", inner)
    return select(mirrored, value - cotangent * math.pi, value)


def _atan2(f: Library, y: MathValue, x: MathValue, r: MathValue) -> Sequence[MathValue]:
    inverse = f("rhypot", x, y)
    return x * inverse * inverse, -(y * inverse * inverse)


def _norm(f: Library, *values: MathValue) -> Sequence[MathValue]:
    *parts, r = values
    is_zero = r.equals(0.0)
    return [select(is_zero, 0.0, x / select(is_zero, 1.0, r)) for x in parts]


def _reciprocal_norm(f: Library, *values: MathValue) -> Sequence[MathValue]:
    *parts, r = values
    return [-(x * r * r * r) for x in parts]


def _divided(order: str) -> Row:
    """The first derivative of a Bessel function of order 1, of which ``order`` is the zeroth."""

    def row(f: Library, x: MathValue, y: MathValue) -> Sequence[MathValue]:
        is_zero = x.equals(0.0)
        slope = f(order, x) - y / select(is_zero, 1.0, x)
        return (select(is_zero, 0.5, slope) if order != "y0" else slope,)

    return row


def _remainder(f: Library, x: MathValue, y: MathValue, r: MathValue) -> Sequence[MathValue]:
    return x.like(1.0), -((x - r) / y).apply("round_even")


_ROUNDED: Mapping[str, Row] = {
    "add": lambda f, x, y, r: (x.like(1.0), x.like(1.0)),
    "sub": lambda f, x, y, r: (x.like(1.0), x.like(-1.0)),
    "mul": lambda f, x, y, r: (y, x),
    "div": lambda f, x, y, r: (1.0 / y, -(r / y)),
    "rcp": lambda f, x, r: (-(r * r),),
    "sqrt": lambda f, x, r: (0.5 / r,),
    "fma": lambda f, x, y, z, r: (y, x, x.like(1.0)),
}

#: Function -> its row.
PARTIALS: Mapping[str, Row] = {
    "pow": _pow,
    "expm1": lambda f, x, y: (x.apply("exp"),),
    "log1p": lambda f, x, y: (1.0 / (x + 1.0),),
    "log10": lambda f, x, y: (1.0 / (x * math.log(10)),),
    "exp10": lambda f, x, y: (y * math.log(10),),
    "sinh": lambda f, x, y: (f("cosh", x),),
    "cosh": lambda f, x, y: (f("sinh", x),),
    "asinh": lambda f, x, y: (f("rhypot", x, x.like(1.0)),),
    "acosh": lambda f, x, y: (1.0 / ((x - 1.0).apply("sqrt") * (x + 1.0).apply("sqrt")),),
    "atanh": lambda f, x, y: (1.0 / ((1.0 - x) * (x + 1.0)),),
    "tan": lambda f, x, y: (fma(y, y, 1.0),),
    "sinpi": lambda f, x, y: (f("cospi", x) * math.pi,),
    "cospi": lambda f, x, y: (f("sinpi", x) * -math.pi,),
    "atan": lambda f, x, y: (1.0 / fma(x, x, 1.0),),
    "atan2": _atan2,
    "asin": lambda f, x, y: (((1.0 - x) * (x + 1.0)).apply("rsqrt"),),
    "acos": lambda f, x, y: (-((1.0 - x) * (x + 1.0)).apply("rsqrt"),),
    "cbrt": lambda f, x, y: (1.0 / (y * y * 3.0),),
    "rcbrt": lambda f, x, y: (-(y / (x * 3.0)),),
    **dict.fromkeys(("hypot", "norm3d", "norm4d"), _norm),
    **dict.fromkeys(("rhypot", "rnorm3d", "rnorm4d"), _reciprocal_norm),
    "erfc": lambda f, x, y: (_exp_of_square(x, -1.0) * -_TWO_OVER_ROOT_PI,),
    "erfcx": _erfcx,
    "erfinv": _erfinv,
    "erfcinv": _erfcinv,
    "normcdf": lambda f, x, y: (_exp_of_half_square(x, -1.0) * (1 / math.sqrt(2 * math.pi)),),
    "normcdfinv": _normcdfinv,
    "lgamma": lambda f, x, y: (_digamma(f, x),),
    "tgamma": lambda f, x, y: (y * _digamma(f, x),),
    "j0": lambda f, x, y: (-f("j1", x),),
    "j1": _divided("j0"),
    "y0": lambda f, x, y: (-f("y1", x),),
    "y1": _divided("y0"),
    "cyl_bessel_i0": lambda f, x, y: (f("cyl_bessel_i1", x),),
    "cyl_bessel_i1": _divided("cyl_bessel_i0"),
    "logb": lambda f, x, y: (None,),
    "remainder": _remainder,
    "nextafter": lambda f, x, y, r: (x.like(1.0), None),
    "rcp64h": lambda f, x, y: (-1.0 / (x * x),),
    "rsqrt_rn": lambda f, x, y: (y * y * y * -0.5,),
    **{f"{name}_{mode}": row for name, row in _ROUNDED.items() for mode in MODES},
    **{f"double2float_{mode}": lambda f, x, y: (x.like(1.0),) for mode in MODES},
}


def differentiable(
    name: str,
    parameters: Sequence[str],
    operands: Sequence[tensor],
    body: Callable[[Sequence[tensor]], tensor],
    semantic: Any,
    *,
    through_f64: bool,
) -> tensor:
    """Append a call of a function that has a row, which stays a call.

    Args:
        body: appends the function's body.
        through_f64: whether fp32 is computed in fp64.
    """
    widened = through_f64 and operands[0].dtype is float32
    rules = _Rules(PARTIALS[name], operands[0].dtype, semantic, widened=widened)
    inputs = tuple(zip(parameters, operands, strict=True))
    found: tensor = semantic.generator.differentiable_call(
        DifferentiableCall(name, name, inputs, body, {VJP: rules.vjp, JVP: rules.jvp})
    )
    return found


class _Rules:
    """Both rules of a function, by its row."""

    def __init__(self, row: Row, own: dtype, semantic: Any, *, widened: bool) -> None:
        self._row, self._own, self._semantic, self._widened = row, own, semantic, widened

    def _number(self, x: tensor) -> MathValue:
        number = MathValue(self._semantic.builder, x.handle)
        return number.cast(ir_types.F64 if self._widened else self._own.ir_type)

    def _factors(self, inputs: list[Any], outputs: list[Any]) -> Sequence[MathValue | None]:
        library = Library(self._semantic, is_rounded=self._widened)
        return self._row(library, *map(self._number, (*inputs, *outputs)))

    def _value(self, number: MathValue, element: dtype) -> tensor:
        found: tensor = self._semantic.wrap(number.cast(element.ir_type).value, element)
        return found

    def vjp(self, inputs: list[Any], outputs: list[Any], derivatives: list[Any]) -> Any:
        (dy,) = map(self._number, derivatives)
        found = [
            constexpr(None) if factor is None else self._value(_times(dy, factor), self._own)
            for factor in self._factors(inputs, outputs)
        ]
        return tl_tuple(found)

    def jvp(self, inputs: list[Any], outputs: list[Any], derivatives: list[Any]) -> Any:
        total: MathValue | None = None
        for dx, factor in zip(
            map(self._number, derivatives), self._factors(inputs, outputs), strict=True
        ):
            if factor is not None:
                part = _times(dx, factor)
                total = part if total is None else total + part
        return constexpr(None) if total is None else self._value(total, outputs[0].dtype)


def _times(derivative: MathValue, factor: MathValue) -> MathValue:
    """Return the product, which is zero where the derivative is.

    The factor may be infinite in masked-off lanes.
    """
    return select(derivative.equals(0.0), 0.0, derivative * factor)


DIFFERENTIABLE.update((name, partial(differentiable, name)) for name in PARTIALS)
