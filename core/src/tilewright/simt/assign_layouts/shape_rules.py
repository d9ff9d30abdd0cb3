"""Layout constraints of operations.

Rules are the :attr:`~tilewright.simt.dialect.op_interface.Interface.layout` of operations.

A rule is a function of the layout problem
(:class:`~tilewright.simt.dialect.op_interface.Statement`) and the operation. It creates unknown
layouts (:meth:`~tilewright.simt.dialect.op_interface.Statement.variable`) or names known ones,
assigns costs to them, and states the layouts in which the operation reads its operands (``reads``)
and defines its results (``origins``).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from tilewright.errors import LoweringError
from tilewright.ir.core import Operation
from tilewright.ir.ops.control import Map, Reduce, Scan
from tilewright.ir.ops.debug import InlineAsm
from tilewright.ir.ops.linear import Dot
from tilewright.ir.ops.shape import Gather
from tilewright.ir.order import effective_order
from tilewright.ir.types import TileType
from tilewright.llvm.assembly.assembly_sites import blamed_at
from tilewright.simt.analysis.xor_exchange import exchange_within_warp, xor_distance
from tilewright.simt.assign_layouts.coalesce import spread
from tilewright.simt.assign_layouts.solver import Origin, Variable, tile_shape
from tilewright.simt.dialect.layout_rules import packed
from tilewright.simt.dialect.op_interface import Statement
from tilewright.simt.layouts.linear_layout import LinearLayout, blocked
from tilewright.simt.layouts.scan_plan import scan_layout
from tilewright.simt.target.cost_model import CostModel, bits_of_element, reduction_cost


def holding(costs: CostModel) -> Callable[[LinearLayout], float]:
    """Return the cost function of a tile in registers where nothing is computed."""
    return per_register(costs.thresholds.live_register_cost)


def per_register(cost: float) -> Callable[[LinearLayout], float]:
    """Return the cost function of an operation with this cost per register."""
    return lambda layout: cost * layout.register_count


def _uniform(statement: Statement, operation: Operation) -> Variable:
    """Use one unknown for all tile operands and results."""
    tile = next(
        value
        for value in (*operation.operands, *operation.results)
        if isinstance(value.type, TileType)
    )
    variable = statement.variable(tile, statement.weight(operation))
    for result in operation.results:
        statement.origins[result] = Origin(variable)
    statement.reads[operation] = [
        variable if isinstance(operand.type, TileType) else None for operand in operation.operands
    ]
    return variable


def uniform(statement: Statement, operation: Operation) -> None:
    """Constrain all tile operands and results to one layout."""
    _uniform(statement, operation).prices.append(per_register(4.0))


def access(statement: Statement, operation: Operation) -> None:
    """Constrain a memory access to one layout, with candidates in which it is coalesced."""
    variable = _uniform(statement, operation)
    found = statement.accesses[operation]
    variable.candidates = list(statement.candidates_of(found, operation))
    variable.prices.append(statement.access_price(found))


def updated(statement: Statement, operation: Operation) -> None:
    """Constrain an atomic access like any other access, and use idle lanes.

    In the layout, no lane is redundant while another lane has several elements to update.
    """
    access(statement, operation)
    for read in statement.reads[operation]:
        if isinstance(read, Variable):
            read.admit = spread


def grouped(statement: Statement, operation: Map | InlineAsm) -> None:
    """Constrain groups of ``pack`` consecutive elements to consecutive registers."""
    variable, pack = _uniform(statement, operation), operation.pack
    if pack & (pack - 1):
        message = (
            f"it takes {pack} elements at once, and registers of a tile are divided into "
            "groups of 1, 2, 4, 8 and so on: choose another pack"
        )
        if isinstance(operation, InlineAsm):
            raise blamed_at(operation.location, message)
        raise LoweringError(f"{operation.location}: {message}")
    variable.prices.append(
        per_register(sum(1 for region in operation.regions for _ in region) or 2.0)
    )
    if pack > 1:
        variable.admit = lambda layout: packed(layout, pack)


def _folded(statement: Statement, operation: Reduce | Scan, times: float) -> tuple[Variable, int]:
    """Constrain the operands of a reduction or scan to one layout; return it and the axis.

    The cost is that of ``times`` reductions.
    """
    variable, axis = (
        statement.variable(operation.inputs[0], statement.weight(operation)),
        operation.axis,
    )
    words = sum(max(1.0, bits_of_element(operand) / 32) for operand in operation.inputs)
    combine = max(1.0, len(operation.combine) - 1.0)
    costs = statement.target.costs
    variable.prices.append(
        lambda layout: times * reduction_cost(layout, axis, words, combine, costs)
    )
    statement.reads[operation] = [variable] * len(operation.operands)
    return variable, axis


def reduced(statement: Statement, operation: Reduce) -> None:
    """Constrain the results of a reduction to the operands' layout without the reduced axis."""
    variable, axis = _folded(statement, operation, 1.0)
    for result in operation.results:
        if isinstance(result.type, TileType):
            statement.origins[result] = Origin(variable, axis)


