"""Sums of products in memory that the machine has for them: taken by the program, written and read by its threads, added to by products that one thread
starts."""

from __future__ import annotations

from typing import Final

from tilewright.ir.core import Operation, Value
from tilewright.ir.types import TileType
from tilewright.llvm.registers import constant
from tilewright.simt.context import SimtContext
from tilewright.simt.facts import layout_of
from tilewright.simt.interface import Interface, Reader, SharedEffects
from tilewright.simt.lowering.barrier_objects import barrier_address, in_one_thread
from tilewright.simt.lowering.shared import slot_address, slot_type
from tilewright.simt.matmul_plans import Accumulator, SharedOperand
from tilewright.simt.plans import plan_of
from tilewright.simt.target import SimtTarget

#: Bytes of shared memory in which the machine tells what it gave.
_SCRATCH: Final = 16


def lower_take(context: SimtContext, operation: Operation) -> None:
    """Scratch space is written by one warp, and read by all after a barrier."""
    context.bind(operation.result, [context.target.take_accumulators(context, operation.attribute("units"), context.scratch(operation))])


def lower_place(context: SimtContext, operation: Operation) -> None:
    memory, first = context.scalar(operation.operands[0]), operation.attribute("first")
    context.bind(operation.result, [context.writer.emit(f"add i32 {memory}, {first}") if first else memory])


def lower_load(context: SimtContext, operation: Operation) -> None:
    """Where nothing is there, zeros are chosen: a branch would need registers for both."""
    w, there, type_ = context.writer, operation.operand("there"), operation.result.type
    names = _accumulator(context, operation).load(context, context.scalar(operation.operands[0]))
    if there is not None:
        assert isinstance(type_, TileType)
        kind, zero, known = context.llvm_type(type_), constant(type_.element, 0), context.scalar(there)
        names = [w.emit(f"select i1 {known}, {kind} {name}, {kind} {zero}") for name in names]
    context.bind(operation.result, names)


def lower_store(context: SimtContext, operation: Operation) -> None:
    accumulator, x = operation.operands
    _accumulator(context, operation).store(context, context.scalar(accumulator), context.registers[x])


def lower_into(context: SimtContext, operation: Operation) -> None:
    a, b, accumulator, adds = operation.operands
    sources = [SharedOperand(slot_address(context, operand), slot_type(operand).layout, slot_type(operand).element) for operand in (a, b)]
    plan, sums = plan_of(operation, context.target), [context.scalar(accumulator), context.scalar(adds)]

    def start() -> None:
        plan.emit(context, sources[0], sources[1], sums)

    in_one_thread(context, operation, start)


def lower_arrive(context: SimtContext, operation: Operation) -> None:
    address = barrier_address(context, operation)
    in_one_thread(context, operation, lambda: context.target.barrier_arrive_after(context, address))


def lower_free(context: SimtContext, operation: Operation) -> None:
    taken = operation.operands[0].definition
    assert taken is not None
    context.target.free_accumulators(context, taken.attribute("units"), context.scalar(operation.operands[0]))


def _accumulator(context: SimtContext, operation: Operation) -> Accumulator:
    found = plan_of(operation, context.target).accumulator
    assert found is not None
    return found


# ---- what passes are told


def _check_tile(operation: Operation, target: SimtTarget) -> str:
    tile: Value = operation.results[0] if operation.results else operation.operands[1]
    return "" if layout_of(tile) == plan_of(operation, target).c else "the layout of the sums must be the plan's"


def _check_into(operation: Operation, target: SimtTarget) -> str:
    plan = plan_of(operation, target)
    for position, operand in enumerate(operation.operands[:2]):
        if not plan.can_read(position, slot_type(operand).layout):
            return f"{plan.name} cannot read {'ab'[position]} from shared memory in this layout"
    return ""


def _reads(operation: Operation) -> SharedEffects:
    slots = operation.operands[0], operation.operands[1]
    return SharedEffects(reads=slots, engines=slots)


def _announces(operation: Operation) -> SharedEffects:
    return SharedEffects(announced=((operation.operands[0], operation.operands[1]),))


def _describe(report: Reader, operation: Operation) -> list[str]:
    return [f"by {operation.attribute('plan')}"]


INTERFACES: dict[str, Interface] = {
    "simt.accumulators": Interface(lower_take, scratch=lambda operation, target: _SCRATCH),
    "simt.accumulator": Interface(lower_place),
    "simt.accumulator_load": Interface(lower_load, check=_check_tile, describe=_describe),
    "simt.accumulator_store": Interface(lower_store, check=_check_tile, describe=_describe),
    "simt.dot_into": Interface(lower_into, check=_check_into, effects=_reads, describe=_describe),
    "simt.arrive_after": Interface(lower_arrive, effects=_announces),
    "simt.free_accumulators": Interface(lower_free),
}
