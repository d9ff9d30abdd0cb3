"""Elementary functions in decimal arithmetic, to more than forty digits.

Everything takes and returns ``Decimal`` and works in the context of :func:`working`. A series ends
where another term changes nothing.
"""

from __future__ import annotations

import contextlib
import decimal
import functools
import math
from collections.abc import Callable, Iterator
from decimal import Decimal

#: Digits that are computed with; forty of them are right.
DIGITS = 60


@contextlib.contextmanager
def working(digits: int = DIGITS) -> Iterator[None]:
    """Arithmetic of so many digits: overflow yields infinity, underflow zero; NaN is an error."""
    with decimal.localcontext(
        decimal.Context(prec=digits, traps=[decimal.InvalidOperation, decimal.DivisionByZero])
    ):
        yield


def total(terms: Iterator[Decimal]) -> Decimal:
    """The sum of terms that end up falling, up to the first that changes nothing."""
    found = next(terms)
    for term in terms:
        larger = found + term
        if larger == found:
            return found
        found = larger
    return found


# ---- angles


@functools.cache
def pi(digits: int = DIGITS + 10) -> Decimal:
    """Pi, by J. Machin's formula in integers."""
    unit = 10 ** (digits + 10)

    def inverse_tangent(n: int) -> int:
        power = found = unit // n
        for k in range(3, 10 * digits, 2):
            power //= -n * n
            found += power // k
        return found

    with working(digits):
        return Decimal(4 * (4 * inverse_tangent(5) - inverse_tangent(239))) / unit


def _alternating(first: Decimal, square: Decimal, start: int) -> Iterator[Decimal]:
    """Yield ``first`` and each next term, the one before times ``-square / (k (k + 1))``.

    ``k`` goes from ``start`` in steps of 2.
    """
    term, k = first, start
    while True:
        yield term
        term *= -square / (k * (k + 1))
        k += 2


def sine_and_cosine(x: Decimal) -> tuple[Decimal, Decimal]:
    """Both of an angle in radians, however large."""
    digits = DIGITS + 20 + max(0, x.adjusted())
    with working(digits):
        quarter = pi(digits) / 2
        turns = (x / quarter).to_integral_value()
        rest = x - turns * quarter
    rest = +rest
    sine = total(_alternating(rest, rest * rest, 2)) if rest else Decimal(0)
    cosine = total(_alternating(Decimal(1), rest * rest, 1))
    return ((sine, cosine), (cosine, -sine), (-sine, -cosine), (-cosine, sine))[
        int(turns.to_integral_value()) % 4
    ]


def of_half_turns(x: Decimal) -> tuple[Decimal, Decimal]:
    """The sine and cosine of ``x`` half turns; exactly 0 and 1 where they are."""
    rest = Decimal(math.fmod(float(x), 2.0))  # exact: x is a float
    doubled = rest * 2
    if doubled == doubled.to_integral_value():
        return (
            (Decimal(0), Decimal(1)),
            (Decimal(1), Decimal(0)),
            (Decimal(0), Decimal(-1)),
            (Decimal(-1), Decimal(0)),
        )[int(doubled) % 4]
    return sine_and_cosine(rest * pi())


def tangent(x: Decimal) -> Decimal:
    sine, cosine = sine_and_cosine(x)
    return sine / cosine


def arc_tangent(x: Decimal) -> Decimal:
    if abs(x) > 1:
        return (pi() / 2).copy_sign(x) - arc_tangent(1 / x)
    if x == 0:
        return x
    halvings = 3
    for _ in range(halvings):
        x = x / (1 + (1 + x * x).sqrt())
    return 2**halvings * total(x * (-x * x) ** k / (2 * k + 1) for k in range(1000))


def angle_of(y: Decimal, x: Decimal) -> Decimal:
    """The angle of the point (x, y), neither coordinate 0."""
    found = arc_tangent(y / x)
    return found if x > 0 else found + pi().copy_sign(y)


def arc_sine(x: Decimal) -> Decimal:
    if abs(x) == 1:
        return (pi() / 2).copy_sign(x)
    return arc_tangent(x / ((1 - x) * (1 + x)).sqrt())


def arc_cosine(x: Decimal) -> Decimal:
    return pi() if x == -1 else 2 * arc_tangent(((1 - x) / (1 + x)).sqrt())


# ---- exponentials and logarithms


def exponential(x: Decimal) -> Decimal:
    # Beyond this every float format overflows, or has long been at zero.
    return max(min(x, Decimal(20000)), Decimal(-20000)).exp()


