"""Error bounds, special values and whole ranges of exp, log, sin, cos and others."""

from __future__ import annotations

import itertools
import math

import numpy as np

import tilewright as tw
from tilewright.ir.types import F32, F64
from tilewright.passes.math.math_library import MATH
from tilewright_conformance.cases.math.math.math_case import (
    BLOCK,
    FUNCTIONS,
    NEAR_NORMAL,
    NORMAL,
    applied,
    through_fp32,
)
from tilewright_conformance.oracles.dtypes import language, spacing, storage
from tilewright_conformance.oracles.formats import format_of
from tilewright_conformance.oracles.functions import exact
from tilewright_conformance.suite.session import Session
from tilewright_conformance.testlib.math_values import (
    ARGUMENTS,
    double_nearest,
    large_angles,
    random_arguments,
)


def _bound(name: str, type_: str, *, strict: bool) -> float:
    if name == "sqrt":
        # tl.sqrt of fp32 may always be the machine's approximate one.
        return 2.0 if type_ == "f32" else 0.0
    row = MATH[name, F32 if type_ == "f32" else F64]
    return row.strict_ulp if strict else row.relaxed_ulp


def _unit_of_the_oracle(type_: str) -> float:
    """The error of exact values of f64, in ULP: half of one where ``longdouble`` is no wider."""
    return 0.5 if type_ == "f64" and np.finfo(np.longdouble).nmant == 52 else 0.0


def strict_bounds(name: str, type_: str, session: Session) -> None:
    x = random_arguments(session.rng, name, storage(type_), 100)
    found = applied(session, FUNCTIONS[name], x, **session.strict)
    session.check(
        found, exact(name, x), ulp=_bound(name, type_, strict=True) + _unit_of_the_oracle(type_)
    )
    if type_ == "f32":
        more = random_arguments(session.rng, name, np.float32, 2000)
        found = applied(session, FUNCTIONS[name], more, **session.strict)
        session.check(
            found,
            double_nearest(name, more),
            ulp=_bound(name, type_, strict=True),
            name="more arguments",
        )


def relaxed_bounds(name: str, type_: str, session: Session) -> None:
    """The bound of exp grows with its argument; results below the normal numbers may be zero."""
    x = random_arguments(session.rng, name, storage(type_), 1000)
    expected = double_nearest(name, x)
    near = (expected >= NORMAL) & (expected < NEAR_NORMAL)
    x, expected = x[~near], expected[~near]
    found = applied(session, FUNCTIONS[name], x)
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


def special_values(name: str, type_: str, session: Session) -> None:
    arguments, results = zip(*ARGUMENTS[name].settled, strict=True)
    x = np.array([*arguments, NAN_OF_OTHER_BITS], storage(type_))
    expected = np.array([*results, math.nan], storage(type_))
    for options in (session.strict, {}):
        session.check(applied(session, FUNCTIONS[name], x, **options), expected)
    if name in ("sin", "tanh"):
        tiny = np.array([1, 2, 3, 1 << 20, (1 << 22) + 1], f"u{x.itemsize}").view(x.dtype)
        tiny = np.concatenate([tiny, -tiny])
        session.check(
            applied(session, FUNCTIONS[name], tiny, **session.strict),
            tiny,
            name="subnormal arguments",
        )


NAN_OF_OTHER_BITS = float(np.array(0xFFF8000000000123, np.uint64).view(np.float64))


def large_arguments(name: str, type_: str, session: Session) -> None:
    x = large_angles(storage(type_))
    expected = exact(name, x)
    for options, strict in ((session.strict, True), ({}, False)):
        found = applied(session, FUNCTIONS[name], x, **options)
        session.check(
            found, expected, ulp=_bound(name, type_, strict=strict) + _unit_of_the_oracle(type_)
        )


def every_half(name: str, type_: str, session: Session) -> None:
    """Compute every number of 16 bits in fp32 and round.

    The error is half a unit and fp32's own.
    """
    bits = np.arange(1 << 16, dtype=np.uint16)
    x = format_of(type_).worth(bits)
    found = np.zeros_like(bits)
    arrays = [tw.reinterpret(array, language(type_)) for array in (bits, found)]
    session.launch(
        through_fp32,
        (len(bits) // BLOCK,),
        *arrays,
        len(bits),
        FUNCTION=FUNCTIONS[name],
        BLOCK=BLOCK,
        **session.strict,
    )
    ulp = 0.5 + 2 * spacing("f32") / spacing(type_)
    result = found.view(np.float16) if type_ == "f16" else found
    session.check(result, double_nearest(name, x), ulp=ulp, type_=type_)
