"""The cost model of layouts: approximate costs in issue slots of one warp."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tilewright.ir.core import Operation, Value
from tilewright.ir.ops.arithmetic import Arange, Bitcast, Constant, Div
from tilewright.ir.ops.debug import Hint
from tilewright.ir.table import Trait
from tilewright.ir.types import IntType, PointerType, TileType, bit_width, element_type
from tilewright.llvm.emission.registers import storage_size
from tilewright.passes.analysis.axis import AxisInfo
from tilewright.passes.rewriter import constant_of
from tilewright.simt.layouts.linear_layout import Basis, LinearLayout, SharedLayout, axis_shifts
from tilewright.simt.target.thresholds import Thresholds

#: Operations that need no instruction on any target, beside those that only move or repeat
#: elements.
_FREE: Final = (Constant, Arange, Hint, Bitcast)


@dataclass(frozen=True, slots=True)
class CostModel:
    """Costs of operations on a target, in issue slots of one warp unless stated otherwise.

    A target measures and states them; the toolkit has no defaults but for the thresholds.

    Attributes:
        operations: slots for each register of the result, of operations that cost more or less than
            one.
        sector: bytes of the smallest memory transaction.
        line, line_turn: bytes of a cache line, and the cost of each line that a store touches.
        access: slots of a memory access, beside the cost of its sectors.
        trip: cost of a round trip of a tile through shared memory, beside its accesses: barriers
            and latency.
        shuffle: latency of a shuffle.
        shuffled_word, stored_word, selected_word: slots for each 32-bit word that is shuffled, or
            written to and read from shared memory, or selected.
        barrier: cost of a barrier and the latency of shared memory, in units of one shuffle.
        selects_per_shuffle: selects that take the time of one shuffle.
        scratch: maximum bytes of shared memory for a conversion; larger tiles take several rounds.
        other_registers: registers that a thread needs in a pipelined loop beside tiles and the
            addresses of copies.
        thresholds: those of the toolkit's heuristics.
        unrolled_trips: maximum known trip count of small loops that the code generator is asked to
            unroll in full; 0: it unrolls none.
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
    thresholds: Thresholds = field(default_factory=Thresholds)
    unrolled_trips: int = 0


def operation_cost(operation: Operation, costs: CostModel) -> float:
    """Slots for each register of the result of an elementwise or shape operation."""
    cost = (
        0.0
        if Trait.SHAPE in operation.spec.traits or isinstance(operation, _FREE)
        else costs.operations.get(operation.name, 1.0)
    )
    if not cost:
        return cost
    element = element_type(operation.results[0].type)
    if isinstance(operation, Div) and isinstance(element, IntType):
        divisor = constant_of(operation.b)
        if isinstance(divisor, int) and divisor > 0 and divisor & (divisor - 1) == 0:
            cost = 1.0
    return cost * 2 if isinstance(element, PointerType) or bit_width(element) == 64 else cost


def conversion_cost(
    source: LinearLayout, target: LinearLayout, bits: int, costs: CostModel
) -> float:
    """Slots to convert a tile of ``bits`` wide elements from one layout to another.

    Selects if each thread holds its elements already, shuffles if its warp does, else a round trip
    through shared memory.
    """
    if source == target:
        return 0.0
    words = max(bits / 32, 0.25)
    registers = Basis(source.registers)
    threads = [
        a ^ b
        for a, b in zip((*source.lanes, *source.warps), (*target.lanes, *target.warps), strict=True)
    ]
    if all(registers.solve(image) is not None for image in (*threads, *target.registers)):
        return (
            costs.selected_word
            * words
            * target.register_count
            * sum(1 for image in threads if image)
        )  # which register depends on the thread: selects
    through_memory = costs.trip + costs.stored_word * words * (
        source.register_count + target.register_count
    )
    warp = Basis((*source.registers, *source.lanes))
    warps = [a ^ b for a, b in zip(source.warps, target.warps, strict=True)]
    if all(warp.solve(image) is not None for image in (*warps, *target.lanes, *target.registers)):
        return min(
            through_memory, costs.shuffle + costs.shuffled_word * words * target.register_count
        )
    return through_memory


def shared_read_cost(layout: LinearLayout, axis: int, bits: int, costs: CostModel) -> float:
    """Slots to read a tile of ``bits`` wide elements from shared memory along an axis."""
    registers, shift, width = Basis(layout.registers), axis_shifts(layout.shape)[axis], 1
    while (
        width * bits < 32
        and width < layout.shape[axis]
        and registers.solve(width << shift) is not None
    ):
        width *= 2
    return costs.stored_word * max(1.0, bits / 32) * layout.register_count / width


def reduction_cost(
    layout: LinearLayout, axis: int, words: float, combine: float, costs: CostModel
) -> float:
    """Slots to reduce a tile along an axis: in registers, among lanes, and among warps.

    Lanes are combined by shuffles, warps through shared memory.
    """
    mask = layout.axis_mask(axis)
    results = layout.without_axis(axis).register_count
    lanes = sum(1 for image in layout.lanes if image & mask)
    warps = sum(1 for image in layout.warps if image & mask)
    cost = combine * layout.register_count + lanes * results * (
        costs.shuffled_word * words + combine
    )
    if warps:
        cost += costs.trip + 2 * costs.stored_word * words * results
    return cost


