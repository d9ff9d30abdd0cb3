"""Loops of matmuls whose operands are long along the axis that is summed over, in shorter steps.

In a matmul's adjoint an extent of the forward kernel's result is summed over. The blocks of a
result are larger than its steps along K: with 128 by 128 elements an iteration loads 64 KiB, of
which few fit the memory where copies are in flight. An iteration may take a part of them::

    for i in range(n):          acc = dot(a(i)[:, 0:128], b(i)[0:128, :], acc)

    for j in range(2 * n):      i, h = j // 2, j % 2 * 64
                                acc = dot(a(i)[:, h:h + 64], b(i)[h:h + 64, :], acc)
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

from tilewright.ir.builder import Builder
from tilewright.ir.core import Module, Operation, Region, Value
from tilewright.ir.ops.arithmetic import Arange
from tilewright.ir.ops.control import For
from tilewright.ir.ops.linear import Dot
from tilewright.ir.ops.memory import Load
from tilewright.ir.ops.shape import Broadcast, ExpandDims, Permute, Splat
from tilewright.ir.table import Effect
from tilewright.ir.types import I32, TileType, Type, bit_width, element_type, shape_of
from tilewright.passes.rewriter import constant_of

#: Bytes of the operands that an iteration loads, at most, if it may take fewer.
_MOST_BYTES: Final = 32 << 10
#: The fewest elements along the axis that is summed over.
_FEWEST: Final = 32


def shorten_reductions(module: Module) -> bool:
    """Let loops that only accumulate matmuls of what they load take shorter steps.

    Returns:
        whether there was one.
    """
    changed = False
    for operation in list(module.kernel.body):
        if isinstance(operation, For):
            parts = _parts(operation)
            if parts > 1 and _is_followed(operation):
                _Shortened(operation, parts).replace()
                changed = True
    return changed


def _parts(loop: For) -> int:
    """Return the number of parts in which to take each iteration; 1 where it stays."""
    dots = _accumulated(loop)
    extents = {shape_of(dot.a.type)[-1] for dot in dots}
    if len(extents) != 1:
        return 1
    (extent,) = extents
    operands = dict.fromkeys(value for dot in dots for value in (dot.a, dot.b))
    size = sum(_bytes(value.type) for value in operands)
    parts = 1
    while size // parts > _MOST_BYTES and extent % (2 * parts) == 0:
        if extent // (2 * parts) < _FEWEST:
            break
        parts *= 2
    return parts


def _accumulated(loop: For) -> list[Dot]:
    """Return the matmuls that a loop accumulates; none where it does anything else."""
    last = loop.body.last
    index, *carried = loop.body.arguments
    is_counted = constant_of(loop.lower) == 0 and constant_of(loop.step) == 1
    if last is None or not is_counted or index.type is not I32:
        return []
    found = []
    for argument, value in zip(carried, last.operands, strict=True):
        dot = value.definition
        if not isinstance(dot, Dot) or dot.c is not argument or len(shape_of(dot.a.type)) != 2:
            return []
        if argument.uses != {dot: 1} or value.uses != {last: 1} or dot.parent is not loop.body:
            return []
        found.append(dot)
    return found


def _is_followed(loop: For) -> bool:
    """Return whether each operation of a loop's iteration can be made of a part of its lanes."""
    dots = set(_accumulated(loop))
    for operation in loop.body:
        if operation in dots or operation.spec.terminator or isinstance(operation, Load):
            continue
        if operation.regions or operation.spec.effects is not Effect.NONE:
            return False
    reached = _Reach(loop)
    return all(reached.follows(dot.a, 1) and reached.follows(dot.b, 0) for dot in dots)


@dataclass
class _Reach:
    """The tiles from which parts of a loop's operands are computed, and the axes that are cut."""

    loop: For
    known: set[tuple[Value, int]] = field(default_factory=set)

    def follows(self, value: Value, axis: int) -> bool:
        """Return whether a part of a value along an axis can be computed alone."""
        pending = [(value, axis)]
        while pending:
            place = pending.pop()
            if place in self.known:
                continue
            self.known.add(place)
            sources = _sources(self.loop, *place)
            if sources is None:
                return False
            pending += sources
        return True


