"""Selection of the tiles that need a layout: all but those cheap to rematerialize in any layout."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tilewright.ir.core import Operation, Value
from tilewright.ir.table import Effect
from tilewright.ir.types import TileType
from tilewright.simt.dialect.layout_rules import SHAPE_OPERATIONS, SOURCES
from tilewright.simt.dialect.loop_carried import CARRIERS, Carried
from tilewright.simt.target.cost_model import CostModel, operation_cost


def fixed_tiles(
    operations: Sequence[Operation],
    carried: Mapping[Value, Carried],
    arguments: Sequence[Value],
    threads: int,
    costs: CostModel,
) -> dict[Value, None]:
    """Return the tiles that have a layout of their own, in program order.

    These are results of loads, matmuls and reductions, and arithmetic that depends on them or is
    too expensive to rematerialize. Shape operations on such tiles are free, but *derived* from
    them.
    """
    search = _Search(carried, threads, costs)
    for argument in arguments:
        if isinstance(argument.type, TileType):
            search.fix(argument)
    while True:
        search.changed = False
        for operation in operations:
            search.visit(operation)
        if not search.changed:
            return search.fixed


class _Search:
    def __init__(self, carried: Mapping[Value, Carried], threads: int, costs: CostModel) -> None:
        self.carried, self.threads, self.costs = carried, threads, costs
        self.fixed: dict[Value, None] = {}
        #: free tiles computed from fixed ones
        self.derived: set[Value] = set()
        self.cost: dict[Value, float] = {}
        #: whether a carried value proved fixed after it was looked at
        self.changed = False

    def fix(self, value: Value) -> None:
        self.fixed[value] = None

    def depends(self, value: Value) -> bool:
        return value in self.fixed or value in self.derived

    def visit(self, operation: Operation) -> None:
        if isinstance(operation, CARRIERS):
            for value in (
                *operation.results,
                *(argument for region in operation.regions for argument in region.arguments),
            ):
                self._visit_carried(value)
            return
        if operation.spec.terminator:
            owner = operation.parent.owner if operation.parent is not None else None
            if isinstance(owner, Operation) and isinstance(owner, CARRIERS):
                for value in (
                    *owner.results,
                    *(argument for region in owner.regions for argument in region.arguments),
                ):
                    self._visit_carried(value)
            return
        tiles = [result for result in operation.results if isinstance(result.type, TileType)]
        if not tiles:
            return
        shape = operation.name in SHAPE_OPERATIONS
        elementwise = operation.spec.elementwise and operation.spec.effects is Effect.NONE
        if not (shape or elementwise or isinstance(operation, SOURCES)):
            for result in tiles:
                self.fix(result)
            return
        depends = any(self.depends(operand) for operand in operation.operands)
        if shape and depends:
            self.derived.update(tiles)
            return
        (first, *_) = tiles
        type_ = first.type
        assert isinstance(type_, TileType)
        each = max(1.0, math.prod(type_.shape) / self.threads)
        cost = operation_cost(operation, self.costs) * each + sum(
            self.cost.get(operand, 0.0) for operand in operation.operands
        )
        if elementwise and (depends or cost > self.costs.thresholds.rematerialized_cost * each):
            for result in tiles:
                self.fix(result)
        else:
            for result in tiles:
                self.cost[result] = cost

    def _visit_carried(self, value: Value) -> None:
        if not isinstance(value.type, TileType) or value in self.fixed:
            return
        carried = self.carried.get(value)
        if carried is not None and any(self.depends(source) for source in carried.incoming()):
            for other in carried.values:
                self.fix(other)
            self.changed = True
