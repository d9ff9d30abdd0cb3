"""Partitions: each part's code is run by its own warps, which count themselves from 0 on there."""

from __future__ import annotations

from tilewright.ir.core import Operation
from tilewright.simt.context import SimtContext
from tilewright.simt.interface import Interface
from tilewright.simt.target import Threads


def lower_partition(context: SimtContext, operation: Operation) -> None:

    w, whole = context.writer, context.threads
    (region,) = operation.regions
    parts = [part for part in region if part.name == "simt.part"]
    leave = w.new_block("join")
    first = 0
    for number, part in enumerate(parts):
        count: int = part.attribute("warps")
        inside = w.new_block(f"part{number}")
        following = w.new_block("next") if number + 1 < len(parts) else leave
        if number + 1 < len(parts) or first + count < whole.count:
            w.branch_if(w.emit(f"icmp ult i32 {context.warp}, {first + count}"), inside, following)
        else:
            w.branch(inside)
        w.place(inside)
        with context.run_by(Threads(number, first, count, len(parts))):
            registers = part.attribute("registers")
            if registers:
                context.target.set_registers(w, registers)
            context.lower_region(part.regions[0])
        context.operation = operation
        w.branch(leave)
        if following is not leave:
            w.place(following)
        first += count
    w.place(leave)
    context.barrier()


def _nowhere(context: SimtContext, operation: Operation) -> None:
    raise AssertionError("a part is written by its partition")


INTERFACES: dict[str, Interface] = {"simt.partition": Interface(lower_partition), "simt.part": Interface(_nowhere)}
