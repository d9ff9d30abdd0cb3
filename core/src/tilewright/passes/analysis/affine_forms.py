"""Affine forms: a uniform base plus a step along each axis of a tile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from tilewright.ir.core import Value
from tilewright.passes.analysis.polynomials import Polynomial

ZERO: Final = Polynomial()
ONE: Final = Polynomial.number(1)


@dataclass(frozen=True, slots=True)
class Wrapped:
    """A coordinate ``start + i`` along an axis where that is below ``extent``, and another one
    elsewhere: ``x % n``, ``min(x, n - 1)``, ``where(x < n, x, y)``.

    Attributes:
        nonnegative: whether it is taken to be so (see :mod:`.affine`).
    """

    axis: int
    start: Polynomial
    extent: Polynomial
    nonnegative: bool


#: What a step is counted by: an axis of the tile, or a coordinate along one.
Key = int | Wrapped


@dataclass(frozen=True, slots=True)
class Form:
    """``base + start + sum(steps[key] * coordinate of key)``; elements for pointers, numbers for
    integers, where base is None. Base is an argument of the kernel, or a scalar pointer of which no
    more is known."""

    base: Value | None
    start: Polynomial
    steps: tuple[tuple[Key, Polynomial], ...] = ()

    @property
    def is_uniform(self) -> bool:
        return self.base is None and not self.steps

    def plus(self, other: Form, factor: Polynomial = ONE) -> Form | None:
        """The sum with ``factor`` times another, which then has no base."""
        if other.base is not None and (self.base is not None or factor != ONE):
            return None
        steps = dict(self.steps)
        for key, step in other.steps:
            steps[key] = steps.get(key, ZERO).plus(step.times(factor))
        base = self.base if self.base is not None else other.base
        return Form(
            base,
            self.start.plus(other.start.times(factor)),
            tuple((key, step) for key, step in steps.items() if step.terms),
        )

    def times(self, factor: Polynomial) -> Form | None:
        return Form(None, ZERO).plus(self, factor) if self.base is None else None

    def step(self, axis: int) -> Polynomial | None:
        """Return the step along an axis; None if coordinates along it wrap around."""
        found = ZERO
        for key, step in self.steps:
            if isinstance(key, int):
                found = found.plus(step) if key == axis else found
            elif key.axis == axis:
                return None
        return found

    def span(self, shape: Sequence[int]) -> tuple[int, int] | None:
        """Return the minimum and maximum over a tile, without the base; None if not constant."""
        start = self.start.constant
        if start is None:
            return None
        low = high = start
        for axis, extent in enumerate(shape):
            step = self.step(axis)
            if step is None or step.constant is None:
                return None
            reach = step.constant * (extent - 1)
            low, high = low + min(0, reach), high + max(0, reach)
        return low, high

    def evaluated(self, value: Callable[[Polynomial], int | None]) -> Form | None:
        """Return the form with its polynomials as numbers; None where one has no value."""
        start = value(self.start)
        steps = [(key, value(step)) for key, step in self.steps]
        if start is None or any(isinstance(key, Wrapped) or step is None for key, step in steps):
            return None
        known = tuple((key, Polynomial.number(step)) for key, step in steps if step)
        return Form(self.base, Polynomial.number(start), known)

    def along(self, axes: Callable[[int], int]) -> Form:
        """The same with axes renumbered."""
        moved = tuple(
            (
                axes(key)
                if isinstance(key, int)
                else Wrapped(axes(key.axis), key.start, key.extent, key.nonnegative),
                step,
            )
            for key, step in self.steps
        )
        return Form(self.base, self.start, moved)

    def polynomials(self) -> list[Polynomial]:
        wraps = [
            part
            for key, _ in self.steps
            if isinstance(key, Wrapped)
            for part in (key.start, key.extent)
        ]
        return [self.start, *(step for _, step in self.steps), *wraps]


@dataclass(frozen=True, slots=True)
class CoordinateBound:
    """``i < upper`` or ``i >= lower`` for the coordinate i along an axis; ``0 < upper`` for all
    elements where that is None."""

    axis: int | None
    upper: Polynomial | None = None
    lower: Polynomial | None = None


__all__ = ["ONE", "ZERO", "CoordinateBound", "Form", "Key", "Wrapped"]
