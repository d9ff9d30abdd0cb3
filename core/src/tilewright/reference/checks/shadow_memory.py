"""Shadow memory: which bytes were written, and which programs accessed them how.

Memory is watched in granules: as wide as the narrowest access seen so far, split when a narrower or
misaligned one comes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.reference.checks.vector_clocks import Clocks

_WIDEST = 16

#: An access conflicts with earlier ones of other programs of these kinds. A ``peek`` is a volatile
#: read.
_CONFLICTS: dict[str, tuple[str, ...]] = {
    "read": ("write", "atomic"),
    "write": ("write", "atomic", "read"),
    "atomic": ("write", "read"),
    "peek": ("write",),
}


class _Accesses:
    """For each granule two programs that accessed it in one way: the first and the latest other.

    A write by a third program conflicts with one of them whenever it conflicts with any.

    ``programs`` holds linear program ids plus one (0 is none), ``sites`` numbers of operations,
    ``clocks`` the programs' times.
    """

    __slots__ = ("clocks", "programs", "sites")

    def __init__(self, granules: int, timed: bool) -> None:
        self.programs = np.zeros((2, granules), dtype=np.int32)
        self.sites = np.zeros((2, granules), dtype=np.int32)
        self.clocks = np.zeros((2, granules), dtype=np.int32) if timed else None

    def split(self, factor: int) -> None:
        for name in self.__slots__:
            array = getattr(self, name)
            if array is not None:
                setattr(self, name, np.repeat(array, factor, axis=1))

    def conflicts(
        self, granules: NDArray[np.int64], programs: NDArray[np.int64], clocks: Clocks | None
    ) -> tuple[NDArray[np.bool_], NDArray[np.int64], NDArray[np.int64]]:
        """Find conflicts of new accesses with unordered accesses of other programs.

        The result has a mask, and site and program of the other access.
        """
        bad = np.zeros(granules.shape, dtype=np.bool_)
        sites, others = (
            np.zeros(granules.shape, dtype=np.int64),
            np.zeros(granules.shape, dtype=np.int64),
        )
        for slot in (0, 1):
            other = self.programs[slot, granules]
            found = (other != 0) & (other != programs + 1) & ~bad
            if clocks is not None and self.clocks is not None:
                found &= ~clocks.sees(np.maximum(other - 1, 0), self.clocks[slot, granules])
            bad |= found
            sites[found], others[found] = self.sites[slot, granules[found]], other[found] - 1
        return bad, sites, others

    def record(
        self,
        granules: NDArray[np.int64],
        programs: NDArray[np.int64],
        site: int,
        clocks: Clocks | None,
    ) -> None:
        mine = (programs + 1).astype(np.int32)
        first = self.programs[0, granules]
        replace = (first == 0) | (first == mine)
        if clocks is not None and self.clocks is not None:
            # What this program has in order before it can conflict only with what this one
            # conflicts with too.
            replace |= clocks.sees(np.maximum(first - 1, 0), self.clocks[0, granules])
        self._put(0, granules[replace], mine[replace], site, clocks)
        other = self.programs[0, granules] != mine
        self._put(1, granules[other], mine[other], site, clocks)

    def _put(
        self,
        slot: int,
        granules: NDArray[np.int64],
        programs: NDArray[np.int32],
        site: int,
        clocks: Clocks | None,
    ) -> None:
        self.programs[slot, granules] = programs
        self.sites[slot, granules] = site
        if clocks is not None and self.clocks is not None:
            self.clocks[slot, granules] = clocks.now


class Shadow:
    """The shadow of ``[start, end)``; ``empty`` are the ranges in it that hold nothing yet."""

    def __init__(
        self, start: int, end: int, empty: Sequence[tuple[int, int]], clocks: Clocks | None
    ) -> None:
        self.start, self.end, self.clocks = start, end, clocks
        self.granule = _WIDEST
        self.written: NDArray[np.bool_] | None = None
        self.released: NDArray[np.int32] | None = None
        self.accesses: dict[str, _Accesses] = {}
        if empty:
            self._split_for(*(edge - start for edges in empty for edge in edges))
            self.written = np.ones(self._granules, dtype=np.bool_)
            for low, high in empty:
                self.written[
                    (low - start) // self.granule : (high - start + self.granule - 1)
                    // self.granule
                ] = False

    @property
    def _granules(self) -> int:
        return -(-(self.end - self.start) // self.granule)

    def _split_for(self, *numbers: int) -> None:
        """Make granules narrow enough for all offsets and sizes to be multiples of them."""
        combined = self.granule
        for value in numbers:
            combined |= value
        wanted = combined & -combined
        factor = self.granule // wanted
        if factor == 1:
            return
        self.granule = wanted
        if self.written is not None:
            self.written = np.repeat(self.written, factor)
        if self.released is not None:
            self.released = np.repeat(self.released, factor)
        for accesses in self.accesses.values():
            accesses.split(factor)

    def granules(self, addresses: NDArray[np.int64], size: int) -> tuple[NDArray[np.int64], int]:
        """Return the granules of accesses of ``size`` bytes, grouped by access, and their count."""
        offsets = addresses - self.start
        self._split_for(int(np.bitwise_or.reduce(offsets)) if offsets.size else 0, size)
        count = size // self.granule
        first = offsets // self.granule
        if count == 1:
            return first, 1
        return (first[:, np.newaxis] + np.arange(count)).ravel(), count

    def unwritten(self, granules: NDArray[np.int64]) -> NDArray[np.bool_] | None:
        """Return a mask of granules without a write; None where all of memory was written."""
        return None if self.written is None else ~self.written[granules]

    def mark_written(self, granules: NDArray[np.int64]) -> None:
        if self.written is not None:
            self.written[granules] = True

    def races(
        self, kind: str, granules: NDArray[np.int64], programs: NDArray[np.int64], site: int
    ) -> tuple[NDArray[np.bool_], NDArray[np.int64], NDArray[np.int64]] | None:
        """Record accesses; return a mask of races, with site and program of the other access."""
        result: Any = None
        for other in _CONFLICTS[kind]:
            if other in self.accesses:
                result = _first(
                    result, self.accesses[other].conflicts(granules, programs, self.clocks)
                )
        if kind != "peek":
            if kind not in self.accesses:
                self.accesses[kind] = _Accesses(self._granules, self.clocks is not None)
            self.accesses[kind].record(granules, programs, site, self.clocks)
            if kind == "write":  # programs that write the same place in this very access
                result = _first(
                    result, self.accesses[kind].conflicts(granules, programs, self.clocks)
                )
        return result if result is not None and result[0].any() else None

    def synchronize(self, granules: NDArray[np.int64], order: str) -> None:
        """Let an atomic acquire earlier releases at these granules, and release in turn."""
        assert self.clocks is not None
        if self.released is None:
            self.released = np.zeros(self._granules, dtype=np.int32)
        self.clocks.synchronize(self.released, granules, order)


def _first(a: Any, b: Any) -> Any:
    """Two sets of races on the same accesses: of each access the first one found."""
    if a is None:
        return b
    return a[0] | b[0], np.where(a[0], a[1], b[1]), np.where(a[0], a[2], b[2])
