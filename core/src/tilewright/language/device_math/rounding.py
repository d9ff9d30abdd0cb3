"""Arithmetic and conversions with a stated rounding.

It is ``rn`` to nearest even, ``rz`` towards zero, ``rd`` down, ``ru`` up.

A directed result is the nearest one, moved by a unit in its last place where the error has the
wrong sign. fp32 is computed in fp64, where the error is exact. fp64 is computed on operands scaled
by powers of two, where neither the result nor its error is out of range, and scaled back.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from tilewright.ir import types as ir_types
from tilewright.ir.expressions import fma, select
from tilewright.language.device_math.elementary import split
from tilewright.language.device_math.numbers import INFINITY, MathValue, function, two_sum
from tilewright.language.value_types.dtypes import (
    dtype,
    float32,
    float64,
    int32,
    int64,
    uint32,
    uint64,
)

#: Exact values as a sum of two fp64 numbers, the second smaller than half a unit of the first: only
#: its sign and size relative to that unit matter.
Exact = tuple[MathValue, MathValue]


def step(x: MathValue, up: MathValue) -> MathValue:
    """The neighbour of ``x`` above (where ``up``) or below."""
    bits = x.bits()
    away = up ^ (x < 0.0)
    moved = select(away, bits + 1, bits - 1).bitcast(x.element)
    smallest = x.like(5e-324 if x.wide else 2.0**-149)
    return select(x.equals(0.0), select(up, smallest, -smallest), moved)


def nextafter(x: MathValue, y: MathValue) -> MathValue:
    """The neighbour of ``x`` towards ``y``."""
    moved = step(x, y > x)
    return select(x.differs(x) | y.differs(y), x + y, select(x.equals(y), y, moved))


def _directed(nearest: MathValue, error: MathValue, mode: str) -> MathValue:
    """The value ``nearest + error``, of which ``nearest`` is the rounding, rounded by ``mode``."""
    zero = error.like(0.0)
    if mode == "rd":
        wrong, up = error < zero, nearest.constant(False, ir_types.I1)
    elif mode == "ru":
        wrong, up = error > zero, nearest.constant(True, ir_types.I1)
    else:
        negative = nearest < 0.0
        return select(
            (negative & (error > zero)) | ((nearest > 0.0) & (error < zero)),
            step(nearest, negative),
            nearest,
        )
    return select(wrong, step(nearest, up), nearest)


def _narrowed(exact: Exact, mode: str) -> MathValue:
    """A sum of two fp64 numbers as fp32."""
    value, rest = exact
    nearest = value.cast(ir_types.F32)
    return _directed(nearest, (value - nearest.cast(ir_types.F64)) + rest, mode)


def _settled(exact: Exact, mode: str, result: ir_types.Type) -> MathValue:
    """The exact value in the result's type."""
    if result is ir_types.F32:
        return _narrowed(exact, mode)
    return _directed(exact[0], exact[1], mode)


def _scaled_back(exact: Exact, exponent: MathValue, mode: str) -> MathValue:
    """A sum of two fp64 numbers times 2**exponent, rounded once."""
    value, rest = exact
    nearest = value.ldexp(exponent)
    return _directed(nearest, (value - nearest.ldexp(-exponent)) + rest, mode)


# -- the operations, in fp64: of fp32 numbers, or of scaled ones -----------------------------------


def _add(a: MathValue, b: MathValue) -> Exact:
    total, error = two_sum(a, b)
    # Of finite numbers that overflow the error is opposite to the sum.
    overflows = abs(total).equals(INFINITY) & (abs(a) < INFINITY) & (abs(b) < INFINITY)
    return total, select(overflows, -total, error)


def _sub(a: MathValue, b: MathValue) -> Exact:
    return _add(a, -b)


def _mul(a: MathValue, b: MathValue) -> Exact:
    rounded = a * b
    return rounded, fma(a, b, -rounded)


def _div(a: MathValue, b: MathValue) -> Exact:
    quotient = a / b
    return quotient, fma(-quotient, b, a) / b


def _rcp(a: MathValue) -> Exact:
    return _div(a.like(1.0), a)


def _sqrt(a: MathValue) -> Exact:
    root = a.apply("sqrt")
    return root, select(root > 0.0, fma(-root, root, a) / (root + root), 0.0)


