"""Inclusive scans along an axis, by the steps of :mod:`tilewright.simt.layouts.scan_plan`.

After the chunks are scanned within their threads, each has a total and a carry: the combination of
all elements that precede it in its block, absent at the block's beginning. A combination has no
neutral element, so each carry is kept with a condition that says whether it is present.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.ir.core import Region
from tilewright.ir.ops.control import Scan
from tilewright.ir.order import ANY, SEQUENTIAL, effective_order
from tilewright.ir.types import element_type
from tilewright.llvm.emission.registers import storage_size
from tilewright.simt.assign_layouts import shape_rules
from tilewright.simt.dialect.attributes import layout_of
from tilewright.simt.dialect.layout_rules import one_layout
from tilewright.simt.dialect.op_interface import Interface
from tilewright.simt.dialect.registry import register_interfaces
from tilewright.simt.layouts.linear_layout import LinearLayout, axis_shifts
from tilewright.simt.layouts.scan_plan import (
    LANE,
    REGISTER,
    ScanPlan,
    ScanStep,
    plan_scan,
    scan_layout,
)
from tilewright.simt.lowering.emission.context import SimtContext
from tilewright.simt.lowering.emission.shuffles import exchange
from tilewright.simt.target.simt_target import SimtTarget

__all__ = ["INTERFACES", "scan_layout"]

#: One value of each operand of a scan.
Row = list[str]


@dataclass(slots=True)
class _Carry:
    """The combination of the elements that precede a chunk in its block.

    ``present`` is an i1 that says whether there are any; None if there surely are.
    """

    row: Row
    present: str | None


def lower_scan(context: SimtContext, operation: Scan) -> None:
    layout, axis = context.layout(operation.inputs[0]), operation.axis
    order = effective_order(operation)
    plan = plan_scan(layout, axis, order)
    assert plan is not None, f"a scan in layout {layout}"
    rows: list[Row] = [
        list(row)
        for row in zip(*(context.registers[operand] for operand in operation.operands), strict=True)
    ]
    if order == ANY:
        rows = _Scan(context, operation, plan, layout).run(rows)
    else:
        # without a chunk, the steps are those of the tree
        scan = _Scan if order == SEQUENTIAL else _TreeScan
        with context.without_contraction():
            rows = scan(context, operation, plan, layout).run(rows)
    for result, names in zip(operation.results, zip(*rows, strict=True), strict=True):
        context.bind(result, names)


class _Scan:
    """The emission of one scan.

    A chunk is numbered by its lowest register. ``totals`` has an entry for each block, under the
    number of the block's lowest chunk.
    """

    def __init__(
        self, context: SimtContext, operation: Scan, plan: ScanPlan, layout: LinearLayout
    ) -> None:
        self.context, self.operation, self.plan, self.layout = context, operation, plan, layout
        self.axis = operation.axis
        self.reverse = operation.reverse
        self.region: Region = operation.combine
        self.types = [context.llvm_type(operand.type) for operand in operation.operands]
        self.rows: list[Row] = []
        self.totals: dict[int, Row] = {}
        self.carries: dict[int, _Carry] = {}
        #: the register bits whose blocks were joined
        self.joined = 0

    def run(self, rows: list[Row]) -> list[Row]:
        members = [0]
        for mask in self.plan.chunk:
            members += [member | mask for member in members]
        if self.reverse:
            members.reverse()
        inside = sum(self.plan.chunk)
        self.rows = rows
        chunks = [register for register in range(len(rows)) if not register & inside]
        for chunk in chunks:
            for earlier, later in itertools.pairwise(members):
                rows[chunk | later] = self.combine(rows[chunk | earlier], rows[chunk | later])
            self.totals[chunk] = rows[chunk | members[-1]]
        for number, step in enumerate(self.plan.steps):
            is_last = number == len(self.plan.steps) - 1
            if step.kind is REGISTER:
                self.join_registers(chunks, step, is_last)
            elif step.kind is LANE:
                self.join_lanes(chunks, step, is_last)
            else:
                self.join_warps(chunks, step, is_last)
        for chunk in chunks:
            carry = self.carries.get(chunk)
            if carry is not None:
                for member in members:
                    rows[chunk | member] = self.select(
                        carry.present,
                        self.combine(carry.row, rows[chunk | member]),
                        rows[chunk | member],
                    )
        return rows

    # ---- rows

    def combine(self, earlier: Sequence[str], later: Sequence[str]) -> Row:
        return self.context.evaluate(self.region, [*earlier, *later])

    def select(self, condition: str | None, yes: Row, no: Row) -> Row:
        """Select ``yes`` where the condition holds; None holds everywhere."""
        if condition is None:
            return yes
        w = self.context.writer
        return [
            w.emit(f"select i1 {condition}, {type_} {a}, {type_} {b}")
            for type_, a, b in zip(self.types, yes, no, strict=True)
        ]

    def either(self, a: str | None, b: str | None) -> str | None:
        """Emit the disjunction of two conditions; None holds everywhere."""
        return None if a is None or b is None else self.context.writer.emit(f"or i1 {a}, {b}")

    def prepend(self, chunk: int, before: Row, behind: str | None) -> None:
        """Prepend ``before`` to the carry of a chunk, where ``behind`` holds.

        ``before`` combines the elements that precede the chunk's block, and ``behind`` says that
        the chunk comes after them; None holds everywhere.
        """
        carry = self.carries.get(chunk)
        if carry is None:
            self.carries[chunk] = _Carry(before, behind)
            return
        longer = self.select(carry.present, self.combine(before, carry.row), before)
        self.carries[chunk] = _Carry(
            self.select(behind, longer, carry.row), self.either(carry.present, behind)
        )

    # ---- steps

    def join_registers(self, chunks: Sequence[int], step: ScanStep, is_last: bool) -> None:
        """Join pairs of blocks within a thread."""
        (mask,) = step.masks
        for low in [block for block in self.totals if not block & mask]:
            first, second = (low | mask, low) if self.reverse else (low, low | mask)
            before = self.totals[first]
            for chunk in self._chunks_of(chunks, second):
                self.prepend(chunk, before, None)
            total = before if is_last else self.combine(before, self.totals[second])
            del self.totals[low | mask]
            self.totals[low] = total
        self.joined |= mask

    def _chunks_of(self, chunks: Sequence[int], block: int) -> list[int]:
        """Return the chunks of a block.

        They differ from it in the register bits of the steps taken so far.
        """
        return [chunk for chunk in chunks if chunk & ~self.joined == block]

    def join_lanes(self, chunks: Sequence[int], step: ScanStep, is_last: bool) -> None:
        """Join the blocks of two lanes, which exchange their totals."""
        (mask,) = step.masks
        blocks = list(self.totals)
        upper = self._bit(step.position)
        w = self.context.writer
        later = w.emit(f"xor i1 {upper}, true") if self.reverse else upper
        columns = []
        for number, type_ in enumerate(self.types):
            names = [self.totals[block][number] for block in blocks]
            columns.append(
                exchange(
                    w,
                    type_,
                    names,
                    lambda words: self.context.target.lanes.shuffle_all_xor(w, words, mask),
                )
            )
        for block, other in zip(
            blocks, [list(row) for row in zip(*columns, strict=True)], strict=True
        ):
            for chunk in self._chunks_of(chunks, block):
                self.prepend(chunk, other, later)
            if not is_last:
                own = self.totals[block]
                self.totals[block] = self.combine(
                    self.select(later, other, own), self.select(later, own, other)
                )

    def join_warps(self, chunks: Sequence[int], step: ScanStep, is_last: bool) -> None:
        """Join the blocks of all warps along the axis; totals go through shared memory."""
        context, w = self.context, self.context.writer
        blocks, count = list(self.totals), 1 << len(step.masks)
        elements = [element_type(operand.type) for operand in self.operation.operands]
        places = self._places(blocks, step)
        scratch = [
            context.scratch(self.operation, offset)
            for offset in _offsets(
                self.plan, self.layout, self.axis, [storage_size(e) for e in elements]
            )[:-1]
        ]

        def address(number: int, place: str) -> str:
            """Emit the address of the total at ``place`` of operand ``number``."""
            offset = w.emit(f"mul i32 {place}, {storage_size(elements[number])}")
            return w.emit(
                f"getelementptr i8, {context.target.shared.pointer} {scratch[number]}, i32 {offset}"
            )

        def load(place: str) -> Row:
            return [
                context.shared_load(address(i, place), type_, align=storage_size(elements[i]))[0]
                for i, type_ in enumerate(self.types)
            ]

        with w.when(places.owner or "true"):
            for block in blocks:
                for number, type_ in enumerate(self.types):
                    context.shared_store(
                        address(number, places.own[block]),
                        type_,
                        [self.totals[block][number]],
                        align=storage_size(elements[number]),
                    )
        context.barrier()
        mine = self._coordinate(step)
        for block in blocks:
            rows = [
                load(
                    w.emit(f"add i32 {places.first[block]}, {slot}")
                    if slot
                    else places.first[block]
                )
                for slot in range(count)
            ]
            if self.reverse:
                rows.reverse()
            # this warp's place in the order of the scan
            turn = w.emit(f"sub i32 {count - 1}, {mine}") if self.reverse else mine
            total = self.join_totals(self._chunks_of(chunks, block), rows, turn, is_last)
            if not is_last:
                self.totals[block] = total

    def join_totals(self, chunks: Sequence[int], rows: list[Row], turn: str, is_last: bool) -> Row:
        """Prepend the totals of the warps before this one, which has number ``turn``.

        Return the total of all, which need not be combined in the last step.
        """
        w = self.context.writer
        running = before = rows[0]
        for slot in range(2, len(rows)):
            running = self.combine(running, rows[slot - 1])
            before = self.select(w.emit(f"icmp uge i32 {turn}, {slot}"), running, before)
        behind = w.emit(f"icmp ne i32 {turn}, 0")
        for chunk in chunks:
            self.prepend(chunk, before, behind)
        return running if is_last else self.combine(running, rows[-1])

    # ---- where the thread is

    def _bit(self, position: int) -> str:
        """Emit an i1: a bit of this lane's or warp's coordinate along the axis."""
        with self.context.at_entry() as w:
            part = self.context.thread_part(self.layout.lanes, self.layout.warps)
            bit = 1 << (axis_shifts(self.layout.shape)[self.axis] + position)
            return w.emit(f"icmp ne i32 {w.emit(f'and i32 {part}, {bit}')}, 0")

    def _coordinate(self, step: ScanStep) -> str:
        """Emit an i32: this warp's index along the axis."""
        with self.context.at_entry() as w:
            part = self.context.thread_part(self.layout.lanes, self.layout.warps)
            moved = w.emit(
                f"lshr i32 {part}, {axis_shifts(self.layout.shape)[self.axis] + step.position}"
            )
            return w.emit(f"and i32 {moved}, {(1 << len(step.masks)) - 1}")

    def _places(self, blocks: Sequence[int], step: ScanStep) -> _Places:
        """Emit the indices of totals in shared memory.

        Totals are in the order of the axis; the coordinates off the axis and a thread's blocks
        number the groups.
        """
        context, w = self.context, self.context.writer
        count = len(step.masks)
        totals = _totals_layout(self.plan, self.layout, self.axis, step)
        part = context.thread_part(totals.lanes, totals.warps)
        group = context.thread_part(
            totals.lanes, tuple(image >> count << count for image in totals.warps)
        )
        own, first = {}, {}
        for block in blocks:
            number = 0
            for bit, image in enumerate(_block_images(self.plan, self.layout, self.axis, step)):
                if block >> bit & 1:
                    number ^= image
            own[block] = w.emit(f"xor i32 {part}, {number}")
            first[block] = w.emit(f"xor i32 {group}, {number}")
        return _Places(own, first, context.is_owner(totals))


