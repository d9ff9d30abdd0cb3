"""Elementwise operations against Python's own integers and rationals, on random and on extreme
values."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from tilewright.ir import TABLE
from tilewright.ir.breakpoint import Breakpoint
from tilewright.ir.types import (
    BF16,
    F8E4B15,
    F8E4M3FN,
    F8E4M3FNUZ,
    F8E5M2,
    F8E5M2FNUZ,
    F16,
    F32,
    F64,
    FLOATS,
    I1,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    PointerType,
    TileType,
)
from tilewright.reference import numerics
from tilewright.reference.operations.regions import CONTROL
from tilewright.reference.operations.semantics import MEANINGS
from tilewright_conformance.oracles.formats import saturated

INTEGERS = [I8, I16, I32, I64, U8, U16, U32, U64]
COUNT = 300


def tile(type_, n=COUNT):
    return TileType((n,), type_)


def integers(rng, type_, n=COUNT):
    special = [
        type_.minimum,
        type_.maximum,
        0,
        1,
        type_.maximum - 1,
        type_.minimum + 1,
        type_.wrap(-1),
    ]
    values = [type_.wrap(int(v)) for v in rng.integers(-(2**63), 2**63, n)]
    small = [type_.wrap(int(v)) for v in rng.integers(-5, 6, n)]
    mixed = [
        s if flag else v for v, s, flag in zip(values, small, rng.integers(0, 2, n), strict=True)
    ]
    mixed[: len(special)] = special
    return np.array([mixed[i] for i in rng.permutation(n)], dtype=numerics.numpy_dtype(type_))


def floats(rng, type_, n=COUNT):
    """Random encodings: every exponent occurs, and so do zeros, infinities and NaN."""
    bits = rng.integers(0, 2**63, n).astype(numerics.bits_dtype(type_.bits)) * numerics.bits_dtype(
        type_.bits
    ).type(2) + rng.integers(0, 2, n).astype(numerics.bits_dtype(type_.bits))
    values = bits if numerics.is_raw(type_) else bits.view(numerics.numpy_dtype(type_))
    plain = numerics.encode(rng.normal(size=n) * 4, type_)
    special = numerics.encode(np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0]), type_)
    result = np.where(rng.integers(0, 2, n) == 0, values, plain)
    result[: len(special)] = special
    return rng.permutation(result)


def real(values, type_):
    return np.asarray(numerics.decode(values, type_)).astype(np.float64)


def assert_same_numbers(got, want, type_):
    """Equal as numbers of a format; the sign of zero counts, NaN equals NaN."""
    got, want = real(got, type_), real(want, type_)
    ordered = ~np.isnan(want)
    assert np.array_equal(np.isnan(got), ~ordered)
    assert np.array_equal(got[ordered], want[ordered])
    assert np.array_equal(np.signbit(got[ordered]), np.signbit(want[ordered]))


def test_every_operation_of_the_table_has_a_meaning():
    terminators = {spec.name for spec in TABLE if spec.terminator}
    assert {spec.name for spec in (*TABLE, Breakpoint.row)} - terminators == set(MEANINGS) | set(
        CONTROL
    )
    assert not set(MEANINGS) & set(CONTROL)


def c_divide(a, b):
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


INTEGER_OPS = {
    "add": lambda a, b, t: a + b,
    "sub": lambda a, b, t: a - b,
    "mul": lambda a, b, t: a * b,
    "and": lambda a, b, t: a & b,
    "or": lambda a, b, t: a | b,
    "xor": lambda a, b, t: a ^ b,
    "min": lambda a, b, t: min(a, b),
    "max": lambda a, b, t: max(a, b),
}


INTEGER_CASES = [
    (name, type_)
    for name in (*INTEGER_OPS, "div", "rem", "shl", "shr", "mulhi")
    for type_ in INTEGERS
    if name != "mulhi" or type_.bits >= 32
]


@pytest.mark.parametrize(("name", "type_"), INTEGER_CASES, ids=str)
def test_integer_binary(name, type_, kernels, rng):
    a, b = integers(rng, type_), integers(rng, type_)
    method = f"{name}_" if name in ("and", "or") else name
    meaning = INTEGER_OPS.get(name)
    if name in ("div", "rem"):
        b[b == 0] = 3
        meaning = (
            (lambda x, y, t: c_divide(x, y))
            if name == "div"
            else (lambda x, y, t: x - y * c_divide(x, y))
        )
    elif name in ("shl", "shr"):
        b = rng.integers(0, type_.bits, COUNT).astype(b.dtype)
        meaning = (lambda x, y, t: x << y) if name == "shl" else (lambda x, y, t: x >> y)
    elif name == "mulhi":
        meaning = lambda x, y, t: (x * y) >> t.bits  # noqa: E731
    got = kernels.apply(
        lambda b_, x, y: getattr(b_, method)(x, y), [(a, tile(type_)), (b, tile(type_))]
    )
    assert got.tolist() == [
        type_.wrap(meaning(int(x), int(y), type_)) for x, y in zip(a, b, strict=True)
    ]


@pytest.mark.parametrize("type_", INTEGERS, ids=str)
def test_integer_unary(type_, kernels, rng):
    x = integers(rng, type_)
    values = [int(v) for v in x]
    mask = (1 << type_.bits) - 1
    got = kernels.apply(
        lambda b, v: (b.neg(v), b.abs(v), b.clz(v), b.popcount(v)), [(x, tile(type_))]
    )
    assert got[0].tolist() == [type_.wrap(-v) for v in values]
    assert got[1].tolist() == [type_.wrap(abs(v)) for v in values]
    assert got[2].tolist() == [type_.bits - (v & mask).bit_length() for v in values]
    assert got[3].tolist() == [(v & mask).bit_count() for v in values]


def test_booleans(kernels):
    a, b = np.array([0, 0, 1, 1], np.bool_), np.array([0, 1, 0, 1], np.bool_)
    t = TileType((4,), I1)
    got = kernels.apply(
        lambda k, x, y: (
            k.and_(x, y),
            k.or_(x, y),
            k.xor(x, y),
            k.cmp(x, y, predicate="lt"),
            k.clz(x),
            k.popcount(x),
            k.shl(x, k.xor(y, y)),
        ),
        [(a, t), (b, t)],
    )
    assert [r.tolist() for r in got] == [
        (a & b).tolist(),
        (a | b).tolist(),
        (a ^ b).tolist(),
        (~a & b).tolist(),
        (~a).tolist(),
        a.tolist(),
        a.tolist(),
    ]


@pytest.mark.each_value
@pytest.mark.parametrize("type_", FLOATS, ids=str)
@pytest.mark.parametrize("name", ["add", "sub", "mul", "div"])
def test_float_arithmetic_rounds_once(name, type_, kernels, rng):
    """The exact result of finite numbers, by rationals, rounded by the definition; specials by
    IEEE's rules in float64. fp8 saturates."""
    a, b = floats(rng, type_), floats(rng, type_)
    got = kernels.apply(
        lambda k, x, y: getattr(k, name)(x, y), [(a, tile(type_)), (b, tile(type_))]
    )
    with np.errstate(all="ignore"):
        special = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.true_divide}[
            name
        ](real(a, type_), real(b, type_))
        want = []
        for x, y, s in zip(real(a, type_), real(b, type_), special, strict=True):
            if not (math.isfinite(x) and math.isfinite(y)) or (name == "div" and y == 0) or s == 0:
                want.append(rounded(s, type_))
                continue
            exact = {
                "add": lambda p, q: p + q,
                "sub": lambda p, q: p - q,
                "mul": lambda p, q: p * q,
                "div": lambda p, q: p / q,
            }[name](Fraction(x), Fraction(y))
            want.append(round_fraction(exact, type_))
    assert_same_numbers(got, np.array(want), type_)


