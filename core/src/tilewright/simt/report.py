"""Report of the decisions about a kernel: layouts, conversions and their cost, accesses, shared
memory, missed optimizations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from tilewright.ir.core import Function, Operation, Value
from tilewright.ir.printer import Names
from tilewright.ir.types import TileType, Type
from tilewright.simt.analysis.access_waste import AccessWaste
from tilewright.simt.dialect.async_groups import Tokens
from tilewright.simt.dialect.attributes import OFFSET, SHARED_BYTES, WARPS, layout_of, notes_of
from tilewright.simt.dialect.loop_carried import operations_of_program
from tilewright.simt.dialect.registry import interface_of
from tilewright.simt.layouts.linear_layout import LinearLayout, SharedLayout, coordinates
from tilewright.simt.layouts.swizzle import transactions
from tilewright.simt.target.conversion_plan import stored_size
from tilewright.simt.target.cost_model import element_size, warp_access
from tilewright.simt.target.simt_target import SimtTarget

#: Bytes that memory moves for a byte that is used, from which on a report says it: what a tile's
#: ends share with others is no loss.
_WORTH_SAYING: Final = 1.5


def report(function: Function, target: SimtTarget) -> str:
    """A kernel's layouts by number, then its operations in order with the layout and the cost of
    each, then missed optimizations."""
    return Report(function, target).text()


def describe(layout: LinearLayout) -> str:
    """A layout in words: what a thread, a warp's lanes and the warps span along each axis, and how
    often an element is held."""
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
    """Extents that linear combinations of images span along each axis, such as ``4x8``; images that
    move along several axes at once come last."""
    extents, mixed = [1] * len(shape), 0
    for image in images:
        moved = [axis for axis, place in enumerate(coordinates(image, shape)) if place]
        if len(moved) == 1:
            extents[moved[0]] *= 2
        elif moved:
            mixed += 1
    return "x".join(map(str, extents)) + (f" and {1 << mixed} along diagonals" if mixed else "")


class Report:
    def __init__(self, function: Function, target: SimtTarget) -> None:
        self.function, self.target = function, target
        self.names = Names.of(function)
        self.numbers: dict[LinearLayout, int] = {}
        self.rows: list[str] = []

    def text(self) -> str:
        for operation, facts in self.decisions():
            self._row(operation, facts)
        warps, shared = self.function.attributes[WARPS], self.function.attributes[SHARED_BYTES]
        lines = [
            (
                f"{self.function.name}: {warps} warps, {warps * self.target.resources.warp_size} "
                f"threads, {shared} bytes of shared memory"
            ),
            "",
            "layouts:",
        ]
        for layout, number in self.numbers.items():
            lines += [
                f"  L{number} {'x'.join(map(str, layout.shape))}: {describe(layout)}",
                f"     images: {layout}",
            ]
        notes = notes_of(self.function)
        lines += [
            "",
            "operations:",
            *self.rows,
            "",
            "missed optimizations:" if notes else "no missed optimizations",
        ]
        lines += [
            f"  {operation.name} at {operation.location}: {note}" for operation, note in notes
        ]
        return "\n".join(lines)

    def decisions(self) -> Iterator[tuple[Operation, list[str]]]:
        """The operations that have a tile or shared memory, in order, with what was decided about
        each."""
        from tilewright.passes.analysis.axis import axis_info

        self.axes, self.tokens = axis_info(self.function), Tokens(self.function)
        self.waste = AccessWaste(self.function, self.target, self.axes)
        for operation in operations_of_program(self.function.body):
            facts = self._facts(operation)
            if facts:
                yield operation, facts

    def layout(self, value: Value) -> str:
        """The name of a tile's layout."""
        layout = layout_of(value)
        return f"L{self.numbers.setdefault(layout, len(self.numbers))}"

    def _facts(self, operation: Operation) -> list[str]:
        facts = []
        tiles = [result for result in operation.results if isinstance(result.type, TileType)]
        if tiles:
            facts.append(", ".join(self.layout(tile) for tile in tiles))
        interface = interface_of(self.target, operation.name)
        if interface is not None and interface.describe is not None:
            facts += interface.describe(self, operation)
        offset = operation.attributes.get(OFFSET)
        if offset is not None:
            facts.append(f"shared memory from byte {offset}")
        return facts

    def _row(self, operation: Operation, facts: Sequence[str]) -> None:
        """One line for an operation that something was decided about."""
        depth = sum(1 for _ in operation.ancestors())
        names = ", ".join(
            f"%{self.names[result]}".replace("%%", "%") for result in operation.results
        )
        place = f"{names} = {operation.name}" if names else operation.name
        line = f" (line {operation.location.line})" if operation.location is not None else ""
        self.rows.append(f"{'  ' * (1 + depth)}{place}{line}: {'; '.join(facts)}")

    def accesses(
        self, pointer: Value, mask: Value | None, limit: int, what: str = "accesses"
    ) -> str:
        """Describe the accesses at a tile of pointers, of at most ``limit`` bytes each, and how
        much memory moves for it where not all is used."""
        layout, size, costs, info = (
            layout_of(pointer),
            element_size(pointer),
            self.target.costs,
            self.axes[pointer],
        )
        found = warp_access(
            layout, info, self.axes[mask] if mask is not None else None, size, limit, costs
        )
        message = (
            f"{layout.register_count // found.width} {what} of {found.width * size} bytes a thread"
        )
        times, exact = self.waste.moved(pointer, found)
        return (
            message
            if times < _WORTH_SAYING
            else f"{message}, for which memory {'moves' if exact else 'may move up to'} "
            f"{times:.2g} times the bytes"
        )

    def traffic(self, verb: str, layout: LinearLayout, shared: SharedLayout, element: Type) -> str:
        """Describe a warp's accesses to a tile in shared memory, and the bank conflicts: the cycles
        beyond those that the bytes need."""
        size = stored_size(element)
        count, turns = transactions(
            layout, shared, size, self.target.resources.max_access, self.target.resources.banks
        )
        width = layout.register_count // count * size
        minimum = count * max(
            1, width * self.target.resources.warp_size // (self.target.resources.banks * 4)
        )
        conflicts = (
            f", {turns / minimum:g}-way bank conflicts"
            if turns > minimum
            else ", no bank conflicts"
        )
        return (
            f"{verb} in {count} accesses of {width} bytes a thread, {turns} turns a warp{conflicts}"
        )
