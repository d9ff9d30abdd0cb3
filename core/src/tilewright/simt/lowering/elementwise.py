"""Elementwise operations: the emitters of :mod:`tilewright.llvm.elementwise`, run on each register."""

from __future__ import annotations

from tilewright.errors import LoweringError
from tilewright.ir.core import Operation
from tilewright.ir.types import PointerType, TileType, byte_size, element_type
from tilewright.llvm.elementwise import emit_operation
from tilewright.simt.context import UNWRITTEN, SimtContext
from tilewright.simt.ops import SHARED


def lower_elementwise(context: SimtContext, operation: Operation) -> None:
    if not operation.spec.elementwise:
        raise LoweringError(f"operation {operation.name} at {operation.location} has no lowering for {context.target.name}")
    (result,) = operation.results
    element = element_type(result.type)
    if isinstance(element, PointerType) and element.space == SHARED:
        context.bind(result, [_move_shared(context, operation, element)])
        return
    count = context.layout(result).register_count if isinstance(result.type, TileType) else 1
    operands = [context.registers[operand] for operand in operation.operands]
    context.bind(
        result,
        [
            emit_operation(context, operation, [names[i if len(names) > 1 else 0] for names in operands], 0) if context.is_needed(result, i) else UNWRITTEN
            for i in range(count)
        ],
    )


def _move_shared(context: SimtContext, operation: Operation, element: PointerType) -> str:
    """``addptr`` on an address in shared memory, which is an offset in bytes."""
    if operation.name != "addptr":
        raise LoweringError(f"operation {operation.name} of addresses in shared memory")
    base, offset = (context.scalar(operand) for operand in operation.operands)
    width = context.llvm_type(operation.operands[1].type)
    w = context.writer
    if width != "i32":
        offset = w.emit(f"{'trunc' if width == 'i64' else 'sext'} {width} {offset} to i32")
    return w.emit(f"add i32 {base}, {w.emit(f'mul i32 {offset}, {byte_size(element.pointee)}')}")