def rounded(value, type_):
    """A float64 rounded to nearest even, as kept."""
    return numerics.encode(np.float64(saturated(value, type_)), type_)


def round_fraction(exact, type_):
    """A rational rounded to nearest even, as kept."""
    if type_ is F64:
        try:
            return np.float64(exact.numerator / exact.denominator)
        except OverflowError:
            return np.float64(math.inf if exact > 0 else -math.inf)
    magnitude = abs(exact)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    if magnitude < Fraction(2) ** exponent:
        exponent -= 1
    quantum = Fraction(2) ** (max(exponent, 1 - type_.bias) - type_.mantissa)
    whole = round(magnitude / quantum)  # Python rounds ties to even
    value = float(whole * quantum) if whole * quantum < Fraction(2) ** 200 else math.inf
    return rounded(value if exact >= 0 else -value, type_)


@pytest.mark.parametrize("type_", FLOATS, ids=str)
def test_fma_rounds_once(type_, kernels, rng):
    a, b, c = floats(rng, type_, 600), floats(rng, type_, 600), floats(rng, type_, 600)
    with np.errstate(all="ignore"):
        # Cancellation, and products that lie next to a tie of the sum.
        c[:200] = numerics.encode(-real(a[:200], type_) * real(b[:200], type_), type_)
        c[200:300] = numerics.encode(
            real(a[200:300], type_) * real(b[200:300], type_) * 2.0 ** (type_.mantissa + 1), type_
        )
    got = kernels.apply(
        lambda k, x, y, z: k.fma(x, y, z), [(v, tile(type_, 600)) for v in (a, b, c)]
    )
    want = []
    with np.errstate(all="ignore"):
        for x, y, z in zip(real(a, type_), real(b, type_), real(c, type_), strict=True):
            if all(map(math.isfinite, (x, y, z))):
                exact = Fraction(x) * Fraction(y) + Fraction(z)
                want.append(
                    round_fraction(exact, type_)
                    if exact
                    else rounded(x * y + z if x * y == 0 else 0.0, type_)
                )
            else:
                product = (
                    np.float64(x) * np.float64(y)
                    if not (math.isfinite(x) and math.isfinite(y))
                    else np.float64(0)
                )
                want.append(rounded(product + np.float64(z), type_))
    assert_same_numbers(got, np.array(want), type_)


