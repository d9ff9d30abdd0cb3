"""Operations with regions, and calls, over rows that may go different ways.

Where rows disagree on a branch or on a number of iterations, each way runs in a frame of the rows
that take it, and the results are merged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.ir.core import Operation, Region, Value
from tilewright.ir.ops.arithmetic import ProgramId
from tilewright.ir.ops.control import Call, For, If, While
from tilewright.ir.types import Type
from tilewright.reference.frame import Frame
from tilewright.reference.numerics import Array, numpy_dtype
from tilewright.reference.operations.element_regions import run_map, run_reduce, run_scan
from tilewright.reference.values import Descriptor, Indices, RuntimeValue, Tracked, merge, take

Results = Sequence[RuntimeValue]

#: After this many iterations a loop is asked, now and then, whether it still changes anything.
_PATIENCE = 1000


def _decided(frame: Frame, operation: Operation, value: RuntimeValue, what: str) -> Array:
    """A value that control flow hangs on: in the checked mode all of it must be defined."""
    if isinstance(value, Tracked):
        assert frame.checker is not None
        return frame.checker.decided(frame, operation, value, what)
    return value


class _Exits:
    """Rows that leave a loop at different times, with their values."""

    def __init__(self, frame: Frame, types: Sequence[Type]) -> None:
        self.frame, self.types = frame, types
        self.active: Indices = np.arange(frame.rows)
        self.parts: list[tuple[Indices | None, Results]] = []

    def leave(self, values: Results, leaving: NDArray[np.bool_] | None = None) -> Results:
        """Remove some of the active rows, by default all; return the values of the rest."""
        if leaving is None or leaving.all():
            self.parts.append((self.active if self.parts else None, values))
            self.active = self.active[:0]
            return []
        self.parts.append((self.active[leaving], self.taken(values, leaving)))
        staying = ~leaving
        self.active = self.active[staying]
        return self.taken(values, staying)

    def taken(self, values: Results, rows: NDArray[np.bool_]) -> list[RuntimeValue]:
        return [take(value, type_, rows) for value, type_ in zip(values, self.types, strict=True)]

    def results(self) -> Results:
        if self.parts[0][0] is None:
            return self.parts[0][1]
        return [
            merge(
                [(indices, values[position]) for indices, values in self.parts],
                type_,
                self.frame.rows,
            )
            for position, type_ in enumerate(self.types)
        ]


def _types(values: Sequence[Value]) -> list[Type]:
    return [value.type for value in values]


# -- control flow ----------------------------------------------------------------------------------


def run_if(frame: Frame, operation: If) -> Results:
    condition = _decided(
        frame, operation, frame.get(operation.condition), "the condition of a branch"
    )
    then, otherwise = operation.then, operation.else_
    if condition.all():
        return frame.run.execute(frame, then)
    if not condition.any():
        return frame.run.execute(frame, otherwise)
    ways = []
    for region, rows in (
        (then, np.flatnonzero(condition)),
        (otherwise, np.flatnonzero(~condition)),
    ):
        ways.append((rows, frame.run.execute(frame.select(rows), region)))
    return [
        merge([(rows, values[position]) for rows, values in ways], result.type, frame.rows)
        for position, result in enumerate(operation.results)
    ]


def run_for(frame: Frame, operation: For) -> Results:
    lower, upper, step = (
        _decided(
            frame,
            operation,
            frame.get(operand),
            f"the {name} bound of a loop" if name != "step" else "the step of a loop",
        )
        for operand, name in (
            (operation.lower, "lower"),
            (operation.upper, "upper"),
            (operation.step, "step"),
        )
    )
    if not (step > 0).all():
        raise frame.failure(
            operation, f"the step of a loop must be positive, not {np.min(step)}", 0
        )
    inits, body = [frame.get(operand) for operand in operation.inits], operation.body
    induction = numpy_dtype(operation.lower.type)
    if lower.ndim == upper.ndim == step.ndim == 0:
        carried: Results = inits
        for i in range(int(lower), int(upper), int(step)):
            carried = frame.execute(body, [induction.type(i), *carried])
        return carried
    # Python's integers where 64 bits could overflow.
    wide: Any = object if induction.itemsize == 8 else np.int64
    start, stop, stride = (
        np.broadcast_to(x, frame.rows).astype(wide) for x in (lower, upper, step)
    )
    trips = np.maximum(-((start - stop) // stride), 0)
    exits = _Exits(frame, _types(operation.results))
    scope, carried, turn = frame, inits, 0
    while True:
        finished = np.asarray(trips[exits.active] == turn, dtype=np.bool_)
        if finished.any():
            carried = exits.leave(carried, finished)
            if not exits.active.size:
                return exits.results()
            scope = frame.select(exits.active)
        position = (start[exits.active] + turn * stride[exits.active]).astype(induction)
        carried = scope.execute(body, [position, *carried])
        turn += 1


def run_while(frame: Frame, operation: While) -> Results:
    before, after = operation.before, operation.after
    exits = _Exits(frame, _types(operation.results))
    scope: Frame = frame
    carried: Results = [frame.get(operand) for operand in operation.inits]
    turn = 0
    previous: tuple[int, Results] | None = None
    while True:
        condition, *forwarded = scope.execute(before, carried)
        last = before.terminator
        assert last is not None
        leaving = ~_decided(scope, last, condition, "the condition of a loop")
        if leaving.all():
            exits.leave(forwarded)
            return exits.results()
        staying: Results = forwarded
        if leaving.any():
            staying = exits.leave(forwarded, leaving)
            scope = frame.select(exits.active)
        carried = scope.execute(after, staying)
        turn += 1
        turns = frame.run.turns
        if turns is not None:
            turns.hand_over()
        # What a loop does follows from what it carries and what is in memory: if neither changes
        # any more it never ends.
        if turn % _PATIENCE == 0:
            previous = frame.memory.version, carried
        elif previous is not None and turn % _PATIENCE == 1:
            same = previous[0] == frame.memory.version and all(
                map(_identical, previous[1], carried)
            )
            if same and (turns is None or turns.never_goes_on(previous[0])):
                later = (
                    "programs that it may wait for run after this one, unless the launch has "
                    "cooperative=True"
                )
                others = (
                    later if turns is None else "all other programs wait as well, or have ended"
                )
                raise scope.failure(
                    operation,
                    f"this loop never ends: no iteration changes anything, and {others}",
                    0,
                )
            previous = None


def _identical(a: RuntimeValue, b: RuntimeValue) -> bool:
    """Return whether two values have the same bits."""
    if isinstance(a, Descriptor):
        return all(map(_identical, a.fields(), b.fields()))
    if isinstance(a, Tracked) or isinstance(b, Tracked):
        return False
    return bool(a.shape == b.shape and a.tobytes() == b.tobytes())


def run_call(frame: Frame, operation: Call) -> Results:
    callee = frame.run.module.functions[operation.callee]
    inner = Frame(frame.run, frame.pids)
    inner.call = (operation.location, frame)
    return inner.execute(callee.body, [frame.get(operand) for operand in operation.arguments])


CONTROL: dict[str, Callable[[Frame, Any], Results]] = {
    "if": run_if,
    "for": run_for,
    "while": run_while,
    "reduce": run_reduce,
    "scan": run_scan,
    "map": run_map,
    "call": run_call,
}


def is_closed(region: Region) -> bool:
    """Return whether a region's values follow from its arguments alone.

    They are then the same for all programs if the arguments are.
    """
    own: set[Value] = set(region.arguments)
    for operation in region.walk():
        if (
            not (operation.spec.pure or operation.spec.terminator)
            or isinstance(operation, ProgramId)
            or operation.regions
        ):
            return False
        if not own.issuperset(operation.operands):
            return False
        own.update(operation.results)
    return True
