"""The language's operators on two tensors: kernels, common types, operands, and exact results."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

import tilewright as tw
import tilewright.language as tl
from tilewright_conformance.cases.core.casts import conversions
from tilewright_conformance.oracles.dtypes import FLOATS, INTEGERS, NUMBERS, SIGNED, UNSIGNED, kind
from tilewright_conformance.testlib.numbers import special, wide

Array = NDArray[Any]

PAIRS = tuple(itertools.combinations_with_replacement(NUMBERS, 2))


def common(a: str, b: str) -> str:
    """The common type of two operands.

    It is C's for integers; a float over any integer; fp16 over bf16; bf16 with anything else as
    fp32.
    """
    if a in INTEGERS and b in INTEGERS:
        sizes = kind(a).itemsize, kind(b).itemsize
        if (a in SIGNED) == (b in SIGNED):
            return a if sizes[0] > sizes[1] else b
        unsigned, signed = (a, b) if a in UNSIGNED else (b, a)
        return unsigned if kind(unsigned).itemsize >= kind(signed).itemsize else signed
    for name in ("float64", "float32", "float16"):
        if name in (a, b):
            return name
    return "bfloat16" if a == b else "float32"


def meet(x: Array, name: str) -> Array:
    """An operand in the type of the operation."""
    return np.asarray(conversions.cast(x, name)).astype(kind(name))


def usual(rng: np.random.Generator, name: str, count: int) -> Array:
    """Nonzero numbers: of an integer type's whole range, many small, or usual floats."""
    if name in FLOATS:
        return (rng.uniform(0.5, 6, count) * rng.choice([-1, 1], count)).astype(kind(name))
    values = wide(rng, name, count)
    values[::4] = values[::4] % np.array(11, name)
    values[values == 0] = 1
    return values


