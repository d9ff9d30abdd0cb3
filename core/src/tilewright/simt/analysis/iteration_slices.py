"""Backward slices of a loop body, to compute the addresses of prefetched loads.

A slice computes the addresses and masks of later iterations, and the values of masked-off lanes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tilewright.ir.core import Operation, Region, Value
from tilewright.ir.ops.linear import DotScaled
from tilewright.ir.ops.memory import Load, MakeDescriptor
from tilewright.ir.ops.shape import Gather, Histogram
from tilewright.ir.types import TileType
from tilewright.simt.dialect.attributes import layout_of
from tilewright.simt.dialect.ops.buffers import Convert
from tilewright.simt.dialect.ops.dot import PlannedDot
from tilewright.simt.dialect.pipeline_attributes import Ahead
from tilewright.simt.target.conversion_plan import SharedMove, plan_conversion
from tilewright.simt.target.simt_target import SimtTarget

#: Pure operations that are too expensive to clone, or need memory of their own.
_NOT_REPEATED = (PlannedDot, DotScaled, Gather, Histogram, Convert, MakeDescriptor)
#: Maximum number of cloned operations.
_SLICE_LIMIT = 200


@dataclass(frozen=True, slots=True)
class SliceReader:
    """Operation with the operands that it had when its slice was taken.

    Pipeline expansion makes the users of a load read a slot instead. If the loaded tile is an index
    of other loads, some of these users are in the slice, and the slot holds the index of the
    current iteration, not of the prefetched one.
    """

    operation: Operation
    operands: tuple[Value, ...]

    def operand(self, name: str) -> Value | None:
        """Return the operand of a single or optional group; None if it is absent."""
        start = 0
        for declared, size in zip(
            self.operation.spec.operands, self.operation.segments, strict=True
        ):
            if declared.name == name:
                return self.operands[start] if size else None
            start += size
        raise KeyError(f"{self.operation.name} has no operand {name!r}")

    def clone(self, mapping: dict[Value, Value]) -> Operation:
        """Clone the operation outside of any region, with operands replaced by ``mapping``.

        Add its results to ``mapping``.
        """
        operation = self.operation
        operands = [mapping.get(value, value) for value in self.operands]
        types = [result.type for result in operation.results]
        copy = Operation(
            operation.spec,
            operands,
            operation.segments,
            operation.attributes,
            types,
            location=operation.location,
        )
        for old, new in zip(operation.results, copy.results, strict=True):
            new.name, new.layout = old.name, old.layout
            mapping[old] = new
        return copy


@dataclass(frozen=True, slots=True)
class Slice:
    """Operations of one iteration that compute the operands of loads.

    They have the operands that they had when the slice was taken.

    Attributes:
        operations: the operations, in program order.
        carried: indices of the loop-carried values that they read.
        following: the values that the iteration yields for these, in the same order.
        counter: whether they read the induction variable.
        loads: the loads themselves.
    """

    operations: tuple[SliceReader, ...]
    carried: tuple[int, ...]
    following: tuple[Value, ...]
    counter: bool
    loads: tuple[SliceReader, ...]

    def load(self, load: Ahead) -> SliceReader:
        """Return a load of the slice, with the operands that it had."""
        return next(reader for reader in self.loads if reader.operation is load)


def slice_of(body: Region, loads: Iterable[Ahead], target: SimtTarget) -> Slice | None:
    """Return the operations to clone for the operands of ``loads`` in later iterations.

    None if they cannot be cloned, or are too many. The slice may contain loads, such as of a page
    table: nothing in the loop may write to memory.
    """
    last = body.terminator
    assert last is not None
    loads = tuple(loads)
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
            if not is_repeatable(owner, target) or len(needed) >= _SLICE_LIMIT:
                return None
            needed.add(owner)
            work += owner.operands
    indices = tuple(sorted(carried))
    return Slice(
        tuple([_reader(operation) for operation in body if operation in needed]),
        indices,
        tuple([last.operands[index] for index in indices]),
        counter,
        tuple([_reader(load) for load in loads]),
    )


def _reader(operation: Operation) -> SliceReader:
    return SliceReader(operation, tuple(operation.operands))


def is_repeatable(operation: Operation, target: SimtTarget) -> bool:
    """Return whether an operation can be computed again, or elsewhere, at little cost."""
    if isinstance(operation, Load):
        return not operation.volatile
    if isinstance(operation, Convert):
        (x,), (result,) = operation.operands, operation.results
        assert isinstance(x.type, TileType)
        plan = plan_conversion(layout_of(x), layout_of(result), x.type.element, target)
        return not isinstance(plan, SharedMove)
    return (
        operation.spec.pure and not operation.regions and not isinstance(operation, _NOT_REPEATED)
    )
