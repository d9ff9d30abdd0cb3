"""Split back-to-back matmuls by rows, where each warpgroup holds two MMAs' rows of every result.

An asynchronous MMA (``wgmma``) computes 64 rows per warpgroup. In a loop over a chain such as
attention's, ``s = q @ k; p = f(s); o = p @ v + g(s) * o``, with tiles of 128 rows, no part of ``f``
can start before both MMAs of ``s`` have completed. Split into two chains of 64 rows, which share K
and V, the first chain's ``f`` overlaps with the second chain's matmul:

    for each iteration:
        s0 = q0 @ k; s1 = q1 @ k
        p0 = f(s0); o0 = p0 @ v + g(s0) * o0
        p1 = f(s1); o1 = p1 @ v + g(s1) * o1

The pass follows the rows of a tile through the loop's body along one axis. It leaves a loop alone
in which an operation mixes rows. It recomputes or splits tiles defined before the loop, and joins
the loop's results. In the layouts of MMAs neither a split nor a join takes an instruction.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.ir.builder import Builder
from tilewright.ir.core import Module, Operation, Region, Value
from tilewright.ir.ops.arithmetic import Arange
from tilewright.ir.ops.control import LOOPS, For, Reduce
from tilewright.ir.ops.linear import Dot
from tilewright.ir.ops.memory import DescriptorLoad, Load
from tilewright.ir.ops.shape import Broadcast, ExpandDims, Permute, Splat
from tilewright.ir.types import TileType, Type, shape_of
from tilewright.passes.clone import clone_operation
from tilewright.passes.effects import clobbers_memory
from tilewright.simt.analysis.pipelined_loops import stages_of
from tilewright.simt.dialect.attributes import function_of
from tilewright.simt.layouts.linear_layout import axis_shifts
from tilewright.simt.passes.warp_count import warps_asked
from tilewright.simt.target.matmul_plan import matmul_of
from tilewright.simt.target.plan_selection import plans
from tilewright.simt.target.simt_target import SimtTarget


class _MixedRowsError(Exception):
    """An operation of a loop computes a value from several rows."""


def split_rows(module: Module, target: SimtTarget, options: Mapping[str, Any]) -> None:
    """Split the back-to-back matmuls of a kernel whose results are two asynchronous MMAs a warp."""
    (function,) = module.functions.values()
    halves: dict[Value, tuple[Value, Value]] = {}
    for loop in [operation for operation in function.walk() if isinstance(operation, For)]:
        extent = _rows(loop, target, options)
        if extent:
            try:
                rows = _Rows(loop, extent)
            except _MixedRowsError:
                continue
            _RowSplitter(rows, halves).run()


def _rows(loop: For, target: SimtTarget, options: Mapping[str, Any]) -> int:
    """Return the number of rows of a loop's back-to-back asynchronous matmuls, if it can be split.

    All matmuls must have as many rows, and each warp must hold rows of both halves; 0 for other
    loops.
    """
    body = loop.body
    dots = [operation for operation in body if isinstance(operation, Dot)]
    if (
        stages_of(loop, options) < 2
        or len(dots) < 2
        or any(isinstance(inner, LOOPS) for inner in body.walk())
    ):
        return 0
    # loops with TMA loads are warp-specialized instead, and the consumers' iterations are split
    # into halves there
    if any(
        clobbers_memory(operation) or isinstance(operation, DescriptorLoad) for operation in body
    ):
        return 0
    if not any(_reads(dot, set(dots)) for dot in dots):
        return 0
    extents = {_extent(dot, warps_asked(function_of(loop), options), target) for dot in dots}
    return extents.pop() if len(extents) == 1 else 0


def _extent(dot: Dot, warps: int, target: SimtTarget) -> int:
    plan, c = plans(matmul_of(dot, warps), target)[0], dot.c.type
    assert isinstance(c, TileType)
    rows = c.shape[0]
    if c.rank != 2 or not plan.asynchronous or plan.accumulator is not None:
        return 0
    half = rows // 2 << axis_shifts(c.shape)[0]
    return rows if half in plan.c.registers else 0


def _reads(dot: Dot, dots: set[Dot]) -> bool:
    """Return whether an operand of a matmul depends on another matmul of the same iteration."""
    work, seen = [dot.a, dot.b], set[Operation]()
    while work:
        operation = work.pop().definition
        if operation is None or operation in seen or operation.parent is not dot.parent:
            continue
        if operation in dots:
            return True
        seen.add(operation)
        work += _inputs(operation)
    return False


def _inputs(operation: Operation) -> list[Value]:
    return [operand for inner in operation.walk() for operand in inner.operands]


class _Rows:
    """Values of a loop that have rows, and the axis of the rows in each.

    Attributes:
        loop: the loop.
        extent: the number of rows.
        axes: value -> axis of its rows, for values in the loop and values defined before it.
    """

    def __init__(self, loop: For, extent: int) -> None:
        self.loop, self.extent = loop, extent
        self.body = loop.body
        self.axes: dict[Value, int] = {}
        self._work: list[Value] = []
        for operation in self.body:
            if isinstance(operation, Dot):
                self._add(operation.result, 0)
        while self._work:
            self._follow(self._work.pop())

    def is_inside(self, value: Value) -> bool:
        """Return whether a value is defined in the loop's body."""
        return value.owner is self.body or (
            value.definition is not None and value.definition.parent is self.body
        )

    def _add(self, value: Value, axis: int) -> None:
        if (
            not isinstance(value.type, TileType)
            or value.type.shape[axis] != self.extent
            or self.axes.setdefault(value, axis) != axis
        ):
            raise _MixedRowsError
        if value not in self._work:
            self._work.append(value)

    def _follow(self, value: Value) -> None:
        axis = self.axes[value]
        if value.owner is self.body:
            self._carried(value.index - 1, axis)
        elif self.is_inside(value):
            operation = value.definition
            assert operation is not None
            for operand, there in self.operands(operation, axis):
                self._need(operand, there)
        if self.is_inside(value):
            for user in value.uses:
                self._used(user, value, axis)

    def _need(self, value: Value, axis: int) -> None:
        if value not in self.axes:
            self._add(value, axis)
        elif self.axes[value] != axis:
            raise _MixedRowsError

    def _carried(self, number: int, axis: int) -> None:
        last = self.body.terminator
        assert last is not None
        for value in (
            self.body.arguments[1 + number],
            last.operands[number],
            self.loop.inits[number],
        ):
            self._need(value, axis)

    def _used(self, user: Operation, value: Value, axis: int) -> None:
        if user is self.body.terminator:
            for number, operand in enumerate(user.operands):
                if operand is value:
                    self._carried(number, axis)
            return
        if user.parent is not self.body or len(user.results) != 1:
            raise _MixedRowsError
        there = _result_axis(user, value, axis)
        self._need(user.results[0], there)

    def operands(self, operation: Operation, axis: int) -> list[tuple[Value, int]]:
        """Return the operands that share the rows of an operation's result, with their row axis."""
        if isinstance(operation, Dot):
            return [(operation.a, 0), (operation.c, 0)]
        if isinstance(operation, ExpandDims):
            return [(operation.x, axis - (axis > operation.axis))]
        if isinstance(operation, Permute):
            return [(operation.x, operation.order[axis])]
        if isinstance(operation, Reduce):
            return [(operand, axis + (axis >= operation.axis)) for operand in operation.inputs]
        if isinstance(operation, Broadcast):
            assert isinstance(operation.x.type, TileType)
            return [(operation.x, axis)] if operation.x.type.shape[axis] == self.extent else []
        if operation.spec.elementwise or isinstance(operation, Load):
            return [
                (operand, axis)
                for operand in operation.operands
                if isinstance(operand.type, TileType)
            ]
        if isinstance(operation, Splat | Arange):
            return []
        raise _MixedRowsError


