"""Stack slots of a function: memory of tiles, free again after the last reader.

Large tiles are on the heap.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.ir.core import Value
from tilewright.ir.types import I1, Type
from tilewright.llvm.emission.registers import storage_size, storage_type
from tilewright.llvm.emission.writer import FunctionWriter


@dataclass(frozen=True, slots=True)
class Buffer:
    """A tile in memory: row-major, dense, 64-byte aligned.

    Elements are in storage form (see :mod:`tilewright.llvm.emission.registers`). ``pointer`` is the
    LLVM name of its first element's address, good in the whole function. ``transposed``: as the
    tile with its last two axes exchanged lies.
    """

    pointer: str
    shape: tuple[int, ...]
    element: Type
    transposed: bool = False

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    @property
    def strides(self) -> tuple[int, ...]:
        """Elements from one coordinate to the next, by axis."""
        found, step = [0] * len(self.shape), 1
        axes = list(reversed(range(len(self.shape))))
        if self.transposed:
            axes[:2] = axes[1::-1]
        for axis in axes:
            found[axis] = step
            step *= self.shape[axis]
        return tuple(found)


class StackSlot:
    """Memory of buffers, free again after the position ``end``.

    ``holders`` are the values it holds or held since it was allocated. A ``borrowed`` slot belongs
    to the caller of this function: its values must stay.
    """

    __slots__ = ("borrowed", "end", "holders", "pointer", "size")

    def __init__(self, pointer: str, size: int, *, borrowed: bool = False) -> None:
        self.pointer, self.size, self.end, self.borrowed = pointer, size, -1, borrowed
        self.holders: list[Value] = []


#: A position behind all operations: memory that is not free again until then.
FOREVER = 1 << 60

#: Bytes of stack a function's buffers may take; what is beyond comes from the heap, once a call.
STACK_LIMIT = 256 << 10


class StackSlots:
    """The buffers of the function that ``writer`` writes.

    Attributes:
        position: of the operation being lowered, in the analysis' numbering.
        arena_parts: buffers on the heap: (name, offset).
        arena_bytes: the size of all of these.
        cleared_parts, cleared_bytes: the same of heap memory that is zero at first; it lies before
        the other.
    """

    def __init__(self, writer: FunctionWriter) -> None:
        self.writer = writer
        self.position = 0
        self._slots: dict[str, StackSlot] = {}
        self._free: list[StackSlot] = []
        self._scratch: list[StackSlot] = []
        self._stack = 0
        self.arena_parts: list[tuple[str, int]] = []
        self.arena_bytes = 0
        self.cleared_parts: list[tuple[str, int]] = []
        self.cleared_bytes = 0

    def new_buffer(self, shape: Sequence[int], element: Type) -> Buffer:
        """Memory for a tile, not cleared: on the stack, or on the heap where it is large.

        It is free again after the operation being lowered unless a value was bound to it.
        """
        shape = tuple(shape)
        slot = self._allocate(math.prod(shape) * storage_size(element))
        return Buffer(slot.pointer, shape, element)

    def adopt(self, pointer: str, shape: Sequence[int], element: Type) -> Buffer:
        """Memory that is not ours as a buffer: a callee's operands and results."""
        slot = StackSlot(pointer, 0, borrowed=True)
        slot.end = FOREVER
        self._slots[pointer] = slot
        return Buffer(pointer, tuple(shape), element)

    def scratch(self, size: int) -> str:
        """The address of ``size`` bytes (64-byte aligned) for the operation being lowered."""
        return self._allocate(size).pointer

    def _allocate(self, size: int) -> StackSlot:
        size = max(64, (size + 63) & ~63)
        best: StackSlot | None = None
        for slot in self._free:
            if size <= slot.size <= 2 * size and (best is None or slot.size < best.size):
                best = slot
        if best is not None:
            self._free.remove(best)
        else:
            if self._stack + size <= STACK_LIMIT:
                self._stack += size
                pointer = self.writer.alloca("i8", size, 64)
            else:
                pointer = self.in_arena(size)
            best = StackSlot(pointer, size)
            self._slots[pointer] = best
        best.end = self.position
        best.holders = []
        self._scratch.append(best)
        return best

    def lasting(self, size: int, end: int) -> str:
        """Address of ``size`` bytes (64-byte aligned) that are reserved up to the position ``end``.

        Earlier iterations of a loop do not use them either.
        """
        free, self._free = self._free, []
        slot = self._allocate(size)
        self._free, slot.end = free, end
        return slot.pointer

    def in_arena(self, size: int) -> str:
        """Address of ``size`` bytes (64-byte aligned) of heap memory that nothing else uses.

        A kernel's function finds there what its last call in the same launch and thread has left.
        """
        pointer = self.writer.fresh("h")
        self.arena_parts.append((pointer, self.arena_bytes))
        self.arena_bytes += (size + 63) & ~63
        return pointer

    def cleared(self, size: int) -> str:
        """As :meth:`in_arena`, of memory that is zero before the first call."""
        pointer = self.writer.fresh("h")
        self.cleared_parts.append((pointer, self.cleared_bytes))
        self.cleared_bytes += (size + 63) & ~63
        return pointer

    def is_borrowed(self, buffer: Buffer) -> bool:
        """Return whether a buffer's memory belongs to the caller of the function."""
        return self._slots[buffer.pointer].borrowed

    def holders(self, buffer: Buffer) -> list[Value]:
        """The values that were bound to the memory of a buffer since it was allocated."""
        return self._slots[buffer.pointer].holders

    def reserve(self, buffer: Buffer, end: int) -> None:
        """Keep a buffer's memory until the position ``end``."""
        slot = self._slots[buffer.pointer]
        slot.end = max(slot.end, end)

    def release(self) -> None:
        """Make memory free whose last reader was lowered. Called between operations."""
        position = self.position
        kept = []
        for slot in self._scratch:
            if slot.end <= position:
                self._free.append(slot)
            else:
                kept.append(slot)
        self._scratch = kept

    # ---- elements

    def _address(self, buffer: Buffer, index: Sequence[str | int]) -> str:
        """The address of an element. ``index`` has an i64 operand or a number for each axis."""
        fixed, parts = 0, []
        for coordinate, stride in zip(index, buffer.strides, strict=True):
            if isinstance(coordinate, int) or coordinate.isdigit():
                fixed += int(coordinate) * stride
            else:
                parts.append(
                    coordinate
                    if stride == 1
                    else self.writer.emit(f"mul nsw i64 {coordinate}, {stride}")
                )
        type_, pointer = storage_type(buffer.element), buffer.pointer
        for part in parts:
            pointer = self.writer.gep(type_, pointer, part)
        return self.writer.gep(type_, pointer, fixed)

    def load_element(self, buffer: Buffer, index: Sequence[str | int]) -> str:
        """One element in register form."""
        size = storage_size(buffer.element)
        raw = self.writer.load(storage_type(buffer.element), self._address(buffer, index), size)
        return self.writer.emit(f"trunc i8 {raw} to i1") if buffer.element is I1 else raw

    def store_element(self, buffer: Buffer, index: Sequence[str | int], value: str) -> None:
        """Store one element given in register form."""
        if buffer.element is I1:
            value = self.writer.emit(f"zext i1 {value} to i8")
        self.writer.store(
            storage_type(buffer.element),
            value,
            self._address(buffer, index),
            storage_size(buffer.element),
        )

    def load_vector(self, buffer: Buffer, index: Sequence[str | int], width: int) -> str:
        """``width`` elements that follow each other along the last axis, in register form."""
        raw = self.writer.load(
            f"<{width} x {storage_type(buffer.element)}>",
            self._address(buffer, index),
            storage_size(buffer.element),
        )
        return (
            self.writer.emit(f"trunc <{width} x i8> {raw} to <{width} x i1>")
            if buffer.element is I1
            else raw
        )

    def store_vector(
        self, buffer: Buffer, index: Sequence[str | int], value: str, width: int
    ) -> None:
        """Store ``width`` elements along the last axis, given in register form."""
        if buffer.element is I1:
            value = self.writer.emit(f"zext <{width} x i1> {value} to <{width} x i8>")
        self.writer.store(
            f"<{width} x {storage_type(buffer.element)}>",
            value,
            self._address(buffer, index),
            storage_size(buffer.element),
        )
