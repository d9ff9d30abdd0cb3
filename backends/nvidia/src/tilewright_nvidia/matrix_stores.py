"""Tiles to shared memory by ``stmatrix``, from compute capability 9.0 on: results of matrix instructions as they are in registers, in rows of 16 bytes.

The instruction is the reverse of ``ldmatrix`` (:mod:`.operand_loads`): lane ``4 * g + t`` gives the word t of row g of an 8x8 matrix of 16-bit elements or,
transposed, the elements g of the rows 2t and 2t + 1; each row goes to an address of 16 bytes that one lane gives. So what decides whether a tile can be
stored, and where its rows go, is what decides it for a load. Sums of 32 bits are narrowed to 16 first; words of neighbours along the wrong axis of the shared
layout are turned by ``.trans``.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from tilewright.ir.types import Type
from tilewright.llvm.registers import register_type, storage_size
from tilewright.simt.context import SimtContext
from tilewright.simt.linear_layout import LinearLayout, SharedLayout
from tilewright_nvidia.operand_loads import matrix_loads
from tilewright_nvidia.words import Words


def can_store(layout: LinearLayout, shared: SharedLayout, element: Type) -> bool:
    """Whether :func:`store_matrices` can write a tile. An element that several threads have would be written by each of them: then there is no gain."""
    bits = (*layout.registers, *layout.lanes, *layout.warps)
    return all(bits) and matrix_loads(layout, shared, storage_size(element)) is not None


def store_matrices(context: SimtContext, words: Words, layout: LinearLayout, element: Type, address: str, shared: SharedLayout, names: Sequence[str]) -> None:
    """Write a tile of which each thread has the registers ``names``, in the order of ``layout``, to shared memory.

    Args:
        words: remembers what is packed already.
        layout, element: where the tile's elements are in registers, and their type, of up to 32 bits.
        address: of the tile in shared memory, a multiple of 16 bytes.
        shared: where elements are there; :func:`can_store` holds.
    """
    size = storage_size(element)
    plan = matrix_loads(layout, shared, size)
    assert plan is not None, f"stmatrix cannot write {layout.shape} of {element}"
    w, packed, type_ = context.writer, 4 // size, register_type(element)
    thread = context.thread_part(plan.lanes, plan.warps)
    reach = functools.reduce(int.__or__, (*plan.lanes, *plan.warps), 0)
    name = f"llvm.nvvm.stmatrix.sync.aligned.m8n8.x{plan.matrices}{'.trans' if plan.transposed else ''}.b16.p3"
    each = plan.matrices * packed
    for number, step in enumerate(plan.steps):
        # what the thread's bits reach is combined by exclusive or; the rest is added, as an offset of the instruction
        low = step & reach
        place = words.address(w, address, thread, low)
        if step != low:
            place = w.emit(f"getelementptr i8, ptr addrspace(3) {place}, i32 {step ^ low}")
        held = names[number * each : (number + 1) * each]
        operands = [("i32", words.pack(w, held[i : i + packed], type_, "i32")) for i in range(0, each, packed)]
        w.call(name, "void", [("ptr addrspace(3)", place), *operands])
