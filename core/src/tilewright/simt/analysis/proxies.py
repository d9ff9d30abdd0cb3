"""The proxy by which an operation accesses shared memory: generic or async.

Loads and stores of threads, ``cp.async`` among them, go through the generic proxy. Bulk tensor
copies (TMA) and matrix instructions that read their operands from shared memory (wgmma, tcgen05)
go through the async proxy. Neither proxy sees, or waits for, what the other does to the same bytes
unless a proxy fence (``simt.publish``, ``fence.proxy.async``) stands between: not for a read after
a write, and not for a write after a read either. A barrier orders what threads issued; loads that
are still queued when a thread arrives there have read their bytes for other threads' loads and
stores, not for a bulk copy that is started behind the barrier.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.ir.core import Operation, Value
from tilewright.simt.dialect.op_interface import SharedEffects
from tilewright.simt.dialect.ops.dot import Multiplication
from tilewright.simt.dialect.types import SlotType
from tilewright.simt.target.matmul_plan import REGISTERS
from tilewright.simt.target.plan_selection import plan_of
from tilewright.simt.target.simt_target import SimtTarget


@dataclass(frozen=True, slots=True)
class ProxyAccesses:
    """The slots that an operation accesses, by proxy and direction.

    What a ``cp.async`` writes is a generic write, when its group has been waited for.
    """

    generic_reads: tuple[Value, ...]
    generic_writes: tuple[Value, ...]
    async_reads: tuple[Value, ...]
    async_writes: tuple[Value, ...]


def proxy_accesses(
    operation: Operation, effects: SharedEffects, target: SimtTarget
) -> ProxyAccesses:
    """Return the accesses of an operation with these effects."""
    generic, engines = effects.reads, effects.engines
    if engines and isinstance(operation, Multiplication):
        generic, engines = _operands(operation, target)
    elif engines:
        generic = tuple(slot for slot in generic if slot not in engines)
    return ProxyAccesses(
        generic, effects.writes, (*engines, *effects.matmuls, *effects.stores), effects.blocks
    )


def _operands(
    operation: Multiplication, target: SimtTarget
) -> tuple[tuple[Value, ...], tuple[Value, ...]]:
    """Return the slots that threads load, for their registers or to multiply and add by
    themselves, and those that matrix instructions read where they are."""
    plan = plan_of(operation, target)
    generic: list[Value] = []
    engines: list[Value] = []
    for position, operand in enumerate((operation.a, operation.b)):
        if isinstance(operand.type, SlotType):
            there = plan.reads[position] != REGISTERS and not plan.by_threads
            (engines if there else generic).append(operand)
    return tuple(generic), tuple(engines)
