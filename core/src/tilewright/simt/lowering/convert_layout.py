"""Lowering of ``simt.convert`` by the plans of :mod:`tilewright.simt.target.conversion_plan`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tilewright.ir.core import Operation, Value
from tilewright.ir.types import Type, element_type
from tilewright.llvm.emission.registers import storage_size
from tilewright.simt.dialect.attributes import layout_of
from tilewright.simt.dialect.loop_carried import is_repeated
from tilewright.simt.dialect.op_interface import Interface, Reader
from tilewright.simt.dialect.registry import register_interfaces
from tilewright.simt.layouts.linear_layout import LinearLayout, combine
from tilewright.simt.lowering.emission.context import SimtContext
from tilewright.simt.lowering.emission.shared_access import (
    Place,
    places,
    plan_accesses,
    read,
    when,
    write,
    writing_warp,
)
from tilewright.simt.lowering.emission.shuffles import exchange, packed, unpacked
from tilewright.simt.target.conversion_plan import (
    PackedBit,
    SharedMove,
    WarpMove,
    plan_conversion,
    scratch_bytes,
    variables_in_groups,
)
from tilewright.simt.target.simt_target import SimtTarget


def lower_convert(context: SimtContext, operation: Operation) -> None:
    (x,), (result,) = operation.operands, operation.results
    context.bind(result, convert(context, operation, x, context.layout(result)))


def convert(
    context: SimtContext, operation: Operation, x: Value, layout: LinearLayout
) -> list[str]:
    """Return the registers of ``x`` in another layout; ``operation`` has the scratch space."""
    element, names = element_type(x.type), context.registers[x]
    source = context.layout(x)
    plan = plan_conversion(source, layout, element, context.target)
    if isinstance(plan, WarpMove):
        return _move_within_warp(context, plan, element, names)
    return _move_through_shared(context, plan, operation, element, names, source, layout)


def _move_within_warp(
    context: SimtContext, plan: WarpMove, element: Type, names: list[str]
) -> list[str]:
    if bits := plan.words(storage_size(element)):
        return _move_words(context, plan, element, names, bits)
    type_ = context.llvm_type(element)
    registers = _rotate(context, type_, dict(enumerate(names)), context.lane, plan.lanes_before)
    registers = _rotate(context, type_, registers, context.warp, plan.warps_before)
    variables = [
        registers[combine(plan.variables, number)] for number in range(1 << len(plan.variables))
    ]
    if plan.shuffles:
        variables = _shuffle(context, plan, element, variables)
    results = _rotate(context, type_, dict(enumerate(variables)), context.lane, plan.lanes_after)
    return [results[number] for number in range(plan.results)]


def _move_words(
    context: SimtContext, plan: WarpMove, element: Type, names: list[str], bits: Sequence[PackedBit]
) -> list[str]:
    """Move elements within a warp as packed 32-bit words, from the first step to the last."""
    w, type_, count = context.writer, context.llvm_type(element), 1 << len(bits)
    members = [combine([bit.register for bit in bits], place) for place in range(count)]
    words = {
        number: packed(w, type_, [names[number ^ member] for member in members])
        for number in range(len(names))
        if not _place(bits, number)
    }
    words = _rotate(context, "i32", words, context.lane, plan.lanes_before)
    words = _rotate(context, "i32", words, context.warp, plan.warps_before)
    sources = {
        number: combine(plan.variables, number) for number in range(1 << len(plan.variables))
    }
    moved = {
        number: words[register]
        for number, register in sources.items()
        if not _place(bits, register)
    }
    changes: dict[int, list[int]] = {}
    for number in moved:
        changes.setdefault(combine(plan.source_of_variable, number), []).append(number)
    of_lane = _exchange_of(context, plan)
    for change, numbers in changes.items():
        if (shuffle := of_lane(change)) is not None:
            moved.update(zip(numbers, shuffle([moved[number] for number in numbers]), strict=True))
    moved = _rotate(context, "i32", moved, context.lane, plan.lanes_after)
    variables = [bit.variable for bit in bits]
    found = {number: unpacked(w, type_, word, count) for number, word in moved.items()}
    places = {number: _place(bits, sources[number]) for number in range(plan.results)}
    return [found[number ^ combine(variables, place)][place] for number, place in places.items()]


def _place(bits: Sequence[PackedBit], register: int) -> int:
    """Return the place of a source register in its packed word."""
    return sum(bit.of(register) << place for place, bit in enumerate(bits))


def _rotate(
    context: SimtContext, type_: str, values: dict[int, str], number: str, images: Sequence[int]
) -> dict[int, str]:
    """Permute each thread's values by the xor of the ``images`` of the bits of ``number``."""
    w = context.writer
    for bit, image in enumerate(images):
        if image:
            condition = w.emit(f"icmp ne i32 {w.emit(f'and i32 {number}, {1 << bit}')}, 0")
            values = {
                i: name
                if name == values[i ^ image]
                else w.emit(f"select i1 {condition}, {type_} {values[i ^ image]}, {type_} {name}")
                for i, name in values.items()
            }
    return values


