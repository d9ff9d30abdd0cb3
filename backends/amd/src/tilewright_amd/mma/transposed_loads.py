"""``ds_read_b64_tr``: transposed loads of MMA operands from LDS.

Sixteen lanes read four rows of sixteen elements of 16 bits, four lanes a row and four elements a lane; each lane gets a column.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tilewright.ir.types import Type
from tilewright.llvm.emission.registers import storage_type
from tilewright.llvm.emission.writer import mangle
from tilewright.simt.layouts.linear_layout import LinearLayout, SharedLayout
from tilewright.simt.layouts.swizzle import accesses
from tilewright.simt.lowering.emission.context import SimtContext
from tilewright.simt.lowering.emission.shared_access import places
from tilewright.simt.target.fragments import step_registers
from tilewright_amd.codegen.vectors import elements

#: Bytes of an element, and how many of them a lane reads and gets.
SIZE: Final = 2
_COUNT: Final = 4


def turned(layout: LinearLayout) -> LinearLayout | None:
    """The layout in which an operand is read that is in ``layout`` when it has been turned: what two bits of the register's number and four of the lane's stand
    for change places. None where threads have too few elements."""
    if len(layout.registers) < 2 or len(layout.lanes) < 4 or not all(layout.lanes[:4]):
        return None
    across, rest = layout.lanes[:4], layout.lanes[4:]
    return LinearLayout(layout.shape, (*across[:2], *layout.registers[2:]), (*across[2:], *layout.registers[:2], *rest), layout.warps)


def loader(layout: LinearLayout, axis: int, step: int, across: LinearLayout, element: Type) -> Callable[..., list[str] | None]:
    """What loads an operand in ``layout`` (:attr:`~tilewright.simt.target.matmul_plan.MatmulPlan.load_a`) by reading it ``across``; it gives nothing where
    neighbours in LDS are summed over."""

    def load(context: SimtContext, address: str, shared: SharedLayout, first: int = 0) -> list[str] | None:
        plan = accesses(across, shared, _COUNT)
        if plan.width != _COUNT or shared.through(across.registers[:2]) != (1, 2):
            return None
        wanted = step_registers(layout, axis, first, step)
        needed = {register & -_COUNT for register in wanted}
        w, type_, pointer = context.writer, storage_type(element), context.target.shared_pointer
        whole = f"<{_COUNT} x {type_}>"
        name = f"llvm.amdgcn.ds.read.tr16.b64.{mangle(whole)}"
        w.module.declare(name, whole, [pointer])
        found: dict[int, str] = {}
        for place in places(context, address, plan, element):
            start = place.registers[0] & -_COUNT
            if start in needed:
                at = w.emit(f"getelementptr i8, {pointer} {place.base}, i32 {place.offset}") if place.offset else place.base
                vector = w.emit(f"call {whole} @{name}({pointer} {at}){context.target.shared_access(w)}")
                found.update(zip(range(start, start + _COUNT), elements(w, type_, vector, _COUNT), strict=True))
        return [found[register] for register in wanted]

    return load
