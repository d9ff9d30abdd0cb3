"""Choice of the plan of each matmul: the target's first one, or one that avoids staging."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilewright.ir.core import Operation, Region, Value
from tilewright.ir.ops.control import For
from tilewright.ir.ops.linear import Dot
from tilewright.ir.ops.memory import DescriptorLoad, Load
from tilewright.ir.order import SEQUENTIAL
from tilewright.ir.types import TileType, bit_width, element_type
from tilewright.simt.analysis.pipelined_loads import is_copyable, is_plain
from tilewright.simt.analysis.shared_views import named_before, renames, views_of
from tilewright.simt.assign_layouts.resident_operands import ResidentOperands
from tilewright.simt.assign_layouts.solver import tile_shape
from tilewright.simt.assign_layouts.tile_access import TileAccess
from tilewright.simt.dialect.attributes import note
from tilewright.simt.dialect.pipeline_attributes import Ahead
from tilewright.simt.layouts.linear_layout import (
    SharedLayout,
    axis_shifts,
    log2,
)
from tilewright.simt.target.fma_plan import FMA, FMA_IN_SEQUENCE, fma_plan
from tilewright.simt.target.matmul_plan import REGISTERS, MatmulPlan, matmul_of
from tilewright.simt.target.plan_selection import plans
from tilewright.simt.target.simt_target import SimtTarget


@dataclass(frozen=True, slots=True)
class _Copied:
    """Element of a tile in shared memory from which a matmul operand is computed.

    Attributes:
        bits: of an element.
        neighbour: the XOR of the row-major operand indices of two elements that are neighbours in
            memory, as one bit.
    """

    bits: int
    neighbour: int


class PlanChoice:
    """Plans of the matmuls of a function.

    Attributes:
        plans: the plan of each matmul that has one.
        loops: the pipelined loops.
    """

    def __init__(
        self,
        target: SimtTarget,
        accesses: Mapping[Operation, TileAccess],
        loops: Sequence[For],
        num_warps: int,
    ) -> None:
        self.target, self.accesses, self.loops = target, accesses, loops
        self._residents = ResidentOperands(target, num_warps)
        self.plans: dict[Operation, MatmulPlan] = {}

    def choose(self, operation: Dot) -> MatmulPlan:
        """Choose the plan of a matmul: the target's first choice, or one that avoids staging.

        The latter reads operands from registers that are there anyway.
        """
        matmul = matmul_of(operation)
        if operation.order == SEQUENTIAL:
            plan = self.plans[operation] = fma_plan(self.target, matmul, FMA_IN_SEQUENCE)
            return plan
        plan = (
            self._in_place(operation)
            or self._by_rows(operation)
            or self._copied_before(operation)
            or self._by_pairs(operation)
            or self._resident(operation)
            or plans(matmul, self.target)[0]
        )
        if plan.name == FMA:
            a, b = operation.a.type, operation.b.type
            note(
                operation,
                f"no matrix instruction for {a} by {b} in {matmul.accumulator} "
                f"({matmul.precision}): multiplied and added",
            )
        self.plans[operation] = plan
        return plan

    def _in_place(self, operation: Dot) -> MatmulPlan | None:
        """Return a plan that reads the first operand in place, in registers.

        Applies if the operand is computed elementwise from a matmul's result, in the result's
        layout, and the target would prefer to stage it in shared memory. None otherwise.
        """
        known = plans(matmul_of(operation), self.target)
        if known[0].reads[0] == REGISTERS:
            return None
        for source in self._computed_from(operation.a):
            for plan in known:
                if plan.reads == (REGISTERS, known[0].reads[1]) and plan.a == self.plans[source].c:
                    return plan
        return None

    def _copied_before(self, operation: Dot) -> MatmulPlan | None:
        """Return a plan that reads a copied operand through registers instead of staging it again.

        Applies to an operand that is computed from a tile copied to shared memory, or that lies
        there in a layout no instruction reads, if each warp has its own part of it. If the copied
        elements are narrower than the operand's, threads load less than a word at a time: this
        applies only if nothing else must then be staged in shared memory.
        """
        known = plans(matmul_of(operation), self.target)
        loop = next((loop for loop in self.loops if loop.body is operation.parent), None)
        if loop is None or known[0].reads == (REGISTERS, REGISTERS):
            return None
        first, second = known[0].reads
        operands = operation.a, operation.b
        copied = [
            self._copied_elements(operand, loop.body, known[0].wishes(position))
            for position, operand in enumerate(operands)
        ]
        for position, reads in enumerate(((REGISTERS, second), (first, REGISTERS))):
            fitting = [
                plan for plan in known if plan.reads == reads and all(plan.operand(position).warps)
            ]
            source = copied[position]
            if not fitting or source is None:
                continue
            if (
                source.bits < bit_width(element_type(operands[position].type))
                and copied[1 - position] is not None
            ):
                continue
            if source.bits > 8:
                return fitting[0]
            # one load reads neighbouring bytes if one thread holds them
            return next(
                (plan for plan in fitting if source.neighbour in plan.operand(position).registers),
                fitting[0],
            )
        return None

    def _by_pairs(self, operation: Dot) -> MatmulPlan | None:
        """Return a plan that reads both operands from registers in runs along K, or None.

        Applies if one operand is computed from narrower elements in shared memory: a thread then
        holds neighbours along K, and loads them together.
        """
        known = plans(matmul_of(operation), self.target)
        loop = next((loop for loop in self.loops if loop.body is operation.parent), None)
        if loop is None or known[0].reads != (REGISTERS, REGISTERS):
            return None
        for position, operand in enumerate((operation.a, operation.b)):
            source = self._copied_elements(operand, loop.body, ())
            if source is not None and source.bits < min(32, bit_width(element_type(operand.type))):
                for plan in known:
                    if (
                        plan.reads == known[0].reads
                        and source.neighbour in plan.operand(position).registers
                    ):
                        return plan
        return None

    def _resident(self, operation: Dot) -> MatmulPlan | None:
        """Return a plan that keeps a loop-invariant first operand in registers, or None."""
        loop = next((loop for loop in self.loops if loop.body is operation.parent), None)
        if loop is None:
            return None
        known = plans(matmul_of(operation), self.target)
        return self._residents.plan(operation, loop.body, known)

    def _copied_elements(
        self, operand: Value, body: Region, readable: Sequence[SharedLayout]
    ) -> _Copied | None:
        """Return the narrowest elements in shared memory that an operand is computed from.

        Only elementwise arithmetic on tiles as large as the operand counts. None if there are none,
        or if the operand depends on another matmul. If the operand is such a tile itself, None as
        well, unless there are ``readable`` layouts and none of them keeps neighbours together.
        """
        count = log2(math.prod(tile_shape(operand)))
        work, seen, computed = (
            [(operand, tuple(1 << bit for bit in range(count)))],
            {operand},
            False,
        )
        found: list[_Copied] = []
        while work:
            value, bits = work.pop()
            operation = value.definition
            if operation is None or operation.parent is not body:
                continue
            if isinstance(operation, Dot):
                return None
            if isinstance(operation, Ahead) and self.is_copied(operation):
                if len(bits) == count:
                    found.append(
                        _Copied(
                            bit_width(element_type(value.type)), bits[self._fastest_bit(operation)]
                        )
                    )
            elif operation.spec.elementwise or renames(operation):
                computed |= operation.spec.elementwise
                for source in operation.operands:
                    if source not in seen and isinstance(source.type, TileType):
                        seen.add(source)
                        work.append(
                            (source, named_before(operation, bits) if renames(operation) else bits)
                        )
        narrowest = min(found, key=lambda one: one.bits, default=None)
        if narrowest is None or computed:
            return narrowest
        return (
            narrowest
            if readable and all(layout.offset(narrowest.neighbour) != 1 for layout in readable)
            else None
        )

    def _fastest_bit(self, load: Ahead) -> int:
        """Return the bit of the row-major index in which neighbours in memory differ."""
        shape = tile_shape(load.results[0])
        axis = self.accesses[load].order[0] if isinstance(load, Load) else len(shape) - 1
        return axis_shifts(shape)[axis]

    def _by_rows(self, operation: Dot) -> MatmulPlan | None:
        """Return a plan that keeps whole rows in one warp, for back-to-back matmuls."""
        plan = next(
            (plan for plan in plans(matmul_of(operation), self.target) if plan.whole_rows), None
        )
        return (
            plan
            if plan is not None
            and (self._computed_from(operation.a) or _feeds_matmul(operation.results[0]))
            else None
        )

    def _computed_from(self, value: Value) -> list[Dot]:
        """Matmuls from whose results a tile is computed elementwise."""
        found, work, seen = [], [value], {value}
        while work:
            operation = work.pop().definition
            if operation is None:
                continue
            if isinstance(operation, Dot) and operation in self.plans:
                found.append(operation)
            elif operation.spec.elementwise:
                fresh = [
                    operand
                    for operand in operation.operands
                    if operand not in seen and isinstance(operand.type, TileType)
                ]
                seen.update(fresh)
                work += fresh
        return found

    def is_multiplied_there(self, load: Ahead) -> bool:
        """Return whether all readers of a load are matmuls that read it from shared memory."""
        for view in views_of(load.results[0]):
            for user in view.value.uses:
                if renames(user):
                    continue
                if not isinstance(user, Dot) or view.value is user.c:
                    return False
                reads = self.plans[user].reads
                if any(
                    operand is view.value and reads[position] == REGISTERS
                    for position, operand in enumerate((user.a, user.b))
                ):
                    return False
        return True

    def is_copied(self, load: Ahead) -> bool:
        """Return whether the target can copy a load asynchronously, given its addresses."""
        if isinstance(load, DescriptorLoad) or load not in self.accesses:
            return isinstance(load, DescriptorLoad)
        widths = [
            width for mechanism in self.target.async_copy.mechanisms for width in mechanism.widths
        ]
        access = self.accesses[load]
        return (
            (is_copyable(load) and access.vector * access.size >= min(widths))
            if widths
            else is_plain(load)
        )


def _feeds_matmul(value: Value) -> bool:
    """Return whether a matmul's first operand is computed elementwise from a tile."""
    work, seen = [value], {value}
    while work:
        tile = work.pop()
        for user in tile.uses:
            if isinstance(user, Dot) and user.a is tile:
                return True
            if user.spec.elementwise and user.results[0] not in seen:
                seen.add(user.results[0])
                work.append(user.results[0])
    return False
