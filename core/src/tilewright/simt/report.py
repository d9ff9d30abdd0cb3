"""What was decided about a kernel, for people: layouts, conversions and their cost, accesses, shared memory, what left the fast path."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tilewright.ir.core import Function, Operation, Value
from tilewright.ir.printer import Names
from tilewright.ir.types import TileType, element_type
from tilewright.simt.assignment import Assignment
from tilewright.simt.carried import operations_of_program
from tilewright.simt.conversion import WarpMove, plan_conversion, scratch_bytes, stored_size
from tilewright.simt.costs import access_width, element_size
from tilewright.simt.linear_layout import LinearLayout, SharedLayout, coordinates
from tilewright.simt.swizzle import transactions
from tilewright.simt.target import SimtTarget


def report(function: Function, assignment: Assignment, target: SimtTarget) -> str:
    """A kernel's layouts by number, then its operations in order with the layout and the cost of each, then what left the fast path."""
    return _Report(function, assignment, target).text()


def describe(layout: LinearLayout) -> str:
    """A layout in words: what a thread, a warp's lanes and the warps span along each axis, and how often an element is held."""
    parts = [f"a thread has {_extents(layout.registers, layout.shape)}"]
    runs = [(layout.vector_width(axis, extent), axis) for axis, extent in enumerate(layout.shape)]
    width, axis = max(runs, default=(1, 0))
    if width > 1:
        parts[0] += f" ({width} in a row along axis {axis})"
    parts.append(f"lanes span {_extents(layout.lanes, layout.shape)}")
    parts.append(f"warps span {_extents(layout.warps, layout.shape)}")
    lanes, warps = layout.redundant_threads()
    copies = 1 << (lanes.bit_count() + warps.bit_count())
    if copies > 1:
        parts.append(f"each element is in {copies} threads")
    return ", ".join(parts)


def _extents(images: Sequence[int], shape: tuple[int, ...]) -> str:
    """How many places along each axis the sums of images span: ``4x8``; those of images that move along several axes at once come after."""
    extents, mixed = [1] * len(shape), 0
    for image in images:
        moved = [axis for axis, place in enumerate(coordinates(image, shape)) if place]
        if len(moved) == 1:
            extents[moved[0]] *= 2
        elif moved:
            mixed += 1
    return "x".join(map(str, extents)) + (f" and {1 << mixed} along diagonals" if mixed else "")