def _fma(a: MathValue, b: MathValue, c: MathValue) -> Exact:
    """Error of a fused multiply-add.

    S. Boldo and J.-M. Muller, Some functions computable with a fused-mac, 2005.
    """
    result = fma(a, b, c)
    rounded = a * b
    rounded_error = fma(a, b, -rounded)
    sum_high, sum_low = two_sum(c, rounded_error)
    total, total_low = two_sum(rounded, sum_high)
    return result, ((total - result) + total_low) + sum_low


# -- the operations on fp64, scaled ----------------------------------------------------------------


def _parts(x: MathValue) -> tuple[MathValue, MathValue]:
    """Return (m, e) with x = m * 2**e and |m| near 1, e an i32.

    Zeros, infinities and NaN are their own m.
    """
    size = abs(x)
    usable = (size > 0.0) & (size < INFINITY)
    m, e = split(select(usable, size, 1.0))
    return select(usable, m.apply("copysign", x), x), e.cast(ir_types.I32)


def _scaled_mul(a: MathValue, b: MathValue) -> tuple[Exact, MathValue]:
    (p, i), (q, j) = _parts(a), _parts(b)
    return _mul(p, q), i + j


def _scaled_div(a: MathValue, b: MathValue) -> tuple[Exact, MathValue]:
    (p, i), (q, j) = _parts(a), _parts(b)
    return _div(p, q), i - j


def _scaled_rcp(a: MathValue) -> tuple[Exact, MathValue]:
    return _scaled_div(a.like(1.0), a)


def _scaled_sqrt(a: MathValue) -> tuple[Exact, MathValue]:
    m, e = _parts(a)
    odd = (e & 1).equals(1)
    return _sqrt(select(odd, m + m, m)), e >> 1


def _scaled_fma(a: MathValue, b: MathValue, c: MathValue) -> tuple[Exact, MathValue]:
    """Fused multiply-add with a * b and c scaled together.

    One that then is too small to matter is replaced by a number of its sign below all that do.
    """
    (p, i), (q, j) = _parts(a), _parts(b)
    m, k = _parts(c)
    # The exponent of the larger of the two, of which zero has none.
    rounded = p * q
    none = i.like(-10000)
    ours, theirs = select(rounded.equals(0.0), none, i + j), select(c.equals(0.0), none, k)
    most = select(ours > theirs, ours, theirs)
    most = select(most.equals(none), 0, most)
    # Far below the other, where no digit of it counts, the exponents are as good as these.
    low = ours.like(-300)
    down, below = ours - most, theirs - most
    first = p.ldexp(select(down > low, down, low))
    second = m.ldexp(select(below > low, below, low))
    return _fma(first, q, second), most


_OPERATIONS: tuple[tuple[str, str, Callable[..., Exact], str], ...] = (
    ("add", "x y", _add, "``x + y``"),
    ("sub", "x y", _sub, "``x - y``"),
    ("mul", "x y", _mul, "``x * y``"),
    ("div", "x y", _div, "``x / y``"),
    ("rcp", "x", _rcp, "``1 / x``"),
    ("sqrt", "x", _sqrt, "The square root of ``x``"),
    ("fma", "x y z", _fma, "``x * y + z``"),
)
MODES = {"rn": "to nearest even", "rz": "towards zero", "rd": "down", "ru": "up"}


_SCALED: dict[Callable[..., Exact], Callable[..., tuple[Exact, MathValue]]] = {
    _mul: _scaled_mul,
    _div: _scaled_div,
    _rcp: _scaled_rcp,
    _sqrt: _scaled_sqrt,
    _fma: _scaled_fma,
}


_OPERATORS: dict[Callable[..., Exact], Callable[[MathValue, MathValue], MathValue]] = {
    _add: operator.add,
    _sub: operator.sub,
    _mul: operator.mul,
}


def _operation(exact: Callable[..., Exact], mode: str) -> Callable[..., MathValue]:
    def body(*numbers: MathValue) -> MathValue:
        if mode == "rn":
            return _nearest(exact, numbers)
        scaled = _SCALED.get(exact) if numbers[0].wide else None
        if scaled is not None:
            value, exponent = scaled(*numbers)
            found = _scaled_back(value, exponent, mode)
        else:
            value = exact(*(x.cast(ir_types.F64) for x in numbers))
            found = _settled(value, mode, numbers[0].element)
        if mode == "rd" and exact in (_add, _sub, _fma):
            # x - x is -0.0, and so is a sum of zeros, unless both are +0.0.
            zero = value[0].equals(0.0) & value[1].equals(0.0)
            found = select(zero & _both_positive(exact, numbers).inverted(), -0.0, found)
        return found

    return body


