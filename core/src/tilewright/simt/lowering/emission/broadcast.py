"""Broadcast of values from one thread to all that need them."""

from __future__ import annotations

from tilewright.ir.core import Operation, Value
from tilewright.ir.types import TileType, element_type
from tilewright.llvm.emission.registers import storage_size
from tilewright.simt.lowering.emission.context import SimtContext


def both(context: SimtContext, a: str | None, b: str | None) -> str | None:
    """Emit the conjunction of two conditions, either of which may be absent."""
    if a is None or a == "true":
        return b
    return a if b is None else context.writer.emit(f"and i1 {a}, {b}")


def give_to_all(
    context: SimtContext, operation: Operation, result: Value, old: list[str], owner: str
) -> list[str]:
    """Broadcast the owners' values of ``result`` through shared memory.

    Returns each thread's registers. In the operation's scratch space an element is at its row-major
    number.
    """
    element = element_type(result.type)
    type_, size, w = context.llvm_type(element), storage_size(element), context.writer
    if isinstance(result.type, TileType):
        layout = context.layout(result)
        first, numbers = context.thread_part(layout.lanes, layout.warps), layout.register_elements()
    else:
        first, numbers = "0", [0]
    scratch = context.scratch(operation)

    def address(number: int) -> str:
        place = w.emit(f"mul i32 {w.emit(f'xor i32 {first}, {number}')}, {size}")
        return w.emit(f"getelementptr i8, {context.target.shared.pointer} {scratch}, i32 {place}")

    addresses = [address(number) for number in numbers]
    with w.when(owner):
        for place, name in zip(addresses, old, strict=True):
            context.shared_store(place, type_, [name], align=size)
    context.barrier()
    return [context.shared_load(place, type_, align=size)[0] for place in addresses]