class _TreeScan(_Scan):
    """A scan as a tree: what comes before a block is combined with its elements at once."""

    def prepend(self, chunk: int, before: Row, behind: str | None) -> None:
        own = self.rows[chunk]
        self.rows[chunk] = self.select(behind, self.combine(before, own), own)

    def join_totals(self, chunks: Sequence[int], rows: list[Row], turn: str, is_last: bool) -> Row:
        w, level = self.context.writer, 0
        while len(rows) > 1:
            block = w.emit(f"lshr i32 {turn}, {level}") if level else turn
            before = rows[0]
            for number in range(3, len(rows), 2):
                reached = w.emit(f"icmp eq i32 {block}, {number}")
                before = self.select(reached, rows[number - 1], before)
            odd = w.emit(f"trunc i32 {block} to i1")
            for chunk in chunks:
                self.prepend(chunk, before, odd)
            level += 1
            if len(rows) > 2 or not is_last:
                rows = [self.combine(*rows[k : k + 2]) for k in range(0, len(rows), 2)]
            else:
                break
        return rows[0]


@dataclass(frozen=True, slots=True)
class _Places:
    """Indices of totals in shared memory: of this warp and of the first warp, for each block.

    ``owner`` is the condition under which this thread writes.
    """

    own: dict[int, str]
    first: dict[int, str]
    owner: str | None