def _result_axis(operation: Operation, operand: Value, axis: int) -> int:
    """Return the axis of an operation's result that corresponds to the row axis of an operand."""
    if isinstance(operation, Dot):
        if axis != 0 or operand is operation.b:
            raise _MixedRowsError
        return 0
    if isinstance(operation, ExpandDims):
        return axis + (axis >= operation.axis)
    if isinstance(operation, Permute):
        return operation.order.index(axis)
    if isinstance(operation, Reduce):
        if axis == operation.axis:
            raise _MixedRowsError
        return axis - (axis > operation.axis)
    if operation.spec.elementwise or isinstance(operation, Broadcast | Load):
        return axis
    raise _MixedRowsError


class _RowSplitter:
    """Rewriter that clones a loop with two values for each value that has rows.

    Attributes:
        halves: known halves of tiles: of tiles defined before the loop, and of results of loops
            rewritten before.
    """

    def __init__(self, rows: _Rows, halves: dict[Value, tuple[Value, Value]]) -> None:
        self.rows, self.halves = rows, halves
        self.loop, self.body = rows.loop, rows.body

    def run(self) -> None:
        loop, axes, before = self.loop, self.rows.axes, Builder.at(self.loop)
        last = self.body.terminator
        assert last is not None
        own = [
            value for value in axes if not self.rows.is_inside(value) and value not in loop.inits
        ]
        known: tuple[dict[Value, Value], ...] = ({}, {})
        for value in [*own, *(init for init in loop.inits if init in axes)]:
            for mapping, half in zip(known, self._outside(before, value, axes[value]), strict=True):
                mapping[value] = half
        carried = [number for number, init in enumerate(loop.inits) if init in axes]
        whole = [number for number in range(len(loop.inits)) if number not in carried]

        types = [loop.lower.type, *(loop.inits[number].type for number in whole)]
        types += [mapping[loop.inits[number]].type for mapping in known for number in carried]
        names = [
            self.body.arguments[0].name,
            *(self.body.arguments[1 + number].name for number in whole),
        ]
        names += [self.body.arguments[1 + number].name for _ in known for number in carried]
        region = Region(types, names)
        common = dict(
            zip(
                [self.body.arguments[0], *(self.body.arguments[1 + number] for number in whole)],
                region.arguments,
                strict=False,
            )
        )
        for place, mapping in enumerate(known):
            first = 1 + len(whole) + place * len(carried)
            mapping.update(
                zip(
                    (self.body.arguments[1 + number] for number in carried),
                    region.arguments[first:],
                    strict=False,
                )
            )
            mapping.update(common)
        self._write(Builder(region, None, loop.location), common, known)
        values = [common.get(last.operands[number], last.operands[number]) for number in whole]
        values += [mapping[last.operands[number]] for mapping in known for number in carried]
        region.append(Operation(last.spec, values, (len(values),), {}, [], location=last.location))

        inits = [loop.inits[number] for number in whole]
        inits += [mapping[loop.inits[number]] for mapping in known for number in carried]
        made = Operation(
            loop.spec,
            [loop.lower, loop.upper, loop.step, *inits],
            (1, 1, 1, len(inits)),
            loop.attributes,
            [value.type for value in inits],
            [region],
            loop.location,
        )
        before.insert(made)
        for place, number in enumerate(whole):
            made.results[place].name = loop.results[number].name
            loop.results[number].replace_all_uses(made.results[place])
        for place, number in enumerate(carried):
            result, first = loop.results[number], len(whole) + place
            pair = made.results[first], made.results[first + len(carried)]
            joined = _join(before, *pair, axes[loop.inits[number]], result.type)
            joined.name = result.name
            self.halves[joined] = pair
            result.replace_all_uses(joined)
        loop.erase()

    def _write(
        self, builder: Builder, common: dict[Value, Value], known: tuple[dict[Value, Value], ...]
    ) -> None:
        """Write the body of the new loop.

        It begins with the operations without rows. Operations that depend on no matmul, and the
        matmuls that these feed, follow for both halves; then come the remaining operations, half by
        half.
        """
        late, split = set[Operation](), list[Operation]()
        for operation in self.body:
            if operation is self.body.terminator:
                continue
            if operation.results and operation.results[0] in self.rows.axes:
                split.append(operation)
            else:
                builder.insert(clone_operation(operation, common))
        for mapping in known:
            mapping.update(common)
        for operation in split:
            if any(
                isinstance(one, Dot) or one in late
                for one in (value.definition for value in _inputs(operation))
                if one is not None and one in split
            ):
                late.add(operation)
        for operation in split:
            if operation not in late:
                for half, mapping in enumerate(known):
                    self._half(builder, operation, mapping, half)
        for half, mapping in enumerate(known):
            for operation in split:
                if operation in late:
                    self._half(builder, operation, mapping, half)

    def _half(
        self, builder: Builder, operation: Operation, mapping: dict[Value, Value], half: int
    ) -> None:
        copy = clone_operation(operation, mapping)
        _narrow(copy, self.rows.axes[operation.results[0]], half)
        builder.insert(copy)

    def _outside(self, builder: Builder, value: Value, axis: int) -> tuple[Value, Value]:
        """Return the halves of a tile defined before the loop.

        Index arithmetic and constants are recomputed for each half; any other tile is split.
        """
        if value not in self.halves:
            operation = value.definition
            if operation is not None and _is_index(operation):
                parts: list[dict[Value, Value]] = [{}, {}]
                for operand, there in self.rows.operands(operation, axis):
                    for part, half in zip(
                        parts, self._outside(builder, operand, there), strict=True
                    ):
                        part[operand] = half
                for number, part in enumerate(parts):
                    copy = clone_operation(operation, part)
                    _narrow(copy, axis, number)
                    builder.insert(copy)
                self.halves[value] = parts[0][value], parts[1][value]
            else:
                self.halves[value] = _split(builder, value, axis)
        return self.halves[value]


