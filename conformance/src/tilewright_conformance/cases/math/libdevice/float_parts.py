"""Device library functions of the parts of floats."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from tilewright_conformance.cases.math.libdevice.directed_rounding import (
    directed_operands,
    directed_result,
)
from tilewright_conformance.cases.math.libdevice.exact_row import INF, NAN, Array, Row
from tilewright_conformance.cases.math.libdevice.values import PAIRS, spread
from tilewright_conformance.oracles.dtypes import storage
from tilewright_conformance.testlib.math_values import any_bits


def float_parts() -> Iterator[Row]:
    """Rows of functions of the parts of floats."""
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
            directed_operands(type_, 3),
            directed_result("fma", "rn", type_),
        )
        yield Row(
            "fast_dividef",
            (type_,) * 2,
            type_,
            directed_operands(type_, 2),
            directed_result("div", "rn", type_),
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