def _exchange_of(
    context: SimtContext, plan: WarpMove
) -> Callable[[int], Callable[[list[str]], list[str]] | None]:
    """Return a function from a change of the source lane to a shuffle of words.

    The function returns None if the words stay in their lanes.
    """
    w, target = context.writer, context.target
    in_place = all(image == 1 << bit for bit, image in enumerate(plan.source_of_lane)) and not any(
        plan.source_of_warp
    )
    lane = "" if in_place else context.thread_part(plan.source_of_lane, plan.source_of_warp)

    def of_lane(change: int) -> Callable[[list[str]], list[str]] | None:
        if in_place:
            return (
                (lambda words: target.lanes.shuffle_all_xor(w, words, change)) if change else None
            )
        from_ = w.emit(f"xor i32 {lane}, {change}") if change else lane
        return lambda words: target.lanes.shuffle_all(w, words, from_)

    return of_lane


def _shuffle(
    context: SimtContext, plan: WarpMove, element: Type, variables: list[str]
) -> list[str]:
    moved, of_lane = list(variables), _exchange_of(context, plan)
    for group in variables_in_groups(len(variables), plan.packed_bits(storage_size(element))):
        shuffle = of_lane(combine(plan.source_of_variable, group[0]))
        if shuffle is None:
            continue
        values = exchange(
            context.writer,
            context.llvm_type(element),
            [variables[number] for number in group],
            shuffle,
        )
        for number, name in zip(group, values, strict=True):
            moved[number] = name
    return moved


def _move_through_shared(
    context: SimtContext,
    plan: SharedMove,
    operation: Operation,
    element: Type,
    names: list[str],
    source: LinearLayout,
    layout: LinearLayout,
) -> list[str]:
    """Convert through shared memory in rounds: write, barrier, read.

    A round moves the elements whose offset's highest bits are the round's number.
    """
    w, type_ = context.writer, context.llvm_type(element)
    base = context.scratch(operation)
    bits = len(plan.shared.images) - plan.round_bits
    sides = []
    for side in (source, layout):
        accesses = plan_accesses(context, side, plan.shared, element)
        lanes, warps = (
            [image >> bits for image in images] for images in (accesses.lanes, accesses.warps)
        )
        varying = context.thread_part(lanes, warps) if any(lanes) or any(warps) else None
        sides.append((places(context, base, accesses, element, (1 << bits) - 1), varying))
    (writes, write_round), (reads, read_round) = sides
    writer = writing_warp(context, source)
    result = [""] * layout.register_count

    def passing(place: Place, number: int, varying: str | None) -> str | bool:
        """Return whether the elements at a place move in a round, or an i1 of the thread."""
        own = place.offset_bits >> bits
        return (
            own == number if varying is None else w.emit(f"icmp eq i32 {varying}, {own ^ number}")
        )

    def write_round_of(number: int) -> None:
        for place in writes:
            now = passing(place, number, write_round)
            if now is False:
                continue
            when(
                context,
                None if now is True else str(now),
                lambda place=place: write(context, place, element, names),
            )

    own = _is_within_warps(operation, context.target)
    meet = context.warp_barrier if own else context.barrier
    if own:  # lanes of a warp may still read what they last exchanged there
        meet()
    for number in range(1 << plan.round_bits):
        if number:
            meet()
        when(context, writer, lambda number=number: write_round_of(number))
        meet()
        for place in reads:
            now = passing(place, number, read_round)
            if now is False:
                continue
            for register, name in zip(place.registers, read(context, place, element), strict=True):
                if now is not True and number:
                    name = w.emit(f"select i1 {now}, {type_} {name}, {type_} {result[register]}")
                result[register] = name
    return result


def _scratch(operation: Operation, target: SimtTarget) -> int:
    (x,), (result,) = operation.operands, operation.results
    element = element_type(x.type)
    return scratch_bytes(plan_conversion(layout_of(x), layout_of(result), element, target), element)


def _is_within_warps(operation: Operation, target: SimtTarget) -> bool:
    """Return whether warps exchange elements by themselves.

    Outside of loops they meet at a barrier, which takes fewer registers than running apart.
    """
    if not is_repeated(operation):
        return False
    (x,), (result,) = operation.operands, operation.results
    plan = plan_conversion(layout_of(x), layout_of(result), element_type(x.type), target)
    return isinstance(plan, SharedMove) and plan.within_warps


def _describe(report: Reader, operation: Operation) -> list[str]:
    (x,), (result,) = operation.operands, operation.results
    source, layout, element = layout_of(x), layout_of(result), element_type(x.type)
    plan = plan_conversion(source, layout, element, report.target)
    size = storage_size(element)
    facts = [f"from {report.layout(x)}"]
    if isinstance(plan, WarpMove):
        shuffles, selects = plan.shuffle_count(size), plan.select_count(size)
        facts.append(
            f"{shuffles} shuffles and {selects} selects a thread"
            if shuffles or selects
            else "registers are renamed"
        )
        return facts
    bytes_moved, rounds = math.prod(layout.shape) * size, 1 << plan.round_bits
    facts.append(
        f"{bytes_moved} bytes through {scratch_bytes(plan, element)} bytes of shared "
        f"memory{f' in {rounds} rounds' if rounds > 1 else ''}"
    )
    return [
        *facts,
        report.traffic("written", source, plan.shared, element),
        report.traffic("read", layout, plan.shared, element),
    ]


INTERFACES = register_interfaces(
    {
        "simt.convert": Interface(
            lower_convert, scratch=_scratch, within_warps=_is_within_warps, describe=_describe
        )
    }
)