def _is_index(operation: Operation) -> bool:
    """Return whether an operation is cheap to recompute for each half."""
    return (
        isinstance(operation, Arange | Splat | ExpandDims | Broadcast) or operation.spec.elementwise
    )


def _narrow(operation: Operation, axis: int, half: int) -> None:
    """Restrict a cloned operation to one half of its rows."""
    (result,) = operation.results
    assert isinstance(result.type, TileType)
    extent = result.type.shape[axis] // 2
    result.type = _of_rows(result.type, axis, extent)
    if isinstance(operation, Arange):
        start = operation.start + half * extent
        operation.attributes = {**operation.attributes, "start": start, "end": start + extent}


def _of_rows(type_: TileType, axis: int, extent: int) -> TileType:
    return TileType((*type_.shape[:axis], extent, *type_.shape[axis + 1 :]), type_.element)


def _split(builder: Builder, value: Value, axis: int) -> tuple[Value, Value]:
    """Split a tile along an axis into its first and second half."""
    type_ = value.type
    assert isinstance(type_, TileType)
    half = type_.shape[axis] // 2
    apart = builder.reshape(
        value,
        result=TileType((*type_.shape[:axis], 2, half, *type_.shape[axis + 1 :]), type_.element),
    )
    order = [number for number in range(type_.rank + 1) if number != axis]
    first, second = builder.split(builder.permute(apart, order=(*order, axis)))
    return first, second


def _join(builder: Builder, first: Value, second: Value, axis: int, type_: Type) -> Value:
    """Join two halves along an axis."""
    joined = builder.join(first, second)
    last = len(shape_of(type_))
    order = [*range(axis), last, *range(axis, last)]
    whole: Value = builder.reshape(builder.permute(joined, order=tuple(order)), result=type_)
    return whole
