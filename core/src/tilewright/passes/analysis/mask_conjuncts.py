"""Masks as conjunctions of conditions.

A mask ``(row < m)[:, None] & (column < n)[None, :]`` holds where each of its conjuncts does, at the
coordinates that their elements were moved from. All analyses of masks start from this list.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilewright.ir.core import Value
from tilewright.ir.ops.shape import Moved


@dataclass(frozen=True, slots=True)
class Conjunct:
    """Condition that a mask implies.

    Attributes:
        condition: a tile of conditions, or a scalar one.
        moves: the operations that move its elements to where they are in the mask, the last one
            first.
    """

    condition: Value
    moves: tuple[Moved, ...] = ()


def conjuncts(
    mask: Value,
    is_leaf: Callable[[Value], bool] = lambda value: False,
    resolve: Callable[[Value], Value] = lambda value: value,
) -> list[Conjunct]:
    """Return the conditions whose conjunction a mask is, in the order of the source.

    Args:
        is_leaf: whether a condition is taken as it is.
        resolve: the value that stands in place of another one.
    """
    found: list[Conjunct] = []
    work: list[tuple[Value, tuple[Moved, ...]]] = [(mask, ())]
    while work:
        value, moves = work.pop()
        value = resolve(value)
        operation = value.definition
        if operation is None or is_leaf(value):
            found.append(Conjunct(value, moves))
        elif operation.name == "and":
            work += [(operand, moves) for operand in reversed(operation.operands)]
        elif isinstance(operation, Moved):
            work.append((operation.x, (*moves, operation)))
        elif operation.spec.forwards:
            work.append((operation.forwarded[value.index], moves))
        else:
            found.append(Conjunct(value, moves))
    return found


__all__ = ["Conjunct", "conjuncts"]
