"""Range checks of tiles: whether sums, differences and products of them fit their types.

The minimum and maximum of the operands' elements bound those of the result, in a few scalars: where
these fit, every element does. Where they do not, nothing is known, and the elements have to be
looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from tilewright.ir.core import Value
from tilewright.ir.ops.arithmetic import Binary, Cast
from tilewright.ir.ops.shape import Splat
from tilewright.ir.types import I1, I64, IntType, element_type
from tilewright.llvm.emission.casts import emit_cast
from tilewright.llvm.emission.registers import constant, vector_type
from tilewright.passes.rewriter import constant_of
from tilewright_cpu.codegen.analysis.tiles import is_tile
from tilewright_cpu.codegen.context import Context, Index
from tilewright_cpu.codegen.loops.evaluate import as_vector
from tilewright_cpu.codegen.loops.lane_reduce import LaneReduction, reduce_lanes
from tilewright_cpu.codegen.loops.loop_nest import NestPlan

#: Instructions that look at a vector of a result, and at one of a tile for its range.
_EXACT: Final = {"add": 4, "sub": 4, "mul": 12}
_EXACT_WITH_NUMBER: Final = 2
_RANGE: Final = 2
#: Instructions that find the range of a tile from its lanes', and that of a result.
_ACROSS: Final = 24
_RESULT: Final = 8
#: How many times dearer looking at the results must be: it is done after all where ranges do not
#: tell.
_COST_RATIO: Final = 3


@dataclass(frozen=True)
class Arithmetic:
    """A sum, difference or product ``name`` of tiles, scalars and numbers that a type must hold."""

    name: str
    element: IntType
    terms: tuple[Value | int, Value | int]


class _Range(NamedTuple):
    """The minimum and the maximum of a tile's elements, i64."""

    minimum: str
    maximum: str


