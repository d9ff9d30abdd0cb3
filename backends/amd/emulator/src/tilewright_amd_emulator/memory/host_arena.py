"""Host memory as device memory: a kernel reaches allocations and shared host arrays.

Every access is checked as in :class:`~tilewright_amd_emulator.memory.arena.Arena`, against the
whole of an array's memory. The host takes memory back without a word: until it is shared anew, an
address of an array that is gone is still one that kernels may access.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from types import SimpleNamespace

import numpy as np

from tilewright_amd_emulator.errors import WaveError
from tilewright_amd_emulator.memory.arena import FILLING, RED_ZONE, Arena, Array, Memory

#: Offsets count from here; nothing of a process lies lower.
_BASE = 1 << 12
#: Bytes behind it that a process has for itself.
_SIZE = (1 << 47) - (1 << 13)


class _AddressSpace(Memory):
    """All memory of this process, by offset from :data:`_BASE`; most of it is not there."""

    def __init__(self, unaligned: bool) -> None:
        super().__init__(8, unaligned=unaligned)
        for size in self.words:
            interface = {
                "version": 3,
                "data": (_BASE, False),
                "shape": (_SIZE // size,),
                "typestr": f"<u{size}",
            }
            self.words[size] = np.asarray(SimpleNamespace(__array_interface__=interface))
        self.bytes = self.words[1]


class HostArena(Arena):
    """The host's memory, of which kernels access parts."""

    def __init__(self, unaligned: bool = False) -> None:
        super().__init__(8, unaligned)
        self.memory, self.base, self.size = _AddressSpace(unaligned), _BASE, _SIZE
        #: what reads that are not done read instead
        self._nothing = np.zeros(32, np.uint8)
        self._nowhere = self._nothing.ctypes.data - _BASE
        #: offset -> the memory of what the device allocated
        self._owned: dict[int, Array] = {}
        #: offsets of all parts, sorted; the same and where each ends, made when they are asked for
        self._starts: list[int] = []
        self._bounds: tuple[Array, Array] | None = None

    def allocate(self, size: int) -> int:
        taken = -(-max(size, 1) // 256) * 256 + RED_ZONE
        memory = np.full(taken + 256, FILLING, np.uint8)
        address = -(-memory.ctypes.data // 256) * 256
        self._add(address - self.base, size)
        self._owned[address - self.base] = memory
        return address

    def share(self, address: int, size: int) -> None:
        """Let kernels access ``size`` bytes of the host at ``address``.

        Earlier shared ranges that overlap it are no longer shared.
        """
        self._add(address - self.base, size)

    def release(self, address: int) -> None:
        offset = address - self.base
        if offset not in self._owned:
            raise WaveError(
                f"{address:#x} is not the address of a part of the arena; release what allocate or "
                "put gave, once"
            )
        del self._owned[offset]
        self._drop(offset)

    def gather(self, offsets: Array, size: int) -> Array:
        return super().gather(np.where(offsets == 0, self._nowhere, offsets), size)

    def _add(self, offset: int, size: int) -> None:
        if self._parts.get(offset) == (size, size):
            return
        place = bisect_left(self._starts, offset)
        if place and (before := self._starts[place - 1]) + self._parts[before][0] > offset:
            place -= 1
        while place < len(self._starts) and self._starts[place] < offset + max(size, 1):
            self._drop(self._starts[place])
        insort(self._starts, offset)
        self._parts[offset] = size, size
        self._bounds = None

    def _drop(self, offset: int) -> None:
        del self._parts[offset]
        self._starts.remove(offset)
        self._bounds = None

    def _holds(self, offsets: Array, size: int) -> Array:
        if self._bounds is None:
            starts = np.array([0, *self._starts], np.int64)
            self._bounds = (
                starts,
                np.array([0, *(start + self._parts[start][0] for start in self._starts)], np.int64),
            )
        starts, ends = self._bounds
        held: Array = offsets + size <= ends[np.searchsorted(starts, offsets, "right") - 1]
        return held

    def _holds_all(self, offset: int, size: int) -> bool:
        return bool(self._holds(np.array([offset], np.int64), size)[0])
