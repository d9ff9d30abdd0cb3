"""Reductions along an axis: within threads, among lanes by shuffles, among warps via shared memory.

:mod:`tilewright.simt.layouts.reduce_plan` decides which of these a layout needs. Every thread that
holds an element of the result ends with the same bits. Reductions in a stated order follow the
steps of :mod:`tilewright.simt.layouts.ordered_reduce_plan`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from tilewright.ir.core import Region
from tilewright.ir.ops.control import Reduce
from tilewright.ir.order import ANY, effective_order
from tilewright.ir.types import TileType, Type, element_type
from tilewright.llvm.emission.registers import storage_size
from tilewright.simt.assign_layouts import shape_rules
from tilewright.simt.dialect.attributes import layout_of
from tilewright.simt.dialect.layout_rules import operand_layouts
from tilewright.simt.dialect.op_interface import Interface
from tilewright.simt.dialect.registry import register_interfaces
from tilewright.simt.layouts.linear_layout import LinearLayout, log2
from tilewright.simt.layouts.ordered_reduce_plan import OrderedStep, plan_ordered_reduction
from tilewright.simt.layouts.reduce_plan import (
    Exchange,
    ReducePlan,
    plan_reduction,
    scratch_position,
)
from tilewright.simt.lowering.emission.context import SimtContext
from tilewright.simt.lowering.emission.shuffles import exchange
from tilewright.simt.target.simt_target import SimtTarget

#: One register of each operand of a reduction.
Row = list[str]


def is_symmetric(region: Region) -> bool:
    """Return whether swapping the operands of a combination is known to preserve the result's bits.

    Each result is then one commutative operation on its own two arguments. Hardware orders the
    zeros in ``min`` and ``max``.
    """
    arguments, terminator = region.arguments, region.last
    assert terminator is not None
    count = len(terminator.operands)
    for number, value in enumerate(terminator.operands):
        operation = value.definition
        if (
            operation is None
            or not operation.spec.commutative
            or set(operation.operands) != {arguments[number], arguments[count + number]}
        ):
            return False
    return True


def _single_operation(region: Region) -> str:
    """Return the name of the one commutative operation that combines two scalars, or ""."""
    terminator = region.last
    assert terminator is not None
    names = [value.definition.name for value in terminator.operands if value.definition is not None]
    return names[0] if len(names) == 1 and is_symmetric(region) else ""


def lower_reduce(context: SimtContext, operation: Reduce) -> None:
    region, order = operation.combine, effective_order(operation)
    rows: list[Row] = [
        list(row)
        for row in zip(*(context.registers[operand] for operand in operation.operands), strict=True)
    ]
    layout = context.layout(operation.inputs[0])
    if order == ANY:
        plan = plan_reduction(layout, operation.axis)
        reduction = _Reduction(context, operation, plan, region)
        rows = reduction.in_thread(rows)
        rows = reduction.by_warp(rows) or reduction.by_exchanges(rows, plan.exchanges)
        if plan.through_memory(reduction.symmetric):
            rows = reduction.among_warps(rows)
    else:
        with context.without_contraction():
            reduction, rows = _reduce_in_order(context, operation, order, rows)
    for result, type_, column in zip(
        operation.results, reduction.types, zip(*rows, strict=True), strict=True
    ):
        names = list(column)
        if not isinstance(result.type, TileType):
            names = [context.target.lanes.uniform(context.writer, name, type_) for name in names]
        context.bind(result, names)


def _reduce_in_order(
    context: SimtContext, operation: Reduce, order: str, rows: list[Row]
) -> tuple[_Reduction, list[Row]]:
    """Emit the steps of a reduction in an order."""
    in_memory = False
    for step in _steps(operation, order):
        reduction = _Reduction(context, operation, step.plan, operation.combine)
        rows = reduction.by_exchanges(reduction.in_thread(rows), step.plan.exchanges)
        if step.plan.through_memory(reduction.symmetric):
            if in_memory:
                context.barrier()  # the scratch space of the step before is read
            rows, in_memory = reduction.among_warps(rows, step.parts), True
    return reduction, rows


def _steps(operation: Reduce, order: str) -> Sequence[OrderedStep]:
    return plan_ordered_reduction(
        layout_of(operation.inputs[0]), operation.axis, order, is_symmetric(operation.combine)
    )


class _Reduction:
    """The emission of one reduction. A row is a register of every operand."""

    def __init__(
        self, context: SimtContext, operation: Reduce, plan: ReducePlan, region: Region
    ) -> None:
        self.context, self.operation, self.plan, self.region = context, operation, plan, region
        self.symmetric = is_symmetric(region)
        self.types = [context.llvm_type(operand.type) for operand in operation.operands]

    def combine(self, left: Sequence[str], right: Sequence[str]) -> Row:
        return self.context.evaluate(self.region, [*left, *right])

    def in_thread(self, rows: list[Row]) -> list[Row]:
        """Combine the registers of each result within the thread, as a balanced tree."""
        for step in self.plan.pairs:
            for left, right in step:
                rows[left] = self.combine(rows[left], rows[right])
        return [rows[register] for register in self.plan.kept]

    def by_warp(self, rows: list[Row]) -> list[Row] | None:
        """Reduce over all lanes by the target's warp reduction; None if it does not apply.

        It applies if the target has one for this combination and every lane has a partial result of
        each result.
        """
        context, steps = self.context, self.plan.exchanges
        kind, element = _single_operation(self.region), element_type(self.operation.inputs[0].type)
        whole = 1 << len(steps) == context.target.resources.warp_size and not any(
            step.registers for step in steps
        )
        if not kind or not whole:
            return None
        found: list[Row] = []
        for (name,) in rows:
            combined = context.target.lanes.reduce(context.writer, kind, name, element)
            if combined is None:
                return None
            found.append([combined])
        return found

    def by_exchanges(self, rows: list[Row], steps: Sequence[Exchange]) -> list[Row]:
        for step in steps:
            rows = self.among_lanes(rows, step)
        return rows

    def among_lanes(self, rows: list[Row], step: Exchange) -> list[Row]:
        """Combine each partial result with that of the partner lane."""
        others = self._exchanged(rows, step)
        if self.symmetric:
            return [self.combine(own, other) for own, other in zip(rows, others, strict=True)]
        w, swap = self.context.writer, self._is_odd(step.order)
        combined = []
        for own, other in zip(rows, others, strict=True):
            pairs = list(zip(self.types, own, other, strict=True))
            left = [
                w.emit(f"select i1 {swap}, {type_} {theirs}, {type_} {mine}")
                for type_, mine, theirs in pairs
            ]
            right = [
                w.emit(f"select i1 {swap}, {type_} {mine}, {type_} {theirs}")
                for type_, mine, theirs in pairs
            ]
            combined.append(self.combine(left, right))
        return combined

    def _exchanged(self, rows: list[Row], step: Exchange) -> list[Row]:
        """Return the partner lane's partial result of each of this thread's results."""
        context, w = self.context, self.context.writer
        order = [register ^ step.registers for register in range(len(rows))]
        columns = []
        for number, type_ in enumerate(self.types):
            names = [rows[register][number] for register in order]
            columns.append(
                exchange(
                    w,
                    type_,
                    names,
                    lambda words: context.target.lanes.shuffle_all_xor(w, words, step.lanes),
                )
            )
        return [list(row) for row in zip(*columns, strict=True)]

    def _is_odd(self, lanes: int) -> str:
        """Emit an i1: whether this lane's number has odd parity under the mask ``lanes``."""
        context = self.context
        with context.at_entry() as w:
            bits = w.emit(f"and i32 {context.lane}, {lanes}")
            if lanes & (lanes - 1) == 0:
                return w.emit(f"icmp ne i32 {bits}, 0")
            count = w.intrinsic("llvm.ctpop", "i32", [("i32", bits)])
            return w.emit(f"trunc i32 {count} to i1")

    def among_warps(self, rows: list[Row], order: Sequence[int] | None = None) -> list[Row]:
        """Combine the partial results of the warps through shared memory, in the order of memory.

        Each partial result is written once. ``order``: the bits of a part's number in the order in
        which parts are combined; without bits one part after the other.
        """
        context, plan, w = self.context, self.plan, self.context.writer
        elements = [element_type(operand.type) for operand in self.operation.operands]
        bases = [
            context.scratch(self.operation, offset) for offset in _offsets(plan, elements)[:-1]
        ]
        writes = _addresses(context, plan.partials, bases, elements)
        owner = context.is_owner(plan.partials)
        with w.when(owner or "true"):
            for places, row in zip(writes, rows, strict=True):
                for place, type_, name, element in zip(
                    places, self.types, row, elements, strict=True
                ):
                    context.shared_store(place, type_, [name], align=storage_size(element))
        context.barrier()
        # The parts of a result are side by side. A thread loads as many as one access holds; lanes
        # that have the same results share the rest.
        shared = (
            plan.sharing(
                min(
                    context.target.resources.max_access // storage_size(element)
                    for element in elements
                )
            )
            if order is None
            else ()
        )
        own = plan.parts >> len(shared)
        lanes = [image * plan.parts for image in plan.result.lanes]
        for number, step in enumerate(shared):
            lanes[log2(step.lanes)] = own << number
        registers, warps = (
            tuple(image * plan.parts for image in images)
            for images in (plan.result.registers, plan.result.warps)
        )
        first = LinearLayout(plan.partials.shape, registers, tuple(lanes), warps)
        loaded = [
            self._load_parts(first, base, type_, element, own)
            for base, type_, element in zip(bases, self.types, elements, strict=True)
        ]
        combined = [
            self.combine_parts([list(row) for row in zip(*columns, strict=True)], order)
            for columns in zip(*loaded, strict=True)
        ]
        return self.by_exchanges(combined, shared)

    def combine_parts(self, parts: list[Row], order: Sequence[int] | None) -> Row:
        """Combine the parts of a result; without an order as a tree of neighbors."""
        if order is None or len(parts) == 1:
            order = range(log2(len(parts)))
        if len(parts) > 1 and not order:
            return functools.reduce(self.combine, parts)
        left = dict(enumerate(parts))
        for bit in order:
            left = {
                number: self.combine(part, left[number | 1 << bit])
                for number, part in left.items()
                if not number >> bit & 1
            }
        return left[0]

    def _load_parts(
        self, first: LinearLayout, base: str, type_: str, element: Type, parts: int
    ) -> list[list[str]]:
        """Load the parts of each result, from its first on, in the widest accesses."""
        context, size = self.context, storage_size(element)
        if type_ == "i1":
            width = 1  # a vector of i1 is packed in memory
        else:
            width = min(parts, max(1, context.target.resources.max_access // size))
        names: list[list[str]] = [[] for _ in range(first.register_count)]
        for start in range(0, parts, width):
            places = _operand_addresses(context, first, base, element, start)
            for found, place in zip(names, places, strict=True):
                found += context.shared_load(place, type_, width, align=width * size)
        return names


def _addresses(
    context: SimtContext, layout: LinearLayout, bases: Sequence[str], elements: Sequence[Type]
) -> list[tuple[str, ...]]:
    """Emit the shared-memory address of each register of a layout, for each operand."""
    columns = (
        _operand_addresses(context, layout, base, element)
        for base, element in zip(bases, elements, strict=True)
    )
    return list(zip(*columns, strict=True))


def _operand_addresses(
    context: SimtContext, layout: LinearLayout, base: str, element: Type, start: int = 0
) -> list[str]:
    """Emit the address of the element ``start`` after each register's, in an operand's scratch.

    Elements are in row-major order, swizzled.
    """
    w, pointer, size = context.writer, context.target.shared.pointer, storage_size(element)

    def swizzled(images: Sequence[int]) -> tuple[int, ...]:
        return tuple(scratch_position(image, size) for image in images)

    thread = context.thread_part(swizzled(layout.lanes), swizzled(layout.warps))
    found = []
    for register in layout.register_elements():
        own = scratch_position(register ^ start, size)
        number = (
            str(int(thread) ^ own)
            if not thread.startswith("%")
            else w.emit(f"xor i32 {thread}, {own}")
            if own
            else thread
        )
        offset = w.emit(f"mul i32 {number}, {size}")
        found.append(w.emit(f"getelementptr i8, {pointer} {base}, i32 {offset}"))
    return found


def _offsets(plan: ReducePlan, elements: Sequence[Type]) -> list[int]:
    """Return the byte offsets of the operands' partial results in the scratch space.

    One more entry is the total size.
    """
    count, total, offsets = 1, 0, []
    for extent in plan.partials.shape:
        count *= extent
    for element in elements:
        offsets.append(total)
        total += -(-count * storage_size(element) // 16) * 16
    return [*offsets, total]


def _scratch(operation: Reduce, target: SimtTarget) -> int:
    """Return the bytes of scratch space for partial results, 0 if none go through shared memory."""
    order, symmetric = effective_order(operation), is_symmetric(operation.combine)
    if order == ANY:
        plans = [plan_reduction(layout_of(operation.inputs[0]), operation.axis)]
    else:
        plans = [step.plan for step in _steps(operation, order)]
    elements = [element_type(operand.type) for operand in operation.operands]
    return max(
        (_offsets(plan, elements)[-1] for plan in plans if plan.through_memory(symmetric)),
        default=0,
    )


def _check(operation: Reduce, target: SimtTarget) -> str:
    inputs = operand_layouts(operation)
    if len(set(inputs)) > 1:
        return "inputs must have one layout"
    left = inputs[0].without_axis(operation.axis)
    tiles = [layout_of(result) for result in operation.results if isinstance(result.type, TileType)]
    return (
        ""
        if all(layout == left for layout in tiles)
        else "results must be what is left of the inputs"
    )


INTERFACES = register_interfaces(
    {"reduce": Interface(lower_reduce, shape_rules.reduced, _check, _scratch)}
)
