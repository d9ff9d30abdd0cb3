"""Atomic updates of memory, one element after the other in row-major order.

One update is written by :mod:`tilewright.llvm.emission.atomics`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tilewright.ir.core import Operation, Value
from tilewright.ir.ops.memory import AtomicCas, AtomicLoad, AtomicRmw, AtomicStore, Clock
from tilewright.ir.types import TileType, Type, element_type
from tilewright.llvm.emission.atomics import (
    atomic_read,
    atomic_update,
    atomic_write,
    compare_and_swap,
)
from tilewright.llvm.emission.registers import constant, register_type, storage_size
from tilewright_cpu.codegen.context import Buffer, Context
from tilewright_cpu.codegen.loops.strip_loop import for_each, viewed
from tilewright_cpu.codegen.sanitizer.bounds import checked_address


def lower_atomic_rmw(context: Context, operation: AtomicRmw) -> None:
    """Update values at the pointers where the mask holds; return the old ones, or zero."""
    pointer, value, mask = operation.pointer, operation.value, operation.mask
    kind, order = operation.kind, operation.order

    def update(pointer_name: str, value_name: str) -> str:
        return atomic_update(
            context, kind, element_type(value.type), pointer_name, value_name, order
        )

    _for_lanes(context, operation, [pointer, value], mask, lambda names: update(*names))


def lower_atomic_cas(context: Context, operation: AtomicCas) -> None:
    """Replace the value at the pointer where it has the bits of compare; the old value."""
    pointer, compare, value = operation.pointer, operation.compare, operation.value
    element, order = element_type(value.type), operation.order
    _for_lanes(
        context,
        operation,
        [pointer, compare, value],
        None,
        lambda names: compare_and_swap(context, element, names[0], names[1], names[2], order),
    )


def lower_atomic_load(context: Context, operation: AtomicLoad) -> None:
    """Read the values at the pointers where the mask holds; zero where it does not."""
    element, order = element_type(operation.result.type), operation.order
    _for_lanes(
        context,
        operation,
        [operation.pointer],
        operation.mask,
        lambda names: atomic_read(context, element, names[0], order),
    )


def lower_atomic_store(context: Context, operation: AtomicStore) -> None:
    """Write the values where the mask holds."""
    pointer, value, mask = operation.pointer, operation.value, operation.mask
    element, order, w = element_type(value.type), operation.order, context.writer
    operands = [pointer, value] if mask is None else [pointer, value, mask]

    def write(names: list[str]) -> None:
        with w.when(names[2] if mask is not None else "true"):
            atomic_write(
                context,
                element,
                checked_address(context, operation, names[0], storage_size(element)),
                names[1],
                order,
            )

    if not isinstance(value.type, TileType):
        write([context.scalar(operand) for operand in operands])
        return
    buffers = [_flat(context.materialize(operand)) for operand in operands]
    for_each(
        w,
        buffers[0].numel,
        lambda index: write([context.load_element(buffer, (index,)) for buffer in buffers]),
    )


def lower_clock(context: Context, operation: Clock) -> None:
    """The monotonic clock of POSIX; of C, in seconds of the day, where that is missing."""
    w = context.writer
    time_of = w.alloca("i64", 2)
    if hasattr(time, "CLOCK_MONOTONIC"):
        w.call("clock_gettime", "i32", [("i32", str(time.CLOCK_MONOTONIC)), ("ptr", time_of)])
    else:
        w.call("_timespec64_get", "i32", [("ptr", time_of), ("i32", "1")])
    seconds, rest = (w.emit(f"load i64, ptr {w.gep('i64', time_of, i)}, align 8") for i in range(2))
    context.bind_scalar(
        operation.results[0], w.emit(f"add i64 {w.emit(f'mul i64 {seconds}, 1000000000')}, {rest}")
    )


def _for_lanes(
    context: Context,
    operation: Operation,
    operands: list[Value],
    mask: Value | None,
    update: Callable[[list[str]], str],
) -> None:
    """Run ``update`` on a scalar, or on every element of tiles, under the mask; bind its result."""
    result, w = operation.results[0], context.writer
    size = storage_size(element_type(result.type))

    def run(names: list[str]) -> str:
        return update([checked_address(context, operation, names[0], size), *names[1:]])

    if not isinstance(result.type, TileType):
        names = [context.scalar(operand) for operand in operands]
        if mask is None:
            context.bind_scalar(result, run(names))
        else:
            context.bind_scalar(
                result,
                when_else_zero(context, context.scalar(mask), result.type, lambda: run(names)),
            )
        return
    buffers = [_flat(context.materialize(operand)) for operand in operands]
    masks = _flat(context.materialize(mask)) if mask is not None else None
    old = context.new_buffer(result.type.shape, result.type.element)
    wanted = bool(result.uses)

    def lane(index: str) -> None:
        names = [context.load_element(buffer, (index,)) for buffer in buffers]
        element = element_type(result.type)
        if masks is None:
            value = run(names)
        else:
            value = when_else_zero(
                context, context.load_element(masks, (index,)), element, lambda: run(names)
            )
        if wanted:
            context.store_element(_flat(old), (index,), value)

    for_each(w, old.numel, lane)
    context.bind_buffer(result, old)


def _flat(buffer: Buffer) -> Buffer:
    return viewed(buffer, buffer.numel)


def when_else_zero(context: Context, condition: str, element: Type, body: Callable[[], str]) -> str:
    """Result of ``body`` where an i1 holds, else zero; the body only runs where it holds."""
    w = context.writer
    then, join, before = w.new_block("then"), w.new_block("join"), w.current
    w.branch_if(condition, then, join)
    w.place(then)
    value = body()
    after = w.current
    w.branch(join)
    w.place(join)
    return w.phi(register_type(element), ((value, after), (constant(element, 0), before)))


LOWERINGS: dict[str, Callable[[Context, Any], None]] = {
    "atomic_rmw": lower_atomic_rmw,
    "atomic_cas": lower_atomic_cas,
    "atomic_load": lower_atomic_load,
    "atomic_store": lower_atomic_store,
    "clock": lower_clock,
}