def test_fma_of_doubles_where_parts_overflow_or_underflow(kernels):
    a = np.array([2.0**1000, 2.0**1000, 2.0**-600, 5e-324, 1e308, 2.0**-537, -0.0, 2.0**1023])
    b = np.array([2.0**100, 2.0**100, 2.0**-500, 0.5, 10.0, 2.0**-537, 1.0, 2.0])
    c = np.array([1.0, -np.inf, 5e-324, 5e-324, -1e308, 2.0**-1074, -0.0, -(2.0**1023)])
    got = kernels.apply(lambda k, x, y, z: k.fma(x, y, z), [(v, tile(F64, 8)) for v in (a, b, c)])
    assert got.tolist() == [
        math.inf,
        -math.inf,
        5e-324,
        1e-323,
        math.inf,
        5e-324 + 5e-324,
        -0.0,
        2.0**1023,
    ]
    assert math.copysign(1, got[6]) == -1


@pytest.mark.parametrize("type_", FLOATS, ids=str)
def test_min_max_and_nan(type_, kernels, rng):
    a, b = floats(rng, type_), floats(rng, type_)
    x, y = real(a, type_), real(b, type_)
    for nan in ("ignore", "propagate"):
        low, high = kernels.apply(
            lambda k, p, q, nan=nan: (k.min(p, q, nan=nan), k.max(p, q, nan=nan)),
            [(a, tile(type_)), (b, tile(type_))],
        )
        for got, pick in ((low, min), (high, max)):
            for g, p, q in zip(real(got, type_), x, y, strict=True):
                if math.isnan(p) or math.isnan(q):
                    other = q if math.isnan(p) else p
                    assert (
                        math.isnan(g)
                        if nan == "propagate" or math.isnan(other)
                        else g == saturated(other, type_)
                    )
                else:
                    assert g == saturated(pick(p, q), type_)


@pytest.mark.parametrize("type_", FLOATS, ids=str)
def test_signs(type_, kernels, rng):
    x = floats(rng, type_)
    negated, magnitude = kernels.apply(lambda k, v: (k.neg(v), k.abs(v)), [(x, tile(type_))])
    value = real(x, type_)
    numbers = ~np.isnan(value)
    assert np.array_equal(real(negated, type_)[numbers], -value[numbers])
    assert np.array_equal(real(magnitude, type_)[numbers], np.abs(value)[numbers])
    assert np.isnan(real(negated, type_)[~numbers]).all()
    assert np.isnan(real(magnitude, type_)[~numbers]).all()
    if type_.has_negative_zero:
        bits = numerics.bits_dtype(type_.bits)
        top = bits.type(1 << (type_.bits - 1))
        assert np.array_equal(negated.view(bits), x.view(bits) ^ top)  # NaN's sign flips too
        assert np.array_equal(magnitude.view(bits), x.view(bits) & ~top)


