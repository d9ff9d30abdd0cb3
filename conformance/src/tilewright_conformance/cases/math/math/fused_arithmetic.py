"""Fused multiply-add, quotients and the sigmoid."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np

import tilewright as tw
import tilewright.language as tl
from tilewright.language.extra import libdevice
from tilewright_conformance.cases.math.math.math_case import (
    BLOCK,
    NEAR_NORMAL,
    NORMAL,
    TABLE,
    Array,
    applied,
    math_case,
)
from tilewright_conformance.oracles.dtypes import given, spacing, storage
from tilewright_conformance.oracles.formats import format_of
from tilewright_conformance.oracles.rounding import rounded
from tilewright_conformance.suite.case import Case
from tilewright_conformance.suite.session import Session
from tilewright_conformance.testlib.math_values import (
    any_bits,
)


@tw.jit
def ternary(x_ptr, y_ptr, z_ptr, out_ptr, n, FUNCTION: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=1)
    y = tl.load(y_ptr + at, mask=at < n, other=1)
    z = tl.load(z_ptr + at, mask=at < n, other=1)
    tl.store(out_ptr + at, FUNCTION(x, y, z), mask=at < n)


@tw.jit
def binary(
    x_ptr, y_ptr, out_ptr, n, FUNCTION: tl.constexpr, RESULT: tl.constexpr, BLOCK: tl.constexpr
):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=1)
    y = tl.load(y_ptr + at, mask=at < n, other=1)
    value = FUNCTION(x, y)
    tl.static_assert(value.dtype == RESULT)
    tl.store(out_ptr + at, value, mask=at < n)


def _encode(numbers: Array, type_: str) -> tuple[Any, Array]:
    """(the kernel's argument, its numbers in float64) of numbers rounded to a type."""
    if type_ == "bf16":
        form = format_of("bf16")
        with np.errstate(invalid="ignore"):
            kept = np.where(np.abs(numbers) <= form.maximum, numbers, 0.0)
        bits = form.nearest(kept, "rtne").astype(np.uint16)
        bits = np.where(
            np.isinf(numbers),
            np.where(numbers > 0, 0x7F80, 0xFF80),
            np.where(np.isnan(numbers), 0x7FC0, bits),
        ).astype(np.uint16)
        return tw.reinterpret(bits, tl.bfloat16), form.worth(bits)
    with np.errstate(over="ignore"):
        array = numbers.astype(storage(type_))
    return array, array.astype(np.float64)


def _fma(type_: str, session: Session) -> None:
    """Multiplications that nearly cancel the addend, ties, double rounding, and overflow.

    Subnormal results are among them; each result rounds once.
    """
    rng, count = session.rng, 300
    spread = {"f16": 4, "bf16": 40, "f32": 40, "f64": 300}[type_]
    x, y = (
        rng.standard_normal(3 * count) * np.exp2(rng.integers(-spread, spread, 3 * count))
        for _ in range(2)
    )
    z = np.concatenate(
        [
            -x[:count] * y[:count],
            x[count : 2 * count] * np.exp2(rng.integers(-20, 20, count)),
            rng.standard_normal(count),
        ]
    )
    unit = spacing(type_)
    hard = [
        (1 + unit, 1 + unit, -1.0),
        (1 + unit, 1 - unit, -1.0),
        (1 + unit, 1.0, unit / 2),
        (1.0, 1.0, unit / 2),
        (3.0, 1 + unit, unit**3),
        (2.0, 0.5, -1.0),
    ]
    zeros = [
        (0.0, -1.0, 0.0),
        (0.0, -1.0, -0.0),
        (-0.0, 1.0, -0.0),
        (np.inf, 0.0, 1.0),
        (np.inf, 1.0, -np.inf),
        (np.inf, -2.0, 1.0),
        (np.nan, 1.0, 1.0),
    ]
    x, y, z = (
        np.concatenate([many, few])
        for many, few in zip((x, y, z), zip(*hard, *zeros, strict=True), strict=True)
    )
    (a, x), (b, y), (c, z) = (_encode(numbers, type_) for numbers in (x, y, z))
    found = np.zeros(len(x), storage(type_))
    session.launch(
        ternary,
        (-(-len(x) // 128),),
        a,
        b,
        c,
        given(found, type_),
        len(x),
        FUNCTION=tl.fma,
        BLOCK=128,
    )
    session.check(
        found,
        np.array(
            [
                _fused(*numbers, type_)
                for numbers in zip(x.tolist(), y.tolist(), z.tolist(), strict=True)
            ]
        ),
        type_=type_,
    )


def _fused(x: float, y: float, z: float, type_: str) -> float:
    if not all(map(math.isfinite, (x, y, z))):
        return x * y + z
    total = Fraction(x) * Fraction(y) + Fraction(z)
    return rounded(total, "rn", type_) if total else x * y + z if x == 0 or y == 0 else 0.0


WIDE = ("f32", "f64")


def _quotient(function: Any, type_: str, bound: float, session: Session) -> None:
    """Divide; with ``bound`` 0 quotients are correctly rounded for all numbers.

    Otherwise they are normal quotients by divisors below 2**126.
    """
    dtype = storage(type_)
    x, y = (any_bits(session.rng, dtype, 3000) for _ in range(2))
    near = session.rng.uniform(0.5, 2, (2, 2000)).astype(dtype)
    x, y = np.concatenate([x, near[0]]), np.concatenate([y, near[1]])
    few = np.array([0.0, -0.0, 1.0, -3.0, np.inf, -np.inf, np.nan], dtype)
    if not bound:
        x, y = (
            np.concatenate([x, np.repeat(few, len(few))]),
            np.concatenate([y, np.tile(few, len(few))]),
        )
    else:
        usable = (np.abs(y) < 2.0**126) & (np.abs(y) >= np.finfo(dtype).smallest_normal)
        x, y = x[usable], y[usable]
    found = np.zeros_like(x)
    kind = tl.float32 if type_ == "f32" else tl.float64
    session.launch(
        binary,
        (-(-len(x) // BLOCK),),
        x,
        y,
        found,
        len(x),
        FUNCTION=function,
        RESULT=kind,
        BLOCK=BLOCK,
    )
    with np.errstate(all="ignore"):
        if not bound:
            session.check(found, x / y)
            return
        expected = x.astype(np.float64) / y
    near_normal = (np.abs(expected) >= NORMAL) & (np.abs(expected) < NEAR_NORMAL)
    session.check(found[~near_normal], expected[~near_normal], ulp=bound, flush=True)


@tw.jit
def exact_fdiv(x, y):
    return tl.fdiv(x, y, ieee_rounding=True)


@tw.jit
def approximate_fdiv(x, y):
    return tl.fdiv(x, y, ieee_rounding=True, approx=True)


def _quotient_of_halves(type_: str, session: Session) -> None:
    """fp16 and bf16 are divided as fp32."""
    (a, x), (b, y) = (
        _encode(
            session.rng.standard_normal(1000) * np.exp2(session.rng.integers(-8, 8, 1000)), type_
        )
        for _ in range(2)
    )
    found = np.zeros(1000, np.float32)
    session.launch(
        binary, (1,), a, b, found, 1000, FUNCTION=exact_fdiv, RESULT=tl.float32, BLOCK=BLOCK
    )
    session.check(found, (x / y).astype(np.float32))


def arithmetic_cases() -> Iterator[Case]:
    for type_ in ("f16", "bf16", "f32", "f64"):
        yield math_case(
            "fma",
            type_,
            "rounded-once",
            functools.partial(_fma, type_),
            quick=type_ in ("f16", "f32"),
            tile=128,
        )
    yield math_case(
        "div_rn",
        "f32",
        "values",
        functools.partial(_quotient, tl.div_rn, "f32", 0.0),
        quick=True,
        source="NumPy",
    )
    yield math_case(
        "fdiv", "f32", "exact", functools.partial(_quotient, exact_fdiv, "f32", 0.0), source="NumPy"
    )
    yield math_case(
        "fdiv", "f64", "values", functools.partial(_quotient, tl.fdiv, "f64", 0.0), source="NumPy"
    )
    yield math_case(
        "fdiv",
        "f32",
        "values",
        functools.partial(_quotient, tl.fdiv, "f32", 2.0),
        quick=True,
        source="double precision",
    )
    body = functools.partial(_quotient, libdevice.fast_dividef, "f32", 3.0)
    yield TABLE.case(
        "fast_dividef/f32/relaxed",
        "libdevice.fast_dividef",
        body,
        "f32",
        tile=BLOCK,
        source="double precision",
    )
    yield math_case(
        "fdiv",
        "f32",
        "approximate",
        functools.partial(_quotient, approximate_fdiv, "f32", 2.0),
        source="double precision",
    )
    for type_ in ("f16", "bf16"):
        yield math_case(
            "fdiv",
            type_,
            "halves",
            functools.partial(_quotient_of_halves, type_),
            "f32",
            source="double precision",
        )
    for type_ in WIDE:
        yield math_case(
            "sigmoid",
            type_,
            "values",
            functools.partial(_sigmoid, type_),
            quick=type_ == "f32",
            source="double precision",
        )


def _sigmoid(type_: str, session: Session) -> None:
    """1 / (1 + exp(-x)), of which each step may add its error, and exp twice its own."""
    reach = 87 if type_ == "f32" else 700
    few = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e4])
    x = np.concatenate(
        [session.rng.uniform(-reach, reach, 500), session.rng.uniform(-2, 2, 500), few]
    ).astype(storage(type_))
    expected = np.array(
        [
            v if v != v else 1 / (1 + math.exp(-v)) if v > -reach else 0.0
            for v in x.astype(float).tolist()
        ]
    )
    session.check(applied(session, tl.sigmoid, x, **session.strict), expected, ulp=4)
