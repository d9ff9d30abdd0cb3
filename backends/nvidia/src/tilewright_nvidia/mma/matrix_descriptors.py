"""Matrix descriptors: operands of ``wgmma`` and ``tcgen05`` in shared memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

from tilewright.llvm.emission.registers import storage_size
from tilewright.llvm.emission.writer import FunctionWriter
from tilewright.simt.layouts.linear_layout import SharedLayout, log2
from tilewright.simt.target.matmul_plan import Matmul
from tilewright_nvidia.async_copy.swizzle_atoms import widest_swizzle_atoms

#: Unit in bytes of a descriptor's addresses and offsets, and the limit of its addresses.
UNIT: Final = 16
_ADDRESSES: Final = 1 << 18


def matrix_descriptor(w: FunctionWriter, address: str, bits: int) -> str:
    """Combine a shared memory address (i32) and the other descriptor bits into an i64."""
    place = w.emit(f"lshr i32 {w.emit(f'and i32 {address}, {_ADDRESSES - 1}')}, {log2(UNIT)}")
    wide = w.emit(f"zext i32 {place} to i64")
    return w.emit(f"or i64 {wide}, {bits if bits < 1 << 63 else bits - (1 << 64)}")


class DescriptorOperands(ABC):
    """The shared memory operands of a matmul, by position: 0 is A, 1 is B.

    Attributes:
        sizes: bytes of an element of each.
    """

    def __init__(self, matmul: Matmul) -> None:
        self.matmul = matmul
        self.sizes = storage_size(matmul.a), storage_size(matmul.b)

    def axes(self, position: int) -> tuple[tuple[int, int], int]:
        """Return the operand's shape and its axis K."""
        (m, n), k = self.matmul.shape, self.matmul.k
        return ((m, k), 1) if position == 0 else ((k, n), 0)

    def layouts(self, position: int) -> tuple[SharedLayout, ...]:
        """Return the preferred layouts of an operand: K as the inner axis, then transposed."""
        shape, k_axis = self.axes(position)
        found = (
            widest_swizzle_atoms(shape, self.sizes[position], inner)
            for inner in (k_axis, 1 - k_axis)
        )
        return tuple(
            layout for layout in found if layout is not None and self.accepts(position, layout)
        )

    @abstractmethod
    def accepts(self, position: int, shared: SharedLayout) -> bool:
        """Return whether instructions can read an operand in a layout.

        Descriptors must exist for it, and none may begin within an atom's row.
        """
