"""Checked device memory: one block of host memory, with red zones between allocations.

A device address is an address of the host inside the block. Every access of a kernel must lie in
one part that is allocated, and be aligned to its size (to 4 bytes where it is longer than that, as
the machines ask for); what does not is an error that names the address and the nearest part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright_amd_emulator.errors import WaveError

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

Array = np.ndarray[Any, np.dtype[Any]]

# longer than any access, so that the first and the last byte of an access tell whether all of it is
# allocated
RED_ZONE = 256
FILLING = 0xA5


class Memory:
    """Bytes that kernels access by offset: words of each size, and the allocated bytes."""

    def __init__(self, size: int, filled: bool = True, unaligned: bool = False) -> None:
        """Create an arena.

        With ``filled``, all bits are ones, a NaN in every float type; otherwise no page is touched
        before its first use. With ``unaligned``, accesses need no alignment."""
        self.unaligned = unaligned
        words = -(-size // 8)
        #: words of 8 bytes decide the block's alignment
        self.words: dict[int, Array] = {
            8: np.full(words, 0xFFFFFFFFFFFFFFFF, np.uint64)
            if filled
            else np.zeros(words, np.uint64)
        }
        self.bytes = self.words[8].view(np.uint8)
        self.words[4], self.words[2], self.words[1] = (
            self.words[8].view(np.uint32),
            self.words[8].view(np.uint16),
            self.bytes,
        )

    def gather(self, offsets: Array, size: int) -> Array:
        """Return ``size`` bytes at each of ``offsets`` as words, uint32 [count, ...].

        1 and 2 bytes are zero-extended. If an offset is unaligned, all are read byte by byte.
        """
        step = min(size, 4)
        if self.unaligned and (offsets & (step - 1)).any():
            return np.stack([self._word(offsets + first, step) for first in range(0, size, 4)])
        if size <= 2:
            return self.words[size][offsets >> (size - 1)].astype(np.uint32)[None]
        first = offsets >> 2
        return np.stack([self.words[4][first + i] for i in range(size // 4)])

    def _word(self, offsets: Array, count: int) -> Array:
        word = np.zeros(offsets.shape, np.uint32)
        for byte in range(count):
            word |= self.bytes[offsets + byte].astype(np.uint32) << np.uint32(8 * byte)
        return word

    def scatter(self, offsets: Array, size: int, values: Array) -> None:
        """Store words [count, n] at offsets [n]."""
        step = min(size, 4)
        if self.unaligned and (offsets & (step - 1)).any():
            for place in range(size):
                self.bytes[offsets + place] = (
                    values[place // 4] >> np.uint32(8 * (place % 4))
                ).astype(np.uint8)
            return
        if size <= 2:
            self.words[size][offsets >> (size - 1)] = values[0].astype(self.words[size].dtype)
            return
        first = offsets >> 2
        for i in range(size // 4):
            self.words[4][first + i] = values[i]


class Arena:
    """Device memory of ``size`` bytes.

    ``unaligned=True`` allows what AMD's machines do in their unaligned mode: an access at any
    address, of local memory too.
    """

    def __init__(self, size: int = 1 << 26, unaligned: bool = False) -> None:
        self.memory = Memory(size, filled=False, unaligned=unaligned)
        self.base = self.memory.bytes.ctypes.data
        self.size, self.unaligned = size, unaligned
        self._allocated = np.zeros(size, np.bool_)
        #: offset -> (bytes asked for, bytes taken)
        self._parts: dict[int, tuple[int, int]] = {}
        self._free: dict[int, list[int]] = {}
        self._next = RED_ZONE

    def allocate(self, size: int) -> int:
        """The address of ``size`` new bytes, at a multiple of 256, filled with a pattern."""
        taken = -(-max(size, 1) // 256) * 256 + RED_ZONE
        again = self._free.get(taken)
        if again:
            offset = again.pop()
        else:
            offset = self._next + (-(self.base + self._next)) % 256
            if offset + taken > self.size:
                raise WaveError(
                    f"the arena of {self.size} bytes has no room for {size} more; make it with "
                    "a larger size"
                )
            self._next = offset + taken
        self._parts[offset] = (size, taken)
        self._allocated[offset : offset + size] = True
        self.memory.bytes[offset : offset + size] = FILLING
        return self.base + offset

    def put(self, array: Array) -> int:
        """The address of a copy of ``array``."""
        data = np.ascontiguousarray(array)
        address = self.allocate(data.nbytes)
        if data.nbytes:
            self.memory.bytes[address - self.base :][: data.nbytes] = data.reshape(-1).view(
                np.uint8
            )
        return address

    def get(self, address: int, dtype: DTypeLike, shape: tuple[int, ...] | int) -> Array:
        """A copy of what lies at ``address``, which must be inside one part."""
        wanted = np.dtype(dtype)
        size = int(np.prod(shape, dtype=np.int64)) * wanted.itemsize
        offset = address - self.base
        if size and not (
            offset >= 0 and offset + size <= self.size and self._holds_all(offset, size)
        ):
            raise WaveError(
                f"{size} bytes at {address:#x} are not all allocated; {self._nearest(offset)}"
            )
        return self.memory.bytes[offset : offset + size].copy().view(wanted).reshape(shape)

    def release(self, address: int) -> None:
        """Give the part at ``address`` back; accesses to it are errors from now on."""
        part = self._parts.pop(address - self.base, None)
        if part is None:
            raise WaveError(
                f"{address:#x} is not the address of a part of the arena; release what allocate or "
                "put gave, once"
            )
        offset, (size, taken) = address - self.base, part
        self._allocated[offset : offset + size] = False
        self._free.setdefault(taken, []).append(offset)

    def offsets(
        self, addresses: Array, size: int, mask: Array | None = None, what: str = "access"
    ) -> Array:
        """Return the offsets (int64) of accesses of ``size`` bytes at ``addresses`` (uint64).

        Where ``mask`` is False, the address is not checked and the offset is 0.
        """
        offsets = addresses.astype(np.int64) - self.base
        if mask is not None:
            offsets = np.where(mask, offsets, 0)
        inside = (offsets >= 0) & (offsets <= self.size - size)
        fine = inside & self._holds(np.where(inside, offsets, 0), size)
        if mask is not None:
            fine |= ~mask
        if not fine.all():
            where = np.argwhere(~fine)[0]
            address = int(addresses[tuple(where)])
            raise WaveError(
                f"{what} of {size} bytes at {address:#x} (lane {int(where[-1])}) is out of bounds: "
                f"{self._nearest(address - self.base)}"
            )
        misaligned = offsets & (min(size, 4) - 1)
        if mask is not None:
            misaligned = np.where(mask, misaligned, 0)
        if not self.unaligned and misaligned.any():
            where = np.argwhere(misaligned)[0]
            address = int(addresses[tuple(where)])
            raise WaveError(
                f"{what} of {size} bytes at {address:#x} (lane {int(where[-1])}) is not aligned to "
                f"{min(size, 4)} bytes"
            )
        return offsets

    def touched(self, offsets: Array) -> Array:
        """bool: whether any of the four bytes at each offset is allocated."""
        inside = (offsets >= 0) & (offsets <= self.size - 4)
        safe = np.where(inside, offsets, 0)
        return inside & (
            self._holds(safe, 1)
            | self._holds(safe + 1, 1)
            | self._holds(safe + 2, 1)
            | self._holds(safe + 3, 1)
        )

    def _holds(self, offsets: Array, size: int) -> Array:
        """Return whether ``size`` bytes at each offset of the block are allocated.

        ``size`` is less than the size of a red zone.
        """
        held: Array = self._allocated[offsets] & self._allocated[offsets + (size - 1)]
        return held

    def _holds_all(self, offset: int, size: int) -> bool:
        return bool(self._allocated[offset : offset + size].all())

    def gather(self, offsets: Array, size: int) -> Array:
        """uint32 [count, ...]: see :meth:`Memory.gather`."""
        return self.memory.gather(offsets, size)

    def scatter(self, offsets: Array, size: int, values: Array) -> None:
        """Store words [count, n] at offsets [n]."""
        self.memory.scatter(offsets, size, values)

    def _nearest(self, offset: int) -> str:
        if not self._parts:
            return "the arena has no parts"
        start = min(
            self._parts,
            key=lambda p: (
                0
                if p <= offset < p + self._parts[p][0]
                else min(abs(offset - p), abs(offset - p - self._parts[p][0] + 1))
            ),
        )
        size = self._parts[start][0]
        if offset >= start:
            return (
                f"the nearest part has {size} bytes at {self.base + start:#x}, and the address "
                f"is {offset - start} bytes from its start"
            )
        return (
            f"the nearest part has {size} bytes at {self.base + start:#x}, and the address is "
            f"{start - offset} bytes before its start"
        )
