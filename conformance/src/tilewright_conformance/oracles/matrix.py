"""Matmuls in float64, the bound on their errors by length, and operands of every type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright_conformance.oracles.dtypes import Array, given, spacing, storage
from tilewright_conformance.oracles.formats import format_of

#: fp32 operands under each ``input_precision``: (relative error of a multiplication, additions to
#: the accumulator for one term). An operand cut off to p bits leaves a remainder of 2**-p; two or
#: three parts leave the remainder of the last one, once an operand and once for the omitted term of
#: the remainders.
PRECISIONS: dict[str, tuple[float, int]] = {
    "ieee": (0.0, 1),
    "tf32": (2.1 * 2.0**-10, 1),
    "tf32x3": (3 * 2.0**-20, 3),
    "bf16x3": (3 * 2.0**-14, 3),
    "bf16x6": (6 * 2.0**-21, 6),
}
#: Error that an fp8 matmul may add every 16 terms where the hardware keeps 13 bits behind the point
#: of the maximum term; the default leaves it the choice.
_IMPRECISE, _IMPRECISE_TERMS = 2.0**-12, 16


def bound(
    a: Array,
    b: Array,
    c: Any,
    accumulator: str,
    precision: str = "ieee",
    *,
    imprecise: bool = False,
) -> Array:
    """Error bound of ``a @ b + c``, element by element.

    It is a unit of the accumulator, of the accumulated magnitudes, for each addition to it.

    Args:
        a, b, c: the operands' values in float64; ``a`` [..., M, K], ``b`` [..., K, N].
        accumulator: ``"f16"``, ``"f32"`` or ``"f64"``.
        imprecise: fp8 operands, for which hardware may keep an accumulator of fewer bits.
    """
    terms = a.shape[-1]
    with np.errstate(all="ignore"):
        magnitude = np.matmul(np.abs(a), np.abs(b)) + np.abs(c)
        lost, additions = PRECISIONS[precision]
        relative = lost + (additions * terms + 2) * spacing(accumulator)
        if imprecise:
            relative += (terms // _IMPRECISE_TERMS + 2) * _IMPRECISE
        return np.asarray(magnitude * relative)


# ---- operands


@dataclass(frozen=True)
class Operand:
    """An operand of a matmul: the kernel's argument ``given``, and its ``values`` in float64."""

    given: Any
    values: Array


def is_fp8(type_: str) -> bool:
    return type_.startswith("f8")


def encoded(type_: str, numbers: Array) -> Operand:
    """Numbers rounded to a type; finite, and for the narrow formats within their range."""
    if type_ == "bf16" or is_fp8(type_):
        format_ = format_of(type_)
        bits = format_.nearest(numbers, "rtne").astype(storage(type_))
        return Operand(given(bits, type_), format_.worth(bits))
    array = np.asarray(numbers).astype(storage(type_))
    return Operand(array, array.astype(np.float64))


def few_bits(rng: np.random.Generator, type_: str, *shape: int) -> Operand:
    """Multiples of 1/4 of magnitude up to 1 (integers: up to 4), whose matmuls are exact.

    They are so in every accumulator.
    """
    numbers = rng.integers(0 if type_ == "u8" else -4, 5, shape)
    return encoded(type_, numbers if type_[0] in "iu" else numbers / 4)


def whole(rng: np.random.Generator, type_: str, *shape: int, most: int = 2) -> Operand:
    """Integers of size up to ``most``, as any type."""
    return encoded(type_, rng.integers(0 if type_ == "u8" else -most, most + 1, shape))


def spread(rng: np.random.Generator, type_: str, *shape: int) -> Operand:
    """Numbers of magnitudes from 2**-6 to 1 and of both signs, all bits used.

    Integers are of their whole range.
    """
    if type_[0] in "iu":
        limits = np.iinfo(storage(type_))
        return encoded(type_, rng.integers(limits.min, limits.max + 1, shape))
    return encoded(type_, rng.uniform(-1, 1, shape) * np.exp2(rng.integers(-6, 1, shape)))


#: The sixteen values of e2m1, whose pairs lie in a byte, the first in the low half.
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
#: formats of block-scaled matmuls that are fp8, by the language's names for them there
SCALED = {"e4m3": "f8e4m3fn", "e5m2": "f8e5m2"}
_ELEMENTS = {"bf16": "bf16", "fp16": "f16"}


def scaled_operand(
    rng: np.random.Generator, kind: str, shape: tuple[int, ...], pack_axis: int
) -> Operand:
    """An operand of a block-scaled matmul; pairs of e2m1 lie along ``pack_axis``.

    An fp8 operand is an array of its bits, of values up to 8.
    """
    if kind == "e2m1":
        codes = rng.integers(0, 16, shape).astype(np.uint8)
        low, high = (
            np.moveaxis(np.moveaxis(codes, pack_axis, 0)[i::2], 0, pack_axis) for i in (0, 1)
        )
        return Operand(np.ascontiguousarray(low | high << 4), E2M1[codes])
    if kind in SCALED:
        worth = format_of(SCALED[kind]).worth(np.arange(256))
        small = np.flatnonzero(
            np.abs(np.nan_to_num(worth, nan=99.0, posinf=99.0, neginf=99.0)) <= 8
        )
        codes = rng.choice(small, shape).astype(np.uint8)
        return Operand(codes, worth[codes])
    return few_bits(rng, _ELEMENTS[kind], *shape)


def scales(rng: np.random.Generator, shape: tuple[int, ...], group: int) -> Operand:
    """Scales of groups of 32 (exponents) or of 16 (fp8)."""
    if group == 32:
        codes = rng.integers(122, 132, shape).astype(np.uint8)
        return Operand(codes, np.exp2(codes.astype(np.float64) - 127))
    return few_bits(rng, "f8e4m3fn", *shape)


def bits_of(operand: Operand) -> Array:
    """The array behind an operand: of its numbers, or of the bits of a type that NumPy has not."""
    return operand.given if isinstance(operand.given, np.ndarray) else operand.given.base


def worth(type_: str, bits: Array) -> Array:
    """The values of bits of a type that NumPy has not."""
    return format_of(type_).worth(bits)
