"""What must be computed ahead for loads that are copied ahead: the addresses and masks of later iterations, and what stands in where a mask is false."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tilewright.ir.core import Operation, Region
from tilewright.ir.ops.memory import Load
from tilewright.ir.types import TileType
from tilewright.simt.conversion import SharedMove, plan_conversion
from tilewright.simt.facts import layout_of
from tilewright.simt.pipeline.decisions import Ahead
from tilewright.simt.target import SimtTarget

#: Operations of no effect that are too expensive to do twice, or need memory of their own.
_NOT_REPEATED = frozenset({"simt.dot", "dot_scaled", "gather", "histogram", "simt.convert", "make_descriptor"})
#: Operations that are repeated at most.
_SLICE_LIMIT = 200


@dataclass(frozen=True, slots=True)
class Slice:
    """What one iteration of a loop computes for the addresses of loads.

    Attributes:
        operations: in program order.
        carried: indices of the carried values among what they read.
        counter: whether they read the loop's counter.
    """

    operations: tuple[Operation, ...]
    carried: tuple[int, ...]
    counter: bool


def slice_of(body: Region, loads: Iterable[Ahead], target: SimtTarget) -> Slice | None:
    """What must be repeated to know the operands of ``loads`` in later iterations; None where that should not be done. Loads among it, such as
    of a table of pages, are repeated too: nothing in the loop may write to memory."""
    last = body.terminator
    assert last is not None
    needed: set[Operation] = set()
    carried: set[int] = set()
    counter = False
    work = [operand for load in loads for operand in load.operands]
    while work:
        value = work.pop()
        owner = value.owner
        if owner is body:
            index = value.index - 1
            if index < 0:
                counter = True
            elif index not in carried:
                carried.add(index)
                work.append(last.operands[index])
        elif isinstance(owner, Operation) and owner.parent is body and owner not in needed:
            if not _is_repeatable(owner, target) or len(needed) >= _SLICE_LIMIT:
                return None
            needed.add(owner)
            work += owner.operands
    return Slice(tuple(operation for operation in body if operation in needed), tuple(sorted(carried)), counter)


def _is_repeatable(operation: Operation, target: SimtTarget) -> bool:
    if isinstance(operation, Load):
        return not operation.volatile
    if operation.name == "simt.convert":
        (x,), (result,) = operation.operands, operation.results
        assert isinstance(x.type, TileType)
        plan = plan_conversion(layout_of(x), layout_of(result), x.type.element, target)
        return not isinstance(plan, SharedMove)
    return operation.spec.pure and not operation.regions and operation.name not in _NOT_REPEATED
