"""Matrix descriptors: operands of ``wgmma`` and ``tcgen05`` in shared memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

from tilewright.llvm.emission.registers import storage_size
from tilewright.llvm.emission.writer import FunctionWriter
from tilewright.simt.layouts.linear_layout import SharedLayout, log2
from tilewright.simt.target.matmul_plan import Matmul
from tilewright_nvidia.async_copy.swizzle_atoms import widest_swizzle_atoms

#: Descriptors hold addresses and offsets in units of so many bytes, addresses below so many.
UNIT: Final = 16
_ADDRESSES: Final = 1 << 18


def matrix_descriptor(w: FunctionWriter, address: str, bits: int) -> str:
    """The descriptor, as i64, of an operand at an address of shared memory, an i32, whose other bits are these."""
    place = w.emit(f"lshr i32 {w.emit(f'and i32 {address}, {_ADDRESSES - 1}')}, {log2(UNIT)}")
    wide = w.emit(f"zext i32 {place} to i64")
    return w.emit(f"or i64 {wide}, {bits if bits < 1 << 63 else bits - (1 << 64)}")


class DescriptorOperands(ABC):
    """Operands of a product, by position: 0 is A, 1 is B.

    Attributes:
        sizes: bytes of an element of each.
    """

    def __init__(self, product: Matmul) -> None:
        self.product = product
        self.sizes = storage_size(product.a), storage_size(product.b)

    def axes(self, position: int) -> tuple[tuple[int, int], int]:
        """The operand's shape, and its axis K."""
        (m, n), k = self.product.shape, self.product.k
        return ((m, k), 1) if position == 0 else ((k, n), 0)

    def layouts(self, position: int) -> tuple[SharedLayout, ...]:
        """Those that an operand is wanted in: with K as the inner axis, or the other one."""
        shape, k_axis = self.axes(position)
        found = (widest_swizzle_atoms(shape, self.sizes[position], inner) for inner in (k_axis, 1 - k_axis))
        return tuple(layout for layout in found if layout is not None and self.accepts(position, layout))

    @abstractmethod
    def accepts(self, position: int, shared: SharedLayout) -> bool:
        """Whether instructions can read an operand in a layout: there is a descriptor, and none begins within a slab's row."""
