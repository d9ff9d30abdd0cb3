"""Operations whose regions compute with elements: reductions, scans and maps."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np

from tilewright.ir.ops.arithmetic import Extremum
from tilewright.ir.ops.control import Map, Reduce, Scan
from tilewright.ir.order import ANY, SEQUENTIAL, TREE, tree_bits
from tilewright.ir.types import IntType, TileType
from tilewright.reference.frame import Frame
from tilewright.reference.numerics import Array, numpy_dtype
from tilewright.reference.values import Indices, RuntimeValue, Tracked

Results = Sequence[RuntimeValue]


def _mapped(value: RuntimeValue, function: Callable[[Array], Array]) -> RuntimeValue:
    """A value whose elements were moved by ``function``."""
    if not isinstance(value, Tracked):
        return function(value)
    origins = function(value.origins)
    return Tracked(function(value.array), origins) if origins.any() else function(value.array)


def _columns(value: RuntimeValue, chosen: slice | Indices) -> RuntimeValue:
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
        values = inner.execute(self.region, [_mapped(argument, np.ravel) for argument in arguments])
        return [
            _mapped(value, lambda array: np.broadcast_to(array, shape[0] * shape[1]).reshape(shape))
            for value in values
        ]


def run_reduce(frame: Frame, operation: Reduce) -> Results:
    axis, shape = operation.axis, _tile(operation).shape
    plain = _plain_combination(frame, operation)
    if operation.order != ANY:
        lanes = _Lanes(frame, operation, axis)
        reduce = _reduce_in_sequence if operation.order == SEQUENTIAL else _reduce_by_tree
        combined = reduce(_combination(lanes, plain), lanes.lines, shape[axis])
        return [_mapped(line, lambda array: array.reshape(lanes.shape)) for line in combined]
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


#: The combination of rank-2 lines: (earlier, later, columns) -> combined.
_Combine = Callable[[Sequence[RuntimeValue], Sequence[RuntimeValue], int], list[RuntimeValue]]


def _combination(lanes: _Lanes, plain: np.ufunc | None) -> _Combine:
    """Return the function that combines columns of lines, by ``plain`` if there is one."""
    if plain is None:
        return lambda earlier, later, columns: lanes.run([*earlier, *later], columns)

    def combine(
        earlier: Sequence[RuntimeValue], later: Sequence[RuntimeValue], columns: int
    ) -> list[RuntimeValue]:
        return [plain(*pair) for pair in zip(earlier, later, strict=True)]

    return combine


def _reduce_by_tree(
    combine: _Combine, lines: Sequence[RuntimeValue], extent: int
) -> Sequence[RuntimeValue]:
    for bit in tree_bits(extent):
        # What is left is numbered by the bits that are left: bit 0 is the lowest of them.
        if bit < 2:
            pairs, count = extent // 2, -(-extent // 2)
            left, right = slice(0, 2 * pairs, 2), slice(1, None, 2)
            rest = slice(2 * pairs, None)
        else:
            count = 1 << (extent - 1).bit_length() - 1
            pairs = extent - count
            left, right, rest = slice(0, pairs), slice(count, None), slice(pairs, count)
        combined = combine(
            [_columns(line, left) for line in lines],
            [_columns(line, right) for line in lines],
            pairs,
        )
        lines = [
            _joined([new, _columns(line, rest)], 1)
            for new, line in zip(combined, lines, strict=True)
        ]
        extent = count
    return lines


def _reduce_in_sequence(
    combine: _Combine, lines: Sequence[RuntimeValue], extent: int
) -> Sequence[RuntimeValue]:
    return _scan_in_sequence(combine, lines, extent)[-1]


def _scan_in_sequence(
    combine: _Combine, lines: Sequence[RuntimeValue], extent: int
) -> list[Sequence[RuntimeValue]]:
    """Return the lines of each prefix."""
    columns = [[_columns(line, slice(i, i + 1)) for line in lines] for i in range(extent)]
    return list(itertools.accumulate(columns, lambda earlier, later: combine(earlier, later, 1)))


def _scan_by_tree(
    combine: _Combine, lines: Sequence[RuntimeValue], extent: int
) -> Sequence[RuntimeValue]:
    indices = np.arange(extent)
    for bit in range((extent - 1).bit_length()):
        chosen = (indices >> bit & 1) == 1
        later = indices[chosen]
        combined = combine(
            [_columns(line, (later >> bit << bit) - 1) for line in lines],
            [_columns(line, later) for line in lines],
            len(later),
        )
        places = indices.copy()
        places[chosen] = extent + np.arange(len(later))
        lines = [
            _columns(_joined([line, new], 1), places)
            for line, new in zip(lines, combined, strict=True)
        ]
    return lines


def run_scan(frame: Frame, operation: Scan) -> Results:
    axis, reverse, shape = operation.axis, operation.reverse, _tile(operation).shape
    plain = _plain_combination(frame, operation)
    if plain is not None and operation.order == ANY:
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
    if operation.order == SEQUENTIAL:
        prefixes = _scan_in_sequence(_combination(lanes, plain), lines, shape[axis])
        lines = [_joined(parts, 1) for parts in zip(*prefixes, strict=True)]
    elif operation.order == TREE:
        lines = list(_scan_by_tree(_combination(lanes, plain), lines, shape[axis]))
    while operation.order == ANY and distance < shape[axis]:
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
