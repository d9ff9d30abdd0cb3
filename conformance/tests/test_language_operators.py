"""Every operator on every pair of number types, on CPU and GPU: the type of the result by the rules of C and of this language, its values by NumPy."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.errors import CompilationError

Run = Callable[..., None]

SIGNED, UNSIGNED = ["int8", "int16", "int32", "int64"], ["uint8", "uint16", "uint32", "uint64"]
INTEGERS, FLOATS = [*SIGNED, *UNSIGNED], ["float16", "bfloat16", "float32", "float64"]
PAIRS = list(itertools.combinations_with_replacement([*INTEGERS, *FLOATS], 2))
BLOCK = 64


def kind(name: str) -> Any:
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def common(a: str, b: str) -> str:
    """The type in which two operands meet: C's rules for integers; a float over any integer; fp16 over bf16; bf16 with anything else as fp32."""
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


def draw(name: str, seed: int) -> Any:
    """Numbers of the whole range of an integer type, and of a usual range of a float type, none of them 0."""
    rng = np.random.default_rng(seed)
    if name in FLOATS:
        return (rng.uniform(0.5, 6, BLOCK) * rng.choice([-1, 1], BLOCK)).astype(kind(name))
    values = np.frombuffer(rng.bytes(8 * BLOCK), name)[:BLOCK].copy()
    values[::4] = values[::4] % np.array(11, name)
    values[values == 0] = 1
    return values


def meet(x: Any, name: str) -> Any:
    """NumPy's numbers as ``name``; fp16 and bf16 go through fp32, as everything does here."""
    with np.errstate(all="ignore"):
        return x.astype(np.float32).astype(kind(name)) if name in ("float16", "bfloat16") and x.dtype.kind == "f" else x.astype(kind(name))