class _Report:
    def __init__(self, function: Function, assignment: Assignment, target: SimtTarget) -> None:
        self.function, self.assignment, self.target = function, assignment, target
        self.names = Names.of(function)
        self.numbers: dict[LinearLayout, int] = {}
        self.rows: list[str] = []

    def text(self) -> str:
        from tilewright.passes.axis import axis_info

        self.axes = axis_info(self.function)
        for operation in operations_of_program(self.function.body):
            self._row(operation)
        assignment, threads = self.assignment, self.assignment.num_warps * self.target.warp_size
        lines = [f"{self.function.name}: {assignment.num_warps} warps, {threads} threads, {assignment.shared_bytes} bytes of shared memory", "", "layouts:"]
        for layout, number in self.numbers.items():
            lines += [f"  L{number} {'x'.join(map(str, layout.shape))}: {describe(layout)}", f"     images: {layout}"]
        lines += ["", "operations:", *self.rows, "", "left the fast path:" if assignment.notes else "nothing left the fast path"]
        lines += [f"  {operation.name} at {operation.location}: {note}" for operation, note in assignment.notes]
        return "\n".join(lines)

    def _layout(self, value: Value) -> str:
        layout = self.assignment.layouts[value]
        return f"L{self.numbers.setdefault(layout, len(self.numbers))}"

    def _row(self, operation: Operation) -> None:
        """One line for an operation that has a tile or shared memory."""
        facts = []
        tiles = [result for result in operation.results if isinstance(result.type, TileType)]
        if tiles:
            facts.append(", ".join(self._layout(tile) for tile in tiles))
        if operation.name in _FACTS:
            facts += _FACTS[operation.name](self, operation)
        offset = self.assignment.offsets.get(operation)
        if offset is not None:
            facts.append(f"shared memory from byte {offset}")
        if facts:
            depth = sum(1 for _ in operation.ancestors())
            names = ", ".join(f"%{self.names[result]}".replace("%%", "%") for result in operation.results)
            place = f"{names} = {operation.name}" if names else operation.name
            line = f" (line {operation.location.line})" if operation.location is not None else ""
            self.rows.append(f"{'  ' * (1 + depth)}{place}{line}: {'; '.join(facts)}")

    # ---- facts of single operations

    def conversion(self, operation: Operation) -> list[str]:
        (x,), (result,) = operation.operands, operation.results
        source, layout, element = self.assignment.layouts[x], self.assignment.layouts[result], element_type(x.type)
        plan = plan_conversion(source, layout, element, self.target)
        size = stored_size(element)
        facts = [f"from {self._layout(x)}"]
        if isinstance(plan, WarpMove):
            shuffles = plan.shuffle_count(size)
            facts.append(f"{shuffles} shuffles and {plan.selects} selects a thread" if shuffles or plan.selects else "registers are renamed")
            return facts
        bytes_moved, rounds = math.prod(layout.shape) * size, 1 << plan.round_bits
        facts.append(f"{bytes_moved} bytes through {scratch_bytes(plan, element)} bytes of shared memory{f' in {rounds} rounds' if rounds > 1 else ''}")
        return [*facts, self._traffic("written", source, plan.shared, size), self._traffic("read", layout, plan.shared, size)]

    def _traffic(self, verb: str, layout: LinearLayout, shared: SharedLayout, size: int) -> str:
        """How a warp accesses a tile in shared memory: turns beyond what the bytes need are bank conflicts."""
        count, turns = transactions(layout, shared, size, self.target.max_access, self.target.banks)
        width = layout.register_count // count * size
        least = count * max(1, width * self.target.warp_size // (self.target.banks * 4))
        conflicts = f", {turns / least:g}-way bank conflicts" if turns > least else ", no bank conflicts"
        return f"{verb} in {count} accesses of {width} bytes a thread, {turns} turns a warp{conflicts}"

    def access(self, operation: Operation) -> list[str]:
        pointer, mask = operation.operands[0], operation.operand("mask")
        if not isinstance(pointer.type, TileType):
            return []
        layout, size = self.assignment.layouts[pointer], element_size(pointer)
        width = access_width(layout, self.axes[pointer], self.axes[mask] if mask is not None else None, size, self.target.max_access)
        facts = [] if operation.results else [self._layout(pointer)]
        return [*facts, f"{layout.register_count // width} accesses of {width * size} bytes a thread"]

    def copy(self, operation: Operation) -> list[str]:
        from tilewright.simt.lowering.shared import copy_width

        pointer, mask = operation.operand("pointer"), operation.operand("mask")
        assert pointer is not None
        layout, size = self.assignment.layouts[pointer], element_size(pointer)
        shared, info = self.assignment.shared[operation], self.axes[mask] if mask is not None else None
        width = copy_width(layout, shared, self.axes[pointer], info, size, self.target.copy_widths)
        facts = [self._layout(pointer)]
        if not width:
            return [*facts, "through registers"]
        return [*facts, f"{layout.register_count // width} asynchronous copies of {width * size} bytes a thread"]

    def shared_read(self, operation: Operation) -> list[str]:
        (result,) = operation.results
        layout, size = self.assignment.layouts[result], stored_size(element_type(result.type))
        from tilewright.simt.lowering.shared import read_by_dot

        if read_by_dot(operation):
            return ["read by the product as it goes"]
        return [self._traffic("read", layout, self.assignment.shared[operation], size)]

    def product(self, operation: Operation) -> list[str]:
        return [f"by {self.assignment.dots[operation].instruction}"]

    def allocation(self, operation: Operation) -> list[str]:
        return [f"{operation.attribute('bytes')} bytes"]

    def wait(self, operation: Operation) -> list[str]:
        return [f"until at most {operation.attribute('pending')} groups of copies are under way"]


_FACTS = {
    "simt.convert": _Report.conversion,
    "load": _Report.access,
    "store": _Report.access,
    "simt.async_load": _Report.copy,
    "simt.shared_load": _Report.shared_read,
    "simt.shared_alloc": _Report.allocation,
    "simt.async_wait": _Report.wait,
    "dot": _Report.product,
    "simt.dot_step": _Report.product,
}
