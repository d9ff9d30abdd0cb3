"""Reductions.

Along the lane axis a row is combined into a few independent vectors and then across one vector's
lanes; along another axis each lane is combined on its own. The known combinations (add, mul, min,
max, and, or, xor of one tile) start from their identity; others start from the first strip, and run
on vectors where the combine region is straight-line code.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tilewright.ir.core import Operation, Region, Value
from tilewright.ir.ops import TABLE
from tilewright.ir.ops.arithmetic import Extremum
from tilewright.ir.ops.control import Reduce
from tilewright.ir.order import ANY, effective_order
from tilewright.ir.types import BF16, F16, F32, I1, FloatType, IntType, TileType, Type
from tilewright.llvm.emission.casts import emit_cast
from tilewright.llvm.emission.element_arithmetic import extreme
from tilewright.llvm.emission.registers import constant, register_type, vector_type
from tilewright_cpu.codegen.analysis.mask_bounds import PrefixBound
from tilewright_cpu.codegen.analysis.masked_off_lanes import MaskedOffLanes
from tilewright_cpu.codegen.analysis.tiles import combine_kind
from tilewright_cpu.codegen.context import (
    ZERO,
    Buffer,
    Context,
    Coordinate,
    Index,
    Partial,
    with_coordinate,
)
from tilewright_cpu.codegen.loops.evaluate import as_vector, evaluate, store_strip
from tilewright_cpu.codegen.loops.inner_loop import InnerLoop, version_row
from tilewright_cpu.codegen.loops.loop_nest import NestPlan, identity
from tilewright_cpu.codegen.loops.materialize import begin_fill, complete_partial, end_fill
from tilewright_cpu.codegen.ops.multirow_reduce import MultirowReduction, can_reduce_together
from tilewright_cpu.codegen.ops.ordered_combine import lower_ordered_reduce
from tilewright_cpu.codegen.state.partial_sums import reduce_partial_sum


class Combination:
    """Combination of the elements of a reduction, on scalars (width 0) and vectors.

    ``types`` are the element types of the accumulators: f32 for narrow floats that are added or
    compared.
    """

    types: list[Type]

    def __init__(self, context: Context, elements: Sequence[Type]) -> None:
        self.context, self.elements = context, list(elements)
        self.types = self.elements

    def enter(self, texts: Sequence[str], width: int) -> list[str]:
        """Elements as accumulator values."""
        return list(texts)

    def leave(self, texts: Sequence[str], width: int = 0) -> list[str]:
        """Accumulators as elements: scalars, or vectors of ``width``."""
        return list(texts)

    def combine(self, a: Sequence[str], b: Sequence[str], width: int) -> list[str]:
        raise NotImplementedError

    def across(self, texts: Sequence[str], width: int) -> list[str]:
        """Combine the lanes of vectors into scalars, by halves."""
        writer = self.context.writer
        vectors = list(texts)
        while width > 1:
            half = width // 2
            parts = []
            for start in (0, half):
                lanes = (
                    f"<{half} x i32> <{', '.join(f'i32 {start + lane}' for lane in range(half))}>"
                )
                part = []
                for element, text in zip(self.types, vectors, strict=True):
                    type_ = vector_type(element, width)
                    part.append(
                        writer.emit(f"shufflevector {type_} {text}, {type_} poison, {lanes}")
                    )
                parts.append(part)
            width = half
            if width == 1:
                parts = [
                    [
                        writer.emit(f"extractelement {vector_type(element, 1)} {text}, i64 0")
                        for element, text in zip(self.types, part, strict=True)
                    ]
                    for part in parts
                ]
                return self.combine(parts[0], parts[1], 0)
            vectors = self.combine(parts[0], parts[1], width)
        if width == 1:
            return [
                writer.emit(f"extractelement {vector_type(element, 1)} {text}, i64 0")
                for element, text in zip(self.types, vectors, strict=True)
            ]
        return vectors


class Known(Combination):
    """One of the usual operations on one tile."""

    def __init__(self, context: Context, operation: Operation, element: Type) -> None:
        super().__init__(context, [element])
        self.name = operation.name
        self.nan = operation.nan if isinstance(operation, Extremum) else ""
        self.element = element
        narrow = element in (F16, BF16) or (isinstance(element, FloatType) and element.is_fp8)
        self.inner: Type = F32 if narrow else element
        self.types = [self.inner]

    def enter(self, texts: Sequence[str], width: int) -> list[str]:
        return [emit_cast(self.context, texts[0], self.element, self.inner, width)]

    def leave(self, texts: Sequence[str], width: int = 0) -> list[str]:
        return [emit_cast(self.context, texts[0], self.inner, self.element, width)]

    @property
    def identity(self) -> float | int | bool:
        """The identity of the combination.

        It is NaN for the float minimum and maximum that ignore it: a row of NaNs is NaN.
        """
        element = self.inner
        if isinstance(element, FloatType):
            if self.name in ("min", "max"):
                return (
                    math.nan
                    if self.nan == "ignore"
                    else math.inf
                    if self.name == "min"
                    else -math.inf
                )
            return -0.0 if self.name == "add" else 1.0
        assert isinstance(element, IntType)
        found: dict[str, int] = {
            "add": 0,
            "mul": 1,
            "min": element.maximum,
            "max": element.minimum,
            "and": -1 if element.signed else element.maximum,
            "or": 0,
            "xor": 0,
        }
        return bool(found[self.name]) if element is I1 else found[self.name]

    def absorbs(self, number: float | int | bool) -> bool:
        """Return whether any count of ``number`` combined is ``number``: one stands for all."""
        if TABLE[self.name].idempotent:
            return True
        return number == (1 if self.name == "mul" else 0)

    def combine(self, a: Sequence[str], b: Sequence[str], width: int) -> list[str]:
        context, element, type_ = self.context, self.inner, vector_type(self.inner, width)
        if self.name in ("min", "max"):
            return [extreme(context, self.name, a[0], b[0], width, element, self.nan)]
        if isinstance(element, FloatType):
            return [context.writer.emit(f"f{self.name}{context.contract} {type_} {a[0]}, {b[0]}")]
        return [context.writer.emit(f"{self.name} {type_} {a[0]}, {b[0]}")]

    def across(self, texts: Sequence[str], width: int) -> list[str]:
        if not width:
            return list(texts)
        writer, element = self.context.writer, self.inner
        type_, scalar = vector_type(element, width), register_type(element)
        if isinstance(element, FloatType):
            if self.name in ("add", "mul"):
                start = constant(element, -0.0 if self.name == "add" else 1.0)
                name = f"llvm.vector.reduce.f{self.name}"
                return [
                    writer.intrinsic(
                        name, scalar, [(scalar, start), (type_, texts[0])], [type_], "reassoc"
                    )
                ]
            if self.context.state.hardware.x86:
                # which has no instruction for it: LLVM would take one lane after the other
                return super().across(texts, width)
            if self.nan == "ignore":
                return [
                    writer.intrinsic(
                        f"llvm.vector.reduce.f{self.name}", scalar, [(type_, texts[0])], [type_]
                    )
                ]
            return [
                writer.intrinsic(
                    f"llvm.vector.reduce.f{self.name}imum", scalar, [(type_, texts[0])], [type_]
                )
            ]
        assert isinstance(element, IntType)
        sign = ("s" if element.signed else "u") if self.name in ("min", "max") else ""
        return [
            writer.intrinsic(
                f"llvm.vector.reduce.{sign}{self.name}", scalar, [(type_, texts[0])], [type_]
            )
        ]


class General(Combination):
    """Any combine region."""

    def __init__(self, context: Context, region: Region, elements: Sequence[Type]) -> None:
        super().__init__(context, elements)
        self.region = region

    def combine(self, a: Sequence[str], b: Sequence[str], width: int) -> list[str]:
        if width:
            return self.context.evaluate_vectors(self.region, [*a, *b], width)
        return self.context.evaluate_scalars(self.region, [*a, *b])


def lower_reduce(context: Context, operation: Reduce) -> None:
    """``reduce``."""
    if effective_order(operation) != ANY:
        lower_ordered_reduce(context, operation)
        return
    tiles, axis = [context.resolve(value) for value in operation.inputs], operation.axis
    type_ = tiles[0].type
    assert isinstance(type_, TileType)
    elements = [value.type.element for value in tiles if isinstance(value.type, TileType)]
    partial_sum = context.partial_sums.get(tiles[0])
    if partial_sum is not None:
        context.bind_scalar(operation.results[0], reduce_partial_sum(context.writer, partial_sum))
        return
    kind = combine_kind(operation)
    region = operation.combine
    combination: Combination = (
        Known(context, kind, elements[0])
        if kind is not None
        else General(context, region, elements)
    )
    if kind is None and not context.is_straight_line(region):
        _by_elements(context, operation, tiles, axis, combination)
        return
    roots = [(value, identity(type_.rank)) for value in tiles]
    plan = NestPlan(context, type_.shape, roots)
    output = _Output(context, operation, type_, axis)
    if type_.shape[axis] == 1 or plan.lane < 0:
        _single(plan, tiles, axis, combination, output)
    elif plan.lane == axis:
        _along_lanes(plan, tiles, combination, output)
    else:
        _across_rows(plan, tiles, axis, combination, output)
    output.bind()


class _Output:
    """Destination of the results: scalars for a reduction of the only axis, else buffers."""

    def __init__(self, context: Context, operation: Reduce, type_: TileType, axis: int) -> None:
        self.context, self.operation, self.axis = context, operation, axis
        self.shape = type_.shape[:axis] + type_.shape[axis + 1 :]
        self.buffers: list[Buffer] = []
        self.scalars: list[str] = []
        if self.shape:
            for result in operation.results:
                assert isinstance(result.type, TileType)
                self.buffers.append(context.new_buffer(self.shape, result.type.element))

    def store(self, index: Index, texts: Sequence[str]) -> None:
        """Store elements (or lanes of them) at an index of the operand."""
        own = (*index[: self.axis], *index[self.axis + 1 :])
        for buffer, text in zip(self.buffers, texts, strict=True):
            store_strip(self.context, buffer.pointer, buffer.strides, buffer.element, own, text)

    def bind(self) -> None:
        for result, buffer in zip(self.operation.results, self.buffers, strict=False):
            self.context.bind_buffer(result, buffer)
        for result, name in zip(self.operation.results, self.scalars, strict=False):
            self.context.bind_scalar(result, name)


def _single(
    plan: NestPlan, tiles: Sequence[Value], axis: int, combination: Combination, output: _Output
) -> None:
    """An axis of extent 1: the elements themselves."""
    context = plan.context
    complete_partial(plan, frozenset())
    with context.nest():
        filled = begin_fill(plan)
        for row in plan.rows():
            if not output.shape:
                context.nest_index = row
                output.scalars = [evaluate(context, value, row) for value in tiles]
                continue

            def body(index: Index, values: list[str], copy: int) -> Sequence[str]:
                lane = plan.lane
                output.store(
                    index,
                    [
                        as_vector(context, value, index, index[lane].width if lane >= 0 else 0)
                        for value in tiles
                    ],
                )
                for value in filled:
                    evaluate(context, value, index)
                return ()

            InnerLoop(plan, row, body).run(None, None)
        end_fill(context, filled)


def _identity_text(combination: Known, width: int) -> str:
    return constant(combination.inner, combination.identity, width)


def _along_lanes(
    plan: NestPlan, tiles: Sequence[Value], combination: Combination, output: _Output
) -> None:
    """Combine each row's strips, then the lanes of what is left."""
    context, width = plan.context, plan.width
    scalar_row = not output.shape
    skip: tuple[PrefixBound, MaskedOffLanes, float | int | bool] | None = None
    # what stays unwritten of kept tiles is known for a single row only
    if (
        isinstance(combination, Known)
        and plan.bounds
        and not (plan.fresh and (len(plan.shape) > 1 or plan.row_conditions))
    ):
        skip = skippable(plan, tiles[0], combination)
    complete_partial(
        plan, frozenset() if skip is None or skip[1].conditions else frozenset((skip[0].leaf,))
    )
    types = [vector_type(element, width) for element in combination.types]
    together = _multirow(plan, combination, output)
    with context.nest():
        filled = begin_fill(plan)

        def strip(index: Index) -> list[str]:
            context.nest_index = index
            lanes = index[plan.lane].width
            texts = combination.enter(
                [as_vector(context, value, index, lanes) for value in tiles], lanes
            )
            for value in filled:
                evaluate(context, value, index)
            return texts

        for row in plan.rows():

            def write(row: Index = row) -> list[tuple[str, str]]:
                pieces: list[list[str]] = []
                stop: str | None = None

                def body(index: Index, values: list[str], copy: int) -> Sequence[str]:
                    return combination.combine(values, strip(index), width)

                def rest(index: Index) -> None:
                    pieces.append(combination.across(strip(index), index[plan.lane].width))

                if isinstance(combination, Known):
                    first = [_identity_text(combination, width)]
                    lanes = InnerLoop(plan, row, body, list(zip(types, first, strict=True)), rest)
                    limit = lanes.limit()
                    if skip is not None and limit is not None:
                        stop, first = _early_end(plan, row, skip, combination, width)
                        lanes.carried = list(zip(types, first, strict=True))
                    groups = lanes.run(stop, limit)
                else:
                    # the first strip is where the accumulators start
                    start = strip(with_coordinate(row, plan.lane, Coordinate("0", 0, width)))
                    groups = _from_second(
                        plan, row, body, rest, list(zip(types, start, strict=True))
                    )
                total = groups[0]
                for group in groups[1:]:
                    total = combination.combine(total, group, width)
                if together is not None:
                    return [(types[0], total[0])]
                scalars = combination.across(total, width)
                for piece in pieces:
                    scalars = combination.combine(scalars, piece, 0)
                scalars = combination.leave(scalars)
                found: list[tuple[str, str]] = []
                if scalar_row:
                    found = list(
                        zip(
                            [register_type(element) for element in combination.elements],
                            scalars,
                            strict=True,
                        )
                    )
                else:
                    output.store(with_coordinate(row, plan.lane, ZERO), scalars)
                if skip is not None and filled:
                    assert stop is not None
                    found.append(("i64", stop))
                return found

            found = version_row(plan, row, write, False)
            if together is not None:
                together.add(row, found[0])
            else:
                output.scalars = found
        end_fill(context, filled)
        if skip is not None and filled:
            written = output.scalars.pop()
            for value in filled:
                number = skip[1].fold(value, identity(len(plan.shape)))
                assert number is not None
                context.partial[value] = Partial(
                    skip[0].leaf, written, float(number), not skip[1].conditions
                )


