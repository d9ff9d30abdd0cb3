"""The order in which reductions, scans and matmuls combine their elements."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, Literal

from tilewright.ir.types import IntType

if TYPE_CHECKING:
    from tilewright.ir.core import Operation

#: The attribute ``order`` of ``reduce``, ``scan`` and ``dot``.
Order = Literal["any", "tree", "sequential"]
ANY: Final = "any"
TREE: Final = "tree"
SEQUENTIAL: Final = "sequential"
#: The attribute of a function that is False where no multiplication of floats may be fused with an
#: addition, whatever the launch options say.
CONTRACT: Final = "contract"
#: Every order, the default first.
ORDERS: Final[tuple[str, ...]] = (ANY, TREE, SEQUENTIAL)


def tree_bits(extent: int) -> tuple[int, ...]:
    """Return the bits of the index in the order in which a tree reduction combines them.

    Bits 0 and 1 make up a vector of four elements; from there on halves are combined, which needs
    no data exchange within the halves.
    """
    count = (extent - 1).bit_length()
    return (*range(min(2, count)), *reversed(range(2, count)))


def other_orders(honoured: Iterable[str]) -> str:
    """Return the remedy where a target honours these orders, and another one is asked for."""
    return f"use order={' or '.join(repr(order) for order in (*sorted(honoured), ANY))}"


def effective_order(operation: Operation) -> str:
    """Return the order that a reduction or scan has to follow.

    It is any order for one associative operation on integers, whose result no order changes.
    """
    order: str = operation.attribute("order")
    if order == ANY:
        return ANY
    (region,) = operation.regions
    first, last = region.first, region.last
    exact = (
        first is not None
        and last is not None
        and first.next is last
        and first.spec.associative
        and isinstance(region.arguments[0].type, IntType)
        and set(first.operands) == set(region.arguments)
        and list(last.operands) == list(first.results)
    )
    return ANY if exact else order
