"""Rematerialization and layout conversion of operands for the layouts of their users.

*Fixed* values have one layout, in which they are computed, and are converted to any other. *Free*
values, such as index arithmetic and results of shape operations, are rematerialized in each
required layout, from operands in the corresponding layouts. A free loop-carried value is carried in
each required layout.

The pass first collects all requirements, then rewrites the function in one traversal, and sinks
conversions to their first users.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from tilewright.errors import LoweringError
from tilewright.ir.core import Operation, Region, Value
from tilewright.ir.ops.arithmetic import Cast
from tilewright.ir.ops.control import Condition, For, If
from tilewright.ir.types import TileType
from tilewright.passes.clone import clone_operation
from tilewright.simt.assign_layouts.solver import recomputed
from tilewright.simt.dialect.layout_rules import SHAPE_OPERATIONS, SOURCES, from_operands
from tilewright.simt.dialect.loop_carried import CARRIERS, Carried
from tilewright.simt.dialect.ops import SIMT_TABLE
from tilewright.simt.dialect.ops.buffers import Convert
from tilewright.simt.layouts.linear_layout import LinearLayout

#: Returns the layout that an operation requires of each operand; None for no requirement.
Needs = Callable[[Operation], Sequence[LinearLayout | None]]

_Place = TypeVar("_Place", Operation, "Operation | Region")


class Materializer:
    """Rewriter that rematerializes and converts the values of a function.

    Args:
        fixed: the layout of each fixed tile.
        carried: the values carried by control flow.
        recompute: fixed results of casts that are cheaper to clone than to convert.
        needs: the operand layouts that the other operations require.
    """

    def __init__(
        self,
        fixed: Mapping[Value, LinearLayout],
        carried: Mapping[Value, Carried],
        recompute: set[Value],
        needs: Needs,
    ) -> None:
        self.fixed, self.carried, self.recompute, self.needs = fixed, carried, recompute, needs
        #: value -> its versions in the required layouts
        self.versions: dict[Value, dict[LinearLayout, Value | None]] = {}
        self._work: list[tuple[Value, LinearLayout]] = []
        self._dead: list[Operation] = []
        self._carried_from: dict[tuple[Operation, int], Carried] = {}

    # ---- demands

    def demand(self, value: Value, layout: LinearLayout) -> None:
        """Require a tile in a layout."""
        table = self.versions.setdefault(value, {})
        if layout not in table:
            table[layout] = None
            self._work.append((value, layout))

    def settle(self) -> None:
        """Propagate requirements backwards."""
        while self._work:
            value, layout = self._work.pop()
            fixed = self.fixed.get(value)
            if fixed is not None:
                if fixed == layout:
                    continue
                if value in self.recompute:
                    self.demand(recomputed(value).x, layout)
                else:
                    self.demand(value, fixed)
                continue
            carried = self.carried.get(value)
            if carried is not None:
                carried.layouts.append(layout)
                for other in (*carried.values, *carried.incoming()):
                    if other is not value:
                        self._demand_of_carried(other, layout, carried)
                continue
            operation = _definition(value)
            if operation.name in SHAPE_OPERATIONS:
                result, operands = from_operands(operation, layout)
                if result != layout:
                    self.demand(value, result)
                    continue
            else:
                operands = layout
            for operand in operation.operands:
                if isinstance(operand.type, TileType):
                    self.demand(operand, operands)
            for other in operation.results:
                self.versions.setdefault(other, {})

    def _demand_of_carried(self, value: Value, layout: LinearLayout, carried: Carried) -> None:
        if self.carried.get(value) is carried:
            self.versions.setdefault(value, {}).setdefault(layout, None)
        else:
            self.demand(value, layout)

    # ---- rewriting

    def rewrite(self, body: Region) -> None:
        """Insert conversions and clones, after all requirements are settled."""
        self._carried_from = {
            source: carried for carried in self.carried.values() for source in carried.sources
        }
        self._region(body)
        for operation in reversed(self._dead):
            operation.erase()
        sink_conversions(body)

    def _region(self, region: Region) -> None:
        operations = list(region)
        place: Operation | Region = region
        for argument in region.arguments:
            if argument in self.versions and argument in self.fixed:
                place = self._convert_all(argument, self.fixed[argument], place)
        for operation in operations:
            if isinstance(operation, CARRIERS):
                self._structured(operation)
            elif operation.spec.terminator:
                if region.owner is None or not isinstance(region.owner, Operation):
                    continue
                self._end(operation, region.owner)
            elif operation.results and all(self._is_free(result) for result in operation.results):
                self._free(operation)
            else:
                self._fixed(operation)

    def _is_free(self, value: Value) -> bool:
        return isinstance(value.type, TileType) and value not in self.fixed

    def _version(self, value: Value, layout: LinearLayout) -> Value:
        found = self.versions[value][layout]
        assert found is not None
        return found

    def _set_operands(self, operation: Operation, layouts: Sequence[LinearLayout | None]) -> None:
        for position, (operand, layout) in enumerate(
            zip(tuple(operation.operands), layouts, strict=True)
        ):
            if layout is not None and isinstance(operand.type, TileType):
                operation.set_operand(position, self._version(operand, layout))

    def _fixed(self, operation: Operation) -> None:
        originals = tuple(operation.operands)
        self._set_operands(operation, self.needs(operation))
        place = operation
        for result in operation.results:
            if not isinstance(result.type, TileType):
                continue
            table = self.versions.setdefault(result, {})
            own = self.fixed[result]
            table[own] = result
            result.layout = own
            if result in self.recompute:
                for layout in table:
                    if layout != own:
                        (copy,) = clone_operation(
                            operation,
                            {recomputed(result).x: self._version(originals[0], layout)},
                            lambda at: at,
                        ).results
                        place = _insert_after(_definition(copy), place)
                        table[layout] = copy
                        copy.layout = layout
            else:
                place = self._convert_all(result, own, place)

    def _convert_all(self, value: Value, own: LinearLayout, place: _Place) -> _Place | Operation:
        """Conversions of a value to the layouts asked of it, after ``place`` (or at the beginning
        of a region); the last operation that is in."""
        found: _Place | Operation = place
        for layout, version in self.versions[value].items():
            if version is None:
                found = self._convert(value, own, layout, found)
        return found

    def _convert(
        self, value: Value, own: LinearLayout, layout: LinearLayout, place: Operation | Region
    ) -> Operation:
        source = self._version(value, own)
        location = place.location if isinstance(place, Operation) else None
        conversion = Operation(
            SIMT_TABLE["simt.convert"], [source], (1,), {}, [value.type], location=location
        )
        conversion.results[0].name = value.name
        self.versions[value][layout] = conversion.results[0]
        conversion.results[0].layout = layout
        if isinstance(place, Operation):
            return _insert_after(conversion, place)
        if place.first is None:
            place.append(conversion)
        else:
            place.insert_before(conversion, place.first)
        return conversion

    def _free(self, operation: Operation) -> None:
        """The operation in each layout asked of a result: itself in the first, copies in the
        others."""
        tables = [self.versions.setdefault(result, {}) for result in operation.results]
        wanted = list(dict.fromkeys(layout for table in tables for layout in table))
        if not wanted:
            self._dead.append(operation)
            return
        originals = tuple(operation.operands)
        used, place, indirect = False, operation, []
        for layout in wanted:
            operands = layout
            if operation.name in SHAPE_OPERATIONS:
                result, operands = from_operands(operation, layout)
                if result != layout:
                    indirect.append((layout, result))
                    continue
            versions = [
                self._version(v, operands)
                if isinstance(v.type, TileType) and not isinstance(operation, SOURCES)
                else v
                for v in originals
            ]
            if used:
                copy = clone_operation(operation, {})
                place = _insert_after(copy, place)
            else:
                copy, used = operation, True
            for position, version in enumerate(versions):
                copy.set_operand(position, version)
            for table, result_value in zip(tables, copy.results, strict=True):
                table[layout] = result_value
                result_value.layout = layout
        for layout, source in indirect:
            for result_value, table in zip(operation.results, tables, strict=True):
                if layout in table:
                    place = self._convert(result_value, source, layout, place)

    # ---- control flow

    def _structured(self, operation: Operation) -> None:
        if not isinstance(operation, If):
            self._reread(operation, 3 if isinstance(operation, For) else 0)
        for region in operation.regions:
            region.arguments = self._values(region.arguments, region)
            self._region(region)
        operation.results = self._values(operation.results, operation)
        after: Operation = operation
        for result in operation.results:
            if result in self.versions and result in self.fixed:
                after = self._convert_all(result, self.fixed[result], after)

    def _end(self, operation: Operation, owner: Operation) -> None:
        if isinstance(owner, CARRIERS):
            self._reread(operation, 1 if isinstance(operation, Condition) else 0)

    def _reread(self, operation: Operation, first: int) -> None:
        """Let an operation that yields carried values give each in all its layouts.

        Operands before ``first`` stay.
        """
        operands = list(operation.operands[:first])
        for position, operand in enumerate(operation.operands[first:], first):
            carried = self._carried_from[operation, position]
            if isinstance(operand.type, TileType):
                operands += [self._version(operand, layout) for layout in carried.layouts]
            else:
                operands.append(operand)
        operation.replace_operands(operands, (*operation.segments[:-1], len(operands) - first))

    def _values(self, values: Sequence[Value], owner: Operation | Region) -> list[Value]:
        """Region arguments or results: each carried tile in all its layouts."""
        found: list[Value] = []
        for value in values:
            carried = self.carried.get(value)
            if carried is None or not isinstance(value.type, TileType):
                found.append(value)
                continue
            table = self.versions.setdefault(value, {})
            for i, layout in enumerate(carried.layouts):
                version = value if i == 0 else Value(value.type, owner, value.name)
                table[layout] = version
                version.layout = layout
                found.append(version)
        return found


def _definition(value: Value) -> Operation:
    operation = value.definition
    if operation is None:
        raise LoweringError(f"no layout for {value}")
    return operation


def _insert_after(operation: Operation, place: Operation) -> Operation:
    assert place.parent is not None
    if place.next is None:
        place.parent.append(operation)
    else:
        place.parent.insert_before(operation, place.next)
    return operation


def sink_conversions(region: Region) -> None:
    """Move conversions, and free operations that read them, down to the first reader in their
    region: values that are loaded together are then all in flight before the first is waited for.
    """
    movable: set[Operation] = set()
    operations = list(region)
    for operation in operations:
        if isinstance(operation, Convert) or (
            (operation.name in SHAPE_OPERATIONS or isinstance(operation, Cast))
            and any(v.definition in movable for v in operation.operands)
        ):
            movable.add(operation)
        if isinstance(operation, CARRIERS):
            for inner in operation.regions:
                sink_conversions(inner)
    if not movable:
        return
    #: each operation of the region as it was, behind those that were moved before it, in order; and
    #: the list that an operation is in
    groups = [[operation] for operation in operations]
    group_of = {operation: i for i, operation in enumerate(operations)}

    def place(operation: Operation) -> tuple[int, int]:
        number = group_of[operation]
        return number, groups[number].index(operation)

    for operation in reversed(operations):
        if operation not in movable:
            continue
        readers = [
            _ancestor_in(region, reader) for result in operation.results for reader in result.uses
        ]
        if not readers:
            continue
        first = min(readers, key=place)
        groups[group_of[operation]].remove(operation)
        number, position = place(first)
        groups[number].insert(position, operation)
        group_of[operation] = number
        if operation.next is not first:
            operation.move_before(first)


def _ancestor_in(region: Region, operation: Operation) -> Operation:
    while operation.parent is not region:
        parent = operation.parent
        assert parent is not None and isinstance(parent.owner, Operation)
        operation = parent.owner
    return operation
