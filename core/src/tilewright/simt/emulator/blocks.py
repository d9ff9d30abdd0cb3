"""Copies of a descriptor's block between a tensor and shared memory."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.ir.types import FloatType, Type
from tilewright.llvm.emission.registers import encode_float, storage_size
from tilewright.simt.layouts.linear_layout import SharedLayout
from tilewright.simt.target.copy_mechanism import multicast_axis


@dataclass(frozen=True, eq=False)
class EmulatedDescriptor:
    """Descriptor argument of a kernel: an array with any strides.

    The kernel's parameter determines the value of out-of-bounds elements (its attribute
    ``padding``), as for every target.

    Attributes:
        array: the tensor, whose items are the elements, or their bits where NumPy has no such
            type.
        block_shape: extents of a block; empty if they need not be checked.
    """

    array: Any
    block_shape: tuple[int, ...] = ()

    def words(self) -> list[int]:
        """Return the words behind the kernel's parameter: address, extents, strides in elements."""
        return [self.array.ctypes.data, *self.parts()[1:]]

    def parts(self) -> list[Any]:
        """Return the parameters of an expanded descriptor: the array, extents, strides."""
        size = self.array.itemsize
        return [self.array, *self.array.shape, *(stride // size for stride in self.array.strides)]


@dataclass(frozen=True)
class BlockSite:
    """Operation that copies blocks.

    Attributes:
        shared, element: the shared layout of a block, and the element type.
        padding: the value of out-of-bounds elements.
        bytes: size of a block.
        made: whether the kernel made the descriptor.
        parts: the number of parts along the axis of multicasts, of which each CTA of a cluster
            copies one.
        rows: whether this is a gather or scatter of rows: the offsets are the first column and the
            row indices.
    """

    shared: SharedLayout
    element: Type
    padding: str
    bytes: int
    made: bool = False
    parts: int = 1
    rows: bool = False

    def load(self, address: int, descriptor: int, offsets: Sequence[int], part: int = 0) -> None:
        """Copy a block, or a part of it, to an address in shared memory."""
        block = np.full(self.shared.shape, self._outside(), self._dtype)
        for inside, there in self._pieces(descriptor, offsets):
            block[inside] = there
        cut = multicast_axis(self.shared.shape)
        rows = self.shared.shape[cut] // self.parts
        mine = (*(slice(None) for _ in range(cut)), slice(part * rows, (part + 1) * rows))
        self._slot(address)[offsets_of(self.shared).reshape(self.shared.shape)[mine]] = block[mine]

    def read(self, address: int) -> Any:
        """Read a block from an address in shared memory."""
        return self._slot(address)[offsets_of(self.shared)].reshape(self.shared.shape)

    def writer(self, block: Any, descriptor: int, offsets: Sequence[int]) -> Callable[[], None]:
        """Return a function that copies a block to a tensor without reading the descriptor."""
        pieces = self._pieces(descriptor, offsets)

        def write() -> None:
            for inside, there in pieces:
                there[...] = block[inside]

        return write

    @property
    def _dtype(self) -> Any:
        return np.dtype(f"u{storage_size(self.element)}")

    def _outside(self) -> int:
        return (
            encode_float(float("nan"), self.element)
            if self.padding == "nan" and isinstance(self.element, FloatType)
            else 0
        )

    def _slot(self, address: int) -> Any:
        return memory(address, int(np.prod(self.shared.shape)), self._dtype)

    def _pieces(
        self, descriptor: int, offsets: Sequence[int]
    ) -> list[tuple[tuple[slice, ...], Any]]:
        """In-bounds parts of a block, or of rows, each with its array in the tensor."""
        if not self.rows:
            return [self._parts(descriptor, offsets, self.shared.shape)]
        column, *numbers = offsets
        found: list[tuple[tuple[slice, ...], Any]] = []
        for row, number in enumerate(numbers):
            (rows, columns), there = self._parts(
                descriptor, (number, column), (1, self.shared.shape[1])
            )
            found.append(((slice(rows.start + row, rows.stop + row), columns), there))
        return found

    def _parts(
        self, descriptor: int, offsets: Sequence[int], block: Sequence[int]
    ) -> tuple[tuple[slice, ...], Any]:
        """Return the in-bounds part of a block, and its array in the tensor."""
        rank, size = len(block), self._dtype.itemsize
        base, *rest = memory(descriptor, 1 + 2 * rank, np.dtype(np.int64)).tolist()
        extents, strides = rest[:rank], rest[rank:]
        inside = _inside(extents, offsets, block)
        shape = [part.stop - part.start for part in inside]
        first = sum(
            (offset + part.start) * stride
            for offset, part, stride in zip(offsets, inside, strides, strict=True)
        )
        count = (
            1 + sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True))
            if all(shape)
            else 0
        )
        # addresses have 64 bits
        flat = memory((base + first * size) % (1 << 64), count, self._dtype)
        return inside, np.lib.stride_tricks.as_strided(
            flat, shape, [stride * size for stride in strides]
        )


def _inside(
    extents: Sequence[int], offsets: Sequence[int], block: Sequence[int]
) -> tuple[slice, ...]:
    """Return the in-bounds part of a block."""
    found = []
    for extent, offset, length in zip(extents, offsets, block, strict=True):
        first, last = min(max(offset, 0), extent), max(min(offset + length, extent), 0)
        found.append(slice(first - offset, last - offset) if last > first else slice(0, 0))
    return tuple(found)


_offsets: dict[SharedLayout, Any] = {}


def offsets_of(shared: SharedLayout) -> Any:
    """The places of all elements in row-major order."""
    found = _offsets.get(shared)
    if found is None:
        places = np.zeros(1, np.int64)
        for image in shared.images:
            places = np.concatenate([places, places ^ image])
        found = _offsets[shared] = places
    return found


def memory(address: int, count: int, dtype: Any) -> Any:
    """``count`` items of memory."""
    return np.frombuffer((ctypes.c_uint8 * (count * dtype.itemsize)).from_address(address), dtype)
