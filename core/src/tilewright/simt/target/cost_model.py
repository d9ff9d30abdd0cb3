"""What things cost, roughly, in issue slots of one warp: the measure by which layouts are chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tilewright.ir.core import Operation, Value
from tilewright.ir.ops.arithmetic import Div
from tilewright.ir.table import Trait
from tilewright.ir.types import IntType, PointerType, TileType, bit_width, element_type
from tilewright.llvm.emission.registers import storage_size
from tilewright.passes.analysis.axis import AxisInfo
from tilewright.passes.rewriter import constant_of
from tilewright.simt.layouts.linear_layout import Basis, LinearLayout, SharedLayout, axis_shifts

#: Operations that no machine has an instruction for, beside those that only move or repeat
#: elements.
_FREE: Final = frozenset({"constant", "arange", "hint", "bitcast"})


@dataclass(frozen=True, slots=True)
class MachineCosts:
    """What things cost on a machine, in issue slots of one warp unless said otherwise.

    A target measures and states them; the toolkit has none of its own.

    Attributes:
        operations: slots for each register of the result, of the operations that take more or less
            than one.
        sector: bytes that memory moves at least.
        line, line_turn: bytes of a line of the cache, and what each line that a store touches
            takes.
        access: slots of an access of memory, beside what its sectors take.
        trip: what a trip of a tile through shared memory takes beside its accesses: barriers, and
            the time until the data are there.
        shuffle: the time until a shuffle's result is there.
        shuffled_word, stored_word, selected_word: slots for each 32-bit word that is shuffled, or
            written to and read from shared memory, or selected.
        barrier: what a barrier and the wait for shared memory cost, in the time of one shuffle.
        selects_per_shuffle: selects that a machine does in the time of a shuffle.
        scratch: bytes of shared memory that a conversion asks for at most; greater tiles go in
            rounds.
        other_registers: registers that a thread needs for all but tiles and the addresses of
            copies, in a pipelined loop.
    """

    operations: Mapping[str, float] = field(hash=False)
    sector: int
    line: int
    line_turn: float
    access: float
    trip: float
    shuffle: float
    shuffled_word: float
    stored_word: float
    selected_word: float
    barrier: int
    selects_per_shuffle: int
    scratch: int
    other_registers: int


def operation_cost(operation: Operation, costs: MachineCosts) -> float:
    """Slots for each register of the result of an elementwise or shape operation."""
    cost = 0.0 if Trait.SHAPE in operation.spec.traits or operation.name in _FREE else costs.operations.get(operation.name, 1.0)
    if not cost:
        return cost
    element = element_type(operation.results[0].type)
    if isinstance(operation, Div) and isinstance(element, IntType):
        divisor = constant_of(operation.b)
        if isinstance(divisor, int) and divisor > 0 and divisor & (divisor - 1) == 0:
            cost = 1.0
    return cost * 2 if isinstance(element, PointerType) or bit_width(element) == 64 else cost


def conversion_cost(source: LinearLayout, target: LinearLayout, bits: int, costs: MachineCosts) -> float:
    """Slots to bring a tile of ``bits`` wide elements from one layout to another: nothing where
    each thread has what it needs, shuffles where its warp has, else a trip through shared memory."""
    if source == target:
        return 0.0
    words = max(bits / 32, 0.25)
    registers = Basis(source.registers)
    threads = [a ^ b for a, b in zip((*source.lanes, *source.warps), (*target.lanes, *target.warps), strict=True)]
    if all(registers.solve(image) is not None for image in (*threads, *target.registers)):
        return costs.selected_word * words * target.register_count * sum(1 for image in threads if image)  # which register depends on the thread: selects
    through_memory = costs.trip + costs.stored_word * words * (source.register_count + target.register_count)
    warp = Basis((*source.registers, *source.lanes))
    warps = [a ^ b for a, b in zip(source.warps, target.warps, strict=True)]
    if all(warp.solve(image) is not None for image in (*warps, *target.lanes, *target.registers)):
        return min(through_memory, costs.shuffle + costs.shuffled_word * words * target.register_count)
    return through_memory


def shared_read_cost(layout: LinearLayout, axis: int, bits: int, costs: MachineCosts) -> float:
    """Slots to read a tile of ``bits`` wide elements that is in shared memory, together along an
    axis: neighbours there share a word."""
    registers, shift, width = Basis(layout.registers), axis_shifts(layout.shape)[axis], 1
    while width * bits < 32 and width < layout.shape[axis] and registers.solve(width << shift) is not None:
        width *= 2
    return costs.stored_word * max(1.0, bits / 32) * layout.register_count / width


def reduction_cost(layout: LinearLayout, axis: int, words: float, combine: float, costs: MachineCosts) -> float:
    """Slots to reduce a tile along an axis: registers one by one, lanes by shuffles, warps through
    shared memory."""
    mask = layout.axis_mask(axis)
    results = layout.without_axis(axis).register_count
    lanes = sum(1 for image in layout.lanes if image & mask)
    warps = sum(1 for image in layout.warps if image & mask)
    cost = combine * layout.register_count + lanes * results * (costs.shuffled_word * words + combine)
    if warps:
        cost += costs.trip + 2 * costs.stored_word * words * results
    return cost


def access_width(layout: LinearLayout, pointer: AxisInfo, mask: AxisInfo | None, size: int, limit: int) -> int:
    """How many consecutive registers one access may move: elements of ``size`` bytes at the
    pointers, under the mask, at most ``limit`` bytes."""
    if not layout.registers or not layout.registers[0]:
        return 1
    shifts = axis_shifts(layout.shape)
    for axis, (shift, extent) in enumerate(zip(shifts, layout.shape, strict=True)):  # noqa: B007
        if extent > 1 and layout.registers[0] == 1 << shift:
            break
    else:
        return 1
    width = layout.vector_width(axis, max(1, limit // size))
    while width > 1 and not (fits(axis, width, pointer, mask, size) and _begins_aligned(layout, shift, width)):
        width //= 2
    return width


def copy_width(layout: LinearLayout, shared: SharedLayout, pointer: AxisInfo, mask: AxisInfo | None, size: int, widths: tuple[int, ...]) -> int:
    """How many elements one asynchronous copy moves: consecutive in registers, in global memory and
    in shared memory, under one mask, as many bytes as the machine can copy (``widths``). 0 where
    there is no such copy."""
    if not widths:
        return 0
    width = access_width(layout, pointer, mask, size, max(widths))
    images = shared.through(layout.registers)
    threads = shared.through((*layout.lanes, *layout.warps))
    while width > 1:
        bits = width.bit_length() - 1
        if images[:bits] == tuple(1 << bit for bit in range(bits)) and not any(image & (width - 1) for image in (*images[bits:], *threads)):
            break
        width //= 2
    while width and width * size not in widths:
        width //= 2
    return width


def _begins_aligned(layout: LinearLayout, shift: int, width: int) -> bool:
    """Return whether the first of each ``width`` registers has a coordinate that is a multiple of
    ``width``, in every thread."""
    images = (*layout.registers[width.bit_length() - 1 :], *layout.lanes, *layout.warps)
    return not any(image >> shift & (width - 1) for image in images)


def fits(axis: int, width: int, pointer: AxisInfo, mask: AxisInfo | None, size: int) -> bool:
    """Return whether each aligned group of ``width`` elements along an axis is consecutive in
    memory, aligned there, and under one mask."""
    if pointer.contiguity[axis] % width or pointer.divisibility_at(axis, width, size) % (width * size):
        return False
    return mask is None or mask.constancy[axis] % width == 0


@dataclass(frozen=True, slots=True)
class WarpAccess:
    """What one instruction that accesses memory asks of it for a warp, where what is not known to
    be consecutive is far apart.

    Attributes:
        width: elements that a thread accesses at once.
        asked: bytes of all elements that the warp accesses.
        sectors: sectors that these are in.
        moved: sectors that memory moves for it on average, where the thread's other accesses of the
            tile find what is left of them in the cache.
        lines: lines of the cache that these are in.
        partial: whether they fill no sector.
    """

    width: int
    asked: int
    sectors: int
    moved: float
    lines: int
    partial: bool


def warp_access(layout: LinearLayout, pointer: AxisInfo, mask: AxisInfo | None, size: int, limit: int, costs: MachineCosts) -> WarpAccess:
    """What an access by pointers in a layout asks of memory; arguments are those of
    :func:`access_width`."""
    width = access_width(layout, pointer, mask, size, limit)
    shifts = axis_shifts(layout.shape)
    axis = max(range(len(layout.shape)), key=lambda i: (layout.shape[i] > 1, pointer.contiguity[i], i))
    run = _run(width, pointer.contiguity[axis], shifts[axis], layout.lanes)
    whole = _run(width, pointer.contiguity[axis], shifts[axis], (*layout.lanes, *layout.registers)) * size
    basis = Basis(layout.registers)
    lanes = sum(1 for image in layout.lanes if basis.add(image))
    asked = (width * size) << lanes
    piece = max(1, min(run * size, asked))
    pieces = asked // piece
    sectors = pieces * -(-piece // costs.sector)
    moved = min(float(sectors), asked / min(whole, costs.sector))
    return WarpAccess(width, asked, sectors, moved, pieces * -(-piece // costs.line), piece < costs.sector)


def _run(width: int, contiguity: int, shift: int, images: Sequence[int]) -> int:
    """How many consecutive elements ``width`` of them are a part of, with those that differ from
    them by ``images``."""
    run = min(width, contiguity)
    while run < contiguity and 1 << shift + run.bit_length() - 1 in images:
        run *= 2
    return run


def access_cost(layout: LinearLayout, pointer: AxisInfo, mask: AxisInfo | None, size: int, limit: int, costs: MachineCosts, *, store: bool) -> float:
    """Slots to access memory by pointers in a layout: instructions, the sectors that each of a
    warp's touches, and the lines if it writes."""
    found = warp_access(layout, pointer, mask, size, limit, costs)
    # Part of a sector is read before it is written. Of a sector that several loads read a part
    # each, the cache has what is left: a quarter is not paid.
    sectors = found.sectors * (2.0 if found.partial else 1.0) if store else (3 * found.sectors + found.moved) / 4
    turns = costs.line_turn * found.lines if store else 0.0
    return layout.register_count // found.width * (costs.access + sectors + turns)


def element_size(pointer: Value) -> int:
    """Bytes in memory of what a tile of pointers, or a pointer, points to."""
    type_ = element_type(pointer.type)
    assert isinstance(type_, PointerType)
    return storage_size(type_.pointee)


def bits_of_element(value: Value) -> int:
    """Bits of one element in registers."""
    return bit_width(value.type.element if isinstance(value.type, TileType) else value.type)
