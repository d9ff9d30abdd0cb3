"""Matmul operands converted through shared memory: read them from there, one K step at a time.

A layout conversion reads the whole operand back into registers, with accesses as wide as both
layouts allow. The packed registers are then not in the order that the matrix instruction expects,
and all of them stay live until the matmul has completed. The target's fragment load (such as
``ldmatrix``) reads the fragments of one K step only, each into its register. One copy in shared
memory serves all matmuls that read an operand.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Operation, Value
from tilewright.ir.ops.control import For, While
from tilewright.ir.types import TileType, shape_of
from tilewright.llvm.emission.registers import storage_size
from tilewright.simt.analysis.register_pressure import hot_peak_words
from tilewright.simt.analysis.shared_views import View, renames, views_of
from tilewright.simt.dialect.attributes import PROGRAMS, WARPS, layout_of
from tilewright.simt.dialect.loop_carried import operations_of_program
from tilewright.simt.dialect.ops import SIMT_TABLE
from tilewright.simt.dialect.ops.buffers import Convert
from tilewright.simt.dialect.ops.dot import PlannedDot
from tilewright.simt.dialect.types import SlotType
from tilewright.simt.layouts.linear_layout import SharedLayout, axis_shifts, log2
from tilewright.simt.layouts.swizzle import shared_between, transactions
from tilewright.simt.passes.allocate_shared import bytes_in_use, scratch_of
from tilewright.simt.passes.sink_conversions import convert_last
from tilewright.simt.passes.stage_operands import staged
from tilewright.simt.target.conversion_plan import SharedMove, plan_conversion
from tilewright.simt.target.matmul_plan import OPERAND_ALIGNMENT, REGISTERS, MatmulPlan
from tilewright.simt.target.plan_selection import plan_of
from tilewright.simt.target.simt_target import SimtTarget


@dataclass(frozen=True, slots=True)
class _ConvertedRead:
    """Matmul that reads a converted view of a tile as an operand."""

    view: View
    conversion: Convert
    matmul: PlannedDot
    position: int
    plan: MatmulPlan

    def turns(self, shared: SharedLayout) -> int | None:
        """Return the wavefronts to load the operand from a shared layout of the tile."""
        assert self.plan.load_turns is not None
        return self.plan.load_turns(self.position, self.view.shared(shared))


def share_converted_operands(
    function: Function, target: SimtTarget, options: Mapping[str, Any]
) -> None:
    """Let matmuls read converted operands from shared memory if occupancy does not suffer."""
    operations = operations_of_program(function.body)
    if not any(
        isinstance(operation, PlannedDot) and plan_of(operation, target).load_turns is not None
        for operation in operations
    ):
        return
    for region in [
        function.body,
        *(region for operation in operations for region in operation.regions),
    ]:
        convert_last(region)
    sources: dict[Value, list[_ConvertedRead]] = {}
    for operation in operations_of_program(function.body):
        if isinstance(operation, Convert) and (source := _source(operation)) not in sources:
            conversions = [
                (view, user)
                for view in views_of(source)
                for user in view.value.uses
                if isinstance(user, Convert)
            ]
            sources[source] = [
                read
                for view, conversion in conversions
                for read in _reads(view, conversion, target)
            ]
    sources = {source: reads for source, reads in sources.items() if reads}
    if not sources:
        return
    room = _Room(function, target, options)
    for source, reads in sources.items():
        in_one_region = len({read.conversion.parent for read in reads}) == 1
        if in_one_region and (together := _best_layout(source, reads, target)) is not None:
            _share(source, reads, together, room)
            continue
        for conversion in dict.fromkeys(read.conversion for read in reads):
            own = [read for read in reads if read.conversion is conversion]
            if (shared := _best_layout(source, own, target)) is not None:
                _share(source, own, shared, room)


def _source(conversion: Convert) -> Value:
    """Return the tile whose view a conversion converts."""
    value = conversion.x
    while value.definition is not None and renames(value.definition):
        value = value.definition.x
    return value


def _reads(view: View, conversion: Convert, target: SimtTarget) -> list[_ConvertedRead]:
    """Matmuls that read a tile converted through shared memory.

    Empty if any other operation reads the result, or a loop repeats the read.
    """
    (result,) = conversion.results
    source = conversion.x.type
    assert isinstance(source, TileType)
    if not isinstance(
        plan_conversion(layout_of(conversion.x), layout_of(result), source.element, target),
        SharedMove,
    ):
        return []
    found = []
    for user in dict.fromkeys(result.uses):
        if (
            not isinstance(user, PlannedDot)
            or user.c is result
            or _loop_around(user) is not _loop_around(conversion)
        ):
            return []
        plan = plan_of(user, target)
        if plan.reads != (REGISTERS, REGISTERS) or not plan.k_step or plan.load_turns is None:
            return []
        found += [
            _ConvertedRead(view, conversion, user, position, plan)
            for position, operand in enumerate((user.a, user.b))
            if operand is result
        ]
    return found


def _loop_around(operation: Operation) -> Operation | None:
    return next((outer for outer in operation.ancestors() if isinstance(outer, For | While)), None)


def _best_layout(
    source: Value,
    reads: Sequence[_ConvertedRead],
    target: SimtTarget,
) -> SharedLayout | None:
    """Return the shared layout with the fewest wavefronts to store a tile and load it as operands.

    None if these are more than the cost of the conversions: their wavefronts, and as many moves of
    the values read to the registers of the matrix instruction.
    """
    assert isinstance(source.type, TileType)
    layout, size = layout_of(source), storage_size(source.type.element)
    machine = size, target.resources.max_access, target.resources.banks
    best, found = 0, None
    for conversion in dict.fromkeys(read.conversion for read in reads):
        sides = layout_of(conversion.x), layout_of(conversion.results[0])
        plan = plan_conversion(*sides, source.type.element, target)
        assert isinstance(plan, SharedMove)
        written, read_back = (transactions(side, plan.shared, *machine)[1] for side in sides)
        best += written + 2 * read_back
    for shared in _candidates(source, reads, target):
        turns = [read.turns(shared) for read in reads]
        total = transactions(layout, shared, *machine)[1] + sum(
            turn for turn in turns if turn is not None
        )
        if None not in turns and (total < best or (total == best and found is None)):
            best, found = total, shared
    return found


def _candidates(
    source: Value, reads: Sequence[_ConvertedRead], target: SimtTarget
) -> Iterable[SharedLayout]:
    """Candidate shared layouts of a tile.

    These are the layouts that the matmuls prefer, and layouts in which as many neighbours along an
    axis are contiguous as the widest access moves.
    """
    assert isinstance(source.type, TileType)
    layout, size = layout_of(source), storage_size(source.type.element)
    found: dict[SharedLayout, None] = {}
    for read in reads:
        found.update(
            dict.fromkeys(
                read.view.unviewed_shared(wish, layout.shape)
                for wish in read.plan.wishes(read.position)
            )
        )
        operand = read.view.unviewed(read.plan.operand(read.position), layout.shape)
        for shift, extent in zip(axis_shifts(layout.shape)[-2:], layout.shape[-2:], strict=True):
            bits = log2(target.resources.max_access // size)
            if extent >> bits:
                vector = tuple(1 << shift + bit for bit in range(bits))
                found[
                    shared_between(
                        layout,
                        operand,
                        size,
                        target.resources.max_access,
                        target.resources.banks,
                        0,
                        vector,
                    )
                ] = None
    return found


class _Room:
    """Shared memory available to a program at the occupancy that its registers allow."""

    def __init__(self, function: Function, target: SimtTarget, options: Mapping[str, Any]) -> None:
        threads = int(function.attributes[WARPS]) * target.resources.warp_size
        needed = min(
            target.resources.registers,
            options.get("maxnreg") or hot_peak_words(function) + target.costs.other_registers,
        )
        programs = function.attributes.get(PROGRAMS) or max(
            1, target.resources.register_file // (threads * needed)
        )
        self.target = target
        self.limit = max(0, target.resources.resident_memory(programs))
        self.taken = bytes_in_use(function.body, target)
        self.positions = {operation: position for position, operation in enumerate(self.taken)}
        self.operations = list(self.taken)

    def take(self, place: Operation, reads: Sequence[_ConvertedRead], size: int) -> bool:
        """Reserve ``size`` bytes up to the last matmul; return whether they fit.

        They replace the scratch space of the conversions.
        """
        conversions = {read.conversion for read in reads}
        last = max(self.positions[read.matmul] for read in reads)
        size = -(-size // OPERAND_ALIGNMENT) * OPERAND_ALIGNMENT
        taken = {}
        for operation in self.operations[self.positions[place] : last + 1]:
            taken[operation] = (
                self.taken[operation]
                + size
                - (scratch_of(operation, self.target) if operation in conversions else 0)
            )
        if max(taken.values()) > self.limit:
            return False
        self.taken.update(taken)
        return True


def _share(
    source: Value,
    reads: Sequence[_ConvertedRead],
    shared: SharedLayout,
    room: _Room,
) -> None:
    """Store a tile to shared memory, and let the matmuls read it, if it fits.

    The store stands after the tile's definition if nothing else holds the tile in registers, or
    else at the first conversion.
    """
    assert isinstance(source.type, TileType)
    conversions = list(dict.fromkeys(read.conversion for read in reads))
    places: list[Operation] = [min(conversions, key=room.positions.__getitem__)]
    made = source.definition
    users = {user for view in views_of(source) for user in view.value.uses if not renames(user)}
    if (
        made is not None
        and users == set(conversions)
        and _loop_around(made) is _loop_around(places[0])
    ):
        following = made.next
        while following is not None and following not in room.positions:
            following = following.next
        if following is not None:
            places.insert(0, following)
    size = source.type.numel * storage_size(source.type.element)
    place = next((place for place in places if room.take(place, reads, size)), None)
    if place is None:
        return
    slot = staged(place, source, shared)
    for read in reads:
        viewed = SlotType(
            shape_of(read.view.value.type), source.type.element, read.view.shared(shared)
        )
        operand = (
            slot
            if viewed == slot.type
            else Builder.at(read.matmul)
            .create(SIMT_TABLE["simt.view"], [[slot]], {}, (viewed,))
            .results[0]
        )
        read.matmul.set_operand(read.position, operand)
    for conversion in conversions:
        conversion.erase()
