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
from tilewright.ir.ops.arithmetic import Extremum, ProgramId
from tilewright.ir.ops.control import Call, For, If, Map, Reduce, Scan, While
from tilewright.ir.types import IntType, TileType, Type
from tilewright.reference.frame import Frame
from tilewright.reference.numerics import Array, numpy_dtype
from tilewright.reference.values import Descriptor, Indices, RuntimeValue, Tracked, merge, take

Results = Sequence[RuntimeValue]

#: After this many iterations a loop is asked, now and then, whether it still changes anything.
_PATIENCE = 1000


def _execute(frame: Frame, region: Region, arguments: Sequence[RuntimeValue]) -> list[RuntimeValue]:
    """Run a region on values for its arguments; the operands of its terminator come back."""
    for argument, value in zip(region.arguments, arguments, strict=True):
        frame.values[argument] = value
    return frame.run.execute(frame, region)


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
            carried = _execute(frame, body, [induction.type(i), *carried])
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
        carried = _execute(scope, body, [position, *carried])
        turn += 1


def run_while(frame: Frame, operation: While) -> Results:
    before, after = operation.before, operation.after
    exits = _Exits(frame, _types(operation.results))
    scope: Frame = frame
    carried: Results = [frame.get(operand) for operand in operation.inits]
    turn = 0
    previous: tuple[int, Results] | None = None
    while True:
        condition, *forwarded = _execute(scope, before, carried)
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
        carried = _execute(scope, after, staying)
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
    return _execute(inner, callee.body, [frame.get(operand) for operand in operation.arguments])


# -- regions over elements -------------------------------------------------------------------------


def _mapped(value: RuntimeValue, function: Callable[[Array], Array]) -> RuntimeValue:
    """A value whose elements were moved by ``function``."""
    if not isinstance(value, Tracked):
        return function(value)
    origins = function(value.origins)
    return Tracked(function(value.array), origins) if origins.any() else function(value.array)


def _columns(value: RuntimeValue, chosen: slice) -> RuntimeValue:
    """Some columns of a value of rank 2."""
    return _mapped(value, lambda array: array[:, chosen])


def _joined(parts: Sequence[RuntimeValue], axis: int) -> RuntimeValue:
    """Values one after the other along an axis."""
    arrays = [part.array if isinstance(part, Tracked) else part for part in parts]
    joined = np.concatenate(arrays, axis=axis)
    if not any(isinstance(part, Tracked) for part in parts):
        return joined
    origins = [
        part.origins if isinstance(part, Tracked) else np.zeros(part.shape, np.int32)
        for part in parts
    ]
    return Tracked(joined, np.concatenate(origins, axis=axis))


def _tile(operation: Reduce | Scan | Map) -> TileType:
    """The type of the first input, whose shape all have."""
    type_ = operation.inputs[0].type
    assert isinstance(type_, TileType)
    return type_


