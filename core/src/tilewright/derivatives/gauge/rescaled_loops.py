"""Loops that carry sums under a moving reference: the online softmax, and loops of its form.

Such a loop carries a reference m and states a with ``a' = a * exp(m - m') + F(m')``, where m' is
the reference that it yields.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.derivatives.gauge.gauge_weights import LOGARITHMS, Axes, moved_axes
from tilewright.ir.core import Operation, Value
from tilewright.ir.ops.arithmetic import Cast
from tilewright.ir.ops.control import For
from tilewright.ir.ops.shape import Moved
from tilewright.ir.types import FloatType, element_type, shape_of


@dataclass(frozen=True, slots=True)
class RescaledState:
    """A carried value that is rescaled in each iteration.

    Attributes:
        position: its place among the carried values.
        rescaling: the multiplication by the correction.
        moves: the operations that bring the correction to the state's shape, the first one first.
        axes: for each axis of the reference that of the state.
    """

    position: int
    rescaling: Operation
    moves: tuple[Operation, ...]
    axes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RescaledLoop:
    """A loop of this form.

    Attributes:
        loop: the loop.
        position: the place of the reference among the carried values.
        correction: the exponential of the difference of the old and the new reference.
        states: the carried values that are rescaled.
    """

    loop: For
    position: int
    correction: Operation
    states: tuple[RescaledState, ...]

    @property
    def reference(self) -> Value:
        """The reference that an iteration begins with."""
        return self.loop.body.arguments[1 + self.position]

    @property
    def following(self) -> Value:
        """The reference that an iteration ends with."""
        return self.yielded(self.position)

    @property
    def result(self) -> Value:
        """The reference after the last iteration."""
        return self.loop.results[self.position]

    @property
    def positions(self) -> tuple[int, ...]:
        """The places of the states among the carried values."""
        return tuple(state.position for state in self.states)

    def yielded(self, position: int) -> Value:
        """Return what an iteration yields for a carried value."""
        assert self.loop.body.last is not None
        return self.loop.body.last.operands[position]


def find_rescaled_loop(loop: For) -> RescaledLoop | None:
    """Return a loop's reference and states; None if it has none."""
    assert loop.body.last is not None
    for position, reference in enumerate(loop.body.arguments[1:]):
        following = loop.body.last.operands[position]
        if following is reference:
            continue
        for difference in reference.uses:
            if difference.name != "sub" or difference.operands != [reference, following]:
                continue
            for correction in difference.result.uses:
                if correction.name in LOGARITHMS and correction.parent is loop.body:
                    states = _states(loop, position, correction)
                    if states:
                        return RescaledLoop(loop, position, correction, states)
    return None


def following_loop(link: RescaledLoop) -> RescaledLoop | None:
    """Return the loop that goes on with a loop's reference and states, and alone reads them.

    Keys left of the diagonal, then those on it: both loops are one sum.
    """
    readers = {reader for result in link.loop.results for reader in result.uses}
    if len(readers) != 1:
        return None
    (reader,) = readers
    if not isinstance(reader, For) or reader.parent is not link.loop.parent:
        return None
    found = find_rescaled_loop(reader)
    if found is None or found.correction.name != link.correction.name:
        return None
    axes = {link.loop.results[state.position]: state.axes for state in link.states}
    goes_on = found.loop.inits[found.position] is link.result and all(
        axes.get(found.loop.inits[state.position]) == state.axes for state in found.states
    )
    return found if goes_on else None


def _states(loop: For, reference: int, correction: Operation) -> tuple[RescaledState, ...]:
    found = []
    for position, argument in enumerate(loop.body.arguments[1:]):
        if position == reference or len(argument.uses) != 1:
            continue
        (rescaling,) = argument.uses
        if rescaling.name != "mul" or rescaling.parent is not loop.body:
            continue
        factors = [value for value in rescaling.operands if value is not argument]
        if len(factors) != 1:
            continue
        moves = _moves(factors[0], correction.result)
        axes: Axes = tuple(range(len(shape_of(correction.result.type))))
        for move in moves or ():
            axes = None if axes is None else moved_axes(move, 0, axes)
        if moves is not None and axes is not None:
            found.append(RescaledState(position, rescaling, moves, axes))
    return tuple(found)


def _moves(value: Value, source: Value) -> tuple[Operation, ...] | None:
    """Return the operations that spread or widen ``source`` to a value; None if others do."""
    moves: list[Operation] = []
    while value is not source:
        operation = value.definition
        if isinstance(operation, Cast):
            if not isinstance(element_type(operation.x.type), FloatType):
                return None
        elif not (isinstance(operation, Moved) and len(operation.results) == 1):
            return None
        moves.insert(0, operation)
        value = operation.operands[0]
    return tuple(moves)


__all__ = ["RescaledLoop", "RescaledState", "find_rescaled_loop", "following_loop"]
