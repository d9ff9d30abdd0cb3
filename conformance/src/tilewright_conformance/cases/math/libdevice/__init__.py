"""Every function of ``tl.extra.libdevice``: error bounds, defined values, directed rounding, bits.

Expected values are exact or have forty digits.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

import tilewright as tw
import tilewright.language as tl
from tilewright.errors import CompilationError
from tilewright.ir.types import F32, F64
from tilewright.language.device_math.accuracy import ULP
from tilewright.language.extra import libdevice
from tilewright.passes.math.math_library import MATH
from tilewright_conformance.cases.math.libdevice.exact import rows
from tilewright_conformance.cases.math.libdevice.exact_row import Row
from tilewright_conformance.cases.math.libdevice.values import (
    ANY_ZERO,
    DOMAINS,
    EDGES,
    EXACT,
    PAIRS,
    SETTLED,
    ULP_OF_OTHERS,
    pairs_of_special_numbers,
    settled_edge,
    spread,
)
from tilewright_conformance.oracles.dtypes import language, storage
from tilewright_conformance.oracles.functions import exact
from tilewright_conformance.suite.case import Case
from tilewright_conformance.suite.session import Session
from tilewright_conformance.testlib.case_table import Table
from tilewright_conformance.testlib.math_values import ARGUMENTS, random_arguments

Array = NDArray[Any]

_BLOCK = 128
_TABLE = Table("libdevice", "math", "")
_INF, _NAN = float("inf"), float("nan")
#: name -> the function it is another name of, where accuracy is strict
_FAST = {
    "fast_sinf": "sin",
    "fast_cosf": "cos",
    "fast_expf": "exp",
    "fast_logf": "log",
    "fast_log2f": "log2",
    "fast_tanhf": "tanh",
    "fast_tanf": "tan",
    "fast_exp10f": "exp10",
    "fast_log10f": "log10",
    "fast_powf": "pow",
}
#: functions that work in f64 whatever their type is
_THROUGH_DOUBLE = {
    *(
        "erfc",
        "erfcx",
        "erfinv",
        "erfcinv",
        "normcdf",
        "normcdfinv",
        "lgamma",
        "tgamma",
        "rsqrt_rn",
    ),
    *("j0", "j1", "y0", "y1", "jn", "yn", "cyl_bessel_i0", "cyl_bessel_i1"),
}
_STRICT = {"enable_fp_fusion": False}


@tw.jit
def apply(
    x_ptr,
    y_ptr,
    z_ptr,
    w_ptr,
    out_ptr,
    n,
    FUNCTION: tl.constexpr,
    COUNT: tl.constexpr,
    RESULT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    x = tl.load(x_ptr + at, mask=mask, other=1)
    if COUNT == 1:
        value = FUNCTION(x)
    else:
        y = tl.load(y_ptr + at, mask=mask, other=1)
        if COUNT == 2:
            value = FUNCTION(x, y)
        else:
            z = tl.load(z_ptr + at, mask=mask, other=1)
            if COUNT == 3:
                value = FUNCTION(x, y, z)
            else:
                value = FUNCTION(x, y, z, tl.load(w_ptr + at, mask=mask, other=1))
    tl.static_assert(value.dtype == RESULT)
    tl.store(out_ptr + at, value, mask=mask)


def cases() -> Iterator[Case]:
    yield from _accurate()
    yield from _settled()
    yield from _bessel()
    yield from _exact()
    yield _TABLE.case("types/refused", "libdevice", _refused, quick=True, source="the language")


def _case(
    name: str,
    type_: str,
    variant: str,
    body: Callable[[Session], None],
    *others: str,
    quick: bool = False,
    source: str = "",
) -> Case:
    types = (one for one in (type_, *others) if one != "i1")
    id_ = f"{name}/{type_}/{variant}"
    return _TABLE.case(
        id_, f"libdevice.{name}", body, *types, quick=quick, tile=_BLOCK, source=source
    )


def _run(session: Session, name: str, operands: list[Array], result: str) -> Array:
    """Run a function on the device; some lanes of the last program are masked off."""
    count = len(operands[0])
    found = np.zeros(count, np.int32 if result == "i1" else storage(result))
    given = [*operands, *(operands[:1] * (4 - len(operands)))]
    constants = {
        "FUNCTION": getattr(libdevice, name),
        "COUNT": len(operands),
        "RESULT": language(result),
        "BLOCK": _BLOCK,
    }
    session.launch(
        apply,
        (-(-count // _BLOCK),),
        *given,
        found,
        count,
        **constants,
        **_STRICT,
        **session.strict,
    )
    return found


# ---- functions whose results are rounded


def _through(name: str, type_: str) -> tuple[str, ...]:
    return ("f64",) if name in _THROUGH_DOUBLE and type_ == "f32" else ()


def _bound(name: str, type_: str) -> float:
    wide = type_ == "f64"
    known = ULP.get(name) or ULP_OF_OTHERS.get(name)
    if known is not None:
        return known[wide]
    if name == "sqrt":
        return 0.0 if wide else 2.0
    return MATH[name, F64 if wide else F32].strict_ulp


def _accuracy(name: str, plain: str, type_: str, session: Session) -> None:
    dtype = storage(type_)
    if plain in ARGUMENTS:
        operands = [random_arguments(session.rng, plain, dtype, 60)]
    else:
        with np.errstate(under="ignore"):
            operands = [
                operand.astype(dtype)
                for operand in DOMAINS[plain](session.rng, 85 if type_ == "f32" else 700)
            ]
    negative = np.zeros(len(operands[0]), bool)
    exact_operands = operands
    if plain == "pow":
        negative = (operands[0] < 0) & (np.trunc(operands[1]) % 2 == 1)
        exact_operands = [np.abs(operands[0]), operands[1]]
    expected = exact(EXACT.get(plain, plain), *exact_operands)
    expected = np.where(negative, -expected, expected)
    slack = 0.5 if type_ == "f64" and np.finfo(np.longdouble).nmant == 52 else 0.0
    session.check(_run(session, name, operands, type_), expected, ulp=_bound(plain, type_) + slack)


def _accurate() -> Iterator[Case]:
    names = {name: name for name in (*ARGUMENTS, *DOMAINS)} | _FAST
    for index, (name, plain) in enumerate(names.items()):
        for type_ in ("f32", "f64"):
            body = functools.partial(_accuracy, name, plain, type_)
            quick = type_ == "f32" and index % 4 == 1
            yield _case(
                name,
                type_,
                "accuracy",
                body,
                *_through(plain, type_),
                quick=quick,
                source="decimal arithmetic of forty digits",
            )


def _settled_values(name: str, type_: str, session: Session) -> None:
    found = _run(session, name, [np.array([0.0, -0.0, _INF, -_INF, _NAN], storage(type_))], type_)
    ulp = (
        _bound(name, type_)
        if name in ULP or name in ULP_OF_OTHERS
        else 2.0
        if name in ANY_ZERO
        else 0.0
    )
    session.check(found, np.array(SETTLED[name]), ulp=ulp, zero_sign=name not in ANY_ZERO)
    if name in EDGES:
        _edges(name, type_, session)


def _edges(name: str, type_: str, session: Session) -> None:
    """Arguments where ways to the function end: what is settled there, exact values elsewhere."""
    with np.errstate(over="ignore", under="ignore"):
        x = np.array(EDGES[name]).astype(storage(type_))
    x = x[np.isfinite(x)]
    settled = [settled_edge(name, value) for value in x.tolist()]
    inside = np.array([value is None for value in settled])
    expected = np.array([0.0 if value is None else value for value in settled], np.longdouble)
    expected[inside] = exact(name, x[inside])
    found = _run(session, name, [x], type_)
    session.check(found[~inside], expected[~inside], name="settled edges")
    session.check(found[inside], expected[inside], ulp=_bound(name, type_), name="edges")


def _special_pairs(name: str, type_: str, session: Session) -> None:
    x, y, expected = pairs_of_special_numbers(name, storage(type_))
    found = _run(session, name, [x, y], type_)
    inexact = name in ULP or name in ULP_OF_OTHERS
    with np.errstate(over="ignore"):
        session.check(
            found,
            expected if expected.dtype == found.dtype else expected.astype(np.float64),
            ulp=_bound(name, type_) if inexact else 0.0,
        )


def _extremes(name: str, count: int, type_: str, session: Session) -> None:
    """Lengths of parts whose squares are out of range, subnormal parts, and infinities over NaN."""
    dtype = storage(type_)
    maximum, minimum = float(np.finfo(dtype).max), float(np.finfo(dtype).smallest_subnormal)
    sizes = [maximum / 4, maximum, minimum * 1000, minimum * 2.0**12]
    parts = [
        np.array([*sizes, _INF, _NAN], dtype),
        *(np.array([*sizes, 1.0, 1.0], dtype) for _ in range(count - 1)),
    ]
    finite = exact("length", *(part[:4] for part in parts))
    lengths = np.concatenate([finite, [_INF, _NAN]])
    with np.errstate(over="ignore", divide="ignore"):
        wanted = 1 / lengths if name.startswith("r") else lengths
    session.check(_run(session, name, parts, type_), wanted, ulp=_bound(name, type_) + 1)
    mixed = [np.array([_INF], dtype), *(np.array([_NAN], dtype) for _ in range(count - 1))]
    session.check(
        _run(session, name, mixed, type_),
        np.array([0.0 if name.startswith("r") else _INF]),
        name="infinity and NaN",
    )


def _settled() -> Iterator[Case]:
    for index, name in enumerate(SETTLED):
        for type_ in ("f32", "f64"):
            body = functools.partial(_settled_values, name, type_)
            yield _case(
                name,
                type_,
                "special",
                body,
                *_through(name, type_),
                quick=index % 6 == 0 and type_ == "f32",
                source="IEEE 754 and C's Annex F",
            )
    for name, count in (
        ("hypot", 2),
        ("norm3d", 3),
        ("norm4d", 4),
        ("rhypot", 2),
        ("rnorm3d", 3),
        ("rnorm4d", 4),
    ):
        for type_ in ("f32", "f64"):
            yield _case(
                name,
                type_,
                "extremes",
                functools.partial(_extremes, name, count, type_),
                quick=(name, type_) == ("hypot", "f32"),
                source="exact lengths",
            )
    for name in (*PAIRS, "nextafter"):
        for type_ in ("f32", "f64"):
            yield _case(
                name,
                type_,
                "special",
                functools.partial(_special_pairs, name, type_),
                quick=name == "pow" and type_ == "f32",
                source="C's Annex F",
            )


# ---- Bessel functions, which have zeros: errors are relative to their magnitude between these


def _of_order_0_or_1(name: str, type_: str, session: Session) -> None:
    x = np.abs(spread(session.rng, 200, 1e-3, 1e3)).astype(storage(type_))
    expected = exact(name, x)
    size = np.maximum(np.abs(expected), 1 / np.sqrt(np.maximum(x, 1).astype(np.float64)))
    session.check(
        _run(session, name, [x], type_), expected, atol=size * (2e-7 if type_ == "f32" else 4e-15)
    )


def _of_any_order(name: str, type_: str, session: Session) -> None:
    n, x = (
        session.rng.integers(0, 20, 64).astype(np.int32),
        np.abs(spread(session.rng, 64, 0.1, 60)).astype(storage(type_)),
    )
    expected = exact(name, n, x)
    # Beyond the order they oscillate; before it J is small, and Y large.
    size = np.maximum(
        np.abs(expected), np.where(x > n, 1 / np.sqrt(np.maximum(x, 1).astype(np.float64)), 0)
    )
    session.check(
        _run(session, name, [n, x], type_),
        expected,
        atol=size * (2e-7 if type_ == "f32" else 2e-13),
    )
    few = np.array([-1, 3, 0, 2, 5], np.int32)
    found = _run(session, name, [few, np.array([1.0, 0.0, 0.0, _INF, _NAN], storage(type_))], type_)
    settled = [_NAN, 0, 1, 0, _NAN] if name == "jn" else [_NAN, -_INF, -_INF, 0, _NAN]
    session.check(found, np.array(settled, storage(type_)), zero_sign=False, name="settled values")


def _bessel() -> Iterator[Case]:
    for type_ in ("f32", "f64"):
        for name in ("j0", "j1", "y0", "y1"):
            body = functools.partial(_of_order_0_or_1, name, type_)
            yield _case(
                name,
                type_,
                "accuracy",
                body,
                "f64",
                quick=(name, type_) == ("y1", "f64"),
                source="decimal arithmetic",
            )
        for name in ("jn", "yn"):
            body = functools.partial(_of_any_order, name, type_)
            yield _case(
                name,
                type_,
                "accuracy",
                body,
                "f64",
                quick=(name, type_) == ("jn", "f64"),
                source="decimal arithmetic",
            )


# ---- functions with exact results


def _exactly(row: Row, session: Session) -> None:
    operands = row.operands(session.rng)
    with np.errstate(all="ignore"):
        expected = np.asarray(row.expected(*operands))
    found = _run(session, row.name, operands, row.result)
    session.check(
        found,
        expected.astype(np.int32) if row.result == "i1" else expected,
        zero_sign=row.zero_sign,
    )


def _exact() -> Iterator[Case]:
    for index, row in enumerate(rows()):
        types = (*row.types, row.result, *row.through)
        yield _case(
            row.name,
            row.types[0],
            "exact",
            functools.partial(_exactly, row),
            *types,
            quick=index % 6 == 0,
            source="exact integers and fractions",
        )


# ---- types


def _refused(session: Session) -> None:
    """Refuse fp16 and integers for functions of floats, and floats for functions of integers."""
    x = np.ones(4, np.float32)
    for name, array in (
        ("tanh", x.astype(np.float16)),
        ("cbrt", x.astype(np.int32)),
        ("popc", x),
        ("brev", x),
        ("saturatef", x.astype(np.float64)),
    ):
        constants = {
            "FUNCTION": getattr(libdevice, name),
            "COUNT": 1,
            "RESULT": tl.float32,
            "BLOCK": 4,
        }
        with session.raises(CompilationError, match="Expected dtype|not supported"):
            session.launch(apply, (1,), array, array, array, array, array, 4, **constants)
