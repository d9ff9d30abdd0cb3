"""A kernel's accessible memory: typed gathers and scatters at int64 addresses in known ranges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.reference.memory.buffers import ArgumentBuffer
from tilewright.reference.memory.memory_range import MemoryRange
from tilewright.reference.memory.raw_memory import RawMemory
from tilewright.reference.numerics import Array


class OutsideError(Exception):
    """An access that no known memory holds: the position of the lane, its address, and why."""

    def __init__(self, lane: int, address: int, reason: str) -> None:
        super().__init__(reason)
        self.lane, self.address, self.reason = lane, address, reason


class ArgumentMemory:
    """The blocks of memory that a kernel's arguments give it, sorted and disjoint.

    ``checked`` keeps to each argument's own extent; otherwise all of the allocation it is part of
    belongs to the kernel. ``raw`` allows other memory of the process, probed page by page, for
    kernels that load pointers.
    """

    def __init__(
        self,
        buffers: Sequence[ArgumentBuffer],
        names: Sequence[str],
        *,
        checked: bool = False,
        raw: bool = False,
    ) -> None:
        self.buffers, self.names = list(buffers), list(names)
        self.raw = RawMemory() if raw else None
        ranges = sorted(
            (
                (*(buffer.own if checked else buffer.allocation), buffer)
                for buffer in buffers
                if buffer.allocation[1] > buffer.allocation[0]
            ),
            key=lambda item: item[:2],
        )
        merged: list[tuple[int, int, list[ArgumentBuffer]]] = []
        for low, high, buffer in ranges:
            if merged and low < merged[-1][1]:
                start, end, owners = merged[-1]
                merged[-1] = (start, max(end, high), [*owners, buffer])
            else:
                merged.append((low, high, [buffer]))
        self.blocks = [
            MemoryRange(
                low,
                high,
                any(owner.writeable for owner in owners),
                [owner.owner for owner in owners],
            )
            for low, high, owners in merged
        ]
        self.starts = np.array([block.start for block in self.blocks], dtype=np.int64)
        self.ends = np.array([block.end for block in self.blocks], dtype=np.int64)
        #: counts stores, to detect a loop that changes nothing
        self.version = 0

    def close(self) -> None:
        if self.raw is not None:
            self.raw.close()

    def load(self, addresses: Array, dtype: np.dtype[Any]) -> Array:
        """Values at ``addresses``, in their shape. i1 is a byte that is not zero.

        Raises:
            OutsideError: a lane is outside the memory known.
        """
        if dtype.kind == "b":
            return self.load(addresses, np.dtype(np.uint8)) != 0
        if not addresses.size:
            return np.empty(addresses.shape, dtype)
        block = self._only_block(addresses, dtype.itemsize)
        if block is not None:
            return block.load(addresses, dtype)
        flat = np.ravel(addresses)
        result = np.empty(flat.shape, dtype)
        for found, lanes in self._partition(flat, dtype.itemsize, write=False):
            result[lanes] = found.load(flat[lanes], dtype)
        return result.reshape(addresses.shape)

    def store(self, addresses: Array, values: Array) -> None:
        """Write ``values`` to ``addresses`` (values may broadcast to their shape).

        Of equal addresses the last one wins.

        Raises:
            OutsideError: a lane is outside the memory known, or that memory is read-only.
        """
        if values.dtype.kind == "b":
            values = values.astype(np.uint8)
        if not addresses.size:
            return
        self.version += 1
        block = self._only_block(addresses, values.dtype.itemsize)
        if block is not None and block.writeable:
            block.store(addresses, values)
            return
        flat, values = np.ravel(addresses), np.ravel(np.broadcast_to(values, addresses.shape))
        for found, lanes in self._partition(flat, values.dtype.itemsize, write=True):
            found.store(flat[lanes], values[lanes])

    def _only_block(self, addresses: Array, size: int) -> MemoryRange | None:
        """The block that holds all lanes, where one does."""
        if addresses.ndim == 0:
            low = high = int(addresses)
        else:
            low, high = int(addresses.min()), int(addresses.max())
        for block in self.blocks:
            if low >= block.start and high + size <= block.end:
                return block
        return None

    def inside(self, addresses: Array, size: int) -> NDArray[np.bool_]:
        """Return a mask of addresses (rank 1) with ``size`` bytes of some block."""
        if not self.blocks:
            return np.zeros(addresses.shape, dtype=np.bool_)
        place = np.searchsorted(self.starts, addresses, side="right") - 1
        return (place >= 0) & (addresses <= self.ends[place] - size)

    def _partition(
        self, addresses: NDArray[np.int64], size: int, *, write: bool
    ) -> list[tuple[MemoryRange, NDArray[np.intp]]]:
        """The lanes (of rank 1) by the block that holds them."""
        inside = self.inside(addresses, size)
        parts: list[tuple[MemoryRange, NDArray[np.intp]]] = []
        if not inside.all():
            outside = np.flatnonzero(~inside)
            if self.raw is None:
                lane = int(outside[0])
                raise OutsideError(
                    lane, int(addresses[lane]), "outside the memory of every argument"
                )
            refused = self.raw.refused(addresses[outside], size, write)
            if refused is not None:
                lane = int(outside[refused])
                raise OutsideError(
                    lane,
                    int(addresses[lane]),
                    "of memory that this process may not " + ("write" if write else "read"),
                )
            parts.extend(
                (block, outside[lanes])
                for block, lanes in self.raw.blocks(addresses[outside], size)
            )
        within = np.flatnonzero(inside)
        place = np.searchsorted(self.starts, addresses[within], side="right") - 1
        for index in np.unique(place):
            block, lanes = self.blocks[index], within[place == index]
            if write and not block.writeable:
                lane = int(lanes[0])
                raise OutsideError(lane, int(addresses[lane]), "to read-only memory")
            parts.append((block, lanes))
        return parts

    def nearest(self, address: int) -> str:
        """Where an address lies with respect to the arguments, for messages."""
        if address == 0:
            return "the null pointer"
        best: tuple[int, str] | None = None
        for name, buffer in zip(self.names, self.buffers, strict=True):
            low, high = buffer.own
            if high <= low:
                continue
            distance = low - address if address < low else max(0, address - high + 1)
            if address < low:
                text = f"{low - address} bytes before argument {name}"
            elif address >= high:
                text = (
                    f"{address - high} bytes past the end of argument {name}"
                    if address > high
                    else f"just past the end of argument {name}"
                )
            else:
                text = f"in the last bytes of argument {name}"
            text += f" ({high - low} bytes)"
            if best is None or distance < best[0]:
                best = (distance, text)
        return (
            best[1]
            if best is not None and best[0] < 1 << 30
            else f"address {address & (1 << 64) - 1:#x}"
        )
