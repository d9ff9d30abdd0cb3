"""Spilling of loop-invariant operands to shared memory, to be read step by step.

This is done where a thread has too few registers to hold them throughout the loop. The backend's
register allocator would spill them too, but to per-thread memory: several times as much, element by
element.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.ir.core import Function, Value
from tilewright.ir.ops.control import For
from tilewright.simt.analysis.register_pressure import words_of
from tilewright.simt.dialect.attributes import note, warps_of
from tilewright.simt.passes.allocate_shared import peak_bytes
from tilewright.simt.passes.stage_operands import put_in_shared
from tilewright.simt.pipeline.register_budget import aligned, to_be_shared, words_in_loop
from tilewright.simt.target.simt_target import SimtTarget


def share_constant_operands(
    function: Function, target: SimtTarget, options: Mapping[str, Any]
) -> None:
    """Move loop-invariant operands of loops to shared memory until registers suffice."""
    for loop in [operation for operation in function.walk() if isinstance(operation, For)]:
        threads = target.resources.warp_size * warps_of(loop)
        registers = min(
            target.resources.registers,
            target.resources.register_file // threads,
            options.get("maxnreg") or target.resources.registers,
        )
        words = words_in_loop(loop, [], target)
        if words <= registers:
            continue
        free = aligned(
            target.resources.resident_memory(
                max(1, target.resources.register_file // (threads * registers))
            )
            - peak_bytes(function.body, target)
        )
        slots: dict[Value, Value] = {}
        for matmul, position in to_be_shared(loop, words - registers, free, target):
            operand = (matmul.a, matmul.b)[position]
            if operand not in slots:
                note(
                    loop,
                    f"an operand of {words_of(operand)} registers is read from shared memory in "
                    f"each iteration: the loop holds {words} of {registers}",
                )
                slots[operand] = put_in_shared(matmul, position, target)
            matmul.set_operand(position, slots[operand])