def scanned(statement: Statement, operation: Scan) -> None:
    """Constrain a scan to one layout, along whose axis it can be computed."""
    variable, axis = _folded(statement, operation, 2.0)
    order = effective_order(operation)
    variable.admit = lambda layout: scan_layout(layout, axis, order)
    for result in operation.results:
        statement.origins[result] = Origin(variable)


def gathered(statement: Statement, operation: Gather) -> None:
    """Leave the source of a gather in any layout, and constrain index and result to one.

    An XOR exchange has one layout for all of them, and so has a chain of exchanges: the solver
    weighs a layout for all steps of a network, of which none would pay a conversion alone.
    """
    weight = statement.weight(operation)
    distance = xor_distance(operation)
    if distance is not None:
        variable = statement.shared(operation.x, weight)
        variable.prices.append(_exchange_price(statement, operation, distance))
        variable.propose(_in_registers(statement, operation))
        statement.share(operation.results[0], variable)
        statement.reads[operation] = [variable, variable]
        return
    reads: list[Any] = [
        statement.variable(operation.x, weight),
        statement.variable(operation.index, weight),
    ]
    for variable in reads:
        variable.prices.append(per_register(2.0))
    statement.origins[operation.results[0]] = Origin(reads[1])
    statement.reads[operation] = reads


def _in_registers(statement: Statement, operation: Gather) -> LinearLayout:
    """Return the layout in which threads hold as many elements along the axis as they can.

    Networks exchange elements over short distances most often.
    """
    shape, lanes = tile_shape(operation.x), statement.target.resources.warp_size
    order = (operation.axis, *(axis for axis in range(len(shape)) if axis != operation.axis))
    own = max(1, math.prod(shape) // (lanes * statement.num_warps))
    return blocked(shape, order, own, lanes, statement.num_warps)


def _exchange_price(
    statement: Statement, operation: Gather, distance: int
) -> Callable[[LinearLayout], float]:
    """Return the cost function of an XOR exchange.

    It is free between registers, costs shuffles between lanes, and a round trip through shared
    memory between warps.
    """
    costs, words = statement.target.costs, max(1.0, bits_of_element(operation.x) / 32)
    idle = holding(costs)

    def price(layout: LinearLayout) -> float:
        partner = exchange_within_warp(layout, distance)
        if partner is None:
            return costs.trip + 2 * costs.stored_word * words * layout.register_count
        return idle(layout) + (
            costs.shuffled_word * words * layout.register_count if partner.lane else 0.0
        )

    return price


def each_own(statement: Statement, operation: Operation) -> None:
    """Leave each operand in a layout of its own."""
    _indifferent(statement, operation, together=False)


def indifferent(statement: Statement, operation: Operation) -> None:
    """Constrain all operands to one layout, which may be any."""
    _indifferent(statement, operation, together=True)


def _indifferent(statement: Statement, operation: Operation, *, together: bool) -> None:
    shared: Variable | None = None
    reads: list[Variable | LinearLayout | None] = []
    for operand in operation.operands:
        if not isinstance(operand.type, TileType):
            reads.append(None)
        elif shared is not None and together:
            reads.append(shared)
        else:
            shared = statement.variable(operand, statement.weight(operation))
            shared.prices.append(holding(statement.target.costs))
            reads.append(shared)
    for result in operation.results:
        if isinstance(result.type, TileType):
            variable = statement.variable(result, statement.weight(operation))
            variable.prices.append(holding(statement.target.costs))
            statement.origins[result] = Origin(variable)
    statement.reads[operation] = reads


def block(statement: Statement, operation: Operation) -> None:
    """Leave a tile that is copied as a block through shared memory in any layout."""
    indifferent(statement, operation)


def matmul(statement: Statement, operation: Dot) -> None:
    """Constrain a matmul to the layouts of its MMA atom (plan).

    An operand that the plan reads from shared memory is stored there from any layout.
    """
    plan = statement.plan(operation)
    statement.origins[operation.results[0]] = Origin(plan.c)
    reads: list[Variable | LinearLayout | None] = []
    for position, operand in enumerate((operation.a, operation.b)):
        if plan.reads[position] == "registers":
            reads.append(plan.operand(position))
            continue
        variable = statement.variable(operand, statement.weight(operation))
        variable.prices.append(per_register(2.0))
        reads.append(variable)
    statement.reads[operation] = [*reads, plan.c]


#: Rules by which all tile operands and results have one layout.
ONE_LAYOUT: Final = frozenset({uniform, access, updated, grouped, scanned})