@pytest.mark.parametrize("type_", [*FLOATS, I8, U8, I64, U64], ids=str)
def test_comparisons(type_, kernels, rng):
    make = floats if type_ in FLOATS else integers
    a, b = make(rng, type_), make(rng, type_)
    b[::3] = a[::3]
    names = ("eq", "ne", "lt", "le", "gt", "ge")
    got = kernels.apply(
        lambda k, x, y: tuple(k.cmp(x, y, predicate=p) for p in names),
        [(a, tile(type_)), (b, tile(type_))],
    )
    x = real(a, type_).tolist() if type_ in FLOATS else a.tolist()
    y = real(b, type_).tolist() if type_ in FLOATS else b.tolist()
    want = {
        "eq": [p == q for p, q in zip(x, y, strict=True)],
        "ne": [p != q for p, q in zip(x, y, strict=True)],
        "lt": [p < q for p, q in zip(x, y, strict=True)],
        "le": [p <= q for p, q in zip(x, y, strict=True)],
        "gt": [p > q for p, q in zip(x, y, strict=True)],
        "ge": [p >= q for p, q in zip(x, y, strict=True)],
    }
    for name, result in zip(names, got, strict=True):
        assert result.tolist() == want[name], name


@pytest.mark.parametrize("type_", [F16, F32, F64], ids=str)
def test_float_remainder_is_fmod(type_, kernels, rng):
    a, b = floats(rng, type_), floats(rng, type_)
    got = kernels.apply(lambda k, x, y: k.rem(x, y), [(a, tile(type_)), (b, tile(type_))])
    want = [
        math.fmod(x, y) if math.isfinite(x) and y != 0 and not math.isnan(y) else math.nan
        for x, y in zip(real(a, type_), real(b, type_), strict=True)
    ]
    assert_same_numbers(got, np.array(want).astype(got.dtype), type_)


MATH = {
    "exp": math.exp,
    "exp2": lambda x: 2.0**x,
    "log": math.log,
    "log2": math.log2,
    "sin": math.sin,
    "cos": math.cos,
    "tanh": math.tanh,
    "erf": math.erf,
    "sqrt": math.sqrt,
    "rsqrt": lambda x: 1 / math.sqrt(x),
    "floor": math.floor,
    "ceil": math.ceil,
    "round_even": round,
    "trunc": math.trunc,
}


@pytest.mark.parametrize("type_", [F32, F64], ids=str)
@pytest.mark.parametrize("name", MATH)
def test_functions_of_floats(name, type_, kernels, rng):
    x = rng.uniform(-20, 20, COUNT)
    x[:40] = rng.integers(-20, 20, 40) / 2
    if name in ("log", "log2", "sqrt", "rsqrt"):
        x = np.abs(x) + 1e-3
    x = x.astype(numerics.numpy_dtype(type_))
    got = kernels.apply(lambda k, v: getattr(k, name)(v), [(x, tile(type_))])
    want = np.array([MATH[name](float(v)) for v in x])
    if type_ is F32:
        assert np.array_equal(got, want.astype(np.float32))
    else:
        assert np.allclose(got, want, rtol=4e-16, atol=0)


def test_functions_at_the_edges(kernels):
    x = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0], np.float32)
    got = kernels.apply(
        lambda k, v: (k.exp(v), k.log(v), k.erf(v), k.tanh(v), k.sqrt(v), k.rsqrt(v), k.sin(v)),
        [(x, tile(F32, 5))],
    )
    inf, nan = np.inf, np.nan
    want = [
        [inf, 0, nan, 1, 1],
        [inf, nan, nan, -inf, -inf],
        [1, -1, nan, 0, -0.0],
        [1, -1, nan, 0, -0.0],
        [inf, nan, nan, 0, -0.0],
        [0, nan, nan, inf, -inf],
        [nan, nan, nan, 0, -0.0],
    ]
    for result, expected in zip(got, want, strict=True):
        assert np.array_equal(result, np.array(expected, np.float32), equal_nan=True)


