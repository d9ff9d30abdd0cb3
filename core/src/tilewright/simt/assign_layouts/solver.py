"""Layout selection as an optimization problem, solved by local search.

Each group of operations that work in one layout has one unknown. Each candidate layout has a cost,
and pairs of candidates have the cost of converting the values between them. :mod:`.assign` states
the problem.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from tilewright.ir.core import Operation, Value
from tilewright.ir.ops.arithmetic import Cast
from tilewright.ir.types import TileType
from tilewright.simt.dialect.layout_rules import SHAPE_OPERATIONS, from_operands, result_layout
from tilewright.simt.layouts.linear_layout import LinearLayout
from tilewright.simt.target.cost_model import (
    CostModel,
    bits_of_element,
    conversion_cost,
    operation_cost,
    shared_read_cost,
)

#: Maximum number of candidates per unknown.
_MOST_CANDIDATES: Final = 8
#: Rounds of improvement.
_ROUNDS: Final = 3


def recomputed(value: Value) -> Cast:
    """Return the cast that defines a value in ``Problem.recompute``."""
    operation = value.definition
    assert isinstance(operation, Cast)
    return operation


@dataclass(slots=True, eq=False)
class Variable:
    """Unknown layout.

    Attributes:
        weight: estimated number of executions of its operations.
        prices: cost functions of its operations: layout -> cost.
        admit: maps a candidate to the nearest layout that the operations support.
        closed: whether candidates of neighbours are rejected.
        read: the edges that read its values; ``written``: the edges of its operands.
    """

    shape: tuple[int, ...]
    weight: float = 1.0
    candidates: list[LinearLayout] = field(default_factory=list)
    chosen: LinearLayout | None = None
    prices: list[Callable[[LinearLayout], float]] = field(default_factory=list)
    admit: Callable[[LinearLayout], LinearLayout] | None = None
    closed: bool = False
    read: list[Edge] = field(default_factory=list)
    written: list[Edge] = field(default_factory=list)
    merged: Variable | None = None
    _own: dict[LinearLayout, float] = field(default_factory=dict)

    def own_price(self, layout: LinearLayout) -> float:
        """Return the cost of its operations in a layout."""
        found = self._own.get(layout)
        if found is None:
            found = self._own[layout] = self.weight * sum(price(layout) for price in self.prices)
        return found

    def root(self) -> Variable:
        """Return the variable that this one was merged into."""
        found = self
        while found.merged is not None:
            found = found.merged
        if found is not self:
            self.merged = found
        return found

    def merge(self, other: Variable) -> None:
        """Merge another variable into this one."""
        a, b = self.root(), other.root()
        if a is b:
            return
        assert a.shape == b.shape
        a.weight = max(a.weight, b.weight)
        a.candidates += b.candidates
        a.prices += b.prices
        a.admit = a.admit or b.admit
        a.closed |= b.closed
        b.merged = a

    def propose(self, layout: LinearLayout) -> bool:
        """Add a candidate layout; return whether it is a new one."""
        if self.admit is not None:
            layout = self.admit(layout)
        if layout in self.candidates or len(self.candidates) >= _MOST_CANDIDATES:
            return False
        self.candidates.append(layout)
        return True


_without_axis = functools.lru_cache(maxsize=1024)(LinearLayout.without_axis)


@dataclass(frozen=True, slots=True, eq=False)
class Origin:
    """Source of a fixed value's layout: a variable, or a known layout.

    With ``without_axis``, the value's layout is the variable's layout without that axis.
    """

    source: Variable | LinearLayout
    without_axis: int | None = None

    def layout(self) -> LinearLayout | None:
        """Return the value's layout; None if it is not chosen yet."""
        if isinstance(self.source, LinearLayout):
            return self.source
        chosen = self.source.root().chosen
        return None if chosen is None else self.seen(chosen)

    def seen(self, layout: LinearLayout) -> LinearLayout:
        """Return the value's layout if the variable has layout ``layout``."""
        return layout if self.without_axis is None else _without_axis(layout, self.without_axis)


@dataclass(frozen=True, slots=True, eq=False)
class Edge:
    """Use of a value in the layout of a variable, or in a known layout."""

    value: Value
    reader: Variable | LinearLayout
    weight: float

    def wanted(self) -> LinearLayout | None:
        return self.reader if isinstance(self.reader, LinearLayout) else self.reader.root().chosen


