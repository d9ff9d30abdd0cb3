"""Instructions of particular processors that LLVM does not choose by itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tilewright.ir.types import F32, F64, Type
from tilewright.llvm.registers import vector_type

if TYPE_CHECKING:
    from tilewright_cpu.lowering.context import Context


def machine_operation(context: Context, name: str, operands: list[str], width: int, element: Type, attributes: Mapping[str, Any]) -> str | None:
    """AVX-512's range instruction for ``min`` and ``max`` that ignore NaN: one step where the rule takes three otherwise."""
    if name not in ("min", "max") or attributes.get("nan", "ignore") != "ignore":
        return None
    if element not in (F32, F64) or width * element.bits != 512 or not context.state.machine.can("range"):
        return None
    type_ = vector_type(element, width)
    suffix, mask = ("ps", "i16") if element is F32 else ("pd", "i8")
    arguments = [(type_, operand) for operand in operands]
    # the immediate: 4 | (0 min, 1 max)
    arguments += [("i32", "5" if name == "max" else "4"), (type_, "zeroinitializer"), (mask, "-1"), ("i32", "4")]
    return context.writer.call(f"llvm.x86.avx512.mask.range.{suffix}.512", type_, arguments)
