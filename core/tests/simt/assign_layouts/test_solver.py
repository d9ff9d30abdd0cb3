"""The layout solver: chains of variables that no single one of them improves."""

from __future__ import annotations

from tilewright.ir import Builder, Function, Module
from tilewright.ir.types import F32, PointerType, TileType
from tilewright.simt.assign_layouts.solver import Edge, Origin, Problem, Variable
from tilewright.simt.emulator import EmulatedTarget
from tilewright.simt.layouts.linear_layout import LinearLayout

#: Threads with neighbours, and with elements that are apart.
NEAR = LinearLayout((16,), (1,), (2, 4), (8,))
APART = LinearLayout((16,), (8,), (1, 2), (4,))


def chosen(extra: float, weight: float = 2.0) -> list[LinearLayout | None]:
    """Solve for a load whose product a reader wants apart.

    Args:
        extra: what the load costs more in that layout.
        weight: how often the reader runs.
    """
    module = Module()
    function = module.add(Function("kernel", [TileType((16,), PointerType(F32))]))
    builder = Builder.at_end(function.body)
    x = builder.load(function.arguments[0])
    y = builder.mul(x, x)
    problem = Problem({}, set(), EmulatedTarget(4).costs)
    loads, products = Variable((16,)), Variable((16,))
    problem.origins.update({x: Origin(loads), y: Origin(products)})
    loads.prices.append(lambda layout: 6.0 + (extra if layout == APART else 0.0))
    loads.propose(NEAR)
    problem.connect(Edge(x, products, weight))
    problem.connect(Edge(y, APART, weight))
    problem.solve([loads, products], lambda _: NEAR)
    return [loads.chosen, products.chosen]


def test_a_chain_gets_the_layout_of_its_reader_at_once() -> None:
    assert chosen(0.5) == [APART, APART]


def test_a_chain_outside_of_loops_keeps_the_layout_of_its_load() -> None:
    loads, _ = chosen(0.5, weight=1.0)
    assert loads == NEAR


def test_a_conversion_stays_where_it_costs_less() -> None:
    loads, _ = chosen(1000.0)
    assert loads == NEAR
