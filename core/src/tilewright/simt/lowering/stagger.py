"""Lowering of ping-pong: two halves of the warps that are one barrier apart, and their phases."""

from __future__ import annotations

from tilewright.simt.dialect.op_interface import Interface
from tilewright.simt.dialect.ops.warp_specialize import Phase, Stagger
from tilewright.simt.dialect.registry import register_interfaces
from tilewright.simt.lowering.emission.context import SimtContext
from tilewright.simt.target.simt_target import required


def lower_stagger(context: SimtContext, operation: Stagger) -> None:
    w, half = context.writer, context.threads.count // 2
    later = w.emit(f"icmp uge i32 {context.warp}, {half}")
    with w.when(later if operation.later else w.emit(f"xor i1 {later}, true")):
        context.barrier()


def lower_phase(context: SimtContext, operation: Phase) -> None:
    required(context.target.matrix.ping_pong, context.target, "ping-pong").phase(
        context, matmuls=operation.matmuls
    )


INTERFACES = register_interfaces(
    {"simt.stagger": Interface(lower_stagger), "simt.phase": Interface(lower_phase)}
)
