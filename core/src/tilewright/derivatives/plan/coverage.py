"""The number of elements that a kernel stores to an argument, of which no two are one.

Where it is the number of elements of the array, the kernel writes all of it, so that nobody has to
set the array to zero before. The lanes of each store are counted from its mask, for all programs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.derivatives.analysis.address_digits import loops_around
from tilewright.ir.core import Module, Operation, Value
from tilewright.ir.ops.control import For
from tilewright.ir.ops.memory import Store
from tilewright.ir.types import shape_of
from tilewright.passes.analysis.affine import Affine
from tilewright.passes.analysis.polynomials import Polynomial

#: Programs and iterations for which lanes are counted, at most.
_MOST_COUNTED = 1 << 22

#: Numbers of all programs and iterations, as arrays that broadcast to their grid.
_Counts = NDArray[np.int64]


class UncountedError(Exception):
    """A store whose lanes are not counted."""


class StoredElements:
    """The stores of a kernel to an argument, each element of which is stored to at most once."""

    def __init__(self, module: Module, stores: list[Store]) -> None:
        self._affine, self._stores = Affine(module.kernel), stores

    def count(self, sizes: tuple[int, int, int], numbers: Mapping[str, int]) -> int | None:
        """Return the number of elements that are stored; None where it is not known.

        Args:
            sizes: the kernel's grid.
            numbers: its integers by name.
        """
        try:
            counts = [_LaneCount(self._affine, store, sizes, numbers) for store in self._stores]
        except UncountedError:
            return None
        return sum(count.total for count in counts)


class _LaneCount:
    """The lanes of a store that are not masked off, in all programs and iterations."""

    def __init__(
        self, affine: Affine, store: Store, sizes: tuple[int, int, int], numbers: Mapping[str, int]
    ) -> None:
        self._affine, self._numbers = affine, numbers
        loops = loops_around(store)
        if len(loops) != len(list(store.ancestors())):
            raise UncountedError
        self._rank = 3 + len(loops)
        self._known: dict[tuple[str, Any], _Counts] = {}
        total = 1
        for axis, size in enumerate(sizes):
            self._known["program_id", axis] = self._along(axis, size)
            self._known["num_programs", axis] = np.full((1,) * self._rank, size, np.int64)
            total *= size
        lanes = np.ones((1,) * self._rank, np.int64)
        for place, loop in enumerate(reversed(loops), 3):
            trips = self._trips(loop)
            self._known["iteration", loop] = self._along(place, trips)
            total *= trips
        if total > _MOST_COUNTED:
            raise UncountedError
        self._shape = [*sizes, *(self._trips(loop) for loop in reversed(loops))]
        self.total = int(np.broadcast_to(self._lanes(store, lanes), self._shape).sum())

    def _along(self, place: int, size: int) -> _Counts:
        shape = [1] * self._rank
        shape[place] = size
        return np.arange(size, dtype=np.int64).reshape(shape)

    def _trips(self, loop: For) -> int:
        lower, upper, step = (self._same(value) for value in (loop.lower, loop.upper, loop.step))
        return max(0, -((lower - upper) // step)) if step > 0 else 0

    def _same(self, value: Value) -> int:
        """Return an integer that all programs and iterations have."""
        found = self._value(self._affine.number(value))
        if found.size != 1:
            raise UncountedError
        return int(found.reshape(()))

    def _lanes(self, store: Store, lanes: _Counts) -> _Counts:
        limits: list[_Counts] = [
            np.full((1,) * self._rank, extent, np.int64) for extent in shape_of(store.pointer.type)
        ]
        bounds = [] if store.mask is None else self._affine.mask_bounds(store.mask)
        for bound in bounds:
            if bound is None or bound.upper is None or bound.lower is not None:
                raise UncountedError
            upper = self._value(bound.upper)
            if bound.axis is None:
                lanes = lanes * (upper > 0)
            else:
                limits[bound.axis] = np.minimum(limits[bound.axis], upper)
        for limit in limits:
            lanes = lanes * np.maximum(limit, 0)
        return lanes

    def _value(self, polynomial: Polynomial) -> _Counts:
        total = np.zeros((1,) * self._rank, np.int64)
        for monomial, factor in polynomial.terms:
            term = np.full((1,) * self._rank, factor, np.int64)
            for number in monomial:
                term = term * self._unknown(number)
            total = total + term
        return total

    def _unknown(self, number: int) -> _Counts:
        atom = self._affine.atom(number)
        of = atom.of[0]
        known = self._known.get((atom.kind, of))
        if known is None and isinstance(of, Value) and not isinstance(of.owner, Operation):
            value = self._numbers.get(of.name)
            if value is not None and atom.kind == "value":
                known = np.full((1,) * self._rank, value, np.int64)
        if known is None:
            raise UncountedError
        return known


__all__ = ["StoredElements"]