@tw.jit
def arithmetic(x_ptr, y_ptr, sums, differences, products, less, equal, unequal, at_least, TYPE: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x, y = tl.load(x_ptr + at), tl.load(y_ptr + at)
    tl.static_assert((x + y).dtype == TYPE)
    tl.static_assert((y * x).dtype == TYPE)
    tl.store(sums + at, x + y)
    tl.store(differences + at, x - y)
    tl.store(products + at, x * y)
    tl.store(less + at, x < y)
    tl.store(equal + at, x == y)
    tl.store(unequal + at, x != y)
    tl.store(at_least + at, x >= y)


@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_arithmetic_and_comparison(launch: Run, a: str, b: str) -> None:
    name = common(a, b)
    x, y = draw(a, 1), draw(b, 2)
    with np.errstate(over="ignore"):
        y[5:9] = x[5:9].astype(y.dtype)  # so that some are equal
    if y.dtype.kind in "iu":
        y[y == 0] = 1
    numbers, truths = [np.zeros(BLOCK, kind(name)) for _ in range(3)], [np.zeros(BLOCK, np.int8) for _ in range(4)]
    launch(arithmetic, (1,), x, y, *numbers, *truths, TYPE=getattr(tl, name), BLOCK=BLOCK, rtol=0, atol=0)
    p, q = meet(x, name), meet(y, name)
    with np.errstate(all="ignore"):
        for found, wanted in zip(numbers, (p + q, p - q, p * q), strict=True):
            np.testing.assert_array_equal(found, wanted)
    for found, wanted in zip(truths, (p < q, p == q, p != q, p >= q), strict=True):
        assert np.array_equal(found != 0, wanted)


@tw.jit
def divided(x_ptr, y_ptr, quotients, whole, remainders, TYPE: tl.constexpr, REST: tl.constexpr, BLOCK: tl.constexpr):
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


@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_division_and_remainder(launch: Run, a: str, b: str) -> None:
    """``//`` and ``%`` truncate, as C does; ``/`` of integers is of fp32, and of narrow floats too; signed and unsigned do not go together."""
    x, y = draw(a, 3), draw(b, 4)
    if {a, b} <= set(INTEGERS) and (a in SIGNED) != (b in SIGNED):
        with pytest.raises(CompilationError, match=r"Cannot use /, // or % with .* because they have different signedness"):
            launch(one_division, (1,), x, y, np.zeros(1, np.float32))
        return
    name = common(a, b)
    whole = name in INTEGERS
    quotient = "float64" if name == "float64" else "float32"
    rest = name if whole else quotient
    if whole and name in SIGNED:
        y[y == -1] = 3  # the least number has no opposite
    found = [np.zeros(BLOCK, kind(quotient)), np.zeros(BLOCK, kind(rest)), np.zeros(BLOCK, kind(rest))]
    exact = 0 if whole or quotient == "float64" else 3e-7
    launch(divided, (1,), x, y, *found, TYPE=getattr(tl, quotient), REST=getattr(tl, rest), BLOCK=BLOCK, rtol=3e-7, atol=1e-6)
    p, q = meet(x, rest), meet(y, rest)
    np.testing.assert_allclose(found[0], p.astype(quotient) / q.astype(quotient), rtol=3e-7)
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(found[2], np.fmod(p, q), rtol=exact, atol=exact * 6)
    if whole:
        wanted = [abs(int(i)) // abs(int(j)) * (1 if (i < 0) == (j < 0) else -1) for i, j in zip(p, q, strict=True)]
        assert np.array_equal(found[1], np.array(wanted, rest))


@tw.jit
def bitwise(x_ptr, y_ptr, both, either, odd, left, right, inverted, TYPE: tl.constexpr, BLOCK: tl.constexpr):
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


@pytest.mark.parametrize(("a", "b"), list(itertools.product(INTEGERS, INTEGERS)))
def test_bits(launch: Run, a: str, b: str) -> None:
    """``>>`` brings in the sign where the left operand is signed."""
    name = common(a, b)
    x, y = draw(a, 5), draw(b, 6)
    results = [np.zeros(BLOCK, name) for _ in range(5)]
    inverted = np.zeros(BLOCK, a)
    launch(bitwise, (1,), x, y, *results, inverted, TYPE=getattr(tl, name), BLOCK=BLOCK)
    p, q = x.astype(name), y.astype(name)
    bits = 8 * np.dtype(name).itemsize
    amount = (y & y.dtype.type(bits - 1)).astype(name)
    arithmetic_right = (p.view(f"i{bits // 8}") >> amount.view(f"i{bits // 8}")).view(name)
    logical_right = (p.view(f"u{bits // 8}") >> amount.view(f"u{bits // 8}")).view(name)
    wanted = [p & q, p | q, p ^ q, p << amount, arithmetic_right if a in SIGNED else logical_right]
    for found, expected in zip(results, wanted, strict=True):
        assert np.array_equal(found, expected)
    assert np.array_equal(inverted, ~x)


@tw.jit
def chosen(condition, x_ptr, y_ptr, out, small, large, limited, TYPE: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x, y = tl.load(x_ptr + at), tl.load(y_ptr + at)
    picked = tl.where(tl.load(condition + at) != 0, x, y)
    tl.static_assert(picked.dtype == TYPE)
    tl.store(out + at, picked)
    tl.store(small + at, tl.minimum(x, y))
    tl.store(large + at, tl.maximum(x, y))
    tl.store(limited + at, tl.clamp(x, -y, y))


@pytest.mark.parametrize(("a", "b"), [(a, b) for a, b in PAIRS if common(a, b) not in UNSIGNED])
def test_choice_and_extremes(launch: Run, a: str, b: str) -> None:
    name = common(a, b)
    x, y, condition = draw(a, 7), np.abs(draw(b, 8)), np.random.default_rng(9).integers(0, 2, BLOCK).astype(np.int32)
    if b in SIGNED:
        y[y < 0] = 1  # the least number has no opposite
    found = [np.zeros(BLOCK, kind(name)) for _ in range(4)]
    launch(chosen, (1,), condition, x, y, *found, TYPE=getattr(tl, name), BLOCK=BLOCK, rtol=0, atol=0)
    p, q = meet(x, name), meet(y, name)
    assert np.array_equal(found[0], np.where(condition != 0, p, q))
    assert np.array_equal(found[1], np.minimum(p, q))
    assert np.array_equal(found[2], np.maximum(p, q))
    if b not in UNSIGNED:  # where the opposite of a number is one
        assert np.array_equal(found[3], np.minimum(np.maximum(p, -q), q))


@tw.jit
def not_numbers(x_ptr, y_ptr, out, PROPAGATE: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x, y = tl.load(x_ptr + at), tl.load(y_ptr + at)
    nan: tl.constexpr = tl.PropagateNan.ALL if PROPAGATE else tl.PropagateNan.NONE
    tl.store(out + at, tl.maximum(x, y, propagate_nan=nan))
    tl.store(out + BLOCK + at, tl.minimum(x, y, propagate_nan=nan))
    tl.store(out + 2 * BLOCK + at, tl.clamp(x, -1.0, 1.0, propagate_nan=nan))


@pytest.mark.parametrize("propagate", [False, True])
@pytest.mark.parametrize("name", FLOATS)
def test_nan_is_passed_on_or_passed_over(launch: Run, name: str, propagate: bool) -> None:
    x, y = draw(name, 10), draw(name, 11)
    x[::3], y[::4] = np.nan, np.nan
    out = np.zeros((3, BLOCK), kind(name))
    launch(not_numbers, (1,), x, y, out, PROPAGATE=propagate, BLOCK=BLOCK, rtol=0, atol=0)
    p, q = x.astype(np.float64), y.astype(np.float64)
    highest, lowest = (np.maximum, np.minimum) if propagate else (np.fmax, np.fmin)
    limited = np.clip(p, -1, 1)
    wanted = [highest(p, q), lowest(p, q), limited]
    for i in range(3 if propagate else 2):  # without it, what a limited NaN becomes is not said
        np.testing.assert_array_equal(out[i].astype(np.float64), wanted[i])