@pytest.mark.parametrize("type_", [F32, F64], ids=str)
def test_ldexp_and_copysign(type_, kernels, rng):
    x = rng.normal(size=COUNT).astype(numerics.numpy_dtype(type_))
    e = rng.integers(-160 if type_ is F32 else -1100, 140 if type_ is F32 else 1030, COUNT).astype(
        np.int32
    )
    e[:3] = [2**31 - 1, -(2**31), 0]
    scaled, signed = kernels.apply(
        lambda k, v, n: (k.ldexp(v, n), k.copysign(v, k.neg(v))), [(x, tile(type_)), (e, tile(I32))]
    )
    want = [
        round_fraction(Fraction(float(v)) * Fraction(2) ** int(n), type_)
        for v, n in zip(x[3:], e[3:], strict=True)
    ]
    assert np.array_equal(scaled[3:], np.array(want))
    assert np.isinf(scaled[0]) and scaled[1] == 0 and scaled[2] == x[2]
    assert np.array_equal(signed, -x)


@pytest.mark.each_value
@pytest.mark.parametrize("result", [*INTEGERS, I1, *FLOATS], ids=str)
@pytest.mark.parametrize("source", [*INTEGERS, I1], ids=str)
def test_casts_from_integers(source, result, kernels, rng):
    x = rng.integers(0, 2, COUNT).astype(np.bool_) if source is I1 else integers(rng, source)
    got = kernels.apply(lambda k, v: k.cast(v, result=tile(result)), [(x, tile(source))])
    if result is I1:
        assert got.tolist() == [bool(v) for v in x]
    elif result in INTEGERS:
        assert got.tolist() == [result.wrap(int(v)) for v in x]
    else:
        assert_same_numbers(
            got,
            np.array(
                [
                    round_fraction(Fraction(int(v)), result)
                    if v
                    else numerics.encode(np.float64(0), result)
                    for v in x
                ]
            ),
            result,
        )


@pytest.mark.each_value
@pytest.mark.parametrize("result", [*FLOATS, I8, I64, U32, I1], ids=str)
@pytest.mark.parametrize("source", FLOATS, ids=str)
def test_casts_from_floats(source, result, kernels, rng):
    x = floats(rng, source)
    value = real(x, source)
    if result not in FLOATS and result is not I1:
        value = np.where(
            np.isfinite(value),
            np.clip(value, max(result.minimum, -(2**31)), min(result.maximum, 2**31) - 1),
            0,
        )
        x = numerics.encode(value, source, "rtz") if source is not F64 else value
        value = real(x, source)
    got = kernels.apply(lambda k, v: k.cast(v, result=tile(result)), [(x, tile(source))])
    if result is I1:
        assert got.tolist() == [v != 0 for v in value]
    elif result in FLOATS:
        with np.errstate(all="ignore"):
            assert_same_numbers(
                got,
                numerics.encode(value if source is result else saturated(value, result), result),
                result,
            )
    else:
        assert got.tolist() == [math.trunc(v) for v in value]


@pytest.mark.parametrize(
    ("result", "greatest", "nan"),
    [
        (F8E4M3FN, 0x7E, 0x7F),
        (F8E5M2, 0x7B, 0x7E),
        (F8E4M3FNUZ, 0x7F, 0x80),
        (F8E5M2FNUZ, 0x7F, 0x80),
        (F8E4B15, 0x7E, 0x7F),
    ],
    ids=str,
)
def test_casts_to_fp8_saturate(result, greatest, nan, kernels):
    x = np.array([np.inf, 65000.0, -65000.0, -np.inf, np.nan])
    for source in (F16, F32, F64, BF16):
        given = numerics.encode(x, source)
        got = kernels.apply(
            lambda k, v: k.cast(v, result=tile(result, 5)), [(given, tile(source, 5))]
        )
        assert got.tolist() == [greatest, greatest, greatest | 0x80, greatest | 0x80, nan]
    far = np.array([2**31 - 1, -(2**31)], np.int32)
    got = kernels.apply(lambda k, v: k.cast(v, result=tile(result, 2)), [(far, tile(I32, 2))])
    assert got.tolist() == [greatest, greatest | 0x80]


