"""Arithmetic and comparisons of every pair of numbers of a format, and reductions in fp32."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import tilewright as tw
import tilewright.language as tl
from tilewright_conformance.cases.fp8.fp8.fp8_case import BLOCK, BYTES, COMMON, check_bits, fp8_case
from tilewright_conformance.oracles.dtypes import Array, given
from tilewright_conformance.oracles.formats import FORMATS
from tilewright_conformance.suite.case import Case
from tilewright_conformance.suite.session import Session


@tw.jit
def all_pairs(
    x_ptr, y_ptr, out_ptr, FUNCTION: tl.constexpr, RESULT: tl.constexpr, BLOCK: tl.constexpr
):
    """A program for each number x, a lane for each number y."""
    at = tl.arange(0, BLOCK)
    x, y = tl.load(x_ptr + tl.program_id(0)), tl.load(y_ptr + at)
    value = FUNCTION(x, y)
    tl.static_assert(value.dtype == RESULT)
    tl.store(out_ptr + tl.program_id(0) * BLOCK + at, value)


@tw.jit
def plus(x, y):
    return x + y


@tw.jit
def minus(x, y):
    return x - y


@tw.jit
def times(x, y):
    return x * y


@tw.jit
def over(x, y):
    return x / y


@tw.jit
def less(x, y):
    return x < y


@tw.jit
def not_equal(x, y):
    return x != y


@tw.jit
def at_least(x, y):
    return x >= y


#: name -> (the kernel's function, what it is of float64)
_ARITHMETIC: dict[str, tuple[Any, Callable[[Array, Array], Array]]] = {
    "add": (plus, operator.add),
    "sub": (minus, operator.sub),
    "mul": (times, operator.mul),
}
_COMPARISONS: dict[str, tuple[Any, Callable[[Array, Array], Array]]] = {
    "lt": (less, operator.lt),
    "ne": (not_equal, operator.ne),
    "ge": (at_least, operator.ge),
}


def _every_pair(name: str, other: str = "") -> tuple[list[Any], Array, Array]:
    """The two operands as a kernel takes them, and their values as a column and a row."""
    x, y = FORMATS[name].worth(BYTES), FORMATS[other or name].worth(BYTES)
    return [given(BYTES.copy(), name), given(BYTES.copy(), other or name)], x[:, None], y[None, :]


def _arithmetic(name: str, operation: str, session: Session) -> None:
    """Add, subtract and multiply every pair: exact, rounded once to the type."""
    function, exact = _ARITHMETIC[operation]
    operands, x, y = _every_pair(name)
    found = np.zeros((256, 256), np.uint8)
    session.launch(
        all_pairs,
        (256,),
        *operands,
        given(found, name),
        FUNCTION=function,
        RESULT=getattr(tl, name),
        BLOCK=BLOCK,
    )
    with np.errstate(invalid="ignore"):
        check_bits(session, found, FORMATS[name].rounded(exact(x, y)), name)


def _quotients(name: str, session: Session) -> None:
    """Quotients are fp32."""
    operands, x, y = _every_pair(name)
    found = np.zeros((256, 256), np.float32)
    session.launch(
        all_pairs,
        (256,),
        *operands,
        found,
        FUNCTION=over,
        RESULT=tl.float32,
        BLOCK=BLOCK,
        **session.strict,
    )
    with np.errstate(all="ignore"):
        session.check(found, x / y)


def _mixed(name: str, session: Session) -> None:
    """Different formats are added as fp16, of which each has all numbers of."""
    other = "float8e5" if name != "float8e5" else "float8e4nv"
    operands, x, y = _every_pair(name, other)
    found = np.zeros((256, 256), np.float16)
    session.launch(
        all_pairs, (256,), *operands, found, FUNCTION=plus, RESULT=tl.float16, BLOCK=BLOCK
    )
    with np.errstate(all="ignore"):
        session.check(found, (x + y).astype(np.float16))


def _comparisons(name: str, session: Session) -> None:
    for operation, (function, exact) in _COMPARISONS.items():
        operands, x, y = _every_pair(name)
        found = np.full((256, 256), 7, np.int8)
        session.launch(
            all_pairs, (256,), *operands, found, FUNCTION=function, RESULT=tl.int1, BLOCK=BLOCK
        )
        session.check(found, exact(x, y).astype(np.int8), name=operation)


@tw.jit
def one_operand(x_ptr, negated_ptr, size_ptr, scaled_ptr, wide_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)
    tl.store(negated_ptr + at, -x)
    tl.store(size_ptr + at, tl.abs(x))
    tl.store(scaled_ptr + at, x * 0.75)
    wide = x + tl.full((), 0.1, tl.float32)
    tl.static_assert(wide.dtype == tl.float32)
    tl.store(wide_ptr + at, wide)


def _one_operand(name: str, session: Session) -> None:
    """Negate and take magnitudes exactly, and operate with a literal and with fp32.

    The literal takes the format's type, fp32 does not.
    """
    found, wide = np.zeros((3, 256), np.uint8), np.zeros(256, np.float32)
    session.launch(
        one_operand,
        (1,),
        *(given(part, name) for part in (BYTES.copy(), *found)),
        wide,
        BLOCK=BLOCK,
    )
    x = FORMATS[name].worth(BYTES)
    multiplied = FORMATS[name].rounded(x * FORMATS[name].rounded(np.array([0.75])))
    for part, expected, label in zip(
        found, (-x, np.abs(x), multiplied), ("-x", "abs", "x * 0.75"), strict=True
    ):
        check_bits(session, part, expected, name, label)
    session.check(wide, (x.astype(np.float32) + np.float32(0.1)), name="x + fp32")


@tw.jit
def rows_reduced(x_ptr, sum_ptr, maximum_ptr, root_ptr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    at = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    x = tl.load(x_ptr + at)
    wide = x.to(tl.float32)
    tl.store(sum_ptr + tl.arange(0, ROWS), tl.sum(wide, 1))
    tl.store(maximum_ptr + tl.arange(0, ROWS), tl.max(wide, 1))
    tl.store(root_ptr + at, tl.sqrt(tl.abs(wide)).to(x.dtype))


def _upcast(name: str, session: Session) -> None:
    """Reduce and take square roots in fp32.

    Additions of few bits are exact; the root of every number is rounded to the type.
    """
    form = FORMATS[name]
    bits = session.rng.permutation(BYTES)
    worth = form.worth(bits)
    small = np.isfinite(worth) & (np.abs(worth) <= 4) & (worth * 256 == np.rint(worth * 256))
    bits = np.resize(bits[small], 256).reshape(4, 64)
    total, maximum, root = (
        np.zeros(4, np.float32),
        np.zeros(4, np.float32),
        np.zeros((4, 64), np.uint8),
    )
    options = {"ROWS": 4, "COLUMNS": 64}
    session.launch(
        rows_reduced,
        (1,),
        given(bits, name),
        total,
        maximum,
        given(root, name),
        **options,
        **session.strict,
    )
    session.check(total, form.worth(bits).sum(1), zero_sign=False)
    session.check(maximum, form.worth(bits).max(1), zero_sign=False)
    check_bits(session, root, form.rounded(np.sqrt(np.abs(form.worth(bits)))), name, "the root")


def operator_cases(name: str) -> Iterator[Case]:
    for operation in _ARITHMETIC:
        body = functools.partial(_arithmetic, name, operation)
        yield fp8_case(
            name,
            f"{operation}/every-pair",
            operation,
            body,
            quick=name in COMMON and operation != "sub",
        )
    yield fp8_case(
        name,
        "div/every-pair",
        "div",
        functools.partial(_quotients, name),
        "f32",
        quick=name == "float8e5",
    )
    yield fp8_case(
        name,
        "mixed/every-pair",
        "add",
        functools.partial(_mixed, name),
        "f8e5m2",
        *(("f8e4m3fn",) if name == "float8e5" else ()),
        "f16",
    )
    yield fp8_case(
        name,
        "compare/every-pair",
        "cmp",
        functools.partial(_comparisons, name),
        "i8",
        quick=name == "float8e4nv",
    )
    yield fp8_case(
        name,
        "operators/every-number",
        "neg",
        functools.partial(_one_operand, name),
        "f32",
        quick=name == "float8e4nv",
    )
    yield fp8_case(
        name,
        "upcast/rows",
        "tl.sum",
        functools.partial(_upcast, name),
        "f32",
        quick=name == "float8e5",
    )