def _multirow(
    plan: NestPlan, combination: Combination, output: _Output
) -> MultirowReduction | None:
    """Reduction of the lanes of several rows at once; None where rows are reduced one by one."""
    if (
        not isinstance(combination, Known)
        or combination.inner is I1
        or not can_reduce_together(plan)
    ):
        return None
    known, width = combination, plan.width

    def combine(a: str, b: str) -> str:
        return known.combine([a], [b], width)[0]

    def store(index: Index, vector: str) -> None:
        output.store(index, known.leave([vector], width))

    return MultirowReduction(plan, known.inner, combine, store)


def _from_second(
    plan: NestPlan,
    row: Index,
    body: Callable[[Index, list[str], int], Sequence[str]],
    rest: Callable[[Index], None],
    carried: list[tuple[str, str]],
) -> list[list[str]]:
    """The strips of a row from the second on, one accumulator group; masks are evaluated."""
    context, width = plan.context, plan.width
    extent = plan.shape[plan.lane]
    whole = extent // width * width
    values = [value for _, value in carried]
    if whole <= 4 * width:
        for start in range(width, whole, width):
            index = with_coordinate(row, plan.lane, Coordinate(str(start), 0, width))
            context.nest_index = index
            values = list(body(index, values, 0))
    else:
        with context.loop(str(width), str(whole), width, carried, nonempty=True) as (
            loop,
            coordinate,
        ):
            index = with_coordinate(row, plan.lane, coordinate._replace(width=width))
            context.nest_index = index
            loop.next_values = list(body(index, loop.values, 0))
        values = loop.results
    position, piece = whole, width
    while position < extent:
        while position + piece > extent:
            piece //= 2
        index = with_coordinate(row, plan.lane, Coordinate(str(position), 0, piece))
        context.nest_index = index
        rest(index)
        position += piece
    return [values]


