"""Copy mechanisms: the ways in which a machine brings tiles to shared memory while threads compute.

A mechanism is a record, and what is decided by it is in the IR under its name (the attribute
``by``). There are three kinds, by how a copy ends:

- ``groups``: each thread copies from its pointers (``simt.copy_start``), and waits for groups of its own copies (``simt.commit``, ``simt.wait``);
- ``barrier``: one thread has the machine copy a descriptor's whole block (``simt.block_load_start``), or rows that numbers in shared memory name
  (``simt.rows_load_start``), whose bytes an mbarrier counts;
- ``registers``: threads load early (``simt.load_start``), wait, and store late (``simt.store``). Every machine can do that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from tilewright.ir.ops.memory import DescriptorGather, DescriptorLoad, DescriptorReduce, DescriptorScatter, DescriptorStore
from tilewright.ir.types import Type
from tilewright.simt.layouts.linear_layout import SharedLayout

#: Operations that write to a descriptor's block.
BLOCK_STORES: Final = (DescriptorStore, DescriptorReduce)
#: Operations on rows of a descriptor's tensor, which numbers name.
ROW_COPIES: Final = (DescriptorGather, DescriptorScatter)
#: What a descriptor's tensor is accessed by.
BlockAccess = DescriptorLoad | DescriptorStore | DescriptorReduce | DescriptorGather | DescriptorScatter

GROUPS: Final = "groups"
BARRIER: Final = "barrier"
REGISTERS: Final = "registers"


@dataclass(frozen=True, slots=True)
class BlockCopy:
    """A descriptor's block on its way to or from shared memory, as :attr:`CopyMechanism.start` of
    kind ``barrier`` gets it.

    Attributes:
        shared: the name of the address of the slot.
        layout, element: where elements are there, and their type.
        descriptor: the name of the kernel's parameter, or of what stands for it.
        offsets: names of the block's i32 offsets; of rows, of their first column.
        barrier: the name of the address of the mbarrier; empty for a copy from shared memory.
        bytes: of the block.
        padding: what is read outside the tensor: ``zero`` or ``nan``.
        parts: into how many parts along the first axis the block is cut, of which each block of the
            cluster copies its own, to the same place of all of them; 1: it is copied whole, to this
            block.
        reduction: of a copy from shared memory: the kind of an atomic, by which the tensor's
            elements are updated; empty where they are written.
        rows: of rows of a tensor of rank 2, the name of the address of their i32 numbers in shared
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


@dataclass(frozen=True, slots=True)
class CopyMechanism:
    """One way to copy.

    Attributes:
        name: in the IR, such as that of the instruction.
        completes: ``groups``, ``barrier`` or ``registers``.
        widths: of kind ``groups``: bytes that one copy may have.
        fills: whether copies can write a shared layout of elements of a type; None: any that their
            width allows.
        layouts: of kind ``barrier``: (shape, element type) -> the layouts of such tiles that copies
            can read and write beside the row-major one, those with the fewest conflicts first;
            None: there are no others.
        start: of kind ``groups``: (context, shared address, pointer, bytes, predicate or None):
            start one copy, zeros where the predicate is false. Of kind ``barrier``: (context,
            :class:`BlockCopy`), called by one thread. Of kind ``registers``: None, for these are
            the target's loads and stores.
        store: of kind ``barrier``: the same from shared memory to the tensor, whose elements are
            written, or updated by a :attr:`BlockCopy.reduction`; None where the machine has no such
            copies.
        fills_rows: of kind ``barrier``: whether ``start`` and ``store`` copy rows too that are
            anywhere in a tensor of rank 2, between it and a shared layout of elements of a type;
            None: they do not.
        alignment: of a slot that it fills, in bytes.
        lanes_side_by_side: of kind ``groups``: the lanes of a warp write one run of shared memory,
            in their order, at an address that is the warp's own; what goes where is chosen by where
            each lane reads. What cannot be copied so goes through registers.
        counted: of kind ``groups``: waits are until so many copies of a thread are in flight, not
            so many groups.
        drains: of kind ``groups``: what starts copies waits for the thread's reads of shared
            memory.
        shares: of kind ``barrier``: (shared layout, element type, blocks): whether the blocks of a
            cluster can copy such a tile to each other, each a part along the first axis.
        around: of kind ``groups``: (context, whether they have been started): called before and
            after the copies of one operation, if anything is to be.
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


#: Loads early, stores late.
THROUGH_REGISTERS = CopyMechanism("registers", REGISTERS)
