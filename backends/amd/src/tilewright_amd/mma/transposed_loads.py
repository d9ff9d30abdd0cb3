"""``ds_read_b64_tr``: transposed loads of MMA operands from LDS.

Sixteen lanes read four rows of sixteen 16-bit elements, four lanes per row and four elements per
lane. Each lane receives a column.
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

#: Bytes of an element, and the number of elements that a lane reads and receives.
SIZE: Final = 2
_COUNT: Final = 4


def transposed_layout(layout: LinearLayout) -> LinearLayout | None:
    """Return the layout to read with a transposed load so that the result has ``layout``.

    Two bits of the register index and four bits of the lane index swap roles. Return None if a
    thread has too few elements.
    """
    if len(layout.registers) < 2 or len(layout.lanes) < 4 or not all(layout.lanes[:4]):
        return None
    across, rest = layout.lanes[:4], layout.lanes[4:]
    return LinearLayout(
        layout.shape,
        (*across[:2], *layout.registers[2:]),
        (*across[2:], *layout.registers[:2], *rest),
        layout.warps,
    )


def loader(
    layout: LinearLayout, axis: int, step: int, across: LinearLayout, element: Type
) -> Callable[..., list[str] | None]:
    """Return a function that loads an operand in ``layout`` with transposed loads of ``across``.

    See :attr:`~tilewright.simt.target.matmul_plan.MatmulPlan.load_a`. The function returns None if
    elements contiguous in LDS lie along K.
    """

    def load(
        context: SimtContext, address: str, shared: SharedLayout, first: int = 0
    ) -> list[str] | None:
        plan = accesses(across, shared, _COUNT)
        if plan.width != _COUNT or shared.through(across.registers[:2]) != (1, 2):
            return None
        wanted = step_registers(layout, axis, first, step)
        needed = {register & -_COUNT for register in wanted}
        w, type_, pointer = context.writer, storage_type(element), context.target.shared.pointer
        whole = f"<{_COUNT} x {type_}>"
        name = f"llvm.amdgcn.ds.read.tr16.b64.{mangle(whole)}"
        w.module.declare(name, whole, [pointer])
        found: dict[int, str] = {}
        for place in places(context, address, plan, element):
            start = place.registers[0] & -_COUNT
            if start in needed:
                at = (
                    w.emit(f"getelementptr i8, {pointer} {place.base}, i32 {place.offset}")
                    if place.offset
                    else place.base
                )
                vector = w.emit(
                    f"call {whole} @{name}({pointer} {at}){context.target.shared.metadata(w)}"
                )
                found.update(
                    zip(
                        range(start, start + _COUNT),
                        elements(w, type_, vector, _COUNT),
                        strict=True,
                    )
                )
        return [found[register] for register in wanted]

    return load
