"""Operands out of range: division by zero, too large shifts, casts of floats that do not fit."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

import tilewright as tw
import tilewright.language as tl
from tilewright_conformance.oracles.dtypes import INTEGERS
from tilewright_conformance.suite.session import Session
from tilewright_conformance.testlib.numbers import unset

Array = NDArray[Any]

_BLOCK = 256


@tw.jit
def divide_and_shift(x, y, at, quotients, remainders, left, right):
    tl.store(quotients + at, x // y)
    tl.store(remainders + at, x % y)
    tl.store(left + at, x << y)
    tl.store(right + at, x >> y)


@tw.jit
def of_integers(x_ptr, y_ptr, quotients, remainders, left, right, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    divide_and_shift(
        tl.load(x_ptr + at), tl.load(y_ptr + at), at, quotients, remainders, left, right
    )


@tw.jit
def of_scalars(x_ptr, y_ptr, quotients, remainders, left, right, n):
    for i in range(n):
        divide_and_shift(
            tl.load(x_ptr + i), tl.load(y_ptr + i), i, quotients, remainders, left, right
        )


@tw.jit
def of_constants(
    x_ptr, quotients, remainders, left, right, AMOUNT: tl.constexpr, BLOCK: tl.constexpr
):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)
    divide_and_shift(x, tl.full((), AMOUNT, x.dtype), at, quotients, remainders, left, right)


@tw.jit
def converted(x_ptr, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x_ptr + at).to(out.dtype.element_ty))


def _results(x: Array, y: Array) -> list[Array]:
    """Quotient and remainder, with divisor 1 in place of 0, and shifts.

    A shift past the width loses all bits but a sign.
    """
    bits = 8 * x.itemsize
    found: list[list[int]] = [[], [], [], []]
    for a, b in zip(x.tolist(), y.tolist(), strict=True):
        divisor = b or 1
        quotient = abs(a) // abs(divisor) * (1 if (a < 0) == (divisor < 0) else -1)
        inside = 0 <= b < bits
        values = (
            quotient,
            a - quotient * divisor,
            a << b if inside else 0,
            a >> (b if inside else bits),
        )
        for row, value in zip(found, values, strict=True):
            row.append(value % (1 << bits))
    return [np.array(row, f"u{x.itemsize}").view(x.dtype) for row in found]


def check_integers(name: str, session: Session) -> None:
    """Divide and shift tiles, scalars and tiles by a constant."""
    limits = np.iinfo(name)
    few = [
        limits.min,
        limits.min + 1,
        limits.max,
        0,
        1,
        5,
        limits.bits - 1,
        limits.bits,
        limits.bits + 1,
        0x7B,
    ]
    few += [-1, -2] if limits.min else [limits.max - 1, 2]
    few += [1 << 32, (1 << 32) + 1] if limits.bits == 64 else [9, 17]
    values = np.array(few, name)
    x, y = (
        np.resize(side, _BLOCK)
        for side in (np.repeat(values, len(values)), np.tile(values, len(values)))
    )
    names = ("x // y", "x % y", "x << y", "x >> y")

    def check(found: list[Array], y: Array, kind: str) -> None:
        for result, expected, text in zip(found, _results(x, y), names, strict=True):
            session.check(result, expected, name=f"{text} of {kind}")

    found = [unset(_BLOCK, name) for _ in names]
    session.launch(of_integers, (1,), x, y, *found, BLOCK=_BLOCK)
    check(found, y, "tiles")
    found = [unset(_BLOCK, name) for _ in names]
    session.launch(of_scalars, (1,), x, y, *found, _BLOCK)
    check(found, y, "scalars")
    for amount in (0, limits.bits):
        found = [unset(_BLOCK, name) for _ in names]
        session.launch(of_constants, (1,), x, *found, AMOUNT=amount, BLOCK=_BLOCK)
        check(found, np.full(_BLOCK, amount, name), f"tiles and {amount}")


def _integer(x: float, wide: bool, name: str) -> int:
    """Convert a float to an integer, saturating, by way of 16 bits where it has 8.

    NaN is 0, or the sign bit alone where 64 bits take part.
    """
    limits = np.iinfo(name)
    through = np.iinfo({"int8": "int16", "uint8": "uint16"}.get(name, name))
    if x != x:
        value = 1 << (through.bits - 1) if wide or through.bits == 64 else 0
    else:
        value = (
            int(through.min)
            if x <= through.min
            else int(through.max)
            if x >= through.max
            else int(x)
        )
    return value % (1 << limits.bits)


def check_casts(name: str, session: Session) -> None:
    """Cast floats of a type to every integer type."""
    few = [
        0.0,
        -0.0,
        0.99,
        -0.99,
        -1.0,
        1.5,
        -1.5,
        math.nan,
        -math.nan,
        math.inf,
        -math.inf,
        300.0,
        -300.0,
        7e4,
        -7e4,
        1e10,
        -1e10,
        1e19,
        1e20,
        1e30,
        -1e30,
    ]
    ends = [
        sign * (2.0**bits + step)
        for bits in (7, 8, 15, 16, 31, 32, 63, 64)
        for sign in (1, -1)
        for step in (-1, 0, 1)
    ]
    with np.errstate(over="ignore"):
        x = np.resize(
            np.array(
                [
                    *few,
                    *ends,
                    *session.rng.standard_normal(60) * np.exp2(session.rng.integers(0, 70, 60)),
                ]
            ).astype(name),
            _BLOCK,
        )
    for target in INTEGERS:
        found = unset(_BLOCK, target)
        session.launch(converted, (1,), x, found, BLOCK=_BLOCK)
        expected = np.array(
            [_integer(value, name == "float64", target) for value in x.tolist()],
            f"u{found.itemsize}",
        ).view(target)
        session.check(found, expected, name=f"{name} as {target}")