def skippable(
    plan: NestPlan, value: Value, combination: Known
) -> tuple[PrefixBound, MaskedOffLanes, float | int | bool] | None:
    """The bound beyond which every lane of ``value`` is one number that need be combined once.

    Kept tiles are known there too.
    """
    for bound in plan.bounds:
        lanes = MaskedOffLanes(plan.context, bound.leaf, plan.lane)
        number = lanes.fold(value, identity(len(plan.shape)))
        if (
            number is None
            or (isinstance(number, float) and math.isnan(number))
            or not combination.absorbs(number)
        ):
            continue
        if all(lanes.fold(kept, identity(len(plan.shape))) is not None for kept in plan.fresh):
            return bound, lanes, number
    return None


def _early_end(
    plan: NestPlan,
    row: Index,
    skip: tuple[PrefixBound, MaskedOffLanes, float | int | bool],
    combination: Known,
    width: int,
) -> tuple[str, list[str]]:
    """End of the row's lanes that need be read, and the accumulators' initial values for that."""
    context, writer = plan.context, plan.context.writer
    bound, lanes, number = skip
    extent = str(plan.shape[plan.lane])
    stop = context.limits[(bound.leaf, bound.axis)]
    condition = lanes.emit_conditions(row)
    if condition is not None:
        stop = writer.emit(f"select i1 {condition}, i64 {stop}, i64 {extent}")
    first = _identity_text(combination, width)
    if TABLE[combination.name].idempotent:
        # lanes that are skipped count as ``number``
        seed = constant(combination.inner, number, width)
        if seed != first:
            skipped = writer.emit(f"icmp ult i64 {stop}, {extent}")
            type_ = vector_type(combination.inner, width)
            first = writer.emit(f"select i1 {skipped}, {type_} {seed}, {type_} {first}")
    return stop, [first]


