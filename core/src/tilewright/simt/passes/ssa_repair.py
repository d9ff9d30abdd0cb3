"""SSA repair: thread values that change at given operations through control flow.

Examples are the phase parity of an mbarrier, or the current slot of a multi-buffered allocation: it
has an initial value, each operation that uses it defines a new one, and every ``for``, ``while``
and ``if`` in between must carry it.

    # a phase that flips at each of some operations, wherever they are
    def flip(place: Operation, values: tuple[Value, ...]) -> list[Value]:
        ... operations before ``place`` that read ``values[0]``
        return [Builder.at(place).xor(values[0], true)]

    (last,) = thread_values(function.body, places, [first], flip)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from tilewright.ir.core import Operation, Region, Value
from tilewright.simt.dialect.loop_carried import CARRIERS, terminator

_Place = TypeVar("_Place", bound=Operation)
#: (place, reaching values) -> the values after it, one for each.
Update = Callable[[_Place, tuple[Value, ...]], Sequence[Value]]


def thread_values(
    region: Region, places: Iterable[_Place], inits: Sequence[Value], update: Update[_Place]
) -> tuple[Value, ...]:
    """Thread values through a region to operations in it.

    Args:
        region: the region in which ``inits`` are defined, before all places.
        places: operations in the region, or nested in ``for``, ``while`` and ``if``. A place may
            regions; ``update`` is then responsible for its contents.
        inits: the initial values. A loop-carried tile has the layout of its initial value.
        update: called once per place, in program order. It may insert operations beside the place,
            and erase it.

    Returns:
        The values at the end of ``region``.

    Raises:
        AssertionError: a place is in a region that carries no values, such as a warp-specialized
            partition. Values that change in a partition start in its own region.
    """
    wanted: set[Operation] = set(places)
    around: set[Operation] = set()
    for place in wanted:
        for outer in place.ancestors():
            if outer in around or outer is region.owner:
                break
            assert isinstance(outer, CARRIERS), (
                f"{outer.name} carries no values to the {place.name} in it"
            )
            around.add(outer)
    return _Threads(wanted, around, update).through(region, tuple(inits))


def carry_in_for(loop: Operation, init: Value) -> Value:
    """Add an iteration argument to a ``for``; return its block argument.

    Its result is the loop's last one. The caller yields its next value (:func:`yield_more`).

    Its result is the loop's last; what is yielded for it is up to the caller (:func:`yield_more`).
    """
    loop.replace_operands([*loop.operands, init], (1, 1, 1, len(loop.operands) - 3 + 1))
    _add_results(loop, (init,))
    return _add_arguments(loop.regions[0], (init,))[0]


def yield_more(region: Region, values: Sequence[Value]) -> None:
    """Append operands to a region's terminator."""
    last = terminator(region)
    *first, count = last.segments
    last.replace_operands([*last.operands, *values], (*first, count + len(values)))


class _Threads:
    """SSA repair for ``places``, which are nested in the operations ``around``."""

    def __init__(self, places: set[Operation], around: set[Operation], update: Update[Any]) -> None:
        self.places, self.around, self.update = places, around, update

    def through(self, region: Region, values: tuple[Value, ...]) -> tuple[Value, ...]:
        """Return the values at a region's end, given the values at its beginning."""
        for operation in region:
            if operation in self.places:
                made = tuple(self.update(operation, values))
                assert [value.type for value in made] == [value.type for value in values], (
                    f"{operation.name} changes the types of what is carried"
                )
                values = made
            elif operation in self.around:
                values = _CARRY[operation.name](self, operation, values)
        return values

    def _for(self, operation: Operation, values: tuple[Value, ...]) -> tuple[Value, ...]:
        (body,) = operation.regions
        arguments = tuple([carry_in_for(operation, value) for value in values])
        yield_more(body, self.through(body, arguments))
        return tuple(operation.results[-len(values) :])

    def _while(self, operation: Operation, values: tuple[Value, ...]) -> tuple[Value, ...]:
        before, after = operation.regions
        operation.replace_operands(
            [*operation.operands, *values], (len(operation.operands) + len(values),)
        )
        yield_more(before, self.through(before, _add_arguments(before, values)))
        yield_more(after, self.through(after, _add_arguments(after, values)))
        return _add_results(operation, values)

    def _if(self, operation: Operation, values: tuple[Value, ...]) -> tuple[Value, ...]:
        for branch in operation.regions:
            yield_more(branch, self.through(branch, values))
        return _add_results(operation, values)


_CARRY = {"for": _Threads._for, "while": _Threads._while, "if": _Threads._if}


def _add_arguments(region: Region, values: Sequence[Value]) -> tuple[Value, ...]:
    made = []
    for value in values:
        argument = region.add_argument(value.type)
        argument.layout = value.layout
        made.append(argument)
    return tuple(made)


def _add_results(operation: Operation, values: Sequence[Value]) -> tuple[Value, ...]:
    made = tuple([Value(value.type, operation, layout=value.layout) for value in values])
    operation.results.extend(made)
    return made
