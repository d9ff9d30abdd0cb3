"""The order in which reductions, scans and matmuls combine their elements."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

#: The attribute ``order`` of ``reduce``, ``scan`` and ``dot``.
Order = Literal["any", "tree", "sequential"]
ANY: Final = "any"
TREE: Final = "tree"
SEQUENTIAL: Final = "sequential"
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
