"""Copy mechanisms: how a target brings tiles to shared memory while threads compute.

A mechanism is a record; the IR refers to it by name (the attribute ``by``). There are three kinds,
by how a copy completes, each with a file in :mod:`tilewright.simt.pipeline.completion`:

- ``groups``: cp.async: each thread copies from its pointers (``simt.copy_start``), and waits for
  groups of its own copies (``simt.commit``, ``simt.wait``);
- ``barrier``: TMA: one thread starts the copy of a descriptor's whole block
  (``simt.block_load_start``), or of rows whose numbers are in shared memory
  (``simt.rows_load_start``); an mbarrier counts the bytes;
- ``registers``: threads load early (``simt.load_start``), wait, and store late (``simt.store``).
  Every target supports this.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from tilewright.ir.ops.memory import (
    DescriptorGather,
    DescriptorLoad,
    DescriptorReduce,
    DescriptorScatter,
    DescriptorStore,
)
from tilewright.ir.types import Type
from tilewright.simt.layouts.linear_layout import SharedLayout

#: Operations that store to a descriptor's block.
BLOCK_STORES: Final = (DescriptorStore, DescriptorReduce)
#: Gathers and scatters of rows of a descriptor's tensor.
ROW_COPIES: Final = (DescriptorGather, DescriptorScatter)
#: Operations that access a descriptor's tensor.
BlockAccess = (
    DescriptorLoad | DescriptorStore | DescriptorReduce | DescriptorGather | DescriptorScatter
)

GROUPS: Final = "groups"
BARRIER: Final = "barrier"
REGISTERS: Final = "registers"


@dataclass(frozen=True, slots=True)
class BlockCopy:
    """A TMA copy of a descriptor's block to or from shared memory.

    :attr:`CopyMechanism.start` of kind ``barrier`` takes it.

    Attributes:
        shared: the name of the address of the slot.
        layout, element: the layout of elements in the slot, and their type.
        descriptor: the name of the kernel's parameter, or of the value in its place.
        offsets: names of the block's i32 offsets; for rows, of their first column.
        barrier: the name of the address of the mbarrier; empty for a copy from shared memory.
        bytes: of the block.
        padding: the value of elements outside the tensor: ``zero`` or ``nan``.
        parts: number of parts along :func:`multicast_axis`, each copied by one CTA of the cluster
            and multicast to the same place in all CTAs; 1: this CTA copies the whole block for
            itself.
        reduction: for a copy from shared memory: the kind of an atomic that updates the tensor's
            elements; empty if they are overwritten.
        rows: for rows of a tensor of rank 2, the name of the address of their i32 numbers in shared
            memory, one for each row of the slot, a multiple of 16 bytes; empty for a block.
    """

    shared: str
    layout: SharedLayout
    element: Type
    descriptor: str
    offsets: tuple[str, ...]
    barrier: str
    bytes: int
    padding: str = "zero"
    parts: int = 1
    reduction: str = ""
    rows: str = ""


def multicast_axis(shape: Sequence[int]) -> int:
    """Return the axis along which the CTAs of a cluster divide a tile that they multicast.

    It is the first axis with more than one element: blocks of a head of a tensor of four axes have
    leading axes of one.
    """
    return next((axis for axis, extent in enumerate(shape) if extent > 1), 0)


@dataclass(frozen=True, slots=True)
class CopyMechanism:
    """A way to copy tiles to shared memory.

    Attributes:
        name: in the IR, such as that of the instruction.
        completes: the name of a kind: ``groups``, ``barrier``, ``registers`` or another.
        widths: supported bytes of one copy of elements at pointers; empty for other mechanisms.
        fills: whether copies can write a shared layout of elements of a type; None: any layout that
            their width allows.
        layouts: of kind ``barrier``: (shape, element type) -> the layouts of such tiles that copies
            can read and write beside the row-major one, in order of increasing bank conflicts;
            None: there are no others.
        start: of kind ``groups``: (context, shared address, pointer, bytes, predicate or None):
            start one copy, which writes zeros if the predicate is false. Of kind ``barrier``:
            (context, :class:`BlockCopy`), called by one thread. Of kind ``registers``: None,
            because the target's loads and stores are used.
        store: of kind ``barrier``: the same from shared memory to the tensor, whose elements are
            overwritten, or updated by a :attr:`BlockCopy.reduction`; None if the target has no such
            copies.
        fills_rows: of kind ``barrier``: whether ``start`` and ``store`` also gather and scatter
            rows of a tensor of rank 2 (gather4, scatter4), to and from a shared layout of elements
            of a type; None: they do not.
        alignment: of a slot that it fills, in bytes.
        lanes_side_by_side: of kind ``groups``: the lanes of a warp write consecutive shared memory,
            in lane order, from the warp's address on; the mapping is chosen by the address that
            each lane reads. Other copies go through registers.
        counted: of kind ``groups``: waits count copies of a thread in flight, not groups.
        drains: of kind ``groups``: starting copies waits for the thread's reads of shared memory.
        shares: of kind ``barrier``: (shared layout, element type, CTAs): whether the CTAs of a
            cluster can multicast such a tile to each other, each a part along
            :func:`multicast_axis`.
        around: of kind ``groups``: (context, whether they have been started): called before and
            after the copies of one operation, if not None.
    """

    name: str
    completes: str
    widths: tuple[int, ...] = ()
    fills: Callable[[SharedLayout, Type], bool] | None = None
    layouts: Callable[[tuple[int, ...], Type], Sequence[SharedLayout]] | None = None
    start: Callable[..., None] | None = None
    store: Callable[..., None] | None = None
    fills_rows: Callable[[SharedLayout, Type], bool] | None = None
    alignment: int = 16
    lanes_side_by_side: bool = False
    counted: bool = False
    drains: bool = False
    around: Callable[..., None] | None = None
    shares: Callable[[SharedLayout, Type, int], bool] = lambda shared, element, blocks: False

    def can_fill(self, shared: SharedLayout, element: Type) -> bool:
        """Return whether copies can write a shared layout."""
        return self.fills is None or self.fills(shared, element)


#: Loads to registers early, stores to shared memory late.
THROUGH_REGISTERS = CopyMechanism("registers", REGISTERS)