def _across_rows(
    plan: NestPlan, tiles: Sequence[Value], axis: int, combination: Combination, output: _Output
) -> None:
    """Reduce along an outer axis, each lane on its own.

    A few strips are reduced side by side, and the reduced axis is the innermost loop.
    """
    context, writer = plan.context, plan.context.writer
    complete_partial(plan, frozenset())
    extent, lane_extent, width = plan.shape[axis], plan.shape[plan.lane], plan.width
    strips = lane_extent // width
    together = min(4 if plan.cost <= 40 else 2, strips)

    def columns(indices: Sequence[Index], lanes: int) -> None:
        types = [vector_type(element, lanes) for element in combination.types]

        def elements(index: Index) -> list[str]:
            context.nest_index = index
            texts = combination.enter(
                [as_vector(context, value, index, lanes) for value in tiles], lanes
            )
            for value in filled:
                evaluate(context, value, index)
            return texts

        start, carried = 0, []
        for index in indices:
            if isinstance(combination, Known):
                carried.append([_identity_text(combination, lanes)])
            else:
                carried.append(elements(with_coordinate(index, axis, ZERO)))
                start = 1
        flat = [pair for group in carried for pair in zip(types, group, strict=True)]
        count = len(types)
        with context.loop(str(start), str(extent), 1, flat, nonempty=extent > start) as (
            loop,
            coordinate,
        ):
            following: list[str] = []
            for number, index in enumerate(indices):
                mine = loop.values[number * count : (number + 1) * count]
                following.extend(
                    combination.combine(
                        mine, elements(with_coordinate(index, axis, coordinate)), lanes
                    )
                )
            loop.next_values = following
        for number, index in enumerate(indices):
            results = loop.results[number * count : (number + 1) * count]
            if isinstance(combination, Known):
                results = [
                    emit_cast(context, results[0], combination.inner, combination.element, lanes)
                ]
            output.store(index, results)

    def at(row: Index, base: str, depth: int, lanes: int) -> Index:
        return with_coordinate(row, plan.lane, Coordinate(base, depth, lanes))

    with context.nest():
        filled = begin_fill(plan)
        for row in plan.rows(skip=axis):
            step = together * width
            whole = lane_extent // step * step
            if whole > step:
                with context.loop("0", str(whole), step, nonempty=True) as (_, coordinate):
                    bases = [
                        coordinate.base,
                        *(
                            writer.emit(f"add nuw nsw i64 {coordinate.base}, {copy * width}")
                            for copy in range(1, together)
                        ),
                    ]
                    columns([at(row, base, coordinate.depth, width) for base in bases], width)
            else:
                columns([at(row, str(copy * width), 0, width) for copy in range(together)], width)
            position, piece = whole, width
            while position < lane_extent:
                while position + piece > lane_extent:
                    piece //= 2
                columns([at(row, str(position), 0, piece)], piece)
                position += piece
        end_fill(context, filled)