def test_cast_towards_zero(kernels, rng):
    x = rng.normal(size=COUNT).astype(np.float32)
    for result in (F16, BF16, F8E5M2, F8E4M3FN, F8E4B15, F8E4M3FNUZ, F8E5M2FNUZ):
        got = kernels.apply(
            lambda k, v, result=result: k.cast(v, result=tile(result), rounding="rtz"),
            [(x, tile(F32))],
        )
        assert (np.abs(real(got, result)) <= np.abs(x)).all()
        assert_same_numbers(got, numerics.encode(x.astype(np.float64), result, "rtz"), result)


def test_bitcasts_and_addresses(kernels, rng):
    x = floats(rng, F32)
    assert np.array_equal(
        kernels.apply(lambda k, v: k.bitcast(v, result=tile(I32)), [(x, tile(F32))]),
        x.view(np.int32),
    )
    y = rng.integers(0, 2**16, COUNT).astype(np.uint16)
    assert np.array_equal(
        kernels.apply(
            lambda k, v: k.bitcast(v, result=tile(BF16)), [(y.view(np.float16), tile(F16))]
        ),
        y,
    )

    def move(k, base, offset):
        moved = k.addptr(k.bitcast(base, result=tile(PointerType(F64))), offset)
        return k.bitcast(moved, result=tile(I64))

    base = rng.integers(0, 2**40, COUNT)
    for type_ in (I8, I32, U32, U64):
        offset = integers(rng, type_)
        got = kernels.apply(move, [(base, tile(I64)), (offset, tile(type_))])
        assert got.tolist() == [
            I64.wrap(int(a) + 8 * int(o)) for a, o in zip(base, offset, strict=True)
        ]


def test_addresses_are_ordered_without_a_sign(kernels):
    a, b = np.array([0, -1, 5, -(2**63)], np.int64), np.array([-1, 0, 6, 2**63 - 1], np.int64)

    def compare(k, x, y):
        x, y = (k.bitcast(v, result=tile(PointerType(F32), 4)) for v in (x, y))
        return tuple(
            k.cmp(x, y, predicate=predicate) for predicate in ("lt", "le", "gt", "ge", "eq", "ne")
        )

    lt, le, gt, ge, eq, ne = kernels.apply(compare, [(a, tile(I64, 4)), (b, tile(I64, 4))])
    assert lt.tolist() == le.tolist() == [True, False, True, False]
    assert gt.tolist() == ge.tolist() == [False, True, False, True]
    assert not eq.any() and ne.all()


def test_select_takes_lanes(kernels, rng):
    c, a, b = rng.integers(0, 2, COUNT).astype(np.bool_), floats(rng, BF16), floats(rng, BF16)
    got = kernels.apply(
        lambda k, x, y, z: k.select(x, y, z), [(c, tile(I1)), (a, tile(BF16)), (b, tile(BF16))]
    )
    assert np.array_equal(got, np.where(c, a, b))


def test_constants_of_every_type(kernels):
    def build(k):
        return (
            k.constant(value=True, result=I1),
            k.constant(value=-7, result=I8),
            k.constant(value=2**64 - 1, result=U64),
            k.constant(value=1.5, result=BF16),
            k.constant(value=-0.0, result=F8E5M2),
            k.constant(value=math.inf, result=F16),
        )

    got = kernels.apply(build, [])
    assert [v.item() for v in got] == [True, -7, 2**64 - 1, 0x3FC0, 0x80, math.inf]


def test_sines_of_angles_next_to_a_multiple_of_a_quarter_turn_keep_all_digits(kernels):
    # The rest of an angle that large is lost by C libraries that reduce it to three doubles. Values
    # to 20 digits by arithmetic of 400.
    x = np.array([6381956970095103.0 * 2.0**797, 3.141592653589793, -355.0])
    sine, cosine = kernels.apply(lambda k, v: (k.sin(v), k.cos(v)), [(x, tile(F64, 3))])
    expected = np.array([1.0, 1.2246467991473531772e-16, 3.0144353359488449214e-05])
    np.testing.assert_array_max_ulp(sine, expected, 1)
    np.testing.assert_array_max_ulp(cosine[:1], np.array([-4.6871659242546276111e-19]), 1)
