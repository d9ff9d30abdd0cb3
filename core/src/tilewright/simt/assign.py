"""Giving every tile a layout.

Operations that work in one layout share an unknown (:mod:`.variables`): runs of elementwise operations, what loops carry, each memory access, each
reduction. Memory accesses propose layouts that coalesce (:mod:`.coalesce`), matrix products demand those of the target's instructions, and the cheapest
choice of all is taken, conversions included. Index arithmetic has no layout: it is repeated in each that is asked of it (:mod:`.free`,
:mod:`.rematerialize`). What each operation demands is in :mod:`.rules`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tilewright.errors import LoweringError
from tilewright.ir.core import Function, Operation, Region, Value
from tilewright.ir.types import FloatType, IntType, TileType, bit_width, element_type
from tilewright.passes.axis import axis_info
from tilewright.simt.assignment import Assignment
from tilewright.simt.carried import CARRIERS, Carried, all_carried, operations_of_program
from tilewright.simt.coalesce import ACCESSES, TileAccess, coalesced, default_layout, tile_access, widened
from tilewright.simt.costs import bits_of_element, operation_cost, reduction_cost
from tilewright.simt.free import fixed_tiles
from tilewright.simt.linear_layout import LinearLayout, log2, replicated
from tilewright.simt.rematerialize import Materializer
from tilewright.simt.rules import INDIFFERENT, SHAPE_OPERATIONS, SOURCES, UNIFORM, check, packed, scan_layout_of
from tilewright.simt.target import DotPlan, SimtTarget
from tilewright.simt.variables import Edge, Origin, Problem, Variable, tile_shape

__all__ = ["assign", "check"]

#: How often a loop's body is taken to run.
_TRIPS: Final = 8.0
#: Price of holding a register where nothing is computed: keeps threads from holding the same elements without need.
_HOLDING: Final = 0.25


def assign(function: Function, target: SimtTarget, num_warps: int, options: Mapping[str, Any]) -> Assignment:
    """Give every tile of a function a layout. Conversions are put in, and cheap operations repeated, where layouts differ.

    Raises:
        LoweringError: a tile has an extent that is no power of two, or an operation has no rule.
    """
    assignment = Assignment(num_warps)
    _Assigner(function, target, assignment).run()
    return assignment


class _Assigner:
    def __init__(self, function: Function, target: SimtTarget, assignment: Assignment) -> None:
        self.function, self.target, self.assignment = function, target, assignment
        self.num_warps = assignment.num_warps
        self.axes = axis_info(function)
        self.operations = operations_of_program(function.body)
        self.carried = all_carried(function)
        for value in self._tiles():
            self._require_powers_of_two(value)
        self.fixed = fixed_tiles(self.operations, self.carried, function.arguments, target.warp_size * num_warps_of(assignment))
        self.origins: dict[Value, Origin] = {}
        self.recompute: set[Value] = set()
        self.problem = Problem(self.origins, self.recompute)
        self.variables: list[Variable] = []
        #: fixed values whose readers may share their variable
        self._shared: dict[Value, Variable] = {}
        #: what each operation reads its tile operands in
        self.reads: dict[Operation, list[Variable | LinearLayout | None]] = {}
        self._weights: dict[Region, float] = {function.body: 1.0}
        self._default = functools.partial(default_layout, lanes=target.warp_size, warps=self.num_warps)
        limit = target.max_access
        self.accesses: dict[Operation, TileAccess] = {}
        for operation in self.operations:
            if operation.name in ACCESSES and (access := tile_access(operation, self.axes, limit)) is not None:
                self.accesses[operation] = access
        self.coalesced = coalesced(self.accesses.values(), target.warp_size, self.num_warps, limit)

    def run(self) -> None:
        for argument in self.function.arguments:
            if isinstance(argument.type, TileType):
                self._share(argument, self._variable(argument))
        for operation in self.operations:
            self._state(operation)
        self._connect()
        self.problem.solve([variable for variable in self.variables if variable.merged is None], self._default)
        self._rewrite()

    def _tiles(self) -> list[Value]:
        found = [argument for argument in self.function.arguments if isinstance(argument.type, TileType)]
        for operation in self.operations:
            found += [result for result in operation.results if isinstance(result.type, TileType)]
        return found

    def _require_powers_of_two(self, value: Value) -> None:
        shape = tile_shape(value)
        if any(extent & (extent - 1) for extent in shape):
            operation = value.definition
            where = f"{operation.name} at {operation.location}" if operation is not None else f"argument {value.name}"
            raise LoweringError(f"{where}: {self.target.name} works on tiles whose extents are powers of two, not on {value.type}")

    # ---- stating the problem

    def _weight(self, operation: Operation) -> float:
        """How often an operation runs."""
        region = operation.parent
        assert region is not None
        return self._weights[region]

    def _variable(self, value: Value, weight: float = 1.0) -> Variable:
        variable = Variable(tile_shape(value), weight)
        self.variables.append(variable)
        return variable

    def _share(self, value: Value, variable: Variable) -> None:
        """A value whose readers may be computed in its variable."""
        self.origins[value] = Origin(variable)
        self._shared[value] = variable

    def _state(self, operation: Operation) -> None:
        name = operation.name
        if name in CARRIERS:
            self._state_carrier(operation)
        elif operation.spec.terminator or name in SOURCES:
            return
        elif name in SHAPE_OPERATIONS:
            if not isinstance(operation.results[0].type, TileType):  # the halves of a pair, as scalars
                shape = tile_shape(operation.operands[0])
                self.reads[operation] = [replicated(shape, self.target.warp_size, self.num_warps)]
        elif name in _STATE:
            if any(isinstance(value.type, TileType) for value in (*operation.operands, *operation.results)):
                _STATE[name](self, operation)
        elif operation.spec.elementwise:
            if operation.results[0] in self.fixed:
                self._state_elementwise(operation)
        elif any(isinstance(value.type, TileType) for value in (*operation.operands, *operation.results)):
            raise LoweringError(f"{name} at {operation.location}: {self.target.name} has no rule for where its tiles are")

    def _state_carrier(self, operation: Operation) -> None:
        weight = self._weight(operation)
        inside = weight if operation.name == "if" else weight * _TRIPS
        for region in operation.regions:
            self._weights[region] = inside
        for value in (*operation.results, *(argument for region in operation.regions for argument in region.arguments)):
            if value in self.fixed and value not in self.origins:
                variable = self._variable(value, inside)
                variable.prices.append(_holding)
                for other in self.carried[value].values:
                    self._share(other, variable)

    def _state_elementwise(self, operation: Operation) -> None:
        (result,) = operation.results
        variable = next((self._shared[operand] for operand in operation.operands if operand in self._shared), None)
        weight = self._weight(operation)
        if variable is None:
            variable = self._variable(result, weight)
        variable = variable.root()
        for operand in operation.operands:
            if operand in self._shared:
                variable.merge(self._shared[operand])
        variable.weight = max(variable.weight, weight)
        variable.prices.append(_per_register(operation_cost(operation)))
        self._share(result, variable)
        self.reads[operation] = [variable] * len(operation.operands)
        if operation.name == "cast" and bit_width(element_type(operation.operands[0].type)) < bit_width(element_type(result.type)):
            self.recompute.add(result)

    def _state_uniform(self, operation: Operation) -> None:
        """One variable for all tile operands and results."""
        tile = next(value for value in (*operation.operands, *operation.results) if isinstance(value.type, TileType))
        variable = self._variable(tile, self._weight(operation))
        if operation.name in ACCESSES:
            access, limit = self.accesses[operation], self.target.max_access
            variable.candidates = list(self.coalesced[access.shape])
            if operation.name == "store":
                # accumulators may be exchanged within warps for this
                products = dict.fromkeys(plan.c for plan in self.assignment.dots.values() if plan.c.shape == access.shape)
                variable.candidates += filter(None, (widened(layout, access.order[0], access.vector) for layout in products))
            variable.prices.append(lambda layout: access.cost(layout, limit))
        elif operation.name in ("map", "inline_asm"):
            pack = operation.attribute("pack")
            variable.prices.append(_per_register(sum(1 for region in operation.regions for _ in region) or 2.0))
            if pack > 1:
                variable.admit = lambda layout: packed(layout, pack)
        else:
            variable.prices.append(_per_register(4.0))
        for result in operation.results:
            self.origins[result] = Origin(variable)
        self.reads[operation] = [variable if isinstance(operand.type, TileType) else None for operand in operation.operands]

    def _folded(self, operation: Operation, times: float) -> tuple[Variable, int]:
        """The operands of a reduction or scan, which share a layout, and the axis; the price is that of so many reductions."""
        variable = self._variable(operation.operands[0], self._weight(operation))
        axis: int = operation.attribute("axis")
        words = sum(max(1.0, bits_of_element(operand) / 32) for operand in operation.operands)
        combine = max(1.0, len(operation.regions[0]) - 1.0)
        variable.prices.append(lambda layout: times * reduction_cost(layout, axis, words, combine))
        return variable, axis

    def _state_reduce(self, operation: Operation) -> None:
        variable, axis = self._folded(operation, 1.0)
        for result in operation.results:
            if isinstance(result.type, TileType):
                self.origins[result] = Origin(variable, axis)
        self.reads[operation] = [variable] * len(operation.operands)

    def _state_scan(self, operation: Operation) -> None:
        variable, axis = self._folded(operation, 2.0)
        variable.admit = lambda layout: scan_layout_of(layout, axis)
        for result in operation.results:
            self.origins[result] = Origin(variable)
        self.reads[operation] = [variable] * len(operation.operands)

    def _state_gather(self, operation: Operation) -> None:
        source, index = operation.operands
        weight = self._weight(operation)
        reads = [self._variable(source, weight), self._variable(index, weight)]
        for variable in reads:
            variable.prices.append(_per_register(2.0))
        self.origins[operation.results[0]] = Origin(reads[1])
        self.reads[operation] = list(reads)

    def _state_indifferent(self, operation: Operation) -> None:
        """Operands in any layout; those of one operation that are looked at together in the same."""
        together: Variable | None = None
        reads: list[Variable | LinearLayout | None] = []
        for operand in operation.operands:
            if not isinstance(operand.type, TileType):
                reads.append(None)
            elif together is not None and operation.name != "print":
                reads.append(together)
            else:
                together = self._variable(operand, self._weight(operation))
                together.prices.append(_holding)
                reads.append(together)
        for result in operation.results:
            if isinstance(result.type, TileType):
                variable = self._variable(result, self._weight(operation))
                variable.prices.append(_holding)
                self.origins[result] = Origin(variable)
        self.reads[operation] = reads

    def _state_dot(self, operation: Operation) -> None:
        plan = self._plan(operation)
        self.assignment.dots[operation] = plan
        self.origins[operation.results[0]] = Origin(plan.c)
        operands: list[Variable | LinearLayout | None] = [plan.a, plan.b]
        if plan.emit_shared is not None:  # operands are put into shared memory, from any layout
            shared = [self._variable(operand, self._weight(operation)) for operand in operation.operands[:2]]
            for variable in shared:
                variable.prices.append(_per_register(2.0))
            operands = list(shared)
        self.reads[operation] = [*operands, plan.c]

    def _plan(self, operation: Operation) -> DotPlan:
        a, b, c = (value.type for value in operation.operands)
        assert isinstance(a, TileType) and isinstance(b, TileType) and isinstance(c, TileType)
        precision = operation.attribute("precision")
        accumulator = c.element
        assert isinstance(accumulator, FloatType | IntType)
        plan = self.target.dot(c.shape, a.shape[-1], a.element, b.element, accumulator, precision, self.num_warps)
        if plan is None:
            from tilewright.simt.fma import fma_plan

            self.assignment.notes.append((operation, f"no matrix instruction for {a} by {b} in {c.element} ({precision}): multiplied and added"))
            plan = fma_plan(self.target, c.shape, a.shape[-1], a.element, b.element, accumulator, precision, self.num_warps)
        return plan

    def _connect(self) -> None:
        """Merge what is carried with the arithmetic that makes it, and tell the problem who reads what."""
        carried: dict[Carried, Variable] = {}
        for value, one in self.carried.items():
            if value in self.fixed:
                carried[one] = self._shared[value]
        for one, variable in carried.items():
            for source in one.incoming():
                if source in self._shared:
                    variable.merge(self._shared[source])
        for one, variable in carried.items():
            for operation, position in one.sources:
                self.problem.connect(Edge(operation.operands[position], variable.root(), self._weight(operation)))
        for operation, reads in self.reads.items():
            weight = self._weight(operation)
            for operand, read in dict.fromkeys(zip(operation.operands, reads, strict=True)):
                if read is None:
                    continue
                if operation.name == "dot" and weight > 1:
                    self._keep_coalesced(operand)
                self.problem.connect(Edge(operand, read.root() if isinstance(read, Variable) else read, weight))

    def _keep_coalesced(self, operand: Value) -> None:
        """A load in a loop that feeds a matrix product is copied to shared memory ahead of its use, from where any layout may be read."""
        for leaf, _ in self.problem.paths(operand):
            operation = leaf.owner
            source = self.origins[leaf].source
            if isinstance(operation, Operation) and operation.name == "load" and isinstance(source, Variable):
                source.root().closed = True

    # ---- rewriting

    def _rewrite(self) -> None:
        layouts = {value: layout for value, origin in self.origins.items() if (layout := origin.layout()) is not None}
        materializer = Materializer(self.assignment, layouts, self.carried, self.recompute, self._needs)
        demanded: set[Carried] = set()
        for value, one in self.carried.items():
            if value in layouts and one not in demanded:
                demanded.add(one)
                one.layouts.append(layouts[value])
                for source in one.incoming():
                    materializer.demand(source, layouts[value])
        for argument in self.function.arguments:
            if argument in layouts:
                self.assignment.layouts[argument] = layouts[argument]
                materializer.demand(argument, layouts[argument])
        for operation in self.reads:
            for operand, layout in zip(operation.operands, self._needs(operation), strict=True):
                if layout is not None and isinstance(operand.type, TileType):
                    materializer.demand(operand, layout)
        materializer.settle()
        materializer.rewrite(self.function.body)

    def _needs(self, operation: Operation) -> Sequence[LinearLayout | None]:
        return [read.root().chosen if isinstance(read, Variable) else read for read in self.reads.get(operation, (None,) * len(operation.operands))]


def num_warps_of(assignment: Assignment) -> int:
    """The warps of a program, a power of two."""
    log2(assignment.num_warps)
    return assignment.num_warps


def _holding(layout: LinearLayout) -> float:
    return _HOLDING * layout.register_count


def _per_register(cost: float) -> Any:
    return lambda layout: cost * layout.register_count


_STATE: Final = {
    **dict.fromkeys(UNIFORM, _Assigner._state_uniform),
    **dict.fromkeys(INDIFFERENT, _Assigner._state_indifferent),
    "scan": _Assigner._state_scan,
    "reduce": _Assigner._state_reduce,
    "gather": _Assigner._state_gather,
    "dot": _Assigner._state_dot,
}