def exponential_less_one(x: Decimal) -> Decimal:
    if x == 0 or abs(x) > 1:
        return exponential(x) - 1 if x else x

    def terms() -> Iterator[Decimal]:
        term = x
        for k in range(2, 1000):
            yield term
            term *= x / k

    return total(terms())


def power(x: Decimal, y: Decimal) -> Decimal:
    """``x`` to the ``y`` for a positive ``x``."""
    with working(DIGITS + 20):
        return exponential(y * x.ln())


def to_base(base: int, x: Decimal) -> Decimal:
    """``base`` to the ``x``, exactly where ``x`` is an integer."""
    x = max(min(x, Decimal(20000)), Decimal(-20000))
    if x == x.to_integral_value():
        return Decimal(base) ** int(x)
    return power(Decimal(base), x)


def logarithm_of_base_2(x: Decimal) -> Decimal:
    exponent = math.frexp(float(x))
    return Decimal(exponent[1] - 1) if exponent[0] == 0.5 else x.ln() / Decimal(2).ln()


def inverse_hyperbolic_tangent(x: Decimal) -> Decimal:
    if abs(x) > Decimal("0.1"):
        return ((1 + x) / (1 - x)).ln() / 2
    return total(x * (x * x) ** k / (2 * k + 1) for k in range(1000)) if x else x


def logarithm_of_one_more(x: Decimal) -> Decimal:
    return (
        (1 + x).ln()
        if x > 1 or x < Decimal("-0.2")
        else 2 * inverse_hyperbolic_tangent(x / (2 + x))
    )


# ---- hyperbolic functions


def hyperbolic_sine(x: Decimal) -> Decimal:
    t = exponential_less_one(abs(x))
    return ((t + t / (t + 1)) / 2).copy_sign(x) if t.is_finite() else t.copy_sign(x)


def hyperbolic_cosine(x: Decimal) -> Decimal:
    t = exponential(abs(x))
    return (t + 1 / t) / 2


def hyperbolic_tangent(x: Decimal) -> Decimal:
    t = exponential_less_one(2 * min(abs(x), Decimal(200)))
    return (t / (t + 2)).copy_sign(x)


def inverse_hyperbolic_sine(x: Decimal) -> Decimal:
    size = abs(x)
    return logarithm_of_one_more(size + size * size / (1 + (1 + size * size).sqrt())).copy_sign(x)


def inverse_hyperbolic_cosine(x: Decimal) -> Decimal:
    t = x - 1
    return logarithm_of_one_more(t + (2 * t + t * t).sqrt())


# ---- roots and lengths


def cube_root(x: Decimal) -> Decimal:
    return power(abs(x), 1 / Decimal(3)).copy_sign(x) if x else x


def length(*parts: Decimal) -> Decimal:
    return sum((part * part for part in parts), Decimal(0)).sqrt()


#: name -> the function of as many numbers as it takes
ELEMENTARY: dict[str, Callable[..., Decimal]] = {
    "exp": exponential,
    "exp2": functools.partial(to_base, 2),
    "exp10": functools.partial(to_base, 10),
    "expm1": exponential_less_one,
    "log": lambda x: x.ln(),
    "log2": logarithm_of_base_2,
    "log10": lambda x: x.log10(),
    "log1p": logarithm_of_one_more,
    "pow": power,
    "sin": lambda x: sine_and_cosine(x)[0],
    "cos": lambda x: sine_and_cosine(x)[1],
    "tan": tangent,
    "sinpi": lambda x: of_half_turns(x)[0],
    "cospi": lambda x: of_half_turns(x)[1],
    "asin": arc_sine,
    "acos": arc_cosine,
    "atan": arc_tangent,
    "atan2": angle_of,
    "sinh": hyperbolic_sine,
    "cosh": hyperbolic_cosine,
    "tanh": hyperbolic_tangent,
    "asinh": inverse_hyperbolic_sine,
    "acosh": inverse_hyperbolic_cosine,
    "atanh": inverse_hyperbolic_tangent,
    "sqrt": lambda x: x.sqrt(),
    "rsqrt": lambda x: 1 / x.sqrt(),
    "cbrt": cube_root,
    "rcbrt": lambda x: 1 / cube_root(x),
    "div": lambda x, y: x / y,
    "length": length,
    "reciprocal_length": lambda *parts: 1 / length(*parts),
}
