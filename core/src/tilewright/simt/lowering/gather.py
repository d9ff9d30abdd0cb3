"""Lowering of ``gather`` and ``histogram``, which move elements through shared memory."""

from __future__ import annotations

from tilewright.ir.ops.shape import Gather, Histogram
from tilewright.ir.types import IntType, TileType, element_type
from tilewright.llvm.emission.registers import storage_size
from tilewright.simt.analysis.xor_exchange import XorExchange, exchange_within_warp, xor_distance
from tilewright.simt.assign_layouts import shape_rules
from tilewright.simt.dialect.attributes import layout_of
from tilewright.simt.dialect.layout_rules import operand_layouts
from tilewright.simt.dialect.op_interface import Interface
from tilewright.simt.dialect.registry import register_interfaces
from tilewright.simt.layouts.linear_layout import LinearLayout, axis_shifts, log2
from tilewright.simt.lowering.emission.broadcast import both
from tilewright.simt.lowering.emission.context import SimtContext
from tilewright.simt.lowering.emission.shuffles import exchange
from tilewright.simt.lowering.index import element_numbers
from tilewright.simt.target.simt_target import SimtTarget

# ---- gather


def lower_gather(context: SimtContext, operation: Gather) -> None:
    """Write the source to shared memory in row-major order, and read it at the indices.

    If all elements stay within their warps, lanes exchange them by shuffles instead.
    """
    source, index = operation.x, operation.index
    assert isinstance(source.type, TileType) and isinstance(index.type, TileType)
    within = _within_warp(operation)
    if within is not None:
        _exchange(context, operation, within)
        return
    w, axis, result = context.writer, operation.axis, operation.results[0]
    element, type_ = source.type.element, context.llvm_type(source.type)
    size, base = storage_size(element), context.scratch(operation)

    def address(number: str) -> str:
        return w.emit(
            f"getelementptr i8, {context.target.shared.pointer} {base}, i32 "
            f"{w.emit(f'mul i32 {number}, {size}')}"
        )

    layout = context.layout(source)
    places = [address(number) for number in element_numbers(context, layout)]
    with w.when(context.is_owner(layout) or "true"):
        for place, name in zip(places, context.registers[source], strict=True):
            context.shared_store(place, type_, [name], align=size)
    context.barrier()
    shift, extent = axis_shifts(source.type.shape)[axis], source.type.shape[axis]
    rows = _without_coordinate(context.layout(index), source.type.shape, axis)
    index_type = element_type(index.type)
    assert isinstance(index_type, IntType)
    names = []
    for row, name in zip(element_numbers(context, rows), context.registers[index], strict=True):
        # an index out of range reads an arbitrary element of the tile
        along = w.emit(f"and i32 {_as_i32(context, name, index_type)}, {extent - 1}")
        if shift:
            along = w.emit(f"shl i32 {along}, {shift}")
        names += context.shared_load(address(w.emit(f"or i32 {row}, {along}")), type_, align=size)
    context.bind(result, names)


def _within_warp(operation: Gather) -> XorExchange | None:
    """Return the exchange of lanes that computes a gather within each warp, or None."""
    distance = xor_distance(operation)
    layout = layout_of(operation.x)
    if distance is None or layout != layout_of(operation.results[0]):
        return None
    return exchange_within_warp(layout, distance)


def _exchange(context: SimtContext, operation: Gather, partner: XorExchange) -> None:
    names = context.registers[operation.x]
    moved = [names[register ^ partner.register] for register in range(len(names))]
    if partner.lane:
        w, target = context.writer, context.target
        moved = exchange(
            w,
            context.llvm_type(element_type(operation.x.type)),
            moved,
            lambda words: target.lanes.shuffle_all_xor(w, words, partner.lane),
        )
    context.bind(operation.results[0], moved)


def _without_coordinate(layout: LinearLayout, shape: tuple[int, ...], axis: int) -> LinearLayout:
    """Return a layout's element numbers in a tile of ``shape``, at coordinate 0 along ``axis``.

    Images may repeat.
    """
    shift, extent = axis_shifts(layout.shape)[axis], log2(layout.shape[axis])
    grown = log2(shape[axis])

    def move(images: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(
            image & ((1 << shift) - 1) | image >> (shift + extent) << (shift + grown)
            for image in images
        )

    return LinearLayout(shape, move(layout.registers), move(layout.lanes), move(layout.warps))


def _as_i32(context: SimtContext, name: str, type_: IntType) -> str:
    if type_.bits == 32:
        return name
    how = "trunc" if type_.bits == 64 else "sext" if type_.signed else "zext"
    return context.writer.emit(f"{how} i{type_.bits} {name} to i32")


def _gather_scratch(operation: Gather, target: SimtTarget) -> int:
    type_ = operation.x.type
    assert isinstance(type_, TileType)
    return 0 if _within_warp(operation) is not None else type_.numel * storage_size(type_.element)


# ---- histogram


def lower_histogram(context: SimtContext, operation: Histogram) -> None:
    """Count in shared memory: clear, add by the owner of each element, read by all threads."""
    x, mask = operation.x, operation.mask
    w, bins, result = context.writer, operation.bins, operation.results[0]
    type_ = element_type(x.type)
    assert isinstance(type_, IntType)
    base = context.scratch(operation)

    def address(number: str) -> str:
        return w.emit(f"getelementptr i32, {context.target.shared.pointer} {base}, i32 {number}")

    threads = context.target.resources.warp_size * context.threads.count
    thread = w.emit(
        f"add i32 {w.emit(f'mul i32 {context.warp}, {context.target.resources.warp_size}')}, "
        f"{context.lane}"
    )
    for start in range(0, bins, threads):
        number = w.emit(f"add i32 {thread}, {start}") if start else thread
        with w.when(
            "true" if start + threads <= bins else w.emit(f"icmp ult i32 {number}, {bins}")
        ):
            context.shared_store(address(number), "i32", ["0"], align=4)
    context.barrier()
    owner = context.is_owner(context.layout(x))
    masks = context.registers[mask] if mask is not None else None
    for i, name in enumerate(context.registers[x]):
        wide = name if type_.bits == 64 else _as_i32(context, name, type_)
        # a negative value is a large unsigned one
        counted: str | None = w.emit(f"icmp ult i{max(32, type_.bits)} {wide}, {bins}")
        for condition in (owner, masks[i] if masks is not None else None):
            counted = both(context, counted, condition)
        context.target.shared.atomic_add(w, address(_as_i32(context, name, type_)), "1", counted)
    context.barrier()
    names = []
    for number in element_numbers(context, context.layout(result)):
        names += context.shared_load(address(number), "i32", align=4)
    context.bind(result, names)


def _histogram_scratch(operation: Histogram, target: SimtTarget) -> int:
    return 4 * operation.bins


def _check_gather(operation: Gather, target: SimtTarget) -> str:
    alike = layout_of(operation.index) == layout_of(operation.results[0])
    return "" if alike else "index and result must have one layout"


def _check_histogram(operation: Histogram, target: SimtTarget) -> str:
    return (
        ""
        if len(set(operand_layouts(operation))) == 1
        else "elements and mask must have one layout"
    )


INTERFACES = register_interfaces(
    {
        "gather": Interface(lower_gather, shape_rules.gathered, _check_gather, _gather_scratch),
        "histogram": Interface(
            lower_histogram, shape_rules.indifferent, _check_histogram, _histogram_scratch
        ),
    }
)