def _both_positive(exact: Callable[..., Exact], numbers: tuple[MathValue, ...]) -> MathValue:
    """Return whether neither of the two summands has a sign, zeros included."""
    one = numbers[0].like(1.0)
    signs = [one.apply("copysign", x) for x in numbers]
    if exact is _fma:
        return (signs[0] * signs[1] > 0.0) & (signs[2] > 0.0)
    return (signs[0] > 0.0) & (signs[1] > 0.0 if exact is _add else signs[1] < 0.0)


def _nearest(exact: Callable[..., Exact], numbers: tuple[MathValue, ...]) -> MathValue:
    """The operation itself, which rounds to nearest even.

    No backend contracts it with what the caller adds to it.
    """
    first, others = numbers[0], numbers[1:]
    if exact in _OPERATORS:
        return _OPERATORS[exact](first, *others)
    if exact is _rcp:
        return first.like(1.0).apply("div", first, exact=True)
    if exact is _div:
        return first.apply("div", *others, exact=True)
    return first.apply({_sqrt: "sqrt", _fma: "fma"}[exact], *others)


# -- conversions -----------------------------------------------------------------------------------

_INTEGERS = {"int": int32, "uint": uint32, "ll": int64, "ull": uint64}
_FLOATS = {"float": float32, "double": float64}
_TO_WHOLE = {"rn": "round_even", "rz": "trunc", "rd": "floor", "ru": "ceil"}


def _to_integer(target: dtype, mode: str) -> Callable[[MathValue], MathValue]:
    """Saturating; 0 for NaN."""
    low, high = target.get_int_min_value(), target.get_int_max_value()

    def body(x: MathValue) -> MathValue:
        whole = x.apply(_TO_WHOLE[mode])
        limit = float(high + 1)
        inside = (whole >= float(low)) & (whole < limit)
        made = select(inside, whole, 0.0).cast(target.ir_type)
        return select(
            whole >= limit, made.like(high), select(whole < float(low), made.like(low), made)
        )

    return body


def _from_integer(target: dtype, mode: str) -> Callable[[MathValue], MathValue]:
    def body(x: MathValue) -> MathValue:
        if mode == "rn":
            return x.cast(target.ir_type)
        if not x.wide:
            value = x.cast(ir_types.F64)
            return _settled((value, value.like(0.0)), mode, target.ir_type)
        upper = (x >> 32).cast(ir_types.F64) * 2.0**32
        lower = (x & 0xFFFFFFFF).cast(ir_types.F64)
        return _settled(two_sum(upper, lower), mode, target.ir_type)

    return body


def _narrow(mode: str) -> Callable[[MathValue], MathValue]:
    def body(x: MathValue) -> MathValue:
        if mode == "rn":
            return x.cast(ir_types.F32)
        return _narrowed((x, x.like(0.0)), mode)

    return body


def _conversions() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for mode, words in MODES.items():
        for float_name, float_type in _FLOATS.items():
            for name, integer in _INTEGERS.items():
                forth, back = f"{float_name}2{name}_{mode}", f"{name}2{float_name}_{mode}"
                meaning = f"``x`` as {integer}, rounded {words}; saturating, and 0 for NaN."
                found[forth] = function(
                    forth,
                    "x",
                    meaning,
                    _to_integer(integer, mode),
                    names=(float_type.name,),
                    result=integer,
                )
                if not (float_type is float64 and integer.int_bitwidth == 32 and mode != "rn"):
                    meaning = f"``x`` as {float_type}, rounded {words}."
                    found[back] = function(
                        back,
                        "x",
                        meaning,
                        _from_integer(float_type, mode),
                        names=(integer.name,),
                        result=float_type,
                    )
        name = f"double2float_{mode}"
        found[name] = function(
            name,
            "x",
            f"``x`` as fp32, rounded {words}.",
            _narrow(mode),
            names=("fp64",),
            result=float32,
        )
    return found


FUNCTIONS: dict[str, Any] = {
    **{
        f"{name}_{mode}": function(
            f"{name}_{mode}", parameters, f"{meaning}, rounded {words}.", _operation(exact, mode)
        )
        for name, parameters, exact, meaning in _OPERATIONS
        for mode, words in MODES.items()
    },
    **_conversions(),
    "nextafter": function(
        "nextafter", "x y", "The number next to ``x`` in the direction of ``y``.", nextafter
    ),
    "rsqrt_rn": function(
        "rsqrt_rn",
        "x",
        "``1 / sqrt(x)``, of fp32 correctly rounded.",
        lambda x: 1.0 / x.apply("sqrt"),
        through_f64=True,
    ),
}