def operands(rng: np.random.Generator, a: str, b: str, count: int) -> tuple[Array, Array]:
    """Operands, some equal, with every special float against every other one in turn.

    None overflows the common type.
    """
    found = []
    for name in (a, b):
        x = wide(rng, name, count)
        if name in FLOATS:
            some = special(name)
            x[: count // 2] = some[rng.integers(0, len(some), count // 2)]
        elif common(a, b) == "float16":
            x %= kind(name).type(min(np.iinfo(name).max, 30000))
        found.append(x)
    x, y = found
    if a == b:
        y[5::9] = x[5::9]
    elif b in FLOATS and a not in FLOATS:
        same = np.arange(count)[7::9]
        x[same] = rng.integers(0, 100, len(same)).astype(kind(a))
        y[same] = x[same].astype(kind(b))
    return x, y


def truncated_quotient(p: Array, q: Array) -> Array:
    """Integer division as C has it."""
    wanted = [
        abs(int(i)) // abs(int(j)) * (1 if (i < 0) == (j < 0) else -1)
        for i, j in zip(p, q, strict=True)
    ]
    return np.array(wanted, p.dtype)


def shifted(p: Array, amount: Array, *, arithmetic: bool) -> tuple[Array, Array]:
    """(left, right) shifts of integers; the right one brings in the sign where ``arithmetic``."""
    sign = "i" if arithmetic else "u"
    right = (p.view(f"{sign}{p.itemsize}") >> amount.view(f"{sign}{p.itemsize}")).view(p.dtype)
    return p << amount, right


def fused(x: Array, y: Array, z: Array) -> Array:
    """``x * y + z`` of finite floats other than bf16, rounded once."""
    exact = [
        Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
        for a, b, c in zip(x, y, z, strict=True)
    ]
    if x.dtype == np.float64:
        return np.array([float(value) for value in exact])
    return np.array([_odd(value) for value in exact]).astype(x.dtype)


def _odd(exact: Fraction) -> float:
    """Round to float64, to odd where the number does not fit.

    A later rounding is then correct.
    """
    near = float(exact)
    if Fraction(near) == exact or np.array(near).view(np.int64) & 1:
        return near
    return float(np.nextafter(near, np.inf if exact > Fraction(near) else -np.inf))


# ---- kernels


@tw.jit
def arithmetic(
    x_ptr, y_ptr, added, differences, multiplied, TYPE: tl.constexpr, BLOCK: tl.constexpr
):
    at = tl.arange(0, BLOCK)
    x, y = tl.load(x_ptr + at), tl.load(y_ptr + at)
    tl.static_assert((x + y).dtype == TYPE)
    tl.static_assert((y * x).dtype == TYPE)
    tl.store(added + at, x + y)
    tl.store(differences + at, x - y)
    tl.store(multiplied + at, x * y)


@tw.jit
def compared(x_ptr, y_ptr, out, BLOCK: tl.constexpr):
    """The six comparisons, one row each, in the order of :data:`COMPARISONS`."""
    at = tl.arange(0, BLOCK)
    x, y = tl.load(x_ptr + at), tl.load(y_ptr + at)
    tl.static_assert((x < y).dtype == tl.int1)
    tl.store(out + at, x < y)
    tl.store(out + BLOCK + at, x <= y)
    tl.store(out + 2 * BLOCK + at, x == y)
    tl.store(out + 3 * BLOCK + at, x != y)
    tl.store(out + 4 * BLOCK + at, x >= y)
    tl.store(out + 5 * BLOCK + at, x > y)


COMPARISONS = (np.less, np.less_equal, np.equal, np.not_equal, np.greater_equal, np.greater)


@tw.jit
def divided(
    x_ptr,
    y_ptr,
    quotients,
    whole,
    remainders,
    TYPE: tl.constexpr,
    REST: tl.constexpr,
    BLOCK: tl.constexpr,
):
    at = tl.arange(0, BLOCK)
    x, y = tl.load(x_ptr + at), tl.load(y_ptr + at)
    tl.static_assert((x / y).dtype == TYPE)
    tl.static_assert((x % y).dtype == REST)
    tl.store(quotients + at, x / y)
    if REST.is_int():
        tl.store(whole + at, x // y)
    tl.store(remainders + at, x % y)


@tw.jit
def one_division(x_ptr, y_ptr, out):
    tl.store(out, tl.load(x_ptr) / tl.load(y_ptr))


@tw.jit
def bitwise(
    x_ptr, y_ptr, both, either, odd, left, right, inverted, TYPE: tl.constexpr, BLOCK: tl.constexpr
):
    at = tl.arange(0, BLOCK)
    x, y = tl.load(x_ptr + at), tl.load(y_ptr + at)
    tl.store(both + at, x & y)
    tl.store(either + at, x | y)
    tl.store(odd + at, x ^ y)
    bits: tl.constexpr = TYPE.primitive_bitwidth
    amount = (y & (bits - 1)).to(y.dtype)
    tl.static_assert((x << amount).dtype == TYPE)
    tl.store(left + at, x << amount)
    tl.store(right + at, x >> amount)
    tl.store(inverted + at, ~x)


@tw.jit
def chosen(condition, x_ptr, y_ptr, out, small, large, TYPE: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x, y = tl.load(x_ptr + at), tl.load(y_ptr + at)
    picked = tl.where(tl.load(condition + at) != 0, x, y)
    tl.static_assert(picked.dtype == TYPE)
    tl.store(out + at, picked)
    tl.store(small + at, tl.minimum(x, y))
    tl.store(large + at, tl.maximum(x, y))


@tw.jit
def limited(x_ptr, low_ptr, high_ptr, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.clamp(tl.load(x_ptr + at), tl.load(low_ptr + at), tl.load(high_ptr + at)))


@tw.jit
def not_numbers(x_ptr, y_ptr, out, PROPAGATE: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x, y = tl.load(x_ptr + at), tl.load(y_ptr + at)
    nan: tl.constexpr = tl.PropagateNan.ALL if PROPAGATE else tl.PropagateNan.NONE
    tl.store(out + at, tl.maximum(x, y, propagate_nan=nan))
    tl.store(out + BLOCK + at, tl.minimum(x, y, propagate_nan=nan))
    tl.store(out + 2 * BLOCK + at, tl.clamp(x, -1.0, 1.0, propagate_nan=nan))


@tw.jit
def with_number(
    x_ptr, added, back, multiplied, NUMBER: tl.constexpr, TYPE: tl.constexpr, BLOCK: tl.constexpr
):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)
    tl.static_assert((x + NUMBER).dtype == TYPE)
    tl.store(added + at, x + NUMBER)
    tl.store(back + at, NUMBER - x)
    tl.store(multiplied + at, x * NUMBER)


@tw.jit
def with_argument(x_ptr, added, back, multiplied, number, TYPE: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)
    tl.static_assert((number + x).dtype == TYPE)
    tl.store(added + at, x + number)
    tl.store(back + at, number - x)
    tl.store(multiplied + at, x * number)


@tw.jit
def beyond(x_ptr, out, NUMBER: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)
    tl.store(out + at, x < NUMBER)
    tl.store(out + BLOCK + at, x == NUMBER)
    tl.store(out + 2 * BLOCK + at, x >= NUMBER)


@tw.jit
def shifted_by(x_ptr, left, right, AMOUNT: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)
    tl.store(left + at, x << AMOUNT)
    tl.store(right + at, x >> AMOUNT)


@tw.jit
def negated(x_ptr, y_ptr, greater, best, size_greater, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x, y = tl.load(x_ptr + at), tl.load(y_ptr + at)
    tl.store(greater + at, (-x > y).to(tl.int8))
    tl.store(best + at, tl.maximum(-x, y))
    tl.store(size_greater + at, (tl.abs(x) > y).to(tl.int8))


@tw.jit
def alone(x_ptr, negative, magnitude, same, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)
    tl.store(negative + at, -x)
    tl.store(magnitude + at, tl.abs(x))
    tl.store(same + at, +x)


@tw.jit
def logic(x_ptr, y_ptr, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x, y = tl.load(x_ptr + at) > 0, tl.load(y_ptr + at) > 0
    tl.store(out + at, x & y)
    tl.store(out + BLOCK + at, x | y)
    tl.store(out + 2 * BLOCK + at, x ^ y)
    tl.store(out + 3 * BLOCK + at, ~x)
    tl.store(out + 4 * BLOCK + at, tl.where(x, y, ~y))
    tl.store(out + 5 * BLOCK + at, x == y)


@tw.jit
def scalar_logic(x_ptr, y_ptr, out, n):
    program = tl.program_id(0)
    x, y = tl.load(x_ptr + program) > 0, tl.load(y_ptr + program) > 0
    tl.store(out + program, x and y)
    tl.store(out + n + program, x or y)
    tl.store(out + 2 * n + program, not x)


@tw.jit
def ranges(out, START: tl.constexpr, END: tl.constexpr):
    tl.store(out + tl.arange(0, END - START), tl.arange(START, END))
