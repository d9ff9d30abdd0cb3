"""Functions of floats, and a few of integers: as Tile IR, and as functions of the language.

They are compared with exact values and the table of errors. Strict bounds hold with the launch
options of ``session.strict``, relaxed ones without. Both are columns of
:data:`tilewright.passes.math.math_library.MATH`.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

import tilewright as tw
import tilewright.language as tl
from tilewright.errors import CompilationError
from tilewright.ir.types import F32, F64
from tilewright.language.extra import libdevice
from tilewright.passes.math.math_library import MATH
from tilewright_conformance.oracles.dtypes import given, language, spacing, storage
from tilewright_conformance.oracles.formats import format_of
from tilewright_conformance.oracles.functions import exact
from tilewright_conformance.oracles.rounding import rounded
from tilewright_conformance.suite.case import Case
from tilewright_conformance.suite.session import Session
from tilewright_conformance.testlib.case_table import Table
from tilewright_conformance.testlib.math_values import (
    ARGUMENTS,
    any_bits,
    double_nearest,
    large_angles,
    random_arguments,
)
from tilewright_conformance.testlib.sampled_cases import sampled

Array = NDArray[Any]

_TABLE = Table("math", "math", "exact integers and fractions")
_BLOCK = 1024
#: name -> the function of the language
_FUNCTIONS: dict[str, Any] = {
    name: getattr(tl, name, None) or getattr(libdevice, name) for name in ARGUMENTS
}
#: The minimum normal number of f32, and a number so near above it that an error as large as relaxed
#: bounds may bring it below.
_NORMAL, _NEAR_NORMAL = 2.0**-126, 2.0**-126 * (1 + 2.0**-12)


def cases() -> Iterator[Case]:
    yield from sampled(
        "math",
        "math",
        dict.fromkeys(("exp", "exp2", "log", "log2", "sin", "cos", "tanh", "erf", "rsqrt"), True),
    )
    for name in ARGUMENTS:
        for type_ in _WIDE:
            yield _case(
                name,
                type_,
                "strict",
                functools.partial(_strict, name, type_),
                quick=type_ == "f32",
                source="decimal arithmetic of forty digits",
            )
            yield _case(
                name,
                type_,
                "relaxed",
                functools.partial(_relaxed, name, type_),
                quick=name in ("exp", "log2"),
                source="double precision",
            )
            yield _case(
                name,
                type_,
                "special",
                functools.partial(_special, name, type_),
                quick=type_ == "f32",
                source="IEEE 754 and C's Annex F",
            )
        for type_ in ("f16", "bf16"):
            body = functools.partial(_exhaustive, name, type_)
            yield _case(
                name,
                type_,
                "every-number",
                body,
                "f32",
                quick=name in ("sin", "exp", "tanh") and type_ == "bf16",
                source="double precision",
            )
    for name in ("sin", "cos"):
        for type_ in _WIDE:
            yield _case(
                name,
                type_,
                "large",
                functools.partial(_large, name, type_),
                quick=type_ == "f32",
                source="decimal arithmetic",
            )
    yield from _rounding_cases()
    yield from _arithmetic_cases()
    yield from _integer_cases()
    yield from _language_cases()


def _case(
    name: str,
    type_: str,
    variant: str,
    body: Callable[[Session], None],
    *others: str,
    quick: bool = False,
    tile: int = _BLOCK,
    source: str = "",
) -> Case:
    return _TABLE.case(
        f"{name}/{type_}/{variant}",
        f"tl.{name}",
        body,
        type_,
        *others,
        tile=tile,
        quick=quick,
        source=source,
    )


# ---- functions of one number


@tw.jit
def unary(x_ptr, out_ptr, n, FUNCTION: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=1)
    tl.store(out_ptr + at, FUNCTION(x), mask=at < n)


@tw.jit
def through_fp32(x_ptr, out_ptr, n, FUNCTION: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=1)
    tl.store(out_ptr + at, FUNCTION(x.to(tl.float32)).to(x.dtype), mask=at < n)


def _apply(session: Session, function: Any, x: Array, **options: Any) -> Array:
    found = np.full(len(x), 77, x.dtype)
    session.launch(
        unary, (-(-len(x) // _BLOCK),), x, found, len(x), FUNCTION=function, BLOCK=_BLOCK, **options
    )
    return found


def _bound(name: str, type_: str, *, strict: bool) -> float:
    if name == "sqrt":
        # tl.sqrt of fp32 may always be the machine's approximate one.
        return 2.0 if type_ == "f32" else 0.0
    row = MATH[name, F32 if type_ == "f32" else F64]
    return row.strict_ulp if strict else row.relaxed_ulp


def _unit_of_the_oracle(type_: str) -> float:
    """The error of exact values of f64, in ULP: half of one where ``longdouble`` is no wider."""
    return 0.5 if type_ == "f64" and np.finfo(np.longdouble).nmant == 52 else 0.0


def _strict(name: str, type_: str, session: Session) -> None:
    x = random_arguments(session.rng, name, storage(type_), 100)
    found = _apply(session, _FUNCTIONS[name], x, **session.strict)
    session.check(
        found, exact(name, x), ulp=_bound(name, type_, strict=True) + _unit_of_the_oracle(type_)
    )
    if type_ == "f32":
        more = random_arguments(session.rng, name, np.float32, 2000)
        found = _apply(session, _FUNCTIONS[name], more, **session.strict)
        session.check(
            found,
            double_nearest(name, more),
            ulp=_bound(name, type_, strict=True),
            name="more arguments",
        )


def _relaxed(name: str, type_: str, session: Session) -> None:
    """The bound of exp grows with its argument; results below the normal numbers may be zero."""
    x = random_arguments(session.rng, name, storage(type_), 1000)
    expected = double_nearest(name, x)
    near = (expected >= _NORMAL) & (expected < _NEAR_NORMAL)
    x, expected = x[~near], expected[~near]
    found = _apply(session, _FUNCTIONS[name], x)
    bound, slack = (
        _bound(name, type_, strict=False),
        0.0 if type_ == "f32" else 1.0,
    )  # of the oracle
    if (name, type_) != ("exp", "f32"):
        session.check(found, expected, ulp=bound + slack, flush=True)
        return
    edges = [0.0, 1.0, 4.0, 16.0, 50.0, 90.0, math.inf]
    for low, high in itertools.pairwise(edges):
        some = (np.abs(x) >= low) & (np.abs(x) < high)
        session.check(
            found[some],
            expected[some],
            ulp=min(3 + 1.173 * high, bound),
            flush=True,
            name=f"arguments from {low:g} to {high:g}",
        )


def _special(name: str, type_: str, session: Session) -> None:
    arguments, results = zip(*ARGUMENTS[name].settled, strict=True)
    x = np.array([*arguments, NAN_OF_OTHER_BITS], storage(type_))
    expected = np.array([*results, math.nan], storage(type_))
    for options in (session.strict, {}):
        session.check(_apply(session, _FUNCTIONS[name], x, **options), expected)
    if name in ("sin", "tanh"):
        tiny = np.array([1, 2, 3, 1 << 20, (1 << 22) + 1], f"u{x.itemsize}").view(x.dtype)
        tiny = np.concatenate([tiny, -tiny])
        session.check(
            _apply(session, _FUNCTIONS[name], tiny, **session.strict),
            tiny,
            name="subnormal arguments",
        )


NAN_OF_OTHER_BITS = float(np.array(0xFFF8000000000123, np.uint64).view(np.float64))


def _large(name: str, type_: str, session: Session) -> None:
    x = large_angles(storage(type_))
    expected = exact(name, x)
    for options, strict in ((session.strict, True), ({}, False)):
        found = _apply(session, _FUNCTIONS[name], x, **options)
        session.check(
            found, expected, ulp=_bound(name, type_, strict=strict) + _unit_of_the_oracle(type_)
        )


def _exhaustive(name: str, type_: str, session: Session) -> None:
    """Compute every number of 16 bits in fp32 and round.

    The error is half a unit and fp32's own.
    """
    bits = np.arange(1 << 16, dtype=np.uint16)
    x = format_of(type_).worth(bits)
    found = np.zeros_like(bits)
    arrays = [tw.reinterpret(array, language(type_)) for array in (bits, found)]
    session.launch(
        through_fp32,
        (len(bits) // _BLOCK,),
        *arrays,
        len(bits),
        FUNCTION=_FUNCTIONS[name],
        BLOCK=_BLOCK,
        **session.strict,
    )
    ulp = 0.5 + 2 * spacing("f32") / spacing(type_)
    result = found.view(np.float16) if type_ == "f16" else found
    session.check(result, double_nearest(name, x), ulp=ulp, type_=type_)


# ---- functions with exact results


def _rounding_arguments(session: Session, type_: str) -> Array:
    dtype = storage(type_)
    fraction = np.finfo(dtype).nmant
    large = [
        2.0 ** (fraction - 1) + 0.5,
        2.0**fraction - 0.5,
        2.0**fraction + 1,
        2.0 ** (fraction + 2),
        np.inf,
    ]
    whole = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.5, 8.0, *large])
    parts = [
        whole,
        -whole,
        np.nextafter(whole.astype(dtype), 0),
        session.rng.uniform(-1000, 1000, 500),
        any_bits(session.rng, dtype, 500),
        [np.nan],
    ]
    return np.concatenate(parts).astype(dtype)


_ROUNDINGS: dict[str, tuple[Any, Callable[[Array], Array]]] = {
    "floor": (tl.floor, np.floor),
    "ceil": (tl.ceil, np.ceil),
    "trunc": (libdevice.trunc, np.trunc),
    "rint": (libdevice.rint, np.rint),
    "abs": (tl.abs, np.abs),
}


def _rounding_cases() -> Iterator[Case]:
    def body(name: str, type_: str, session: Session) -> None:
        function, wanted = _ROUNDINGS[name]
        x = _rounding_arguments(session, type_)
        session.check(_apply(session, function, x), wanted(x))

    for name in _ROUNDINGS:
        for type_ in _WIDE:
            yield _case(
                name,
                type_,
                "values",
                functools.partial(body, name, type_),
                quick=type_ == "f32" and name in ("floor", "rint"),
                source="NumPy",
            )
    yield _case("sqrt_rn", "f32", "values", _root_rounded, quick=True, source="exact fractions")
    yield _case("sqrt_rn", "f32", "special", _root_special, source="IEEE 754")


def _root_rounded(session: Session) -> None:
    x = np.abs(
        np.concatenate(
            [
                any_bits(session.rng, np.float32, 3000),
                session.rng.uniform(0, 4, 2000).astype(np.float32),
            ]
        )
    )
    # The root of a 24-bit number in 53 bits is never so near the middle of two that another
    # rounding goes wrong.
    session.check(_apply(session, tl.sqrt_rn, x), np.sqrt(x.astype(np.float64)).astype(np.float32))


def _root_special(session: Session) -> None:
    arguments, results = (
        np.array(side, np.float32) for side in zip(*ARGUMENTS["sqrt"].settled, strict=True)
    )
    session.check(_apply(session, tl.sqrt_rn, arguments), results)


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


_WIDE = ("f32", "f64")


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
        (-(-len(x) // _BLOCK),),
        x,
        y,
        found,
        len(x),
        FUNCTION=function,
        RESULT=kind,
        BLOCK=_BLOCK,
    )
    with np.errstate(all="ignore"):
        if not bound:
            session.check(found, x / y)
            return
        expected = x.astype(np.float64) / y
    near_normal = (np.abs(expected) >= _NORMAL) & (np.abs(expected) < _NEAR_NORMAL)
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
        binary, (1,), a, b, found, 1000, FUNCTION=exact_fdiv, RESULT=tl.float32, BLOCK=_BLOCK
    )
    session.check(found, (x / y).astype(np.float32))


def _arithmetic_cases() -> Iterator[Case]:
    for type_ in ("f16", "bf16", "f32", "f64"):
        yield _case(
            "fma",
            type_,
            "rounded-once",
            functools.partial(_fma, type_),
            quick=type_ in ("f16", "f32"),
            tile=128,
        )
    yield _case(
        "div_rn",
        "f32",
        "values",
        functools.partial(_quotient, tl.div_rn, "f32", 0.0),
        quick=True,
        source="NumPy",
    )
    yield _case(
        "fdiv", "f32", "exact", functools.partial(_quotient, exact_fdiv, "f32", 0.0), source="NumPy"
    )
    yield _case(
        "fdiv", "f64", "values", functools.partial(_quotient, tl.fdiv, "f64", 0.0), source="NumPy"
    )
    yield _case(
        "fdiv",
        "f32",
        "values",
        functools.partial(_quotient, tl.fdiv, "f32", 2.0),
        quick=True,
        source="double precision",
    )
    body = functools.partial(_quotient, libdevice.fast_dividef, "f32", 3.0)
    yield _TABLE.case(
        "fast_dividef/f32/relaxed",
        "libdevice.fast_dividef",
        body,
        "f32",
        tile=_BLOCK,
        source="double precision",
    )
    yield _case(
        "fdiv",
        "f32",
        "approximate",
        functools.partial(_quotient, approximate_fdiv, "f32", 2.0),
        source="double precision",
    )
    for type_ in ("f16", "bf16"):
        yield _case(
            "fdiv",
            type_,
            "halves",
            functools.partial(_quotient_of_halves, type_),
            "f32",
            source="double precision",
        )
    for type_ in _WIDE:
        yield _case(
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
    session.check(_apply(session, tl.sigmoid, x, **session.strict), expected, ulp=4)


# ---- integers


def _high_half(name: str, session: Session) -> None:
    """The upper half of the unsigned multiplication."""
    dtype = np.dtype(name)
    bits = 8 * dtype.itemsize
    few = np.array(
        [0, 1, 2, (1 << bits) - 1, 1 << (bits - 1), (1 << (bits - 1)) - 1], f"u{dtype.itemsize}"
    )
    x, y = (
        session.rng.integers(0, 1 << bits, 500, dtype=f"u{dtype.itemsize}", endpoint=False)
        for _ in range(2)
    )
    x, y = (
        np.concatenate([x, np.repeat(few, len(few))]),
        np.concatenate([y, np.tile(few, len(few))]),
    )
    found = np.zeros(len(x), dtype)
    session.launch(
        binary,
        (-(-len(x) // 128),),
        x.view(dtype),
        y.view(dtype),
        found,
        len(x),
        FUNCTION=tl.umulhi,
        RESULT=getattr(tl, name),
        BLOCK=128,
    )
    session.check(
        found.view(x.dtype),
        np.array([(int(a) * int(b)) >> bits for a, b in zip(x, y, strict=True)], x.dtype),
    )


def _magnitude(name: str, session: Session) -> None:
    """The minimum of a signed type stays as it is; unsigned integers are their own magnitude."""
    limits = np.iinfo(name)
    x = np.concatenate(
        [
            session.rng.integers(limits.min, limits.max, 300, dtype=name, endpoint=True),
            np.array([limits.min, limits.max, 0, 1], name),
        ]
    )
    found = np.zeros_like(x)
    session.launch(
        integer_unary, (-(-len(x) // 128),), x, found, len(x), FUNCTION=tl.abs, BLOCK=128
    )
    session.check(found, np.abs(x))


@tw.jit
def integer_unary(x_ptr, out_ptr, n, FUNCTION: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0)
    tl.store(out_ptr + at, FUNCTION(x), mask=at < n)


def _half_magnitude(type_: str, session: Session) -> None:
    """Every number of 16 bits without its sign."""
    bits = np.arange(1 << 16, dtype=np.uint16)
    found = np.zeros_like(bits)
    arrays = [tw.reinterpret(array, language(type_)) for array in (bits, found)]
    session.launch(integer_unary, (64,), *arrays, len(bits), FUNCTION=tl.abs, BLOCK=_BLOCK)
    result = found.view(np.float16) if type_ == "f16" else found
    session.check(result, np.abs(format_of(type_).worth(bits)), type_=type_)


def _integer_cases() -> Iterator[Case]:
    for name in ("int32", "uint32", "int64", "uint64"):
        type_ = name.replace("uint", "u").replace("int", "i")
        others = (type_.replace("i", "u"),)
        yield _case(
            "umulhi",
            type_,
            "values",
            functools.partial(_high_half, name),
            *others,
            quick=name in ("int32", "uint64"),
            tile=128,
        )
    for name in ("int8", "int16", "int32", "int64", "uint8", "uint32"):
        type_ = name.replace("uint", "u").replace("int", "i")
        yield _case(
            "abs",
            type_,
            "values",
            functools.partial(_magnitude, name),
            quick=name == "int8",
            tile=128,
            source="NumPy",
        )
    for type_ in ("f16", "bf16"):
        yield _case(
            "abs",
            type_,
            "every-number",
            functools.partial(_half_magnitude, type_),
            quick=type_ == "bf16",
            source="the definition of the format",
        )


# ---- what the language says of types


@tw.jit
def of_constants(out_ptr, x):
    tl.store(out_ptr, tl.exp(1.0))
    tl.store(out_ptr + 1, tl.log2(8.0))
    tl.store(out_ptr + 2, tl.cos(x))
    tl.store(out_ptr + 3, tl.fma(x, 2.0, 0.5))
    tl.store(out_ptr + 4, tl.math.rsqrt(x))
    tl.store(out_ptr + 5, tl.math.erf(tl.full((), 0.5, tl.float32)))


def _of_constants(session: Session) -> None:
    """Numbers of the program text and arguments of the kernel are fp32."""
    out = np.zeros(6, np.float32)
    session.launch(of_constants, (1,), out, 2.25, **session.strict)
    expected = [math.e, 3.0, math.cos(2.25), 5.0, 1 / 1.5, math.erf(0.5)]
    session.check(out, np.array(expected), ulp=2)


@tw.jit
def members(x_ptr, out_ptr, N: tl.constexpr):
    rows = tl.arange(0, 2)[:, None] * N + tl.arange(0, N)[None, :]
    x = tl.load(x_ptr + rows)
    tl.store(
        out_ptr + rows,
        x.exp().log() + x.sin() * 0.0 + x.cos() * 0.0 + x.sqrt() - x.sqrt() + x.abs() - x.abs(),
    )


def _members(session: Session) -> None:
    """The functions are members of tensors too."""
    x = session.rng.uniform(1, 3, (2, 64)).astype(np.float32)
    out = np.zeros_like(x)
    session.launch(members, (1,), x, out, N=64, **session.strict)
    session.check(out, x, ulp=6)


def _refused(name: str, session: Session) -> None:
    """fp16, bf16 and integers are no operands: kernels say where they want fp32."""
    function = _FUNCTIONS.get(name) or getattr(tl, name)
    for array in (
        np.ones(4, np.float16),
        tw.reinterpret(np.ones(4, np.uint16), tl.bfloat16),
        np.ones(4, np.int32),
    ):
        with session.raises(CompilationError, match="Expected dtype|not supported"):
            session.launch(integer_unary, (1,), array, array, 4, FUNCTION=function, BLOCK=4)


def _language_cases() -> Iterator[Case]:
    yield _case(
        "constants", "f32", "scalars", _of_constants, quick=True, tile=1, source="Python's math"
    )
    yield _case("members", "f32", "tile", _members, tile=128, source="NumPy")
    for name in (*(name for name in ARGUMENTS if name != "tanh"), "floor", "ceil", "sqrt_rn"):
        yield _TABLE.case(
            f"{name}/f16/refused",
            f"tl.{name}",
            functools.partial(_refused, name),
            quick=name == "exp",
            source="the language",
        )
