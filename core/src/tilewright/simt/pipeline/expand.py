"""Expansion of pipelined loops, each in its form."""

from __future__ import annotations

from tilewright.ir.core import Function
from tilewright.ir.ops.control import For
from tilewright.passes.dce import dce_function
from tilewright.simt.dialect.pipeline_attributes import CHAIN, FORM, PARTS, SLOTS
from tilewright.simt.pipeline.defer_matmul_wait import start_matmuls
from tilewright.simt.pipeline.expand_cp_async import expand_groups
from tilewright.simt.pipeline.expand_register_loads import expand_registers
from tilewright.simt.pipeline.expand_tma import expand_blocks
from tilewright.simt.pipeline.warp_specialize import expand_parts
from tilewright.simt.pipeline.warp_specialize_back_to_back import expand_chained_parts
from tilewright.simt.target.copy_mechanism import BARRIER, GROUPS, REGISTERS
from tilewright.simt.target.simt_target import SimtTarget

#: The expander of each form.
FORMS = {
    GROUPS: expand_groups,
    BARRIER: expand_blocks,
    REGISTERS: expand_registers,
    PARTS: expand_parts,
}


def expand(function: Function, target: SimtTarget) -> None:
    """Expand the loops that have a schedule."""
    changed = False
    # warp specialization comes before the expansion of other loops, so that the producer contains
    # nothing of them
    scheduled = [
        operation
        for operation in function.walk()
        if isinstance(operation, For) and FORM in operation.attributes
    ]
    chains = [loop for loop in scheduled if loop.attributes[FORM] == CHAIN]
    if chains:
        expand_chained_parts(chains, target)
        dce_function(function)
        changed = True
    for parts in (True, False):
        loops = [
            loop
            for loop in function.walk()
            if isinstance(loop, For)
            and SLOTS in loop.attributes
            and (loop.attributes[FORM] == PARTS) is parts
        ]
        for loop in loops:
            FORMS[loop.attributes[FORM]](loop, target)
        changed |= bool(loops)
        if parts and loops:
            dce_function(function)
    if start_matmuls(function, target) or changed:
        dce_function(function)
