"""Staging of matmul operands in shared memory, where the matmul's plan reads them.

An operand that each iteration of a loop stages for a matmul which is in flight until the next
iteration (:mod:`tilewright.simt.pipeline.defer_matmul_wait`) alternates between two slots:

    for each iteration i:
        ... compute the operand, while matmul i-1 is in flight
        barrier: all threads have waited for matmul i-2
        store the operand to slot i mod 2
        barrier
        start matmul i, which reads slot i mod 2; wait for matmul i-1
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Operation, Value
from tilewright.ir.ops.control import For, If
from tilewright.ir.types import I32, TileType
from tilewright.llvm.emission.registers import storage_size
from tilewright.simt.dialect.attributes import layout_of, warps_of
from tilewright.simt.dialect.loop_carried import CARRIERS, operations_of_program
from tilewright.simt.dialect.ops import SIMT_TABLE
from tilewright.simt.dialect.ops.buffers import Convert, SharedLoad
from tilewright.simt.dialect.ops.dot import Multiplication, PlannedDot
from tilewright.simt.dialect.pipeline_attributes import ALTERNATES
from tilewright.simt.dialect.types import BufferType, SlotType
from tilewright.simt.layouts.linear_layout import SharedLayout
from tilewright.simt.layouts.swizzle import shared_between, transactions
from tilewright.simt.passes.shared_moves import moving_layout
from tilewright.simt.passes.ssa_repair import carry_in_for, yield_more
from tilewright.simt.target.matmul_plan import OPERAND_ALIGNMENT, REGISTERS, MatmulPlan
from tilewright.simt.target.plan_selection import plan_of
from tilewright.simt.target.simt_target import SimtTarget


@dataclass(frozen=True, slots=True)
class _Read:
    """Matmul that reads an operand from shared memory."""

    matmul: Multiplication
    position: int


def stage_operands(function: Function, target: SimtTarget) -> None:
    """Stage the operands in registers that plans read from shared memory.

    Matmuls that read an operand in the same shared layout share one copy.
    """
    reads: dict[tuple[Value, SharedLayout], list[_Read]] = {}
    for operation in operations_of_program(function.body):
        if isinstance(operation, Multiplication):
            plan = plan_of(operation, target)
            for position, operand in enumerate((operation.a, operation.b)):
                if plan.reads[position] != REGISTERS and isinstance(operand.type, TileType):
                    shared = staging_layout(plan, position, operand, target)
                    reads.setdefault((operand, shared), []).append(_Read(operation, position))
    for (operand, shared), found in reads.items():
        _move_well(operand, shared, target)
        place = _place_before([read.matmul for read in found], operand)
        loop = place.parent.owner if place.parent is not None else None
        if any(ALTERNATES in read.matmul.attributes for read in found) and isinstance(loop, For):
            slot = _staged_alternately(loop, place, operand, shared)
        else:
            slot = staged(place, operand, shared)
        for read in found:
            read.matmul.set_operand(read.position, slot)


def staging_layout(
    plan: MatmulPlan, position: int, operand: Value, target: SimtTarget
) -> SharedLayout:
    """Return the shared layout to stage an operand in.

    Of the layouts that the plan can read, it is the one that takes the fewest wavefronts to write.
    """
    assert isinstance(operand.type, TileType)
    layout, size = layout_of(operand), storage_size(operand.type.element)
    wishes = plan.wishes(position)
    if not wishes:
        return shared_between(
            layout,
            plan.operand(position),
            size,
            target.resources.max_access,
            target.resources.banks,
        )
    return min(
        wishes,
        key=lambda wish: transactions(
            layout, wish, size, target.resources.max_access, target.resources.banks
        )[::-1],
    )


def staged_bytes(operation: Multiplication, target: SimtTarget, elsewhere: set[Value]) -> int:
    """Return the bytes of shared memory to stage the operands of a matmul, except ``elsewhere``."""
    plan, found = plan_of(operation, target), 0
    for position, operand in enumerate((operation.a, operation.b)):
        if (
            plan.reads[position] != REGISTERS
            and isinstance(operand.type, TileType)
            and operand not in elsewhere
        ):
            found += -(-operand.type.numel * storage_size(operand.type.element) // 16) * 16
    return found


def put_in_shared(matmul: PlannedDot, position: int, target: SimtTarget) -> Value:
    """Stage an operand in shared memory before the outermost loop it is invariant in.

    Return its slot. The matmul reads the operand from registers.
    """
    operand = (matmul.a, matmul.b)[position]
    place, conversion = _outermost(matmul, operand), operand.definition
    if isinstance(conversion, Convert):
        operand = conversion.x
    return staged(
        place, operand, staging_layout(plan_of(matmul, target), position, operand, target)
    )


def _move_well(operand: Value, shared: SharedLayout, target: SimtTarget) -> None:
    """Give a tile that only moves between two places in shared memory the best layout for that."""
    load = operand.definition
    if not isinstance(load, SharedLoad) or len(operand.uses) != 1:
        return
    source = load.slot.type
    assert isinstance(source, SlotType) and isinstance(operand.type, TileType)
    size, warps = storage_size(operand.type.element), warps_of(load)
    layout = moving_layout(
        source.layout,
        shared,
        size,
        target.resources.warp_size,
        warps,
        target.resources.max_access,
        target.resources.banks,
    )
    if layout is not None:
        operand.layout = layout


def staged(place: Operation, operand: Value, shared: SharedLayout) -> Value:
    """Store an operand to shared memory before an operation."""
    builder = Builder.at(place)
    buffer = _buffer(builder, 1, operand, shared)
    slot = _slot(builder, buffer, builder.constant(value=0, result=I32))
    builder.create(SIMT_TABLE["simt.store"], [[slot], [operand]], {})
    return slot


def _staged_alternately(loop: For, place: Operation, operand: Value, shared: SharedLayout) -> Value:
    """Store an operand to one of two slots in each iteration of a loop, before an operation."""
    before, builder = Builder.at(loop), Builder.at(place)
    buffer = _buffer(before, 2, operand, shared)
    which = carry_in_for(loop, before.constant(value=0, result=I32))
    slot = _slot(builder, buffer, which)
    builder.barrier()
    builder.create(SIMT_TABLE["simt.store"], [[slot], [operand]], {"ordered": True})
    builder.barrier()
    yield_more(loop.body, [builder.xor(which, builder.constant(value=1, result=I32))])
    return slot


def _buffer(builder: Builder, count: int, operand: Value, shared: SharedLayout) -> Value:
    assert isinstance(operand.type, TileType)
    type_ = BufferType(count, operand.type.shape, operand.type.element, shared)
    return builder.create(
        SIMT_TABLE["simt.buffer"], [], {"alignment": OPERAND_ALIGNMENT}, (type_,)
    ).results[0]


def _slot(builder: Builder, buffer: Value, which: Value) -> Value:
    return builder.create(SIMT_TABLE["simt.slot"], [[buffer], [which]], {}).results[0]


def _place_before(matmuls: list[Operation], operand: Value) -> Operation:
    """Return the operation before which to stage an operand of several matmuls.

    That is the first matmul, or the outermost loop around it in which the operand is invariant. If
    the matmuls are in different regions, it is the operation that contains the first one, in the
    innermost region that contains all of them.
    """
    first = matmuls[0]
    if len(matmuls) == 1:
        return _outermost(first, operand)
    paths = [_within(matmul, operand) for matmul in matmuls]
    depth = 0
    while all(len(path) > depth and path[depth].parent is paths[0][depth].parent for path in paths):
        depth += 1
    return _outermost(paths[0][depth - 1], operand)


def _within(operation: Operation, operand: Value) -> list[Operation]:
    """Return the ancestors of an operation up to the operand's region, outermost first.

    The operation itself is last.
    """
    owner = operand.owner
    home = owner.parent if isinstance(owner, Operation) else owner
    path = [operation]
    while path[-1].parent is not home:
        region = path[-1].parent
        assert region is not None and isinstance(region.owner, Operation)
        path.append(region.owner)
    return path[::-1]


def _outermost(matmul: Operation, operand: Value) -> Operation:
    """Return the matmul, or the outermost loop around it in which an operand is invariant."""
    place = inner = matmul
    owner = operand.owner
    home = owner.parent if isinstance(owner, Operation) else owner
    for outer in matmul.ancestors():
        if not isinstance(outer, CARRIERS) or inner.parent is home:
            break
        inner = outer
        if not isinstance(outer, If):
            place = outer
    return place
