"""Multiplications, fused and not, their upper halves, and quotients rounded up."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np

import tilewright as tw
import tilewright.language as tl
from tilewright_conformance.cases.core.operators import kernels as ops
from tilewright_conformance.cases.core.operators.operator_case import BLOCK, case
from tilewright_conformance.oracles.dtypes import (
    INTEGERS,
    IR,
    kind,
)
from tilewright_conformance.suite.case import Case
from tilewright_conformance.suite.session import Session
from tilewright_conformance.testlib.numbers import unset, wide


@tw.jit
def multiply_add(x_ptr, y_ptr, z_ptr, out, SUBTRACT: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x, y, z = tl.load(x_ptr + at), tl.load(y_ptr + at), tl.load(z_ptr + at)
    tl.store(out + at, x * y - z if SUBTRACT else x * y + z)


@tw.jit
def fused_multiply_add(x_ptr, y_ptr, z_ptr, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.fma(tl.load(x_ptr + at), tl.load(y_ptr + at), tl.load(z_ptr + at)))


@tw.jit
def upper_halves(x_ptr, y_ptr, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.umulhi(tl.load(x_ptr + at), tl.load(y_ptr + at)))


@tw.jit
def rounded_up(x_ptr, y_ptr, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.cdiv(tl.load(x_ptr + at), tl.load(y_ptr + at)))


@tw.jit
def quotients(x_ptr, y_ptr, plain, exact, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x, y = tl.load(x_ptr + at), tl.load(y_ptr + at)
    tl.store(plain + at, x / y)
    tl.store(exact + at, tl.div_rn(x, y))


def _terms(name: str, session: Session) -> tuple[Any, Any, Any]:
    """Factors and addends, some of which nearly cancel the multiplication's result."""
    x, y, z = (session.rng.uniform(0.5, 2.0, BLOCK).astype(kind(name)) for _ in range(3))
    z[::2] = -(x[::2] * y[::2])
    x[1::4] = -x[1::4]
    return x, y, z


def _unfused(name: str, session: Session) -> None:
    """Without fusion the multiplication rounds before the addition; else it may or may not."""
    x, y, z = _terms(name, session)
    for option in ({"enable_fp_fusion": False}, {}):
        # a kernel each: compilers do not fuse a multiplication whose result two additions use
        for subtracts, term in ((False, z), (True, -z)):
            result = unset(BLOCK, kind(name))
            settings = {"SUBTRACT": subtracts, "BLOCK": BLOCK, **option}
            session.launch(multiply_add, (1,), x, y, z, result, **settings)
            apart, at_once = x * y + term, ops.fused(x, y, term)
            if option:
                session.check(result, apart, name="fusion off", zero_sign=False)
            else:
                session.require(
                    np.all((result == apart) | (result == at_once)),
                    "x * y + z is neither rounded twice nor rounded once",
                )


def _fused(name: str, session: Session) -> None:
    x, y, z = _terms(name, session)
    found = unset(BLOCK, kind(name))
    session.launch(fused_multiply_add, (1,), x, y, z, found, BLOCK=BLOCK)
    session.check(found, ops.fused(x, y, z), zero_sign=False)


def _upper_halves(name: str, session: Session) -> None:
    """Compute upper halves of signed integers as unsigned ones."""
    x, y = wide(session.rng, name, BLOCK), wide(session.rng, name, BLOCK)
    found = unset(BLOCK, name)
    session.launch(upper_halves, (1,), x, y, found, BLOCK=BLOCK)
    word = f"u{x.itemsize}"
    exact = (x.view(word).astype(object) * y.view(word).astype(object)) >> (8 * x.itemsize)
    session.check(found, exact.astype(word).view(name))


def _rounded_up(name: str, session: Session) -> None:
    x, y = (
        session.rng.integers(0, 101, BLOCK).astype(name),
        session.rng.integers(1, 20, BLOCK).astype(name),
    )
    found = unset(BLOCK, name)
    session.launch(rounded_up, (1,), x, y, found, BLOCK=BLOCK)
    session.check(found, ((x.astype(np.int64) + y - 1) // y).astype(name))


def _quotients(session: Session) -> None:
    """Without a word about accuracy a quotient of fp32 may be 2 units off; ``div_rn`` never is."""
    x, y = (
        session.rng.uniform(0.5, 2.0, 4096).astype(np.float32)
        * np.exp2(session.rng.integers(-20, 20, 4096)).astype(np.float32)
        for _ in range(2)
    )
    found = [unset(4096, np.float32) for _ in range(2)]
    session.launch(quotients, (1,), x, y, *found, BLOCK=4096)
    session.check(found[0], x.astype(np.float64) / y.astype(np.float64), ulp=2, name="x / y")
    session.check(found[1], x / y, name="div_rn(x, y)")


def multiplications() -> Iterator[Case]:
    """Cases of multiplications and of divisions of integers that are rounded up."""
    for name in ("float32", "float64"):
        yield case(
            f"fusion/{IR[name]}/off",
            "enable_fp_fusion",
            functools.partial(_unfused, name),
            name,
            quick=name == "float32",
        )
    for name in ("float16", "float32", "float64"):
        yield case(
            f"fma/{IR[name]}/values",
            "tl.fma",
            functools.partial(_fused, name),
            name,
            quick=name == "float32",
        )
    for name in ("int32", "uint32", "int64", "uint64"):
        own = name.removeprefix("u")
        yield case(
            f"umulhi/{IR[name]}/values",
            "tl.umulhi",
            functools.partial(_upper_halves, name),
            name,
            f"u{own}",
            quick=name in ("uint32", "int64"),
        )
    for index, name in enumerate(INTEGERS):
        yield case(
            f"cdiv/{IR[name]}/values",
            "tl.cdiv",
            functools.partial(_rounded_up, name),
            name,
            quick=index % 4 == 0,
        )
    yield case("divide/f32/default", "x / y", _quotients, "float32", quick=True, tile=4096)