class Problem:
    """Variables, edges and the fixed values between them.

    Attributes:
        origins: the origin of each fixed value.
        recompute: results of widening casts. In another layout, the cast is cloned on the converted
            operand, which is narrower.
        in_shared: tiles that are read from shared memory in any layout, at no conversion cost, with
            the axis along which their elements are contiguous.
    """

    def __init__(
        self, origins: dict[Value, Origin], recompute: set[Value], costs: CostModel
    ) -> None:
        self.origins, self.recompute, self.costs = origins, recompute, costs
        self.in_shared: dict[Value, int] = {}
        self.edges: list[Edge] = []
        self._paths: dict[Value, tuple[tuple[Value, tuple[Operation, ...]], ...]] = {}
        self._conversions: dict[tuple[LinearLayout, LinearLayout, int], float] = {}
        self._moved: dict[tuple[tuple[Operation, ...], LinearLayout], LinearLayout] = {}
        self._operands: dict[tuple[Operation, LinearLayout], tuple[LinearLayout, LinearLayout]] = {}

    # ---- stating

    def connect(self, edge: Edge) -> None:
        """Add a use of a tile."""
        paths = self.paths(edge.value)
        if not paths:
            return
        self.edges.append(edge)
        if isinstance(edge.reader, Variable):
            edge.reader.root().written.append(edge)
        for leaf, _ in paths:
            for source in self._sources(leaf):
                if source is not edge.reader:
                    source.read.append(edge)

    def _sources(self, leaf: Value) -> list[Variable]:
        found = []
        source = self.origins[leaf].source
        if isinstance(source, Variable):
            found.append(source.root())
        if leaf in self.recompute:
            for inner, _ in self.paths(recomputed(leaf).x):
                found += self._sources(inner)
        return found

    def paths(self, value: Value) -> tuple[tuple[Value, tuple[Operation, ...]], ...]:
        """Fixed values behind a value, each with the shape operations between it and the value.

        The operations are in order from the value back to the fixed value.
        """
        if value in self.origins:
            return ((value, ()),)
        found = self._paths.get(value)
        if found is None:
            parts = []
            operation = value.owner
            if isinstance(operation, Operation) and operation.name in SHAPE_OPERATIONS:
                for operand in dict.fromkeys(operation.operands):
                    parts += [(leaf, (operation, *path)) for leaf, path in self.paths(operand)]
            found = self._paths[value] = tuple(parts)
        return found

    # ---- prices

    def price(self, value: Value, layout: LinearLayout) -> float:
        """Return the cost of a value in a layout."""
        origin = self.origins.get(value)
        if origin is not None:
            own = origin.layout()
            if own is None:
                return 0.0
            if value in self.in_shared:
                return shared_read_cost(
                    layout, self.in_shared[value], bits_of_element(value), self.costs
                )
            if own == layout:
                return 0.0
            operation = value.owner
            if value in self.recompute:
                cast = recomputed(value)
                return (
                    self.price(cast.x, layout)
                    + operation_cost(cast, self.costs) * layout.register_count
                )
            return self.conversion(own, layout, value)
        if not self.paths(value):
            return 0.0
        operation = value.owner
        assert isinstance(operation, Operation)
        result, operands = self._back(operation, layout)
        cost = self.conversion(result, layout, value)
        for operand in dict.fromkeys(operation.operands):
            cost += self.price(operand, operands)
        return cost

    def conversion(self, source: LinearLayout, target: LinearLayout, value: Value) -> float:
        if source == target:
            return 0.0
        key = source, target, bits_of_element(value)
        found = self._conversions.get(key)
        if found is None:
            found = self._conversions[key] = conversion_cost(*key, self.costs)
        return found

    def _forward(self, path: tuple[Operation, ...], layout: LinearLayout) -> LinearLayout:
        if not path:
            return layout
        key = path, layout
        found = self._moved.get(key)
        if found is None:
            found = layout
            for operation in reversed(path):
                found = result_layout(operation, found)
            self._moved[key] = found
        return found

    def seen_before(self, path: tuple[Operation, ...], layout: LinearLayout) -> LinearLayout:
        """Return the layout that shape operations, listed last one first, map to ``layout``."""
        for operation in path:
            layout = self._back(operation, layout)[1]
        return layout

    def _back(
        self, operation: Operation, layout: LinearLayout
    ) -> tuple[LinearLayout, LinearLayout]:
        key = operation, layout
        found = self._operands.get(key)
        if found is None:
            found = self._operands[key] = from_operands(operation, layout)
        return found

    # ---- solving

    def spread_candidates(self) -> None:
        """Propose to each variable the layouts that save a conversion from or to its neighbours."""
        for _ in range(_ROUNDS):
            changed = False
            for edge in self.edges:
                for leaf, path in self.paths(edge.value):
                    changed |= self._spread(edge, leaf, path)
            if not changed:
                return

    def _spread(self, edge: Edge, leaf: Value, path: tuple[Operation, ...]) -> bool:
        changed = False
        origin = self.origins[leaf]
        reader = edge.reader.root() if isinstance(edge.reader, Variable) else edge.reader
        source = origin.source.root() if isinstance(origin.source, Variable) else origin.source
        if isinstance(reader, Variable) and not reader.closed and source is not reader:
            for layout in (
                (source,) if isinstance(source, LinearLayout) else tuple(source.candidates)
            ):
                changed |= reader.propose(self._forward(path, origin.seen(layout)))
        if (
            isinstance(source, Variable)
            and not source.closed
            and origin.without_axis is None
            and source is not reader
        ):
            for layout in (
                (reader,) if isinstance(reader, LinearLayout) else tuple(reader.candidates)
            ):
                moved = layout
                for operation in path:
                    moved = self._back(operation, moved)[1]
                if not path or moved.covers:
                    changed |= source.propose(moved)
        return changed

    def solve(
        self, variables: list[Variable], default: Callable[[tuple[int, ...]], LinearLayout]
    ) -> None:
        """Choose the layout of every variable."""
        self.spread_candidates()
        undecided = [variable for variable in variables if not variable.candidates]
        for variable in undecided:
            variable.propose(default(variable.shape))
        if undecided:
            self.spread_candidates()
        self._descend(sorted(variables, key=lambda one: -one.weight))  # those in loops first
        found, cost = [variable.chosen for variable in variables], self._total(variables)
        # Neighbours follow the variables chosen first: a small tile's layout must not determine
        # the layout of a large one.
        large_first = sorted(variables, key=lambda one: -one.weight * math.prod(one.shape))
        for variable in variables:
            variable.chosen = None
        self._descend(large_first)
        if self._total(variables) >= cost:
            for variable, chosen in zip(variables, found, strict=True):
                variable.chosen = chosen
        self._move_chains(variables)

    def _move_chains(self, variables: Sequence[Variable]) -> None:
        """Choose the layout of a converted value for all that it is computed from, where it pays.

        A chain of variables between a load and its reader can lack an improvement by one variable:
        it would only move the conversion along the chain. Chains outside of loops keep the widest
        accesses: there is no iteration that a conversion's barriers could delay.
        """
        cost = self._total(variables)
        for edge in self.edges:
            wanted = edge.wanted()
            if edge.weight <= 1 or wanted is None or not self.price(edge.value, wanted):
                continue
            before: dict[Variable, LinearLayout | None] = {}
            self._move_chain(edge, wanted, before)
            if len(before) > 1 and (found := self._total(variables)) < cost:
                cost = found
                continue
            for variable, chosen in before.items():
                variable.chosen = chosen

    def _move_chain(
        self, edge: Edge, wanted: LinearLayout, before: dict[Variable, LinearLayout | None]
    ) -> None:
        """Let what a value is computed from have a reader's layout; note earlier ones in order."""
        for leaf, path in self.paths(edge.value):
            origin, layout = self.origins[leaf], wanted
            if not isinstance(origin.source, Variable) or origin.without_axis is not None:
                continue
            for operation in path:
                layout = self._back(operation, layout)[1]
            source = origin.source.root()
            if source in before or source.chosen == layout or layout not in source.candidates:
                continue
            before[source] = source.chosen
            source.chosen = layout
            for one in source.written:
                self._move_chain(one, layout, before)

    def _descend(self, order: Sequence[Variable]) -> None:
        """Choose the layouts of variables in turn, until a round brings no improvement."""
        for variable in order:
            self._choose(variable)
        for _ in range(_ROUNDS):
            changed = [
                variable
                for variable in order
                if len(variable.candidates) > 1 and self._choose(variable)
            ]
            if not changed:
                return

    def _total(self, variables: Sequence[Variable]) -> float:
        """Return the total cost of the chosen layouts."""
        cost = 0.0
        for variable in variables:
            assert variable.chosen is not None
            cost += variable.own_price(variable.chosen)
        for edge in self.edges:
            wanted = edge.wanted()
            assert wanted is not None
            cost += edge.weight * self.price(edge.value, wanted)
        return cost

    def _choose(self, variable: Variable) -> bool:
        before = variable.chosen
        best, minimum = None, 0.0
        for layout in variable.candidates:
            variable.chosen = layout
            cost = self._cost(variable, layout)
            if best is None or cost < minimum:
                best, minimum = layout, cost
        variable.chosen = best
        return best is not before

    def _cost(self, variable: Variable, layout: LinearLayout) -> float:
        cost = variable.own_price(layout)
        for edge in variable.written:
            cost += edge.weight * self.price(edge.value, layout)
        for edge in variable.read:
            wanted = edge.wanted()
            if wanted is not None:
                cost += edge.weight * self.price(edge.value, wanted)
        return cost


def tile_shape(value: Value) -> tuple[int, ...]:
    """Return the shape of a tile."""
    type_ = value.type
    assert isinstance(type_, TileType)
    return type_.shape
