"""Device library functions with exact results: directed rounding, conversions, bits, parts.

Each is a row of types, operands, and the expected results.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright_conformance.cases.math.libdevice.values import PAIRS, spread
from tilewright_conformance.oracles.dtypes import storage
from tilewright_conformance.oracles.rounding import rounded
from tilewright_conformance.testlib.math_values import any_bits

Array = NDArray[Any]
INF, NAN = math.inf, math.nan
MODES = ("rn", "rz", "rd", "ru")


@dataclass(frozen=True)
class Row:
    """One function for one element type.

    Attributes:
        name: in the device library.
        types: of its operands, as texts of Tile IR.
        result: the result's type.
        operands: makes them.
        expected: what the function is of them.
        through: types it is computed in, beyond its own.
        zero_sign: whether the sign of a zero result is settled.
    """

    name: str
    types: tuple[str, ...]
    result: str
    operands: Callable[[np.random.Generator], list[Array]]
    expected: Callable[..., Array]
    through: tuple[str, ...] = ()
    zero_sign: bool = True


def rows() -> Iterator[Row]:
    yield from _directed()
    yield from _conversions()
    yield from _parts()
    yield from _bits()
    yield from _reinterpretations()


# ---- arithmetic with a stated rounding

#: name -> the exact result
OPERATIONS: dict[str, Callable[..., Fraction]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "rcp": lambda a: 1 / a,
    "fma": lambda a, b, c: a * b + c,
}


def _directed() -> Iterator[Row]:
    for type_ in ("f32", "f64"):
        for mode in MODES:
            through = ("f64",) if mode != "rn" else ()
            for name in OPERATIONS:
                count = {"rcp": 1, "fma": 3}.get(name, 2)
                yield Row(
                    f"{name}_{mode}",
                    (type_,) * count,
                    type_,
                    _directed_operands(type_, count),
                    _directed_result(name, mode, type_),
                    through,
                )
            yield Row(
                f"sqrt_{mode}",
                (type_,),
                type_,
                _root_operands(type_),
                _directed_root(mode, type_),
                through,
            )


def _directed_operands(type_: str, count: int) -> Callable[[np.random.Generator], list[Array]]:
    """Ordinary numbers, exact results, cancellation, and terms that only the direction shows."""

    def make(rng: np.random.Generator) -> list[Array]:
        found = [spread(rng, 160, 1e-6, 1e6).astype(storage(type_)) for _ in range(count)]
        for operand, value in zip(found, (3.0, 0.5, 0.25), strict=False):
            operand[:10] = value
        if count > 1:
            found[-1][10:20] = spread(rng, 10, 1e-20, 1e-10)
            found[-1][20:30] = -found[0][20:30]
            if count == 3:
                found[2][20:30] = -(found[0] * found[1])[20:30]
        return [
            np.concatenate([ordinary, extreme])
            for ordinary, extreme in zip(found, _extreme_operands(rng, type_, count), strict=True)
        ]

    return make


def _extreme_operands(rng: np.random.Generator, type_: str, count: int) -> list[Array]:
    """Numbers of every exponent, whose results are out of range as often as not.

    Some results are just in range, subnormal ones among them.
    """
    dtype = storage(type_)
    found = [_not_zero(any_bits(rng, dtype, 120)) for _ in range(count)]
    info = np.finfo(dtype)
    with np.errstate(all="ignore"):
        if count > 1:
            edges = np.exp2(
                rng.uniform(info.minexp - info.nmant - 1, info.minexp + info.nmant, 40).astype(
                    np.longdouble
                )
            )
            found[1][:40] = _not_zero(
                np.where(np.arange(40) % 2, edges / found[0][:40], found[0][:40] / edges).astype(
                    dtype
                )
            )
        if count == 3:
            found[2][:60] = _not_zero(
                (-(found[0][:60] * found[1][:60]) * np.exp2(rng.integers(-3, 4, 60))).astype(dtype)
            )
    return found


def _not_zero(x: Array) -> Array:
    return np.where(np.isfinite(x) & (x != 0), x, x.dtype.type(1))


def _directed_result(name: str, mode: str, type_: str) -> Callable[..., Array]:
    def result(*operands: Array) -> Array:
        found = []
        for numbers in zip(*(operand.tolist() for operand in operands), strict=True):
            exact = OPERATIONS[name](*map(Fraction, numbers))
            # A sum that is exactly zero is -0.0 where rounding is down.
            found.append(rounded(exact, mode, type_) if exact else -0.0 if mode == "rd" else 0.0)
        return np.array(found, storage(type_))

    return result


def _root_operands(type_: str) -> Callable[[np.random.Generator], list[Array]]:
    def make(rng: np.random.Generator) -> list[Array]:
        x = np.abs(
            np.concatenate(
                [
                    spread(rng, 160, 1e-6, 1e6).astype(storage(type_)),
                    any_bits(rng, storage(type_), 120),
                ]
            )
        )
        x[:3] = [4.0, 2.25, 0.0]
        return [x]

    return make


def _directed_root(mode: str, type_: str) -> Callable[[Array], Array]:
    """Take the integer root with enough digits, and an odd digit behind it where it is not exact.

    It then rounds as the root would.
    """

    def one(value: float) -> float:
        exact = Fraction(value)
        numerator = exact.numerator * exact.denominator
        shift = 2 * max(0, 140 - numerator.bit_length() // 2)
        root = math.isqrt(numerator << shift)
        root = 2 * root + (root * root != numerator << shift)
        return rounded(Fraction(root, exact.denominator << (shift // 2 + 1)), mode, type_)

    return lambda x: np.array([one(value) for value in x.tolist()], storage(type_))


# ---- conversions with a stated rounding

_INTEGERS = {"int": "i32", "uint": "u32", "ll": "i64", "ull": "u64"}
_WHOLE: dict[str, Callable[[float], float]] = {
    "rn": np.rint,
    "rz": np.trunc,
    "rd": np.floor,
    "ru": np.ceil,
}


def _conversions() -> Iterator[Row]:
    for mode in MODES:
        for float_name, float_ in (("float", "f32"), ("double", "f64")):
            for name, integer in _INTEGERS.items():
                yield Row(
                    f"{float_name}2{name}_{mode}",
                    (float_,),
                    integer,
                    _floats(float_),
                    _to_integer(mode, integer),
                )
                if not (float_ == "f64" and integer in ("i32", "u32") and mode != "rn"):
                    through = ("f64",) if mode != "rn" else ()
                    yield Row(
                        f"{name}2{float_name}_{mode}",
                        (integer,),
                        float_,
                        _integers(integer),
                        _from_integer(mode, float_),
                        through,
                    )
        yield Row(f"double2float_{mode}", ("f64",), "f32", _narrowing, _narrowed(mode))


def _floats(type_: str) -> Callable[[np.random.Generator], list[Array]]:
    few = [
        0.5,
        1.5,
        2.5,
        -0.5,
        -1.5,
        1e30,
        -1e30,
        2.0**31,
        2.0**32,
        2.0**63,
        2.0**64,
        -(2.0**31),
        -(2.0**63),
        NAN,
        INF,
        -INF,
        0.0,
        -0.0,
    ]
    return lambda rng: [
        np.concatenate([spread(rng, 150, 0.1, 1e6), spread(rng, 50, 1e6, 1e20), few]).astype(
            storage(type_)
        )
    ]


def _to_integer(mode: str, integer: str) -> Callable[[Array], Array]:
    """Saturating, and 0 for NaN."""
    limits = np.iinfo(storage(integer))

    def one(value: float) -> int:
        if value != value:
            return 0
        return (
            limits.max
            if value == INF
            else limits.min
            if value == -INF
            else int(min(max(int(_WHOLE[mode](value)), limits.min), limits.max))
        )

    return lambda x: np.array([one(value) for value in x.tolist()], storage(integer))


def _integers(type_: str) -> Callable[[np.random.Generator], list[Array]]:
    limits = np.iinfo(storage(type_))

    def make(rng: np.random.Generator) -> list[Array]:
        x = rng.integers(
            limits.min, limits.max, 200, dtype=storage(type_), endpoint=True
        ) >> rng.integers(0, limits.bits - 2, 200).astype(storage(type_))
        x[:6] = limits.min, limits.max, 0, 1, limits.max - 1, (1 << 24) + 1
        return [x]

    return make


def _from_integer(mode: str, type_: str) -> Callable[[Array], Array]:
    return lambda x: np.array(
        [rounded(Fraction(int(value)), mode, type_) for value in x], storage(type_)
    )


def _narrowing(rng: np.random.Generator) -> list[Array]:
    return [
        np.concatenate(
            [
                spread(rng, 150, 1e-44, 1e38),
                spread(rng, 20, 1e38, 1e300),
                [0.1, -0.1, 1 + 2.0**-24, 1 + 3 * 2.0**-24],
            ]
        )
    ]


def _narrowed(mode: str) -> Callable[[Array], Array]:
    return lambda x: np.array(
        [rounded(Fraction(value), mode, "f32") for value in x.tolist()], np.float32
    )


# ---- parts of floats


def _parts() -> Iterator[Row]:
    for type_ in ("f32", "f64"):
        dtype = storage(type_)
        bits = "i32" if type_ == "f32" else "i64"
        for name, function in (
            ("floor", np.floor),
            ("ceil", np.ceil),
            ("trunc", np.trunc),
            ("rint", np.rint),
            ("nearbyint", np.rint),
            ("abs", np.abs),
        ):
            yield Row(name, (type_,), type_, _any(type_), function)
        yield Row("round", (type_,), type_, _any(type_), _away)
        yield Row("llrint", (type_,), "i64", _inside(type_), lambda x: np.rint(x).astype(np.int64))
        yield Row("llround", (type_,), "i64", _inside(type_), lambda x: _away(x).astype(np.int64))
        yield Row("isnan", (type_,), "i1", _any(type_), np.isnan)
        yield Row("isinf", (type_,), "i1", _any(type_), np.isinf)
        for name in ("finitef", "isfinited"):
            yield Row(name, (type_,), "i1", _any(type_), np.isfinite)
        yield Row(
            "signbit",
            (type_,),
            "i32",
            _any(type_),
            lambda x: np.signbit(x).astype(np.int32),
            (bits,),
        )
        yield Row("copysign", (type_,) * 2, type_, _two(type_), np.copysign)
        yield Row("fmod", (type_,) * 2, type_, _two(type_), _each("fmod", type_))
        yield Row("remainder", (type_,) * 2, type_, _two(type_), _each("remainder", type_), (bits,))
        yield Row(
            "fdim",
            (type_,) * 2,
            type_,
            _two(type_),
            lambda x, y, d=dtype: np.where(
                np.isnan(x) | np.isnan(y), NAN, np.where(x > y, x - y, 0)
            ).astype(d),
        )
        yield Row("nextafter", (type_,) * 2, type_, _two(type_), np.nextafter, (bits,))
        yield Row(
            "ilogb",
            (type_,),
            "i32",
            _any(type_),
            lambda x: np.array([_exponent(v) for v in x.tolist()], np.int32),
            (bits,),
        )
        yield Row(
            "logb",
            (type_,),
            type_,
            _any(type_),
            lambda x, d=dtype: np.array([_log_exponent(v) for v in x.tolist()], d),
            (bits,),
        )
        for name in ("ldexp", "scalbn"):
            yield Row(name, (type_, "i32"), type_, _scaled(type_), np.ldexp)
        yield Row(
            "fma",
            (type_,) * 3,
            type_,
            _directed_operands(type_, 3),
            _directed_result("fma", "rn", type_),
        )
        yield Row(
            "fast_dividef",
            (type_,) * 2,
            type_,
            _directed_operands(type_, 2),
            _directed_result("div", "rn", type_),
        )
    yield Row(
        "saturatef",
        ("f32",),
        "f32",
        _any("f32"),
        lambda x: np.where(x > 0, np.minimum(x, 1), 0).astype(np.float32),
        zero_sign=False,
    )
    yield Row(
        "rcp64h",
        ("f64",),
        "f64",
        lambda rng: [spread(rng, 200, 1e-9, 1e9)],
        _upper_reciprocal,
        ("i64",),
    )


def _any(type_: str) -> Callable[[np.random.Generator], list[Array]]:
    """Numbers of any bits, halves, and special ones."""
    few = [
        0.0,
        -0.0,
        INF,
        -INF,
        NAN,
        1.0,
        0.99999994,
        0.5,
        1.5,
        2.5,
        -0.5,
        -2.5,
        8388607.5,
        1e-40,
        -1e-45,
        0.49999997,
    ]
    return lambda rng: [
        np.concatenate(
            [any_bits(rng, storage(type_), 200), spread(rng, 100, 0.01, 1e4), few]
        ).astype(storage(type_))
    ]


def _inside(type_: str) -> Callable[[np.random.Generator], list[Array]]:
    few = [0.5, 1.5, -2.5, 2.4999, -0.5, 0.0, 4503599627370497.0, 8388609.0]
    return lambda rng: [np.concatenate([spread(rng, 100, 0.1, 1e15), few]).astype(storage(type_))]


def _two(type_: str) -> Callable[[np.random.Generator], list[Array]]:
    """Numbers of any bits whose exponents are close, half of them neighbors."""

    def make(rng: np.random.Generator) -> list[Array]:
        x = any_bits(rng, storage(type_), 100)
        with np.errstate(all="ignore"):
            y = (x * np.exp2(rng.integers(-30, 30, 100)) * rng.uniform(-2, 2, 100)).astype(
                storage(type_)
            )
        y = np.where(np.isfinite(y) & (y != 0), y, 1).astype(storage(type_))
        near = [spread(rng, 100, 1e-3, 1e3).astype(storage(type_)) for _ in range(2)]
        return [np.concatenate([x, near[0]]), np.concatenate([y, near[1]])]

    return make


def _scaled(type_: str) -> Callable[[np.random.Generator], list[Array]]:
    def make(rng: np.random.Generator) -> list[Array]:
        (x,) = _any(type_)(rng)
        reach = 300 if type_ == "f32" else 2200
        by = rng.integers(-reach, reach, len(x)).astype(np.int32)
        by[:6] = -(2**31), 2**31 - 1, 0, 1, -149, -1074
        return [x, by]

    return make


def _each(name: str, type_: str) -> Callable[[Array, Array], Array]:
    return lambda x, y: np.array(
        [PAIRS[name](a, b) for a, b in zip(x.tolist(), y.tolist(), strict=True)], storage(type_)
    )


def _away(x: Array) -> Array:
    """To the nearest integer, ties away from zero."""
    whole = np.trunc(x)
    with np.errstate(invalid="ignore"):
        return np.asarray(
            np.where(np.abs(x - whole) >= 0.5, whole + np.copysign(x.dtype.type(1), x), whole)
        )


def _exponent(value: float) -> int:
    if value != value or value == 0:
        return -(2**31)
    return 2**31 - 1 if math.isinf(value) else math.frexp(value)[1] - 1


def _log_exponent(value: float) -> float:
    return (
        NAN
        if value != value
        else INF
        if math.isinf(value)
        else -INF
        if value == 0
        else float(math.frexp(value)[1] - 1)
    )


def _upper_reciprocal(x: Array) -> Array:
    return ((1.0 / x).view(np.int64) & -(1 << 32)).view(np.float64)


# ---- bits of integers


def _bits() -> Iterator[Row]:
    for type_ in ("i32", "u32", "i64", "u64"):
        bits, dtype = int(type_[1:]), storage(type_)
        own = lambda values, d=dtype, b=bits: np.array(  # noqa: E731
            [int(v) % (1 << b) for v in values], f"u{b // 8}"
        ).view(d)
        plain = lambda x, b=bits: [int(v) % (1 << b) for v in x]  # noqa: E731
        unsigned = (f"u{bits}",)
        yield Row(
            "clz",
            (type_,),
            "i32",
            _words(type_, 1),
            lambda x, b=bits, p=plain: np.array([b - v.bit_length() for v in p(x)], np.int32),
        )
        yield Row(
            "popc",
            (type_,),
            "i32",
            _words(type_, 1),
            lambda x, p=plain: np.array([v.bit_count() for v in p(x)], np.int32),
        )
        yield Row(
            "ffs",
            (type_,),
            "i32",
            _words(type_, 1),
            lambda x, p=plain: np.array([(v & -v).bit_length() for v in p(x)], np.int32),
        )
        yield Row(
            "brev",
            (type_,),
            type_,
            _words(type_, 1),
            lambda x, b=bits, p=plain, o=own: o([int(f"{v:0{b}b}"[::-1], 2) for v in p(x)]),
            unsigned,
        )
        high = lambda x, y, b=bits, o=own: o(  # noqa: E731
            [(int(p) * int(q)) >> b for p, q in zip(x, y, strict=True)]
        )
        yield Row("mulhi", (type_,) * 2, type_, _words(type_, 2), high)
        if bits == 32:
            yield Row(
                "byte_perm",
                (type_,) * 3,
                type_,
                _words(type_, 3),
                lambda x, y, s, p=plain, o=own: o(_chosen(p(x), p(y), p(s))),
                ("u32", "u64"),
            )
            yield Row(
                "hadd",
                (type_,) * 2,
                type_,
                _words(type_, 2),
                lambda x, y, o=own: o([(int(p) + int(q)) >> 1 for p, q in zip(x, y, strict=True)]),
            )
            yield Row(
                "rhadd",
                (type_,) * 2,
                type_,
                _words(type_, 2),
                lambda x, y, o=own: o(
                    [(int(p) + int(q) + 1) >> 1 for p, q in zip(x, y, strict=True)]
                ),
            )
            difference = lambda x, y, z, o=own: o(  # noqa: E731
                [abs(int(p) - int(q)) + int(r) for p, q, r in zip(x, y, z, strict=True)]
            )
            yield Row("sad", (type_,) * 3, type_, _words(type_, 3), difference)
            low = lambda x, y, o=own, t=type_: o(  # noqa: E731
                [_low(p, t) * _low(q, t) for p, q in zip(x, y, strict=True)]
            )
            yield Row("mul24", (type_,) * 2, type_, _words(type_, 2), low)


def _words(type_: str, count: int) -> Callable[[np.random.Generator], list[Array]]:
    """Words of any bits, of few, and the ends of the range in pairs."""
    bits = int(type_[1:])
    few = [
        0,
        1,
        2,
        3,
        (1 << bits) - 1,
        1 << (bits - 1),
        (1 << (bits - 1)) - 1,
        0x800000,
        0x7FFFFF,
        0xFFFFFF,
    ]

    def make(rng: np.random.Generator) -> list[Array]:
        many = [
            rng.integers(0, 1 << bits, 200, dtype=f"u{bits // 8}")
            >> rng.integers(0, bits, 200).astype(f"u{bits // 8}")
            for _ in range(count)
        ]
        ends = np.array([few[i] for i in range(len(few)) for _ in range(len(few))], f"u{bits // 8}")
        sides = [ends, np.tile(np.array(few, ends.dtype), len(few)), rng.permutation(ends)]
        return [
            np.concatenate(parts).view(storage(type_)) for parts in zip(many, sides, strict=False)
        ]

    return make


def _chosen(x: list[int], y: list[int], selectors: list[int]) -> list[int]:
    """Of the eight bytes of y:x, those that the low nibbles' three bits choose."""
    pools = [(b << 32 | a).to_bytes(8, "little") for a, b in zip(x, y, strict=True)]
    return [
        int.from_bytes(bytes(pool[s >> 4 * i & 7] for i in range(4)), "little")
        for pool, s in zip(pools, selectors, strict=True)
    ]


