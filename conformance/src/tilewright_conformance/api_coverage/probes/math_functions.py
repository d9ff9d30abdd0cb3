"""Functions of ``tl`` and ``tl.math``: each with its error bound in units in the last place."""

# Kernels are typed by the compiler, call by call; to Python they are untyped.
# mypy: ignore-errors
# ruff: noqa: N803

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import tilewright as tw
import tilewright.language as tl
from tilewright_conformance.api_coverage.machines import Machine
from tilewright_conformance.api_coverage.probe import add_probe


@tw.jit
def apply_one(x, out, FUNCTION: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, FUNCTION(tl.load(x + at)))


@tw.jit
def apply_two(x, y, out, FUNCTION: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, FUNCTION(tl.load(x + at), tl.load(y + at)))


@tw.jit
def apply_three(x, y, z, out, FUNCTION: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, FUNCTION(tl.load(x + at), tl.load(y + at), tl.load(z + at)))


@tw.jit
def apply_four(x, y, z, w, out, FUNCTION: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, FUNCTION(tl.load(x + at), tl.load(y + at), tl.load(z + at), tl.load(w + at)))


APPLY = (apply_one, apply_two, apply_three, apply_four)


def check(
    on: Machine,
    function: Any,
    exact: Callable[..., Any],
    operands: list[Any],
    ulps: float,
    result: Any = None,
) -> None:
    """Run a function of the language and compare its results with those of ``exact``.

    ``exact`` returns float64, or integers where the result is of an integer type.

    Raises:
        AssertionError: an element is further than ``ulps`` units in the last place away.
    """
    out = np.zeros(operands[0].shape, result or operands[0].dtype)
    on(APPLY[len(operands) - 1])[(1,)](*operands, out, FUNCTION=function, N=out.size)
    wide = [x.astype(np.float64) if x.dtype.kind == "f" else x for x in operands]
    with np.errstate(all="ignore"):
        expected = np.asarray(exact(*wide))
    if out.dtype.kind != "f":
        np.testing.assert_array_equal(out, expected)
        return
    rounded = expected.astype(out.dtype)
    unit = np.spacing(np.maximum(np.abs(rounded), np.finfo(out.dtype).tiny)).astype(np.float64)
    same = (rounded == out) | (np.isnan(rounded) & np.isnan(out))
    with np.errstate(all="ignore"):
        error = np.where(same, 0, np.abs(out.astype(np.float64) - expected) / unit)
    worst = int(np.argmax(np.nan_to_num(error, nan=np.inf)))
    if not error[worst] <= ulps:
        given = ", ".join(repr(x[worst].item()) for x in operands)
        raise AssertionError(
            f"f({given}) = {out[worst]!r}, expected {expected[worst]!r}: {error[worst]:.3g} ULP "
            f"away, {ulps:g} are allowed"
        )


_erf = np.vectorize(math.erf)

#: name -> (exact function, lowest and highest operand, ULP for float32 in relaxed mode, ULP for
#: float64)
UNARY: dict[str, tuple[Callable[[Any], Any], float, float, float, float]] = {
    "exp": (np.exp, -20.0, 20.0, 30, 4),
    "exp2": (np.exp2, -20.0, 20.0, 4, 4),
    "log": (np.log, 1e-3, 1e3, 4, 4),
    "log2": (np.log2, 1e-3, 1e3, 4, 4),
    "sin": (np.sin, -30.0, 30.0, 4, 4),
    "cos": (np.cos, -30.0, 30.0, 4, 4),
    "sqrt": (np.sqrt, 0.0, 1e3, 2, 0.5),
    "rsqrt": (lambda x: 1 / np.sqrt(x), 1e-3, 1e3, 4, 4),
    "erf": (_erf, -4.0, 4.0, 4, 4),
    "floor": (np.floor, -99.0, 99.0, 0, 0),
    "ceil": (np.ceil, -99.0, 99.0, 0, 0),
    "abs": (np.abs, -99.0, 99.0, 0, 0),
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), -9.0, 9.0, 20, 8),
}


def _unary(name: str) -> Callable[[Machine, Any], None]:
    exact, low, high, single, double = UNARY[name]

    def run(on: Machine, rng: Any) -> None:
        for dtype, ulps in ((np.float32, single), (np.float64, double)):
            x = rng.uniform(low, high, 128).astype(dtype)
            check(on, getattr(tl, name), exact, [x], ulps)
            if name != "sigmoid":
                check(on, getattr(tl.math, name), exact, [x], ulps)
        check(on, _member(name), exact, [x], double)

    return run


def _member(name: str) -> Any:
    return MEMBERS[name]


@tw.jit
def member_exp(x):
    return x.exp()


@tw.jit
def member_exp2(x):
    return x.exp2()


@tw.jit
def member_log(x):
    return x.log()


@tw.jit
def member_log2(x):
    return x.log2()


@tw.jit
def member_sin(x):
    return x.sin()


@tw.jit
def member_cos(x):
    return x.cos()


@tw.jit
def member_sqrt(x):
    return x.sqrt()


@tw.jit
def member_rsqrt(x):
    return x.rsqrt()


@tw.jit
def member_erf(x):
    return x.erf()


@tw.jit
def member_floor(x):
    return x.floor()


@tw.jit
def member_ceil(x):
    return x.ceil()


@tw.jit
def member_abs(x):
    return x.abs()


@tw.jit
def member_sigmoid(x):
    return x.sigmoid()


MEMBERS = {name: globals()[f"member_{name}"] for name in UNARY}

for _name in UNARY:
    _names = [
        f"tl.{_name}",
        f"tensor.{_name}",
        *([] if _name == "sigmoid" else [f"tl.math.{_name}"]),
    ]
    add_probe(_name, _names, _unary(_name))


@tw.jit
def member_sqrt_rn(x):
    return x.sqrt_rn()


def _rounded(on: Machine, rng: Any) -> None:
    x, y = rng.uniform(1e-3, 1e3, (2, 128)).astype(np.float32)
    for place in (tl, tl.math):
        check(on, place.sqrt_rn, np.sqrt, [x], 0.5001)
        check(on, place.div_rn, np.divide, [x, y], 0.5001)
    check(on, member_sqrt_rn, np.sqrt, [x], 0.5001)


def _fdiv(on: Machine, rng: Any) -> None:
    x, y = rng.uniform(1e-3, 1e3, (2, 128)).astype(np.float32)
    for place in (tl, tl.math):
        check(on, place.fdiv, np.divide, [x, y], 2)


def _fma(on: Machine, rng: Any) -> None:
    x, y, z = rng.standard_normal((3, 128)).astype(np.float32)
    for place in (tl, tl.math):
        check(on, place.fma, lambda a, b, c: a * b + c, [x, y, z], 0.5001)


def _umulhi(on: Machine, rng: Any) -> None:
    x, y = rng.integers(0, 2**32, (2, 128)).astype(np.uint32)
    for place in (tl, tl.math):
        check(on, place.umulhi, lambda a, b: (a.astype(np.uint64) * b) >> np.uint64(32), [x, y], 0)


add_probe(
    "correctly_rounded",
    ("tl.sqrt_rn", "tl.div_rn", "tl.math.sqrt_rn", "tl.math.div_rn", "tensor.sqrt_rn"),
    _rounded,
)
add_probe("fdiv", ("tl.fdiv", "tl.math.fdiv"), _fdiv)
add_probe("fma", ("tl.fma", "tl.math.fma"), _fma)
add_probe("umulhi", ("tl.umulhi", "tl.math.umulhi"), _umulhi)