def _off(layout: LinearLayout, axis: int, image: int) -> int:
    """Remove the coordinate along the axis from a row-major element number."""
    shift, extent = axis_shifts(layout.shape)[axis], layout.axis_mask(axis).bit_count()
    return image & ((1 << shift) - 1) | image >> (shift + extent) << shift


def _high_positions(plan: ScanPlan, step: ScanStep) -> list[int]:
    """Return register masks of the axis bits above the warps' bits.

    They number a thread's blocks while the warps are joined.
    """
    return [
        other.masks[0]
        for other in plan.steps
        if other.kind is REGISTER and other.position > step.position
    ]


def _block_images(plan: ScanPlan, layout: LinearLayout, axis: int, step: ScanStep) -> list[int]:
    """Return each register bit's contribution to the index of a total in shared memory.

    It is the bit's part off the axis; a thread's blocks are numbered above everything else.
    """
    count, rest = (
        len(step.masks),
        sum(extent.bit_length() - 1 for i, extent in enumerate(layout.shape) if i != axis),
    )
    high = _high_positions(plan, step)
    images = []
    for bit, image in enumerate(layout.registers):
        if image & layout.axis_mask(axis):
            images.append(1 << (count + rest + high.index(1 << bit)) if 1 << bit in high else 0)
        else:
            images.append(_off(layout, axis, image) << count)
    return images