def access_width(
    layout: LinearLayout, pointer: AxisInfo, mask: AxisInfo | None, size: int, limit: int
) -> int:
    """Return the maximum number of consecutive registers that one access may move.

    Elements have ``size`` bytes, are at the pointers, under the mask; an access has at most
    ``limit`` bytes.
    """
    if not layout.registers or not layout.registers[0]:
        return 1
    shifts = axis_shifts(layout.shape)
    for axis, (shift, extent) in enumerate(zip(shifts, layout.shape, strict=True)):  # noqa: B007
        if extent > 1 and layout.registers[0] == 1 << shift:
            break
    else:
        return 1
    width = layout.vector_width(axis, max(1, limit // size))
    while width > 1 and not (
        fits(axis, width, pointer, mask, size) and _begins_aligned(layout, shift, width)
    ):
        width //= 2
    return width


def copy_width(
    layout: LinearLayout,
    shared: SharedLayout,
    pointer: AxisInfo,
    mask: AxisInfo | None,
    size: int,
    widths: tuple[int, ...],
) -> int:
    """Return the number of elements that one asynchronous copy moves, or 0 if no copy is possible.

    The elements are consecutive in registers, in global and in shared memory, under one mask, and
    their size is one of ``widths``, the sizes in bytes that the target can copy.
    """
    if not widths:
        return 0
    width = access_width(layout, pointer, mask, size, max(widths))
    images = shared.through(layout.registers)
    threads = shared.through((*layout.lanes, *layout.warps))
    while width > 1:
        bits = width.bit_length() - 1
        if images[:bits] == tuple(1 << bit for bit in range(bits)) and not any(
            image & (width - 1) for image in (*images[bits:], *threads)
        ):
            break
        width //= 2
    while width and width * size not in widths:
        width //= 2
    return width


def _begins_aligned(layout: LinearLayout, shift: int, width: int) -> bool:
    """Return whether each ``width`` registers start at an aligned coordinate."""
    images = (*layout.registers[width.bit_length() - 1 :], *layout.lanes, *layout.warps)
    return not any(image >> shift & (width - 1) for image in images)


def fits(axis: int, width: int, pointer: AxisInfo, mask: AxisInfo | None, size: int) -> bool:
    """Return whether each aligned group of ``width`` elements is one aligned run of memory.

    Groups are along an axis; the elements of a group must also be under one mask.
    """
    if pointer.contiguity[axis] % width or pointer.divisibility_at(axis, width, size) % (
        width * size
    ):
        return False
    return mask is None or mask.constancy[axis] % width == 0


@dataclass(frozen=True, slots=True)
class WarpAccess:
    """The memory transactions of one instruction of a warp, as far as contiguity is known.

    Elements that are not known to be consecutive count as far apart.

    Attributes:
        width: elements that a thread accesses at once.
        asked: bytes of all elements that the warp accesses.
        sectors: number of sectors of these elements.
        moved: average number of sectors that memory moves for the instruction, if the thread's
            other accesses of the tile hit the rest of them in the cache.
        lines: number of cache lines of these elements.
        partial: whether each run of elements is shorter than a sector.
    """

    width: int
    asked: int
    sectors: int
    moved: float
    lines: int
    partial: bool


def warp_access(
    layout: LinearLayout,
    pointer: AxisInfo,
    mask: AxisInfo | None,
    size: int,
    limit: int,
    costs: CostModel,
) -> WarpAccess:
    """Return the memory transactions of an access by pointers in a layout.

    The arguments are those of :func:`access_width`.
    """
    width = access_width(layout, pointer, mask, size, limit)
    shifts = axis_shifts(layout.shape)
    axis = max(
        range(len(layout.shape)), key=lambda i: (layout.shape[i] > 1, pointer.contiguity[i], i)
    )
    run = _run(width, pointer.contiguity[axis], shifts[axis], layout.lanes)
    whole = (
        _run(width, pointer.contiguity[axis], shifts[axis], (*layout.lanes, *layout.registers))
        * size
    )
    basis = Basis(layout.registers)
    lanes = sum(1 for image in layout.lanes if basis.add(image))
    asked = (width * size) << lanes
    piece = max(1, min(run * size, asked))
    pieces = asked // piece
    sectors = pieces * -(-piece // costs.sector)
    moved = min(float(sectors), asked / min(whole, costs.sector))
    return WarpAccess(
        width, asked, sectors, moved, pieces * -(-piece // costs.line), piece < costs.sector
    )


def _run(width: int, contiguity: int, shift: int, images: Sequence[int]) -> int:
    """Return the length of the run of consecutive elements that ``width`` elements belong to.

    ``images`` are the differences by which other elements are accessed with them.
    """
    run = min(width, contiguity)
    while run < contiguity and 1 << shift + run.bit_length() - 1 in images:
        run *= 2
    return run


def access_cost(
    layout: LinearLayout,
    pointer: AxisInfo,
    mask: AxisInfo | None,
    size: int,
    limit: int,
    costs: CostModel,
    *,
    store: bool,
) -> float:
    """Slots to access memory by pointers: instructions, sectors and, for stores, lines."""
    found = warp_access(layout, pointer, mask, size, limit, costs)
    # A partly written sector is read first. If several loads each read a part of a sector, the
    # later ones hit the cache: the estimate lies a quarter of the way to the average.
    sectors = (
        found.sectors * (2.0 if found.partial else 1.0)
        if store
        else (3 * found.sectors + found.moved) / 4
    )
    turns = costs.line_turn * found.lines if store else 0.0
    return layout.register_count // found.width * (costs.access + sectors + turns)


def element_size(pointer: Value) -> int:
    """Bytes in memory of the pointee of a pointer, or of a tile of pointers."""
    type_ = element_type(pointer.type)
    assert isinstance(type_, PointerType)
    return storage_size(type_.pointee)


def bits_of_element(value: Value) -> int:
    """Bits of one element in registers."""
    return bit_width(value.type.element if isinstance(value.type, TileType) else value.type)
