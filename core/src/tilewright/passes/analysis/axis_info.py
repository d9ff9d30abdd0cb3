"""Contiguity, divisibility and constancy of a value: what axis analysis says of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tilewright.ir.types import IntType, PointerType, Type, byte_size, element_type, shape_of

#: The divisibility of zero, which everything divides.
UNBOUNDED = 1 << 62


@dataclass(frozen=True, slots=True)
class AxisInfo:
    """Contiguity, divisibility and constancy of a value, with an entry per axis (one for a scalar).

    Attributes:
        contiguity: length of aligned runs along the axis in which each element is one more than the
            previous one (pointers: the next element).
        divisibility: the power of two known to divide the first value of each such run (pointers:
            its address, in bytes).
        constancy: length of aligned runs along the axis of equal elements.
        constant: the value of all elements, or None.
        nonnegative: whether no element is negative.
        addressing: contiguity and divisibility hold for addresses only (see :mod:`.axis`), and for
            nothing else that is computed from the value.
    """

    contiguity: tuple[int, ...]
    divisibility: tuple[int, ...]
    constancy: tuple[int, ...]
    constant: int | float | bool | None = None
    nonnegative: bool = False
    addressing: bool = False

    @property
    def rank(self) -> int:
        return len(self.contiguity)

    def divisibility_at(self, axis: int, group: int, unit: int = 1) -> int:
        """Return the divisor of the first value of each aligned group of ``group`` elements.

        Consecutive elements are ``unit`` apart.
        """
        run, known = self.contiguity[axis], self.divisibility[axis]
        if group % run == 0:
            return known
        return min(known, power_of_two_in(math.gcd(group, run) * unit))

    def divisibility_of_all(self, unit: int = 1) -> int:
        """Return the divisor of every element."""
        return max(self.divisibility_at(axis, 1, unit) for axis in range(self.rank))

    def apart_from_addresses(self, unit: int = 1) -> AxisInfo:
        """Return the attributes that hold without the assumption on addresses."""
        if not self.addressing:
            return self
        divisibility = tuple([self.divisibility_at(axis, 1, unit) for axis in range(self.rank)])
        return replace(
            self, contiguity=(1,) * self.rank, divisibility=divisibility, addressing=False
        )


def power_of_two_in(value: int) -> int:
    """Return the largest power of two that divides ``value``."""
    return min(value & -value, UNBOUNDED) if value else UNBOUNDED


def unknown(type_: Type) -> AxisInfo:
    """Return the attributes of an unknown value of a type."""
    ones = (1,) * max(1, len(shape_of(type_)))
    element = element_type(type_)
    return AxisInfo(ones, ones, ones, None, isinstance(element, IntType) and not element.signed)


def join(a: AxisInfo, b: AxisInfo, unit: int) -> AxisInfo:
    """Join the attributes of two values."""
    if a == b:
        return a
    contiguity = tuple(map(math.gcd, a.contiguity, b.contiguity))
    divisibility = tuple(
        [
            min(a.divisibility_at(i, run, unit), b.divisibility_at(i, run, unit))
            for i, run in enumerate(contiguity)
        ]
    )
    same = (
        a.constant is not None and type(a.constant) is type(b.constant) and a.constant == b.constant
    )
    constancy = tuple(map(math.gcd, a.constancy, b.constancy))
    return AxisInfo(
        contiguity,
        divisibility,
        constancy,
        a.constant if same else None,
        a.nonnegative and b.nonnegative,
        a.addressing or b.addressing,
    )


def unit_of(type_: Type) -> int:
    """Return the distance of consecutive elements, in units of divisibility (pointers: bytes)."""
    element = element_type(type_)
    return byte_size(element.pointee) if isinstance(element, PointerType) else 1


def common_constancy(infos: Sequence[AxisInfo]) -> tuple[int, ...]:
    return tuple(
        [math.gcd(*runs) for runs in zip(*[info.constancy for info in infos], strict=True)]
    )


def any_element(x: AxisInfo, type_: Type) -> AxisInfo:
    """Return the attributes of any one element."""
    return AxisInfo((1,), (x.divisibility_of_all(unit_of(type_)),), (1,), x.constant, x.nonnegative)


__all__ = [
    "UNBOUNDED",
    "AxisInfo",
    "any_element",
    "common_constancy",
    "join",
    "power_of_two_in",
    "unit_of",
    "unknown",
]
