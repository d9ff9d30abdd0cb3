"""Layout assignment: choose a layout for every tile of a function.

Operations that work in one layout share an unknown (:mod:`.solver`): runs of elementwise
operations, loop-carried values, each memory access, each reduction. Memory accesses propose
coalesced layouts (:mod:`.coalesce`), and matmuls require the layouts of the target's instructions.
The solver minimizes the total cost, including layout conversions. Index arithmetic has no layout of
its own: it is rematerialized in each requested layout (:mod:`.rematerializable`,
:mod:`.rematerialize`). The constraints of each operation are in
:mod:`tilewright.simt.dialect.layout_rules`, and :mod:`.verify` checks them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewright.errors import LoweringError
from tilewright.ir.core import Function, Operation, Region, Value
from tilewright.ir.ops.arithmetic import Cast
from tilewright.ir.ops.control import If
from tilewright.ir.ops.linear import Dot
from tilewright.ir.ops.memory import AtomicRmw, Load, Store
from tilewright.ir.ops.shape import Split
from tilewright.ir.types import TileType, bit_width, element_type, shape_of
from tilewright.passes.analysis.axis import axis_info
from tilewright.simt.analysis.pipelined_loads import feeding_matmuls
from tilewright.simt.analysis.pipelined_loops import pipelined_loops
from tilewright.simt.assign_layouts.coalesce import (
    ACCESSES,
    coalesced,
    default_layout,
    tile_access,
    transposed_read,
    widened,
)
from tilewright.simt.assign_layouts.direct_to_shared import mark_direct_to_shared
from tilewright.simt.assign_layouts.plan_choice import PlanChoice
from tilewright.simt.assign_layouts.rematerializable import fixed_tiles
from tilewright.simt.assign_layouts.rematerialize import Materializer
from tilewright.simt.assign_layouts.shape_rules import holding, per_register
from tilewright.simt.assign_layouts.solver import Edge, Origin, Problem, Variable, tile_shape
from tilewright.simt.assign_layouts.tile_access import TileAccess
from tilewright.simt.dialect.attributes import WARPS
from tilewright.simt.dialect.layout_rules import SHAPE_OPERATIONS, SOURCES
from tilewright.simt.dialect.loop_carried import (
    CARRIERS,
    Carried,
    all_carried,
    operations_of_program,
)
from tilewright.simt.dialect.ops import SIMT_TABLE
from tilewright.simt.dialect.registry import interface_of
from tilewright.simt.layouts.linear_layout import (
    LinearLayout,
    log2,
    replicated,
)
from tilewright.simt.target.cost_model import operation_cost
from tilewright.simt.target.matmul_plan import MatmulPlan
from tilewright.simt.target.simt_target import SimtTarget


def assign(
    function: Function, target: SimtTarget, num_warps: int, options: Mapping[str, Any] | None = None
) -> None:
    """Assign a layout to every tile of a function, and a plan to every matmul.

    Conversions are put in, and cheap operations repeated, where layouts differ. The launch
    ``options`` say which loops are pipelined.

    Raises:
        LoweringError: a tile has an extent that is no power of two, or an operation has no rule.
    """
    LayoutStatement(function, target, num_warps, options or {}).run()


class LayoutStatement:
    """Layout problem of one function: stated, solved, and applied to the function.

    The rules of operations' interfaces state the constraints (:mod:`.shape_rules`).

    Attributes:
        target, num_warps: the target, and the number of warps that run the function.
        accesses: the address attributes of each access of a tile.
        fixed: the tiles that have a layout of their own; all others are rematerialized in each
            requested layout.
        origins: the sources of the layouts of fixed tiles; rules set them.
        reads: the layouts, known or not, of an operation's operands, None for scalars; rules set
            them.
        plans: the plan of each matmul.
    """

    def __init__(
        self,
        function: Function,
        target: SimtTarget,
        num_warps: int,
        options: Mapping[str, Any],
    ) -> None:
        log2(num_warps)  # a power of two
        self.function, self.target, self.num_warps = function, target, num_warps
        self._options = options
        function.attributes[WARPS] = num_warps
        self.axes = axis_info(function)
        self.operations = operations_of_program(function.body)
        self.carried = all_carried(function)
        for value in self._tiles():
            self._require_powers_of_two(value)
        self.fixed = fixed_tiles(
            self.operations,
            self.carried,
            function.arguments,
            target.resources.warp_size * num_warps,
            target.costs,
        )
        self.origins: dict[Value, Origin] = {}
        self.recompute: set[Value] = set()
        self.problem = Problem(self.origins, self.recompute, target.costs)
        self.variables: list[Variable] = []
        #: fixed values whose readers may share their variable
        self._shared: dict[Value, Variable] = {}
        self.reads: dict[Operation, list[Variable | LinearLayout | None]] = {}
        self._weights: dict[Region, float] = {function.body: 1.0}
        self._default = functools.partial(
            default_layout, lanes=target.resources.warp_size, warps=self.num_warps
        )
        #: layouts of loads that are copied in another layout than they are read in
        self._apart: dict[Operation, LinearLayout] = {}
        #: layouts of loads that are copied lane after lane
        self._side_by_side: dict[Operation, LinearLayout] = {}
        self._pipelined = list(pipelined_loops(function, options, (Dot,)))
        self.accesses: dict[Operation, TileAccess] = {}
        for operation in self.operations:
            if (
                isinstance(operation, ACCESSES)
                and (access := tile_access(operation, self.axes, target)) is not None
            ):
                self.accesses[operation] = access
        self._choice = PlanChoice(target, self.accesses, self._pipelined, num_warps)
        self.plans = self._choice.plans
        self.coalesced = coalesced(
            self.accesses.values(),
            target.resources.warp_size,
            self.num_warps,
            target.resources.max_access,
        )

    def run(self) -> None:
        for argument in self.function.arguments:
            if isinstance(argument.type, TileType):
                self.share(argument, self.variable(argument))
        for operation in self.operations:
            self._state(operation)
        self._side_by_side = mark_direct_to_shared(self, self._options)
        self._keep_copied()
        self._connect()
        self.problem.solve(
            [variable for variable in self.variables if variable.merged is None], self._default
        )
        self._spread_copies()
        self._rewrite()

    def _tiles(self) -> list[Value]:
        found = [
            argument for argument in self.function.arguments if isinstance(argument.type, TileType)
        ]
        for operation in self.operations:
            found += [result for result in operation.results if isinstance(result.type, TileType)]
        return found

    def _require_powers_of_two(self, value: Value) -> None:
        shape = tile_shape(value)
        if any(extent & (extent - 1) for extent in shape):
            operation = value.definition
            where = (
                f"{operation.name} at {operation.location}"
                if operation is not None
                else f"argument {value.name}"
            )
            raise LoweringError(
                f"{where}: {self.target.name} works on tiles whose extents are powers of two, not "
                f"on {value.type}"
            )

    # ---- stating the problem

    def weight(self, operation: Operation) -> float:
        """Return the estimated number of executions of an operation."""
        region = operation.parent
        assert region is not None
        return self._weights[region]

    def variable(self, value: Value, weight: float = 1.0) -> Variable:
        """Create an unknown layout for a tile."""
        variable = Variable(tile_shape(value), weight)
        self.variables.append(variable)
        return variable

    def shared(self, value: Value, weight: float = 1.0) -> Variable:
        """Return the unknown layout that readers of a tile share; create one where there is none.

        Its operations run at least ``weight`` times.
        """
        if value not in self._shared:
            return self.variable(value, weight)
        variable = self._shared[value].root()
        variable.weight = max(variable.weight, weight)
        return variable

    def share(self, value: Value, variable: Variable) -> None:
        """Let readers of a value be computed in its variable."""
        self.origins[value] = Origin(variable)
        self._shared[value] = variable

    def _state(self, operation: Operation) -> None:
        name = operation.name
        if isinstance(operation, CARRIERS):
            self._state_carrier(operation)
        elif operation.spec.terminator or isinstance(operation, SOURCES):
            return
        elif name in SHAPE_OPERATIONS:
            if isinstance(operation, Split) and not isinstance(
                operation.results[0].type, TileType
            ):  # the halves of a pair, as scalars
                shape = tile_shape(operation.x)
                self.reads[operation] = [
                    replicated(shape, self.target.resources.warp_size, self.num_warps)
                ]
        elif not any(
            isinstance(value.type, TileType) for value in (*operation.operands, *operation.results)
        ):
            return
        elif (
            interface := interface_of(self.target, name)
        ) is not None and interface.layout is not None:
            interface.layout(self, operation)
        elif operation.spec.elementwise:
            if operation.results[0] in self.fixed:
                self._state_elementwise(operation)
        else:
            raise LoweringError(
                f"{name} at {operation.location}: {self.target.name} has no rule for where "
                "its tiles are"
            )

    def _state_carrier(self, operation: Operation) -> None:
        weight = self.weight(operation)
        thresholds = self.target.costs.thresholds
        inside = weight if isinstance(operation, If) else weight * thresholds.loop_trips
        for region in operation.regions:
            self._weights[region] = inside
        for value in (
            *operation.results,
            *(argument for region in operation.regions for argument in region.arguments),
        ):
            if value in self.fixed and value not in self.origins:
                variable = self.variable(value, inside)
                variable.prices.append(holding(self.target.costs))
                for other in self.carried[value].values:
                    self.share(other, variable)

    def _state_elementwise(self, operation: Operation) -> None:
        (result,) = operation.results
        variable = next(
            (self._shared[operand] for operand in operation.operands if operand in self._shared),
            None,
        )
        weight = self.weight(operation)
        if variable is None:
            variable = self.variable(result, weight)
        variable = variable.root()
        for operand in operation.operands:
            if operand in self._shared:
                variable.merge(self._shared[operand])
        variable.weight = max(variable.weight, weight)
        variable.prices.append(per_register(operation_cost(operation, self.target.costs)))
        self.share(result, variable)
        self.reads[operation] = [variable] * len(operation.operands)
        if isinstance(operation, Cast) and bit_width(element_type(operation.x.type)) < bit_width(
            element_type(result.type)
        ):
            self.recompute.add(result)

    # ---- queries of the rules (:mod:`.shape_rules`)

    def candidates_of(self, access: TileAccess, operation: Operation) -> list[LinearLayout]:
        """Return coalesced layouts for an access."""
        found = list(self.coalesced[access.shape])
        if isinstance(operation, Store) or (isinstance(operation, AtomicRmw) and access.vector > 1):
            # accumulators may be exchanged within warps for this
            matmuls = dict.fromkeys(
                plan.c for plan in self.plans.values() if plan.c.shape == access.shape
            )
            found += filter(
                None, (widened(layout, access.order[0], access.vector) for layout in matmuls)
            )
        return found

    def access_price(self, access: TileAccess) -> Callable[[LinearLayout], float]:
        """Return the cost function of an access."""
        costs = self.target.costs
        return lambda layout: access.cost(layout, costs)

    def plan(self, operation: Dot) -> MatmulPlan:
        """Choose the plan of a matmul."""
        return self._choice.choose(operation)

    def _connect(self) -> None:
        """Merge loop-carried values with the arithmetic that defines them, and add all edges."""
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
                self.problem.connect(
                    Edge(operation.operands[position], variable.root(), self.weight(operation))
                )
        for operation, reads in self.reads.items():
            weight = self.weight(operation)
            for operand, read in dict.fromkeys(zip(operation.operands, reads, strict=True)):
                if read is None:
                    continue
                if isinstance(operation, Dot) and weight > 1:
                    self._keep_coalesced(operand, read, operation.operands.index(operand))
                self.problem.connect(
                    Edge(operand, read.root() if isinstance(read, Variable) else read, weight)
                )

    def _keep_coalesced(self, operand: Value, read: Variable | LinearLayout, position: int) -> None:
        """Keep a load that feeds a matmul in a loop coalesced.

        It is copied to shared memory ahead of its use, and can be read from there in any layout.
        """
        for leaf, _ in self.problem.paths(operand):
            operation = leaf.owner
            source = self.origins[leaf].source
            if (
                isinstance(operation, Operation)
                and isinstance(operation, Load)
                and isinstance(source, Variable)
            ):
                source.root().closed = True
                access, layout = self.accesses.get(operation), self._side_by_side.get(operation)
                if (
                    layout is None
                    and self.target.matrix.transposes_in_registers
                    and access is not None
                    and isinstance(read, LinearLayout)
                    and read.shape == access.shape
                ):
                    layout = transposed_read(
                        access,
                        len(access.shape) - 1 - position,
                        read,
                        self.target.resources.warp_size,
                        self.num_warps,
                        self.target.costs.thresholds.transposed_bytes,
                    )
                if layout is not None:
                    source.root().candidates = [layout]
                elif access is not None:
                    self._coalesce_alone(access, source.root())

    def _coalesce_alone(self, access: TileAccess, variable: Variable) -> None:
        """Add the candidates that suit an asynchronously copied load alone.

        Other loads of its shape may have narrower elements; a copy that bypasses L1 fetches a
        sector again for each instruction that reads a part of the sector.
        """
        own = coalesced(
            [access],
            self.target.resources.warp_size,
            self.num_warps,
            self.target.resources.max_access,
        )[access.shape]
        variable.candidates += [layout for layout in own if layout not in variable.candidates]

    def _keep_copied(self) -> None:
        """Keep loads coalesced from which matmul operands in pipelined loops are computed.

        They are copied to shared memory as well, and the arithmetic reads them from there. A tile
        smaller than the operand, such as scales of its rows, may as well be loaded where it is
        used.
        """
        for loop in self._pipelined:
            minimum = min(
                min(math.prod(tile_shape(dot.a)), math.prod(tile_shape(dot.b)))
                for dot in loop.body
                if isinstance(dot, Dot)
            )
            for load in feeding_matmuls(loop.body, (Dot,)):
                if (
                    math.prod(shape_of(load.results[0].type)) < minimum
                    or not self._choice.is_copied(load)
                    or self._choice.is_multiplied_there(load)
                ):
                    continue
                self.problem.in_shared[load.results[0]] = (
                    self.accesses[load].order[0]
                    if isinstance(load, Load)
                    else len(tile_shape(load.results[0])) - 1
                )
                if isinstance(load, Load):
                    source = self.origins[load.results[0]].source
                    assert isinstance(source, Variable)
                    source.root().closed = True
                    self._coalesce_alone(self.accesses[load], source.root())

    def _spread_copies(self) -> None:
        """Copy small tiles in a layout without broadcast threads.

        Applies to loads of pipelined loops that are smaller than operands, and are read in a layout
        in which several threads hold each element, if that takes fewer than half as many copies.
        """
        for loop in self._pipelined:
            for load in feeding_matmuls(loop.body, (Dot,)):
                access = self.accesses.get(load)
                if (
                    not isinstance(load, Load)
                    or access is None
                    or load in self._side_by_side
                    or not self._choice.is_copied(load)
                ):
                    continue
                layout, costs = self.origins[load.results[0]].layout(), self.target.costs
                best = min(
                    self.coalesced[access.shape],
                    key=lambda candidate: access.cost(candidate, costs),
                )
                if (
                    layout is not None
                    and best.register_count < layout.register_count
                    and 2 * access.count(best) < access.count(layout)
                ):
                    self._apart[load] = best

    # ---- rewriting

    def _rewrite(self) -> None:
        layouts = {
            value: layout
            for value, origin in self.origins.items()
            if (layout := origin.layout()) is not None
        }
        layouts.update({load.results[0]: layout for load, layout in self._apart.items()})
        materializer = Materializer(layouts, self.carried, self.recompute, self._needs)
        demanded: set[Carried] = set()
        for value, one in self.carried.items():
            if value in layouts and one not in demanded:
                demanded.add(one)
                one.layouts.append(layouts[value])
                for source in one.incoming():
                    materializer.demand(source, layouts[value])
        for argument in self.function.arguments:
            if argument in layouts:
                argument.layout = layouts[argument]
                materializer.demand(argument, layouts[argument])
        for operation in self.reads:
            for operand, layout in zip(operation.operands, self._needs(operation), strict=True):
                if layout is not None and isinstance(operand.type, TileType):
                    materializer.demand(operand, layout)
        materializer.settle()
        materializer.rewrite(self.function.body)
        for operation, plan in self.plans.items():
            _name_plan(operation, plan)

    def _needs(self, operation: Operation) -> Sequence[LinearLayout | None]:
        reads = self.reads.get(operation, (None,) * len(operation.operands))
        if operation in self._apart:
            return [self._apart[operation] if read is not None else None for read in reads]
        return [read.root().chosen if isinstance(read, Variable) else read for read in reads]


def _name_plan(operation: Operation, plan: MatmulPlan) -> None:
    """Replace a ``dot`` by a ``simt.dot`` with a plan, whose name says the order."""
    attributes = {**operation.attributes, "plan": plan.name}
    attributes.pop("order", None)
    made = Operation(
        SIMT_TABLE["simt.dot"],
        operation.operands,
        (1, 1, 1),
        attributes,
        [operation.results[0].type],
        location=operation.location,
    )
    result, before = made.results[0], operation.results[0]
    result.name, result.layout = before.name, before.layout
    assert operation.parent is not None
    operation.parent.insert_before(made, operation)
    before.replace_all_uses(result)
    operation.erase()
