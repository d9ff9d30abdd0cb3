"""Arguments of a launch that overlap in memory, and the bytes that both reach.

One array passed twice from the same first element is an in-place kernel, whose loads and stores of
an element follow each other. Where arguments begin at different elements of one array, a store
through one changes what another lane, strip or program has read or is still to read through the
other, in an order that only the hardware knows.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from tilewright.reference.memory.buffers import ArgumentBuffer


class Overlaps:
    """Follows which bytes of overlapping arguments were read and written, and through which one."""

    def __init__(self, buffers: Mapping[int, ArgumentBuffer]) -> None:
        self._buffers = buffers
        self._partners = {
            one: [other for other in buffers if _overlap(buffers[one], buffers[other])]
            for one in buffers
        }
        self._bytes: dict[tuple[int, bool], NDArray[np.bool_]] = {}

    def meets(
        self, argument: int, kind: str, addresses: NDArray[np.int64], size: int
    ) -> tuple[NDArray[np.bool_], int] | None:
        """Record accesses through an argument.

        Args:
            kind: ``read``, ``peek``, ``write`` or ``atomic``.

        Returns:
            Which of them meet bytes that another argument was accessed for, where one of the two
            writes, and the position of that argument; None where none does.
        """
        partners = self._partners.get(argument)
        if not partners:
            return None
        writes = kind in ("write", "atomic")
        touched = addresses[:, np.newaxis] + np.arange(size)
        self._of(argument, writes)[touched - self._buffers[argument].own[0]] = True
        for partner in partners:
            low, high = self._buffers[partner].own
            inside = (touched >= low) & (touched < high)
            at = np.where(inside, touched - low, 0)
            met = (
                self._of(partner, True)[at]
                if not writes
                else self._of(partner, False)[at] | self._of(partner, True)[at]
            )
            bad: NDArray[np.bool_] = np.any(met & inside, axis=1)
            if bad.any():
                return bad, partner
        return None

    def _of(self, argument: int, written: bool) -> NDArray[np.bool_]:
        low, high = self._buffers[argument].own
        return self._bytes.setdefault((argument, written), np.zeros(high - low, np.bool_))


def _overlap(one: ArgumentBuffer, other: ArgumentBuffer) -> bool:
    """Return whether two arguments that begin at different addresses share memory."""
    return one.address != other.address and max(one.own[0], other.own[0]) < min(
        one.own[1], other.own[1]
    )
