"""Partial derivatives of elementwise operations: a row an operation, for both modes.

A row returns a :class:`Factor` for each operand, or None where the derivative is zero. The forward
mode adds up the operands' tangents times their factors; the reverse mode hands each operand the
result's cotangent times its factor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.ir.builder import Builder
from tilewright.ir.core import Operation, Value


@dataclass(frozen=True, slots=True)
class Factor:
    """The multiplication of a tangent or cotangent by a partial derivative.

    Attributes:
        apply: returns the product with a tangent.
        scales: whether the partial derivative is computed from values of the kernel, so that it may
            not be finite.
    """

    apply: Callable[[Builder, Value], Value]
    scales: bool = False

    def times(self, b: Builder, tangent: Value, *, strict: bool = False) -> Value:
        """Return the product; with ``strict``, zero where the tangent is zero.

        Lanes that are masked off have a tangent of zero, and may have a factor that is not finite.
        """
        found = self.apply(b, tangent)
        if not (strict and self.scales):
            return found
        zero = b.constant_like(tangent.type, 0.0)
        product: Value = b.select(b.cmp(tangent, zero, predicate="eq"), zero, found)
        return product


#: ``write(builder, operands, result, operation)``: floats are in the types of their cotangents.
WriteFactors = Callable[[Builder, Sequence[Value], Value, Any], Sequence[Factor | None]]


@dataclass(frozen=True, slots=True)
class Partials:
    """A row: the factors of an operation, and its law with operands ``a, b, c`` or ``x``.

    ``y`` is the result, ``dy`` its tangent.
    """

    law: str
    write: WriteFactors

    def factors(
        self, b: Builder, operands: Sequence[Value], result: Value, operation: Operation
    ) -> Sequence[Factor | None]:
        return self.write(b, operands, result, operation)


ONE = Factor(lambda b, t: t)
NEGATIVE = Factor(lambda b, t: b.neg(t))


def times(value: Value) -> Factor:
    """Return the factor ``value``."""
    return Factor(lambda b, t: b.mul(t, value), scales=True)


def over(value: Value) -> Factor:
    """Return the factor ``1 / value``."""
    return Factor(lambda b, t: b.div(t, value), scales=True)


def where(condition: Value, *, holds: bool) -> Factor:
    """Return the factor 1 where the condition is ``holds``, and 0 elsewhere."""

    def apply(b: Builder, t: Value) -> Value:
        zero = b.constant_like(t.type, 0.0)
        chosen: Value = b.select(condition, t, zero) if holds else b.select(condition, zero, t)
        return chosen

    return Factor(apply)


def _number(b: Builder, like: Value, number: float) -> Value:
    return b.constant_like(like.type, number)


def _extremum(b: Builder, x: Sequence[Value], y: Value, op: Any) -> Sequence[Factor]:
    """The operand that is the result, and half each where both are; a NaN that is not, nothing."""
    whole, half, zero = (_number(b, y, number) for number in (1.0, 0.5, 0.0))
    left, right = (b.cmp(operand, y, predicate="eq") for operand in x)
    return (
        times(b.select(left, b.select(right, half, whole), zero)),
        times(b.select(right, b.select(left, half, whole), zero)),
    )


def _abs(b: Builder, x: Sequence[Value], y: Value, op: Any) -> Sequence[Factor]:
    zero = _number(b, y, 0.0)
    is_negative = b.cmp(x[0], zero, predicate="lt")
    is_zero = b.cmp(x[0], zero, predicate="eq")
    sign = b.select(is_negative, _number(b, y, -1.0), _number(b, y, 1.0))
    return (times(b.select(is_zero, zero, sign)),)


def _erf(b: Builder, x: Sequence[Value], y: Value, op: Any) -> Sequence[Factor]:
    gaussian = b.exp(b.neg(b.mul(x[0], x[0])))
    return (times(b.mul(_number(b, y, 2 / math.sqrt(math.pi)), gaussian)),)


def _rsqrt(b: Builder, x: Sequence[Value], y: Value, op: Any) -> Sequence[Factor]:
    return (times(b.mul(_number(b, y, -0.5), b.mul(y, b.mul(y, y)))),)


def _copysign(b: Builder, x: Sequence[Value], y: Value, op: Any) -> Sequence[Factor | None]:
    one = _number(b, y, 1.0)
    return times(b.mul(b.copysign(one, x[0]), b.copysign(one, x[1]))), None


def _ldexp(b: Builder, x: Sequence[Value], y: Value, op: Any) -> Sequence[Factor | None]:
    return Factor(lambda b, t: b.ldexp(t, x[1]), scales=True), None


def _constant(b: Builder, x: Sequence[Value], y: Value, op: Any) -> Sequence[None]:
    return (None,)


#: The rows, by operation. A new elementwise operation on floats needs one.
PARTIALS: dict[str, Partials] = {
    "add": Partials("da + db", lambda b, x, y, op: (ONE, ONE)),
    "sub": Partials("da - db", lambda b, x, y, op: (ONE, NEGATIVE)),
    "neg": Partials("-dx", lambda b, x, y, op: (NEGATIVE,)),
    "mul": Partials("da b + a db", lambda b, x, y, op: (times(x[1]), times(x[0]))),
    "div": Partials(
        "(da - y db) / b",
        lambda b, x, y, op: (over(x[1]), times(b.neg(b.div(y, x[1])))),
    ),
    "fma": Partials("da b + a db + dc", lambda b, x, y, op: (times(x[1]), times(x[0]), ONE)),
    "rem": Partials(
        "da - trunc(a / b) db",
        lambda b, x, y, op: (ONE, times(b.neg(b.trunc(b.div(x[0], x[1]))))),
    ),
    "abs": Partials("sign(x) dx; 0 at 0", _abs),
    "max": Partials(
        "the tangent of the larger operand; the mean of both if they are equal", _extremum
    ),
    "min": Partials(
        "the tangent of the smaller operand; the mean of both if they are equal", _extremum
    ),
    "select": Partials(
        "da where condition holds, db elsewhere",
        lambda b, x, y, op: (None, where(x[0], holds=True), where(x[0], holds=False)),
    ),
    "exp": Partials("y dx", lambda b, x, y, op: (times(y),)),
    "exp2": Partials(
        "log(2) y dx", lambda b, x, y, op: (times(b.mul(y, _number(b, y, math.log(2)))),)
    ),
    "log": Partials("dx / x", lambda b, x, y, op: (over(x[0]),)),
    "log2": Partials(
        "dx / (log(2) x)",
        lambda b, x, y, op: (over(b.mul(x[0], _number(b, y, math.log(2)))),),
    ),
    "sin": Partials("cos(x) dx", lambda b, x, y, op: (times(b.cos(x[0])),)),
    "cos": Partials("-sin(x) dx", lambda b, x, y, op: (times(b.neg(b.sin(x[0]))),)),
    "tanh": Partials(
        "(1 - y**2) dx",
        lambda b, x, y, op: (times(b.sub(_number(b, y, 1.0), b.mul(y, y))),),
    ),
    "erf": Partials("2 / sqrt(pi) exp(-x**2) dx", _erf),
    "sqrt": Partials("dx / (2 y)", lambda b, x, y, op: (over(b.mul(_number(b, y, 2.0), y)),)),
    "rsqrt": Partials("-y**3 / 2 dx", _rsqrt),
    "copysign": Partials("sign(a) sign(b) da", _copysign),
    "ldexp": Partials("dx 2**exponent", _ldexp),
    "hint": Partials("dx", lambda b, x, y, op: (ONE,)),
    "floor": Partials("0", _constant),
    "ceil": Partials("0", _constant),
    "round_even": Partials("0", _constant),
    "trunc": Partials("0", _constant),
}
