"""Choice of whether operands that threads stage alternate between two slots.

A matmul of a loop may read an operand that threads convert and stage in shared memory in each
iteration (:mod:`tilewright.simt.passes.stage_operands`). With one slot, it is waited for before the
next iteration stages its own. With two, threads convert an operand while the previous matmul runs.
The other programs of an SM compute during such waits, too: there are two slots only where these
leave as many programs on an SM as one.
"""

from __future__ import annotations

from tilewright.ir.ops.control import For
from tilewright.simt.analysis.register_pressure import words_of
from tilewright.simt.dialect.attributes import note, warps_of
from tilewright.simt.dialect.pipeline_attributes import ALTERNATES, Ahead
from tilewright.simt.pipeline.defer_matmul_wait import accumulation
from tilewright.simt.pipeline.shared_memory_budget import (
    fitting_slots,
    scratch_beside,
    slot_bytes,
)
from tilewright.simt.target.simt_target import SimtTarget


def settle_alternation(
    loop: For, loads: list[Ahead], slots: int, extra: int, target: SimtTarget
) -> None:
    """Mark the matmul of a loop whose staged operands alternate between two slots.

    Args:
        slots: the slots of each load that are asked for.
        extra: bytes of shared memory of the loop beside its slots.
    """
    found = accumulation(loop, target)
    if found is None:
        return
    matmul = found.matmul

    def programs() -> int:
        fitting = fitting_slots(loop, loads, slots, extra, target)
        if fitting < 2:
            return 0
        sizes = target.resources
        registers = words_of(matmul.results[0]) + target.costs.other_registers
        taken = fitting * sum(map(slot_bytes, loads)) + scratch_beside(loop, target) + extra
        reserved = sizes.reserved_shared_memory
        return min(
            (sizes.shared_memory + reserved) // (taken + reserved),
            sizes.register_file // (sizes.warp_size * warps_of(loop) * registers),
        )

    alone = programs()
    matmul.attributes[ALTERNATES] = True
    left = programs()
    # a loop around it is that of a persistent kernel: one program on each SM
    is_persistent = any(isinstance(outer, For) for outer in loop.ancestors())
    if left < (min(alone, 1) if is_persistent else alone):
        del matmul.attributes[ALTERNATES]
        note(
            loop,
            f"matmuls are waited for before the next operand is staged: a second slot for it would "
            f"leave {left} of {alone} programs on an SM",
        )
