"""Lowering of warp specialization: each partition runs on its own warps, numbered from 0."""

from __future__ import annotations

from tilewright.simt.dialect.op_interface import Interface
from tilewright.simt.dialect.ops.warp_specialize import Part, Partition, Uniform
from tilewright.simt.dialect.registry import register_interfaces
from tilewright.simt.lowering.emission.context import SimtContext
from tilewright.simt.target.capabilities.thread_hierarchy import Threads
from tilewright.simt.target.simt_target import required


def lower_partition(context: SimtContext, operation: Partition) -> None:
    w, whole = context.writer, context.threads
    parts = [part for part in operation.parts if isinstance(part, Part)]
    leave = w.new_block("join")
    first = 0
    for number, part in enumerate(parts):
        count = part.warps
        inside = w.new_block(f"part{number}")
        following = w.new_block("next") if number + 1 < len(parts) else leave
        if number + 1 < len(parts) or first + count < whole.count:
            w.branch_if(w.emit(f"icmp ult i32 {context.warp}, {first + count}"), inside, following)
        else:
            w.branch(inside)
        w.place(inside)
        with context.run_by(Threads(number, first, count, len(parts))):
            if part.registers:
                required(
                    context.target.warp_specialization, context.target, "warp specialization"
                ).set_registers(w, part.registers)
            context.lower_region(part.body)
        context.operation = operation
        w.branch(leave)
        if following is not leave:
            w.place(following)
        first += count
    w.place(leave)
    context.barrier()


def lower_uniform(context: SimtContext, operation: Uniform) -> None:
    specialization = required(
        context.target.warp_specialization, context.target, "warp specialization"
    )
    (value,) = context.registers[operation.x]
    context.bind(operation.results[0], [specialization.uniform(context.writer, value)])


def _nowhere(context: SimtContext, operation: Part) -> None:
    raise AssertionError("a part is written by its partition")


INTERFACES = register_interfaces(
    {
        "simt.partition": Interface(lower_partition),
        "simt.part": Interface(_nowhere),
        "simt.uniform": Interface(lower_uniform),
    }
)
