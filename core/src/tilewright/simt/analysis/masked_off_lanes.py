"""Liveness of masked-off lanes: loads that need not fill them with zeros.

A load without ``other`` defines its masked-off lanes as zero. Writing the zeros costs an
instruction per register, although most kernels store their results under the mask that they loaded
under. The analysis follows the masked-off lanes through all users, up to the masks, selects and
conjunctions that drop them. It tags a load whose every use drops them, and the target may leave any
value there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from tilewright.ir.core import Function, Operation, Region, Value
from tilewright.ir.ops.arithmetic import Binary, Select
from tilewright.ir.ops.control import If
from tilewright.ir.ops.debug import Assert
from tilewright.ir.ops.memory import AtomicLoad, AtomicRmw, AtomicStore, Load, Store
from tilewright.ir.ops.shape import Histogram, Moved, Reshape
from tilewright.ir.table import Effect
from tilewright.ir.types import I1, element_type
from tilewright.passes.analysis.mask_conjuncts import conjuncts
from tilewright.passes.analysis.transfer_functions import MOVES
from tilewright.simt.dialect.loop_carried import CARRIERS, Carried, carried_values

#: Attribute of a load whose masked-off lanes are dead, so that they may hold any value.
UNOBSERVED: Final = "simt.unobserved"

_Masked = Load | Store | AtomicRmw | AtomicLoad | AtomicStore | Assert | Histogram
#: A value, and the operations that moved the lanes there, in order. They would move
#: the mask's elements in the same way.
_Followed = tuple[Value, tuple[Moved, ...]]


def mark_unobserved(function: Function) -> None:
    """Tag a function's masked loads without ``other`` whose masked-off lanes are dead."""
    loads = [
        operation
        for operation in function.walk()
        if isinstance(operation, Load) and operation.mask is not None and operation.other is None
    ]
    if not loads:
        return
    sources: dict[tuple[Operation, int], Carried] = {}
    for operation in function.walk():
        if isinstance(operation, CARRIERS):
            for carried in carried_values(operation):
                sources |= dict.fromkeys(carried.sources, carried)
    for load in loads:
        if not _MaskSearch(load, sources).is_seen():
            load.attributes[UNOBSERVED] = True


def fills_with_zeros(load: Load) -> bool:
    """Return whether a load must write zeros to its masked-off lanes."""
    return (
        load.mask is not None and load.other is None and not load.attributes.get(UNOBSERVED, False)
    )


class _MaskSearch:
    def __init__(self, load: Load, sources: dict[tuple[Operation, int], Carried]) -> None:
        assert load.mask is not None
        self.mask = load.mask
        self.load, self.sources = load, sources

    def is_seen(self) -> bool:
        """Return whether a masked-off lane of the load is live."""
        work: list[_Followed] = [(self.load.results[0], ())]
        known = set(work)
        while work:
            value, path = work.pop()
            for user in dict.fromkeys(value.uses):
                for position, operand in enumerate(user.operands):
                    if operand is not value:
                        continue
                    following = self._through(user, position, path)
                    if following is None:
                        return True
                    work += [each for each in following if each not in known]
                    known.update(following)
        return False

    def _through(
        self, user: Operation, position: int, path: tuple[Moved, ...]
    ) -> list[_Followed] | None:
        """Return where an operation passes the lanes on; None if it may observe them."""
        carried = self.sources.get((user, position))
        if carried is not None:
            return self._carried(carried, path)
        rule = _RULES.get(user.name)
        if rule is not None:
            return rule(self, user, position, path)
        if not user.spec.elementwise or user.spec.effects is not Effect.NONE:
            return None
        return [(result, path) for result in user.results]

    def _drops(self, mask: Value | None, path: tuple[Moved, ...]) -> bool:
        """Return whether a mask is false in all masked-off lanes, after the moves in ``path``."""
        return mask is not None and any(
            conjunct.condition is self.mask and _move_alike(conjunct.moves, path[::-1])
            for conjunct in conjuncts(mask, is_leaf=lambda value: value is self.mask)
        )

    # ---- operations

    def accessed(
        self, user: _Masked, position: int, path: tuple[Moved, ...]
    ) -> list[_Followed] | None:
        """Follow the lanes through a masked operation, which ignores its own masked-off lanes.

        A load returns ``other`` there.
        """
        operand, mask = user.operands[position], user.mask
        if operand is mask or not self._drops(mask, path):
            return None
        return [(user.results[0], path)] if isinstance(user, Load) and operand is user.other else []

    def selected(
        self, user: Select, position: int, path: tuple[Moved, ...]
    ) -> list[_Followed] | None:
        return [] if position == 1 and self._drops(user.condition, path) else [(user.result, path)]

    def conjoined(
        self, user: Binary, position: int, path: tuple[Moved, ...]
    ) -> list[_Followed] | None:
        """Follow the lanes through a conjunction; one with the mask drops them."""
        is_condition = element_type(user.result.type) is I1
        return (
            []
            if is_condition and self._drops(user.a if position else user.b, path)
            else [(user.result, path)]
        )

    def moved(self, user: Moved, position: int, path: tuple[Moved, ...]) -> list[_Followed] | None:
        return (
            None if isinstance(user, Reshape) and user.reorder else [(user.result, (*path, user))]
        )

    def hinted(
        self, user: Operation, position: int, path: tuple[Moved, ...]
    ) -> list[_Followed] | None:
        return [(user.result, path)]

    def _carried(self, carried: Carried, path: tuple[Moved, ...]) -> list[_Followed] | None:
        """Follow loop-carried lanes, if the mask is defined outside of the loop."""
        if not isinstance(carried.operation, If) and _is_made_in(self.mask, carried.operation):
            return None
        return [(value, path) for value in carried.values]


def _move_alike(moves: Sequence[Moved], others: Sequence[Moved]) -> bool:
    return len(moves) == len(others) and all(
        one.name == other.name
        and one.attributes == other.attributes
        and _shapes(one) == _shapes(other)
        for one, other in zip(moves, others, strict=True)
    )


def _shapes(operation: Moved) -> list[object]:
    return [getattr(value.type, "shape", ()) for value in (operation.x, operation.result)]


def _is_made_in(value: Value, loop: Operation) -> bool:
    owner = value.owner
    place = owner.owner if isinstance(owner, Region) else owner
    while isinstance(place, Operation):
        if place is loop:
            return True
        place = place.parent.owner if place.parent is not None else None
    return False


# Operations are of the classes that their rows name, which a table by name cannot tell.
_Rule = Callable[[_MaskSearch, Any, int, tuple[Moved, ...]], "list[_Followed] | None"]
_RULES: dict[str, _Rule] = {
    **dict.fromkeys(
        ("load", "store", "atomic_rmw", "atomic_load", "atomic_store", "assert", "histogram"),
        _MaskSearch.accessed,
    ),
    "select": _MaskSearch.selected,
    "and": _MaskSearch.conjoined,
    **dict.fromkeys(MOVES, _MaskSearch.moved),
    "hint": _MaskSearch.hinted,
}