def tiles_to_range(context: Context, numel: int, asked: Sequence[Arithmetic]) -> list[Value]:
    """Tiles whose ranges say whether all results fit, of ``numel`` elements each.

    There are none where looking at the results costs less.
    """
    if not asked:
        return []
    found: dict[Value, None] = {}
    cost = 0
    stack: list[Value | int] = []
    for arithmetic in asked:
        cost += (
            _EXACT_WITH_NUMBER
            if any(isinstance(term, int) for term in arithmetic.terms)
            else _EXACT[arithmetic.name]
        )
        stack.extend(arithmetic.terms)
    seen: set[Value] = set()
    while stack:
        term = stack.pop()
        if isinstance(term, int) or not is_tile(term) or constant_of(term) is not None:
            continue
        value = context.resolve(term)
        if value in seen:
            continue
        seen.add(value)
        parts = _parts(context, value)
        if parts is None:
            found[value] = None
        else:
            stack.extend(parts.operands)
    vectors = -(-numel // max(context.elements_for(arithmetic.element) for arithmetic in asked))
    ranges = (_RANGE * vectors + _ACROSS) * len(found) + _RESULT * len(asked)
    return list(found) if cost * vectors > _COST_RATIO * ranges else []


def emit_fits(
    context: Context, shape: tuple[int, ...], asked: Sequence[Arithmetic], tiles: Sequence[Value]
) -> tuple[NestPlan, str]:
    """Loops over tiles of a shape for their ranges: their loop nest, and an i1.

    The i1 holds only if all results fit.
    """
    w = context.writer
    elements = [_integer(tile) for tile in tiles]
    names = [("smin", "smax") if element.signed else ("umin", "umax") for element in elements]
    terms = [
        term
        for arithmetic in asked
        for term in arithmetic.terms
        if isinstance(term, Value) and is_tile(term)
    ]

    def carried(width: int) -> list[tuple[str, str]]:
        ends = [
            (element, end)
            for element in elements
            for end in (_pattern(element, element.maximum), element.minimum)
        ]
        return [
            (vector_type(element, width), constant(element, end, width)) for element, end in ends
        ]

    def add(index: Index, gathered: Sequence[str], width: int) -> list[str]:
        found = []
        for number, tile in enumerate(tiles):
            type_, text = (
                vector_type(elements[number], width),
                as_vector(context, tile, index, width),
            )
            for name, earlier in zip(names[number], gathered[2 * number :], strict=False):
                found.append(w.intrinsic(f"llvm.{name}", type_, [(type_, earlier), (type_, text)]))
        return found

    def finish(gathered: Sequence[str], width: int) -> list[str]:
        found = []
        for position, text in enumerate(gathered):
            element, name = elements[position // 2], names[position // 2][position % 2]
            if width:
                type_ = vector_type(element, width)
                text = w.intrinsic(
                    f"llvm.vector.reduce.{name}", vector_type(element, 0), [(type_, text)], [type_]
                )
            found.append(emit_cast(context, text, element, I64, 0))
        return found

    numbers = [
        number
        for element in elements
        for number in (
            LaneReduction("i64", str(element.maximum), _minimum),
            LaneReduction("i64", str(element.minimum), _maximum),
        )
    ]
    plan, found = reduce_lanes(context, shape, [*terms, *tiles], carried, add, finish, numbers)
    known = {
        tile: _Range(found[2 * number], found[2 * number + 1]) for number, tile in enumerate(tiles)
    }
    ranges = _Ranges(context, known)
    for arithmetic in asked:
        ranges.of_result(arithmetic.name, arithmetic.element, arithmetic.terms)
    return plan, ranges.fits


def _integer(value: Value) -> IntType:
    element = element_type(value.type)
    assert isinstance(element, IntType)
    return element


def _pattern(element: IntType, number: int) -> int:
    """A number of a type as the one of the same bits that has a sign."""
    return number - (1 << element.bits) if number >> (element.bits - 1) else number


def _parts(context: Context, value: Value) -> Splat | Cast | Binary | None:
    """The operation from whose operands' ranges a tile's range follows.

    It is None where the tile's elements have to be looked at.
    """
    operation = value.definition
    if operation is None or value in context.buffers or context.analysis.is_deep(value):
        return None
    element = element_type(value.type)
    if isinstance(operation, Splat):
        return operation if operation.x in context.scalars else None
    if not isinstance(element, IntType) or element is I1:
        return None
    if isinstance(operation, Binary) and operation.name in _EXACT:
        return operation if element.bits <= 32 else None
    if isinstance(operation, Cast):
        source = element_type(operation.x.type)
        widens = (
            isinstance(source, IntType)
            and source is not I1
            and source.bits < element.bits <= 32
            and (element.signed or not source.signed)
        )
        return operation if widens else None
    return None


class _Ranges:
    """Ranges of results that are computed from tiles whose ranges are known.

    ``fits`` is an i1: whether all results on the way fit their types.
    """

    def __init__(self, context: Context, known: dict[Value, _Range]) -> None:
        self.context, self.known, self.fits = context, known, "true"

    def of(self, term: Value | int) -> _Range:
        number = term if isinstance(term, int) else constant_of(term)
        if number is not None:
            return _Range(str(int(number)), str(int(number)))
        assert isinstance(term, Value)
        if not is_tile(term):
            text = emit_cast(self.context, self.context.scalar(term), _integer(term), I64, 0)
            return _Range(text, text)
        value = self.context.resolve(term)
        found = self.known.get(value)
        if found is None:
            operation = _parts(self.context, value)
            assert operation is not None
            if isinstance(operation, Binary):
                found = self.of_result(operation.name, _integer(value), (operation.a, operation.b))
            else:
                found = self.of(operation.x)
            self.known[value] = found
        return found

    def of_result(
        self, name: str, element: IntType, terms: tuple[Value | int, Value | int]
    ) -> _Range:
        """The range of a result; what it is worth is in :attr:`fits`."""
        w, context = self.context.writer, self.context
        a, b = (self.of(term) for term in terms)
        unsigned = name == "mul" and not element.signed
        if name == "add":
            found = _Range(
                w.emit(f"add i64 {a.minimum}, {b.minimum}"),
                w.emit(f"add i64 {a.maximum}, {b.maximum}"),
            )
        elif name == "sub":
            found = _Range(
                w.emit(f"sub i64 {a.minimum}, {b.maximum}"),
                w.emit(f"sub i64 {a.maximum}, {b.minimum}"),
            )
        elif unsigned:
            found = _Range(
                w.emit(f"mul i64 {a.minimum}, {b.minimum}"),
                w.emit(f"mul i64 {a.maximum}, {b.maximum}"),
            )
        else:
            one, two, three, four = (w.emit(f"mul i64 {x}, {y}") for x in a for y in b)
            minimum, maximum = (
                [merge(context, one, two), merge(context, three, four)]
                for merge in (_minimum, _maximum)
            )
            found = _Range(_minimum(context, *minimum), _maximum(context, *maximum))
        # products of 32 bits without a sign need all of 64
        conditions = [f"icmp {'ule' if unsigned else 'sle'} i64 {found.maximum}, {element.maximum}"]
        if not unsigned:
            conditions.append(f"icmp sge i64 {found.minimum}, {element.minimum}")
        for condition in conditions:
            self.fits = w.emit(f"and i1 {self.fits}, {w.emit(condition)}")
        return found


def _minimum(context: Context, a: str, b: str) -> str:
    return context.writer.intrinsic("llvm.smin", "i64", [("i64", a), ("i64", b)])


def _maximum(context: Context, a: str, b: str) -> str:
    return context.writer.intrinsic("llvm.smax", "i64", [("i64", a), ("i64", b)])