def _by_elements(
    context: Context, operation: Reduce, tiles: Sequence[Value], axis: int, combination: Combination
) -> None:
    """A combine region with control flow or memory accesses: one element after the other."""
    buffers = [context.materialize(value) for value in tiles]
    writer = context.writer
    type_ = tiles[0].type
    assert isinstance(type_, TileType)
    output = _Output(context, operation, type_, axis)
    outer = [number for number in range(type_.rank) if number != axis]
    index: list[str | int] = [0] * type_.rank
    loops = []
    for number in outer:
        loop = writer.begin_loop("0", str(type_.shape[number]), 1, nonempty=True)
        index[number] = loop.index
        loops.append(loop)

    def elements() -> list[str]:
        return [context.load_element(buffer, index) for buffer in buffers]

    index[axis] = 0
    values = elements()
    if type_.shape[axis] > 1:
        carried = [
            (register_type(element), value)
            for element, value in zip(combination.types, values, strict=True)
        ]
        loop = writer.begin_loop("1", str(type_.shape[axis]), 1, carried, nonempty=True)
        index[axis] = loop.index
        values = writer.end_loop(loop, combination.combine(loop.values, elements(), 0))
    if output.shape:
        own = [coordinate for number, coordinate in enumerate(index) if number != axis]
        for buffer, value in zip(output.buffers, values, strict=True):
            context.store_element(buffer, own, value)
    else:
        output.scalars = values
    for loop in reversed(loops):
        writer.end_loop(loop)
    output.bind()


LOWERINGS = {"reduce": lower_reduce}