def _totals_layout(plan: ScanPlan, layout: LinearLayout, axis: int, step: ScanStep) -> LinearLayout:
    """Return the layout of totals in shared memory.

    The tile is (blocks of a thread, elements off the axis, warps along the axis).
    """
    count = len(step.masks)
    shift = axis_shifts(layout.shape)[axis] + step.position
    rest = 1 << sum(extent.bit_length() - 1 for i, extent in enumerate(layout.shape) if i != axis)

    def number(image: int) -> int:
        along = image >> shift & ((1 << count) - 1) if image & layout.axis_mask(axis) else 0
        return _off(layout, axis, image) << count | along

    registers = tuple(image for image in _block_images(plan, layout, axis, step) if image)
    lanes = tuple(0 if image & layout.axis_mask(axis) else number(image) for image in layout.lanes)
    return LinearLayout(
        (1 << len(_high_positions(plan, step)), rest, 1 << count),
        registers,
        lanes,
        tuple(map(number, layout.warps)),
    )


def _offsets(plan: ScanPlan, layout: LinearLayout, axis: int, sizes: Sequence[int]) -> list[int]:
    """Return the byte offsets of the operands' totals in the scratch space.

    One more entry is the total size, which is 0 if no warps are joined.
    """
    step = next((step for step in plan.steps if step.kind not in (REGISTER, LANE)), None)
    if step is None:
        return [0] * (len(sizes) + 1)
    count = 1
    for extent in _totals_layout(plan, layout, axis, step).shape:
        count *= extent
    offsets = [0]
    for size in sizes:
        offsets.append(offsets[-1] + -(-count * size // 16) * 16)
    return offsets


def _scratch(operation: Scan, target: SimtTarget) -> int:
    layout, axis = layout_of(operation.inputs[0]), operation.axis
    plan = plan_scan(layout, axis, effective_order(operation))
    assert plan is not None
    return _offsets(
        plan,
        layout,
        axis,
        [storage_size(element_type(operand.type)) for operand in operation.operands],
    )[-1]


def _check(operation: Scan, target: SimtTarget) -> str:
    layout = layout_of(operation.inputs[0])
    works = scan_layout(layout, operation.axis, effective_order(operation)) == layout
    return one_layout(operation, target) or (
        "" if works else "the scan does not work on this layout"
    )


INTERFACES = register_interfaces(
    {"scan": Interface(lower_scan, shape_rules.scanned, _check, _scratch)}
)
