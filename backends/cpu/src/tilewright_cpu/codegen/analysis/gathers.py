"""Gathers: loads of tiles whose elements lie wherever other loaded or computed numbers say."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tilewright.ir.core import Operation, Value
from tilewright.ir.ops.memory import Load
from tilewright.ir.types import TileType


def gathered_tiles(
    operations: Iterable[Operation], is_lazy: Callable[[Operation], bool]
) -> set[Value]:
    """Return the results of loads by pointers that follow, element by element, from other tiles.

    The tiles are loaded ones, and those that have loop nests of their own. The operations are in
    program order.
    """
    irregular: set[Value] = set()
    found: set[Value] = set()
    for operation in operations:
        if not any(isinstance(value.type, TileType) for value in operation.results):
            continue
        if isinstance(operation, Load):
            if operation.pointer in irregular:
                found.update(operation.results)
        elif is_lazy(operation) and not (
            operation.spec.elementwise
            and any(operand in irregular for operand in operation.operands)
        ):
            continue
        irregular.update(operation.results)
    return found
