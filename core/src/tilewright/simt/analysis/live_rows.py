"""Liveness of masked rows: rows of a loaded tile that no store observes.

The analysis follows the elements beyond a bound along an axis through all users, to the stores of
the results. If each store has a mask that ends at the bound or before it, those rows may hold
anything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.ir.core import Operation, Value
from tilewright.ir.ops.arithmetic import Select
from tilewright.ir.ops.control import For, If, Reduce
from tilewright.ir.ops.memory import AtomicRmw, Store
from tilewright.ir.table import Effect
from tilewright.ir.types import FloatType, TileType, element_type
from tilewright.passes.analysis.affine import Affine
from tilewright.passes.analysis.polynomials import Polynomial
from tilewright.passes.analysis.transfer_functions import MOVES, moved_axes


def observed(value: Value, axis: int, limit: Polynomial, affine: Affine) -> str:
    """Describe the operation that may observe elements at or beyond ``limit`` along an axis.

    The empty string if there is none.
    """
    return _LiveRowSearch(limit, affine).run(value, axis)


class _LiveRowSearch:
    def __init__(self, limit: Polynomial, affine: Affine) -> None:
        self.limit, self.affine = limit, affine

    def run(self, value: Value, axis: int) -> str:
        work, seen = [(value, axis)], {(value, axis)}
        while work:
            tile, along = work.pop()
            for user in tile.uses:
                for position, operand in enumerate(user.operands):
                    if operand is not tile:
                        continue
                    found = self._through(user, position, along)
                    if found is None:
                        return f"{user.name} at {user.location}"
                    work += [each for each in found if each not in seen]
                    seen.update(found)
        return ""

    def _through(self, user: Operation, position: int, axis: int) -> list[tuple[Value, int]] | None:
        """Return the tiles that an operation computes from a tile, each with the axis in it.

        None if the operation may observe elements beyond the limit.
        """
        rule = _RULES.get(user.name)
        if rule is not None:
            return rule(self, user, position, axis)
        if not user.spec.elementwise or user.spec.effects is not Effect.NONE:
            return None
        return [(result, axis) for result in user.results]

    def _ends_before(self, mask: Value | None, axis: int) -> bool:
        """Return whether a mask is false beyond the limit."""
        for bound in self.affine.mask_bounds(mask) if mask is not None else ():
            if (
                bound is not None
                and bound.axis == axis
                and bound.upper is not None
                and self.affine.is_nonnegative(self.limit.minus(bound.upper))
            ):
                return True
        return False

    # ---- operations

    def write(
        self, user: Store | AtomicRmw, position: int, axis: int
    ) -> list[tuple[Value, int]] | None:
        is_value = user.operands[position] is user.value and user.value is not user.mask
        return [] if is_value and self._ends_before(user.mask, axis) else None

    def select(self, user: Select, position: int, axis: int) -> list[tuple[Value, int]] | None:
        if position == 1 and user.b is not user.a and self._ends_before(user.condition, axis):
            return []
        return [(user.result, axis)]

    def divide(self, user: Operation, position: int, axis: int) -> list[tuple[Value, int]] | None:
        """Follow a division; an integer divisor beyond the limit could be zero."""
        return (
            [(user.result, axis)]
            if position == 0 or isinstance(element_type(user.result.type), FloatType)
            else None
        )

    def moved(self, user: Operation, position: int, axis: int) -> list[tuple[Value, int]] | None:
        axes = moved_axes(user)
        return [(user.result, axes(axis))] if axes is not None else None

    def dot(self, user: Operation, position: int, axis: int) -> list[tuple[Value, int]] | None:
        """Follow rows of the first operand and columns of the second; K axes are observed."""
        type_ = user.operands[position].type
        assert isinstance(type_, TileType)
        summed = {0: type_.rank - 1, 1: type_.rank - 2}.get(position)
        return [(user.result, axis)] if axis != summed else None

    def reduce(self, user: Reduce, position: int, axis: int) -> list[tuple[Value, int]] | None:
        along = user.axis
        return (
            [(result, axis - (along < axis)) for result in user.results] if along != axis else None
        )

    def loop(self, user: Operation, position: int, axis: int) -> list[tuple[Value, int]] | None:
        return self._carried(user, position - 3, axis) if position >= 3 else None

    def end(self, user: Operation, position: int, axis: int) -> list[tuple[Value, int]] | None:
        owner = user.parent.owner if user.parent is not None else None
        if not isinstance(owner, Operation) or not isinstance(owner, For | If):
            return None
        return (
            self._carried(owner, position, axis)
            if isinstance(owner, For)
            else [(owner.results[position], axis)]
        )

    def _carried(self, loop: Operation, position: int, axis: int) -> list[tuple[Value, int]] | None:
        """Follow a loop-carried tile if the limit does not vary in the loop."""
        if self.affine.varies(self.limit, loop):
            return None
        return [(loop.regions[0].arguments[1 + position], axis), (loop.results[position], axis)]


# Operations are of the classes that their rows name, which a table by name cannot tell.
_Rule = Callable[[_LiveRowSearch, Any, int, int], "list[tuple[Value, int]] | None"]
_RULES: dict[str, _Rule] = {
    **dict.fromkeys(("store", "atomic_rmw"), _LiveRowSearch.write),
    "select": _LiveRowSearch.select,
    **dict.fromkeys(("div", "rem"), _LiveRowSearch.divide),
    # scalars have no axis to follow
    **dict.fromkeys(MOVES - {"splat", "unsplat"} | {"hint"}, _LiveRowSearch.moved),
    "dot": _LiveRowSearch.dot,
    "reduce": _LiveRowSearch.reduce,
    "for": _LiveRowSearch.loop,
    "yield": _LiveRowSearch.end,
}