def _low(value: Any, type_: str) -> int:
    """The low 24 bits, signed where the type is."""
    low = int(value) & 0xFFFFFF
    return low - (1 << 24) if type_ == "i32" and low >> 23 else low


# ---- reinterpretation


def _viewed(dtype: np.dtype[Any], x: Array) -> Array:
    return x.view(dtype)


def _reinterpretations() -> Iterator[Row]:
    for name, source, target in (
        ("float_as_int", "f32", "i32"),
        ("float_as_uint", "f32", "u32"),
        ("int_as_float", "i32", "f32"),
        ("uint_as_float", "u32", "f32"),
        ("double_as_longlong", "f64", "i64"),
        ("longlong_as_double", "i64", "f64"),
    ):
        yield Row(
            name, (source,), target, _patterns(source), functools.partial(_viewed, storage(target))
        )
    yield Row(
        "double2loint",
        ("f64",),
        "i32",
        _patterns("f64"),
        lambda x: x.view(np.int32)[::2].copy(),
        ("i64",),
    )
    yield Row(
        "double2hiint",
        ("f64",),
        "i32",
        _patterns("f64"),
        lambda x: x.view(np.int32)[1::2].copy(),
        ("i64",),
    )
    halves = lambda rng: [  # noqa: E731
        np.ascontiguousarray(half)
        for half in _patterns("f64")(rng)[0].view(np.int32).reshape(-1, 2).T[::-1]
    ]
    yield Row(
        "hiloint2double",
        ("i32", "i32"),
        "f64",
        halves,
        lambda high, low: np.stack([low, high], 1).view(np.float64).ravel(),
        ("i64",),
    )


def _patterns(type_: str) -> Callable[[np.random.Generator], list[Array]]:
    """Bits of finite floats and of zeros of both signs: a NaN's bits may change in a move."""

    def make(rng: np.random.Generator) -> list[Array]:
        floating = np.float32 if type_.endswith("32") else np.float64
        x = np.concatenate(
            [any_bits(rng, floating, 200), np.array([0.0, -0.0, INF, -INF], floating)]
        )
        return [x.view(storage(type_))]

    return make
