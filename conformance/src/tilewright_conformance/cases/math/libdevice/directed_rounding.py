"""Device library functions of arithmetic with a stated rounding."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction

import numpy as np

from tilewright_conformance.cases.math.libdevice.exact_row import MODES, Array, Row
from tilewright_conformance.cases.math.libdevice.values import spread
from tilewright_conformance.oracles.dtypes import storage
from tilewright_conformance.oracles.rounding import rounded
from tilewright_conformance.testlib.math_values import any_bits

#: name -> the exact result
OPERATIONS: dict[str, Callable[..., Fraction]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "rcp": lambda a: 1 / a,
    "fma": lambda a, b, c: a * b + c,
}


def directed_rounding() -> Iterator[Row]:
    """Rows of arithmetic with a stated rounding."""
    for type_ in ("f32", "f64"):
        for mode in MODES:
            through = ("f64",) if mode != "rn" else ()
            for name in OPERATIONS:
                count = {"rcp": 1, "fma": 3}.get(name, 2)
                yield Row(
                    f"{name}_{mode}",
                    (type_,) * count,
                    type_,
                    directed_operands(type_, count),
                    directed_result(name, mode, type_),
                    through,
                )
            yield Row(
                f"sqrt_{mode}",
                (type_,),
                type_,
                _root_operands(type_),
                _directed_root(mode, type_),
                through,
            )


def directed_operands(type_: str, count: int) -> Callable[[np.random.Generator], list[Array]]:
    """Ordinary numbers, exact results, cancellation, and terms that only the direction shows."""

    def make(rng: np.random.Generator) -> list[Array]:
        found = [spread(rng, 160, 1e-6, 1e6).astype(storage(type_)) for _ in range(count)]
        for operand, value in zip(found, (3.0, 0.5, 0.25), strict=False):
            operand[:10] = value
        if count > 1:
            found[-1][10:20] = spread(rng, 10, 1e-20, 1e-10)
            found[-1][20:30] = -found[0][20:30]
            if count == 3:
                found[2][20:30] = -(found[0] * found[1])[20:30]
        return [
            np.concatenate([ordinary, extreme])
            for ordinary, extreme in zip(found, _extreme_operands(rng, type_, count), strict=True)
        ]

    return make


def _extreme_operands(rng: np.random.Generator, type_: str, count: int) -> list[Array]:
    """Numbers of every exponent, whose results are out of range as often as not.

    Some results are just in range, subnormal ones among them.
    """
    dtype = storage(type_)
    found = [_not_zero(any_bits(rng, dtype, 120)) for _ in range(count)]
    info = np.finfo(dtype)
    with np.errstate(all="ignore"):
        if count > 1:
            edges = np.exp2(
                rng.uniform(info.minexp - info.nmant - 1, info.minexp + info.nmant, 40).astype(
                    np.longdouble
                )
            )
            found[1][:40] = _not_zero(
                np.where(np.arange(40) % 2, edges / found[0][:40], found[0][:40] / edges).astype(
                    dtype
                )
            )
        if count == 3:
            found[2][:60] = _not_zero(
                (-(found[0][:60] * found[1][:60]) * np.exp2(rng.integers(-3, 4, 60))).astype(dtype)
            )
    return found


def _not_zero(x: Array) -> Array:
    return np.where(np.isfinite(x) & (x != 0), x, x.dtype.type(1))


def directed_result(name: str, mode: str, type_: str) -> Callable[..., Array]:
    def result(*operands: Array) -> Array:
        found = []
        for numbers in zip(*(operand.tolist() for operand in operands), strict=True):
            exact = OPERATIONS[name](*map(Fraction, numbers))
            # A sum that is exactly zero is -0.0 where rounding is down.
            found.append(rounded(exact, mode, type_) if exact else -0.0 if mode == "rd" else 0.0)
        return np.array(found, storage(type_))

    return result


def _root_operands(type_: str) -> Callable[[np.random.Generator], list[Array]]:
    def make(rng: np.random.Generator) -> list[Array]:
        x = np.abs(
            np.concatenate(
                [
                    spread(rng, 160, 1e-6, 1e6).astype(storage(type_)),
                    any_bits(rng, storage(type_), 120),
                ]
            )
        )
        x[:3] = [4.0, 2.25, 0.0]
        return [x]

    return make


def _directed_root(mode: str, type_: str) -> Callable[[Array], Array]:
    """Take the integer root with enough digits, and an odd digit behind it where it is not exact.

    It then rounds as the root would.
    """

    def one(value: float) -> float:
        exact = Fraction(value)
        numerator = exact.numerator * exact.denominator
        shift = 2 * max(0, 140 - numerator.bit_length() // 2)
        root = math.isqrt(numerator << shift)
        root = 2 * root + (root * root != numerator << shift)
        return rounded(Fraction(root, exact.denominator << (shift // 2 + 1)), mode, type_)

    return lambda x: np.array([one(value) for value in x.tolist()], storage(type_))