def _sources(loop: For, value: Value, axis: int) -> list[tuple[Value, int]] | None:
    """Return the tiles, and their axes, whose parts a part of a value is computed from."""
    operation = value.definition
    match operation:
        case None | Dot():
            return None
        case Arange() | Splat():
            return []
        case Load():
            inside = operation.parent is loop.body
            return [(operand, axis) for operand in operation.operands] if inside else None
        case ExpandDims():
            return [(operation.x, axis - (operation.axis < axis))]
        case Broadcast():
            return [] if shape_of(operation.x.type)[axis] == 1 else [(operation.x, axis)]
        case Permute():
            return [(operation.x, operation.order[axis])]
    is_lanewise = operation.spec.elementwise and operation.spec.effects is Effect.NONE
    if not is_lanewise or operation.regions or len(operation.results) != 1:
        return None
    same = all(shape_of(operand.type) == shape_of(value.type) for operand in operation.operands)
    return [(operand, axis) for operand in operation.operands] if same else None


class _Shortened:
    """A loop in shorter steps, while it is made."""

    def __init__(self, loop: For, parts: int) -> None:
        self.loop, self.parts = loop, parts
        self.dots = _accumulated(loop)
        self.width = shape_of(self.dots[0].a.type)[-1] // parts
        self.whole: dict[Value, Value] = {}
        self.part: dict[tuple[Value, int], Value] = {}

    def replace(self) -> None:
        """Replace the loop."""
        loop, b = self.loop, Builder.at(self.loop)
        count = b.constant_like(I32, self.parts)
        bounds = (b.mul(loop.lower, count), b.mul(loop.upper, count), loop.step)
        index, *carried = loop.body.arguments
        types = [I32, *(value.type for value in carried)]
        body = Region(types, [index.name or "step", *(value.name for value in carried)])
        with b.at_region(body):
            self.b = b
            step, *totals = body.arguments
            self.whole[index] = b.div(step, count)
            width = b.constant_like(I32, self.width)
            self.start = b.mul(b.rem(step, count), width)
            for operation in loop.body:
                if operation not in self.dots and not operation.spec.terminator:
                    b.location = operation.location
                    self._copy(operation)
            made = [
                self._accumulated(dot, total) for dot, total in zip(self.dots, totals, strict=True)
            ]
            b.yield_(made)
        b.location = loop.location
        new = b.region_op("for", *bounds, loop.inits, regions=[body], **loop.attributes)
        for old, result in zip(loop.results, new.results, strict=True):
            result.name = old.name
            old.replace_all_uses(result)
        loop.erase()

    def _copy(self, operation: Operation) -> None:
        """Append an operation on whole tiles; what is not read is dropped later."""
        operands = [self.whole.get(operand, operand) for operand in operation.operands]
        types = [result.type for result in operation.results]
        made = self._like(operation, operands, types)
        self.whole.update(zip(operation.results, made.results, strict=True))

    def _accumulated(self, dot: Dot, total: Value) -> Value:
        self.b.location = dot.location
        operands = [self._part_of(dot.a, 1), self._part_of(dot.b, 0), total]
        return self._like(dot, operands, [total.type]).results[0]

    def _part_of(self, value: Value, axis: int) -> Value:
        """Append the part of a tile along an axis that the iteration takes."""
        pending = [(value, axis)]
        while pending:  # operands first, for expressions may be deep
            place = pending[-1]
            sources = _sources(self.loop, *place)
            assert sources is not None
            rest = [source for source in sources if source not in self.part]
            if rest:
                pending += rest
                continue
            pending.pop()
            if place not in self.part:
                self.part[place] = self._made(*place, [self.part[source] for source in sources])
        return self.part[value, axis]

    def _made(self, value: Value, axis: int, operands: list[Value]) -> Value:
        operation, b = value.definition, self.b
        assert operation is not None
        extents = list(shape_of(value.type))
        extents[axis] = self.width
        type_ = TileType(tuple(extents), element_type(value.type))
        if isinstance(operation, Arange):
            lanes = b.arange(start=operation.start, end=operation.start + self.width)
            found: Value = b.add(lanes, b.splat(self.start, result=lanes.type))
            return found
        if not operands:
            operands = [self.whole.get(operand, operand) for operand in operation.operands]
        return self._like(operation, operands, [type_]).results[0]

    def _like(self, operation: Operation, operands: list[Value], types: list[Type]) -> Operation:
        made = Operation(
            operation.spec,
            operands,
            operation.segments,
            operation.attributes,
            types,
            (),
            operation.location,
        )
        for old, new in zip(operation.results, made.results, strict=True):
            new.name = old.name
        return self.b.insert(made)


def _bytes(type_: Type) -> int:
    return math.prod(shape_of(type_)) * bit_width(element_type(type_)) // 8


__all__ = ["shorten_reductions"]
