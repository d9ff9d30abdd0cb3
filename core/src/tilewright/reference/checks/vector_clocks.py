"""Vector clocks: order between programs that synchronize by atomics.

They are those of FastTrack (Flanagan and Freund, 2009).

One program runs at a time while these are kept: one after the other, so that only the running one's
view of the others is needed, or in turns.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class Clocks:
    """Vector clocks of programs.

    ``view[q]`` is the time of program q up to which its accesses are in order before the running
    program's.
    """

    def __init__(self, programs: int, in_turns: bool) -> None:
        self._left: dict[int, tuple[int, NDArray[np.int32]]] | None = {} if in_turns else None
        self.view = np.zeros(programs, dtype=np.int32)
        self.program = -1
        self.now = 0
        self._released: dict[int, NDArray[np.int32]] = {}
        self._held: dict[int, int] = {}
        self._number = 0

    def enter(self, program: int) -> None:
        """Another program runs from now on."""
        if program == self.program:
            return
        begun = None
        if self._left is not None:
            self._left[self.program] = self.now, self.view
            begun = self._left.get(program)
        self.program, (self.now, self.view) = program, begun or (0, np.zeros_like(self.view))

    def sees(self, programs: NDArray[np.int32], times: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Return whether accesses of programs at given times come before the running one's."""
        return self.view[programs] > times

    def acquire(self, numbers: NDArray[np.int32]) -> None:
        for number in np.unique(numbers).tolist():
            if number:
                self.view = np.maximum(self.view, self._released[number])

    def synchronize(
        self, released: NDArray[np.int32], granules: NDArray[np.int64], order: str
    ) -> None:
        """Execute an atomic of the running program.

        ``released`` numbers, for each granule, the clock that the last release there left.
        """
        earlier = released[granules]
        if order in ("acquire", "acq_rel"):
            self.acquire(earlier)
        if order not in ("release", "acq_rel"):
            return
        clock = self.view.copy()
        # what was released here before stays visible to those who acquire next
        if order == "release":
            for number in np.unique(earlier).tolist():
                if number:
                    clock = np.maximum(clock, self._released[number])
        clock[self.program] = self.now + 1
        self._number += 1
        self._released[self._number] = clock
        places = np.unique(granules)
        numbers, counts = np.unique(released[places], return_counts=True)
        for number, count in zip(numbers.tolist(), counts.tolist(), strict=True):
            if number:
                self._held[number] -= count
                if not self._held[number]:
                    del self._held[number], self._released[number]
        self._held[self._number] = len(places)
        released[places] = self._number

    def tick(self, order: str) -> None:
        """After a release: what follows is not in order before those who acquire it."""
        if order in ("release", "acq_rel"):
            self.now += 1
