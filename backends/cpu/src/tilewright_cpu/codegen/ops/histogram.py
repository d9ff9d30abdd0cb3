"""Counting the values of a tile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.ir.ops.shape import Histogram
from tilewright.ir.types import I32, I64
from tilewright_cpu.codegen.context import Buffer, Context
from tilewright_cpu.codegen.loops.strip_loop import for_each, for_strips


def lower_histogram(context: Context, operation: Histogram) -> None:
    """Count how often each of 0 .. bins-1 occurs where the mask holds.

    One more bin, behind the others, counts what does not.
    """
    mask = operation.mask
    values = context.materialize(operation.x)
    masks = context.materialize(mask) if mask is not None else None
    bins, w = operation.bins, context.writer
    counts = context.new_buffer((bins + 1,), I32)

    def clear(index: str, lanes: int) -> None:
        type_ = f"<{lanes} x i32>" if lanes else "i32"
        w.store(type_, "zeroinitializer" if lanes else "0", w.gep("i32", counts.pointer, index), 4)

    def count(index: str) -> None:
        number = context.convert(context.load_element(values, (index,)), values.element, I64)
        # A negative value is a great unsigned one.
        bin_ = w.intrinsic("llvm.umin", "i64", [("i64", number), ("i64", str(bins))])
        if masks is not None:
            holds = context.load_element(masks, (index,))
            bin_ = w.emit(f"select i1 {holds}, i64 {bin_}, i64 {bins}")
        place = w.gep("i32", counts.pointer, bin_)
        w.store("i32", w.emit(f"add i32 {w.load('i32', place, 4)}, 1"), place, 4)

    for_strips(w, bins + 1, context.elements_for(I32), clear)
    for_each(w, values.numel, count)
    context.bind_buffer(operation.result, Buffer(counts.pointer, (bins,), I32))


LOWERINGS: dict[str, Callable[[Context, Any], None]] = {"histogram": lower_histogram}