class _Lanes:
    """The inputs of a ``reduce``, ``scan`` or ``map`` as lines of elements.

    They have rank 2, with one line for each row and each remaining coordinate.

    Element regions run in a frame in which every element (or pair of them) is a row of its own, so
    that they may do whatever a program may.
    """

    def __init__(self, frame: Frame, operation: Reduce | Scan | Map, axis: int | None) -> None:
        self.frame, self.operation = frame, operation
        self.region = operation.body if isinstance(operation, Map) else operation.combine
        inputs = [frame.get(operand) for operand in operation.inputs]
        shape = _tile(operation).shape
        arrays = [value.array if isinstance(value, Tracked) else value for value in inputs]
        self.varying = any(array.ndim > len(shape) for array in arrays) or (
            frame.rows > 1 and not frame.run.closed(self.region)
        )
        lead = (frame.rows,) if self.varying else ()

        def line(array: Array) -> Array:
            array = np.broadcast_to(array, lead + shape)
            if axis is not None:
                array = np.moveaxis(array, axis - len(shape), -1)
                return array.reshape((-1, shape[axis]))
            return array.reshape((*(lead or (1,)), -1))

        self.lines = [_mapped(value, line) for value in inputs]
        rest = () if axis is None else shape[:axis] + shape[axis + 1 :]
        self.shape = lead + rest
        lines = (
            self.lines[0].array if isinstance(self.lines[0], Tracked) else self.lines[0]
        ).shape[0]
        self.rows: Indices = (
            np.repeat(np.arange(frame.rows), lines // frame.rows)
            if self.varying
            else np.zeros(lines, dtype=np.int64)
        )

    def run(self, arguments: Sequence[RuntimeValue], columns: int) -> list[RuntimeValue]:
        """Run the region on rank-2 arguments of ``columns`` columns; values have that shape."""
        inner = self.frame.select(np.repeat(self.rows, columns))
        shape = (len(self.rows), columns)
        values = _execute(
            inner, self.region, [_mapped(argument, np.ravel) for argument in arguments]
        )
        return [
            _mapped(value, lambda array: np.broadcast_to(array, shape[0] * shape[1]).reshape(shape))
            for value in values
        ]


def run_reduce(frame: Frame, operation: Reduce) -> Results:
    axis, shape = operation.axis, _tile(operation).shape
    plain = _plain_combination(frame, operation)
    if plain is not None:
        x = frame.get(operation.inputs[0])
        return [plain.reduce(x, axis=axis - len(shape), dtype=x.dtype)]
    lanes = _Lanes(frame, operation, axis)
    lines = lanes.lines
    extent = shape[axis]
    while extent > 1:
        # Neighbours are combined pairwise, so that the order along the axis is kept.
        pairs = extent // 2
        lefts = [_columns(line, slice(0, 2 * pairs, 2)) for line in lines]
        rights = [_columns(line, slice(1, 2 * pairs, 2)) for line in lines]
        combined = lanes.run([*lefts, *rights], pairs)
        if extent % 2:
            combined = [
                _joined([c, _columns(line, slice(-1, None))], 1)
                for c, line in zip(combined, lines, strict=True)
            ]
        lines = combined
        extent = pairs + extent % 2
    return [_mapped(line, lambda array: array.reshape(lanes.shape)) for line in lines]


def run_scan(frame: Frame, operation: Scan) -> Results:
    axis, reverse, shape = operation.axis, operation.reverse, _tile(operation).shape
    plain = _plain_combination(frame, operation)
    if plain is not None:
        x = frame.get(operation.inputs[0])
        if reverse:
            x = np.flip(x, axis - len(shape))
        result = plain.accumulate(x, axis=axis - len(shape), dtype=x.dtype)
        return [np.flip(result, axis - len(shape)) if reverse else result]
    lanes = _Lanes(frame, operation, axis)
    lines = lanes.lines
    if reverse:
        lines = [_columns(line, slice(None, None, -1)) for line in lines]
    distance = 1
    while distance < shape[axis]:
        # Hillis and Steele: each element takes in the prefix that ends ``distance`` before it.
        earlier = [_columns(line, slice(None, -distance)) for line in lines]
        later = [_columns(line, slice(distance, None)) for line in lines]
        combined = lanes.run([*earlier, *later], shape[axis] - distance)
        lines = [
            _joined([_columns(line, slice(None, distance)), c], 1)
            for line, c in zip(lines, combined, strict=True)
        ]
        distance *= 2

    def back(array: Array) -> Array:
        array = array[:, ::-1] if reverse else array
        return np.moveaxis(array.reshape((*lanes.shape, shape[axis])), -1, axis - len(shape))

    return [_mapped(line, back) for line in lines]


def run_map(frame: Frame, operation: Map) -> Results:
    pack, tile = operation.pack, _tile(operation)
    shape = tile.shape
    lanes = _Lanes(frame, operation, None)
    arguments = [_columns(line, slice(k, None, pack)) for line in lanes.lines for k in range(pack)]
    runs = tile.numel // pack
    values = lanes.run(arguments, runs)
    results = []
    for start in range(0, len(values), pack):
        group = [
            _mapped(value, lambda array: array[..., np.newaxis])
            for value in values[start : start + pack]
        ]
        results.append(
            _mapped(_joined(group, -1), lambda array: array.reshape(lanes.shape + shape))
        )
    return results


_PLAIN: dict[tuple[str, str], np.ufunc] = {
    ("add", ""): np.add,
    ("mul", ""): np.multiply,
    ("and", ""): np.bitwise_and,
    ("or", ""): np.bitwise_or,
    ("xor", ""): np.bitwise_xor,
    ("min", "ignore"): np.fmin,
    ("max", "ignore"): np.fmax,
    ("min", "propagate"): np.minimum,
    ("max", "propagate"): np.maximum,
}


def _plain_combination(frame: Frame, operation: Reduce | Scan) -> np.ufunc | None:
    """Return the NumPy function that is equivalent to a combine region, or None.

    The region must be one operation that NumPy reduces and scans by in the same type.

    16-bit floats round every step, which NumPy's do not; in the checked mode signed additions and
    multiplications are watched for overflow.
    """
    if len(operation.inputs) != 1:
        return None
    combine = operation.combine
    first = combine.first
    if first is None or first.next is None or not first.next.spec.terminator:
        return None
    ufunc = _PLAIN.get((first.name, first.nan if isinstance(first, Extremum) else ""))
    arguments = combine.arguments
    if (
        ufunc is None
        or set(first.operands) != set(arguments)
        or first.next.operands != first.results
    ):
        return None
    element = arguments[0].type
    arithmetic = first.name in ("add", "mul")
    if not isinstance(element, IntType):
        dtype = numpy_dtype(element)
        if dtype.kind != "f" or (arithmetic and dtype.itemsize < 4):
            return None
    elif arithmetic and element.signed and frame.checker is not None:
        return None
    return None if isinstance(frame.get(operation.inputs[0]), Tracked) else ufunc


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
