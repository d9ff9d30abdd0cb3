"""Every function of floats over all magnitudes of its types, against arbitrary precision: within
its stated bound, NaN outside of its domain, zeros of the right sign. It takes many minutes, and so
runs with ``TILEWRIGHT_FULL_CONFORMANCE=1`` alone."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilewright.language.extra import libdevice
from tilewright_conformance.cases.math.libdevice import _BLOCK, _bound, _run
from tilewright_conformance.cases.math.libdevice.values import PAIRS
from tilewright_conformance.oracles.dtypes import storage
from tilewright_conformance.suite.session import Session, Subject
from tilewright_conformance.testlib import sweep_arguments

FULL = os.environ.get("TILEWRIGHT_FULL_CONFORMANCE", "0") not in ("", "0")
pytestmark = pytest.mark.skipif(
    not FULL,
    reason="minutes of arithmetic in arbitrary precision: TILEWRIGHT_FULL_CONFORMANCE=1 runs it",
)

NAN, INF = math.nan, math.inf
#: type -> (bits of the fraction, bias of the exponent)
FORMATS = {"f32": (23, 127), "f64": (52, 1023)}
#: functions of which ULP tables say nothing, in units of what
#: :func:`tilewright_conformance.testlib.function_sweep.size` says
BESSEL = dict.fromkeys(("j0", "j1", "y0", "y1"), (1.0, 8.0))
ONE = (
    *(
        "exp",
        "exp2",
        "exp10",
        "expm1",
        "log",
        "log2",
        "log10",
        "log1p",
        "sin",
        "cos",
        "tan",
        "sinpi",
        "cospi",
        "asin",
        "acos",
        "atan",
    ),
    *(
        "sinh",
        "cosh",
        "tanh",
        "asinh",
        "acosh",
        "atanh",
        "sqrt",
        "rsqrt",
        "rsqrt_rn",
        "cbrt",
        "rcbrt",
        "erf",
        "erfc",
        "erfcx",
        "erfinv",
        "erfcinv",
    ),
    *("normcdf", "normcdfinv", "lgamma", "tgamma", "cyl_bessel_i0", "cyl_bessel_i1", *BESSEL),
)
EXACT_NAMES = {"rsqrt_rn": "rsqrt"}


@pytest.fixture(params=["cpu", "reference"])
def session(request: pytest.FixtureRequest) -> Session:
    return Session(Subject(request.param), "sweep")


def _stated(name: str, type_: str) -> float:
    if name in BESSEL:
        return BESSEL[name][type_ == "f64"]
    return 0.5 if (name, type_) == ("sqrt", "f64") else max(_bound(name, type_), 0.5)


@pytest.mark.parametrize("type_", FORMATS)
@pytest.mark.parametrize("name", ONE)
def test_functions_of_one_number(session: Session, name: str, type_: str) -> None:
    from tilewright_conformance.testlib import function_sweep

    plain = EXACT_NAMES.get(name, name)
    x = sweep_arguments.one(
        np.random.default_rng(1), storage(type_), each=4 if type_ == "f32" else 1, count=100
    )
    found = _run(session, name, [x], type_)
    inside, poles = (
        function_sweep.INSIDE.get(plain, lambda x: True),
        function_sweep.POLES.get(plain, lambda x: False),
    )
    bound, faults = _stated(name, type_), []
    for argument, value in zip(x.tolist(), found.tolist(), strict=True):
        if not inside(argument):
            right = math.isinf(value) if poles(argument) else value != value
            faults += [] if right else [(INF, argument, value, NAN)]
            continue
        wanted = function_sweep.exact(plain, argument)
        off = function_sweep.error(
            value, wanted, *FORMATS[type_], function_sweep.size(plain, argument, wanted)
        )
        sign = (
            math.copysign(1, argument)
            if wanted == 0 and plain in function_sweep.ODD
            else 1
            if wanted >= 0
            else -1
        )
        if off > bound or (value == 0 and math.copysign(1, value) != sign):
            faults.append((off, argument, value, float(wanted)))
    assert not faults, _told(faults, bound)


def _told(faults: list[Any], bound: float) -> str:
    faults.sort(key=lambda fault: -fault[0])
    rows = [
        f"  of {argument!r}: {value!r}, should be {wanted!r} ({off:.4g} ULP)"
        for off, argument, value, wanted in faults[:8]
    ]
    return "\n".join(
        [f"{len(faults)} results are off by more than {bound} ULP, or have the wrong sign", *rows]
    )


def _power(x: float, y: float) -> Any:
    from tilewright_conformance.testlib import function_sweep

    settled = (
        not math.isfinite(x)
        or not math.isfinite(y)
        or x in (0, 1, -1)
        or y == 0
        or (x < 0 and y != math.trunc(y))
    )
    return PAIRS["pow"](x, y) if settled else function_sweep.exact("pow", x, y)


def _angle(y: float, x: float) -> Any:
    from tilewright_conformance.testlib import function_sweep

    settled = not math.isfinite(x) or not math.isfinite(y) or x == 0 or y == 0
    return PAIRS["atan2"](y, x) if settled else function_sweep.exact("atan2", y, x)


def _length(*parts: float) -> Any:
    from tilewright_conformance.testlib import function_sweep

    if any(map(math.isinf, parts)):
        return INF
    return (
        NAN
        if any(map(math.isnan, parts))
        else function_sweep.exact("length", *parts)
        if any(parts)
        else 0.0
    )


def _reciprocal_length(*parts: float) -> Any:
    length = _length(*parts)
    return INF if length == 0 else 0.0 if length == INF else 1 / length


SEVERAL: dict[str, tuple[int, Callable[..., Any]]] = {
    "pow": (2, _power),
    "atan2": (2, _angle),
    **{name: (2, PAIRS[name]) for name in ("fmod", "remainder", "copysign")},
    **{name: (count, _length) for name, count in (("hypot", 2), ("norm3d", 3), ("norm4d", 4))},
    **{
        name: (count, _reciprocal_length)
        for name, count in (("rhypot", 2), ("rnorm3d", 3), ("rnorm4d", 4))
    },
}


@pytest.mark.parametrize("type_", FORMATS)
@pytest.mark.parametrize("name", SEVERAL)
def test_functions_of_several_numbers(session: Session, name: str, type_: str) -> None:
    import mpmath as mp  # type: ignore[import-untyped]

    from tilewright_conformance.testlib import function_sweep

    count, exact = SEVERAL[name]
    operands = sweep_arguments.several(np.random.default_rng(2), storage(type_), count, 1200)
    found = _run(session, name, operands, type_)
    bound = 0.0 if name in ("fmod", "remainder", "copysign") else _stated(name, type_)
    faults = []
    for numbers, value in zip(
        zip(*(operand.tolist() for operand in operands), strict=True), found.tolist(), strict=True
    ):
        wanted = exact(*numbers)
        if isinstance(wanted, float) and (wanted != wanted or math.isinf(wanted) or wanted == 0):
            right = str(wanted) == str(value)
            off = 0.0 if right else INF
        else:
            with mp.workprec(function_sweep.PRECISION):
                off = function_sweep.error(value, mp.mpf(wanted), *FORMATS[type_])
            right = off <= bound + 0.5 * isinstance(wanted, float) * (bound > 0) and (
                value != 0 or (math.copysign(1, value) > 0) == (wanted > 0)
            )
        if not right:
            faults.append((off, numbers, value, float(wanted)))
    assert not faults, _told(faults, bound)


def test_every_function_is_swept_or_exact() -> None:
    """What is neither has its cases with exact results in the suite."""
    from tilewright_conformance.cases.math.libdevice.exact import rows

    known = {*ONE, *SEVERAL, *(row.name for row in rows()), "jn", "yn"}
    assert {
        name for name in libdevice.__all__ if name not in known and not name.startswith("fast_")
    } == set()
    assert _BLOCK
