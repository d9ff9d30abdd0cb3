"""``dot``, by the plans of :class:`~tilewright.simt.target.DotPlan`: operands come in registers, or are read from shared memory as they are needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.errors import LoweringError
from tilewright.ir.core import Operation, Value
from tilewright.ir.types import TileType, Type, element_type
from tilewright.llvm.registers import storage_size
from tilewright.simt.assignment import Assignment
from tilewright.simt.context import SimtContext
from tilewright.simt.linear_layout import LinearLayout, SharedLayout, coordinates, log2
from tilewright.simt.lowering.shared import buffer_address, read_by_dot
from tilewright.simt.lowering.shared_accesses import places, plan_accesses, read, read_tile, write_tile
from tilewright.simt.swizzle import shared_between
from tilewright.simt.target import DotPlan, SharedOperand, SimtTarget


def lower_dot(context: SimtContext, operation: Operation) -> None:
    plan = context.assignment.dots[operation]
    a, b, c = operation.operands
    context.bind(
        operation.results[0], (_from_shared if plan.emit_shared is not None else _from_registers)(context, operation, plan, a, b, context.registers[c])
    )


def _shared_load(value: Value) -> Operation | None:
    """The load from shared memory that was left to the reader of ``value``."""
    load = value.definition
    return load if load is not None and load.name == "simt.shared_load" and read_by_dot(load) else None


def _from_shared(context: SimtContext, operation: Operation, plan: DotPlan, a: Value, b: Value, c: list[str]) -> list[str]:
    assert plan.emit_shared is not None
    operands: list[SharedOperand] = []
    offset = 0
    for value, layout in ((a, plan.a), (b, plan.b)):
        element = element_type(value.type)
        load = _shared_load(value)
        if load is not None:
            operands.append(SharedOperand(buffer_address(context, load), context.assignment.shared[load], element))
            continue
        target, source = context.target, context.layout(value)
        shared = shared_between(source, layout, storage_size(element), target.max_access, target.banks)
        address = context.scratch(operation, offset)
        write_tile(context, address, source, shared, element, context.registers[value])
        operands.append(SharedOperand(address, shared, element))
        offset += _bytes(value)
    if offset:
        context.barrier()
    return plan.emit_shared(context, operands[0], operands[1], c)


def _from_registers(context: SimtContext, operation: Operation, plan: DotPlan, a: Value, b: Value, c: list[str]) -> list[str]:
    if plan.emit is None:
        raise LoweringError(f"the plan {plan.instruction} of the dot at {operation.location} has no instructions")
    fetch_a = _fetch(context, a, plan.a, len(plan.a.shape) - 1, plan.k_step, plan.load_a)
    fetch_b = _fetch(context, b, plan.b, len(plan.b.shape) - 2, plan.k_step, plan.load_b)
    for first in range(0, plan.a.shape[-1], plan.k_step or plan.a.shape[-1]):
        c = plan.emit(context, fetch_a(first), fetch_b(first), c)
    return c


def _fetch(
    context: SimtContext, value: Value, layout: LinearLayout, axis: int, k_step: int, load: Callable[..., list[str] | None] | None
) -> Callable[[int], list[str]]:
    """Gives the registers of the step that begins at a coordinate along ``axis``; of the whole tile where there are no steps."""
    source = _shared_load(value)
    if source is None:
        names = context.registers[value]
        return lambda first: [names[register] for register in step_registers(layout, axis, first, k_step)]
    return _reader(context, buffer_address(context, source), context.assignment.shared[source], element_type(value.type), layout, axis, k_step, load)


def _reader(
    context: SimtContext,
    address: str,
    shared: SharedLayout,
    element: Type,
    layout: LinearLayout,
    axis: int,
    k_step: int,
    load: Callable[..., list[str] | None] | None,
) -> Callable[[int], list[str]]:
    """The same for an operand that is in shared memory."""
    if load is not None:

        def fast(first: int) -> list[str]:
            found = load(context, address, shared, first) if k_step else load(context, address, shared)
            return found if found is not None else slow(first)

    if not k_step:

        def slow(first: int) -> list[str]:
            return read_tile(context, address, layout, shared, element)

    else:
        known: dict[int, str] = {}

        def slow(first: int) -> list[str]:
            wanted = step_registers(layout, axis, first, k_step)
            missing = {register for register in wanted if register not in known}
            plan = plan_accesses(context, layout, shared, element)
            if missing:
                for place in places(context, address, plan, element):
                    if missing.intersection(place.registers):
                        known.update(zip(place.registers, read(context, place, element), strict=True))
            return [known[register] for register in wanted]

    return fast if load is not None else slow


def lower_fragment_load(context: SimtContext, operation: Operation) -> None:
    plan, shared, element = context.assignment.dots[operation], context.assignment.shared[operation], operation.attribute("element")
    layout, axis, load = (plan.a, len(plan.a.shape) - 1, plan.load_a) if operation.attribute("operand") == 0 else (plan.b, len(plan.b.shape) - 2, plan.load_b)
    names = _reader(context, buffer_address(context, operation), shared, element, layout, axis, plan.k_step, load)(operation.attribute("first"))
    context.bind(operation.results[0], context.target.pack(context.writer, names, element))


def lower_dot_step(context: SimtContext, operation: Operation) -> None:
    plan = context.assignment.dots[operation]
    assert plan.emit is not None
    a, b, c = (context.registers[operand] for operand in operation.operands)
    a, b = (context.target.unpack(context.writer, words, operation.attribute(name)) for words, name in ((a, "a_element"), (b, "b_element")))
    context.bind(operation.results[0], plan.emit(context, a, b, c))


def fragment(plan: DotPlan, position: int, element: Type, num_warps: int, target: SimtTarget) -> tuple[TileType, LinearLayout]:
    """The type and the layout of a ``simt.fragment_load`` of an operand."""
    layout, axis = (plan.a, len(plan.a.shape) - 1) if position == 0 else (plan.b, len(plan.b.shape) - 2)
    word, count = target.fragment_word(element)
    registers, lanes, warps = len(step_registers(layout, axis, 0, plan.k_step)) // count, target.warp_size, num_warps
    shape = (registers * lanes * warps,)
    bits = [1 << bit for bit in range(log2(shape[0]))]
    threads = log2(lanes), log2(lanes * warps)
    return TileType(shape, word), LinearLayout(shape, tuple(bits[threads[1] :]), tuple(bits[: threads[0]]), tuple(bits[threads[0] : threads[1]]))


def step_registers(layout: LinearLayout, axis: int, first: int, step: int) -> Sequence[int]:
    """The registers whose coordinate along ``axis`` is in a step: from ``first``, a multiple of the power of two ``step``, on; all for step 0. What lanes
    and warps add to the coordinate is less than a step."""
    if not step:
        return range(layout.register_count)
    return [register for register, element in enumerate(layout.register_elements()) if coordinates(element, layout.shape)[axis] & -step == first]


def _bytes(value: Value) -> int:
    """Bytes of an operand in scratch memory, rounded up so that what follows is aligned."""
    assert isinstance(value.type, TileType)
    return -(-value.type.numel * storage_size(value.type.element) // 16) * 16


def staged_bytes(operation: Operation, assignment: Assignment, from_shared: Callable[[Value], bool]) -> int:
    """Scratch memory of a ``dot``, for the operands that have to be brought to shared memory and are not there, as ``from_shared`` says."""
    if assignment.dots[operation].emit_shared is None:
        return 0
    return sum(_bytes(value) for value in operation.operands[:2] if not from_shared(value))


def _scratch(operation: Operation, assignment: Assignment, target: SimtTarget) -> int:
    return staged_bytes(operation, assignment, lambda value: _shared_load(value) is not None)


LOWERINGS: dict[str, Callable[[SimtContext, Operation], None]] = {"dot": lower_dot, "simt.fragment_load": lower_fragment_load, "simt.dot_step": lower_dot_step}
SCRATCH = {"dot": _scratch}
