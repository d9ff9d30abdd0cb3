"""What a row of the catalogue is, and what rows are written with."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Operation, Region, Value
from tilewright.ir.expressions import Number
from tilewright.ir.ops import TABLE
from tilewright.ir.ops.arithmetic import Constant
from tilewright.ir.ops.control import Return, Yield
from tilewright.ir.types import I32, FloatType, IntType, PointerType, TileType, Type, bit_width, element_type, tile_or_scalar, with_element
from tilewright.passes.clone import clone_operation
from tilewright.passes.math.math_expressions import Scope
from tilewright.passes.rewriter import Rewriter


@dataclass(frozen=True, slots=True)
class Decomposition:
    """How an operation is replaced by others.

    Attributes:
        operation: its name.
        law: what it becomes, in a line.
        into: the operations that may be left where it was, each of which may have a row of its own.
        apply: gives values for the operation's results, :data:`~tilewright.passes.rewriter.DONE`,
            or None where this operation has to stay.
    """

    operation: str
    law: str
    into: tuple[str, ...]
    apply: Callable[[Any, Rewriter], Any]  # the operation is of the class of that name


#: Writes a scalar function: the operands, and the operation's attributes.
ScalarLaw = Callable[..., Number | None]


def scalar(operation: str, law: str, into: tuple[str, ...], write: ScalarLaw) -> Decomposition:
    """A row for an elementwise operation, whose law is written for one element: ``write(*operands,
    **attributes)``; None where it has to stay."""
    spec = TABLE[operation]

    @functools.cache
    def function(types: tuple[Type, ...], result: Type, attributes: tuple[tuple[str, Any], ...]) -> Function | None:
        scope = Scope(operation, types, result)
        found = write(*scope.arguments, **dict(attributes))
        return None if found is None else scope.finish(found)

    def apply(found: Operation, rewriter: Rewriter) -> Any:
        types = tuple(element_type(operand.type) for operand in found.operands)
        attributes = tuple((declared.name, found.attribute(declared.name)) for declared in spec.attributes)
        body = function(types, element_type(found.result.type), attributes)
        return None if body is None else lifted(rewriter, body.body, found.operands, found.result.type)

    return Decomposition(operation, law, into, apply)


def lifted(b: Builder, region: Region, arguments: Sequence[Value], like: Type) -> list[Value] | None:
    """What a region of elementwise operations on scalars yields, computed over the shape of
    ``like``; None where it has other operations."""
    if not all(operation.spec.elementwise or operation.spec.terminator or isinstance(operation, Constant) for operation in region):
        return None
    values: dict[Value, Value] = dict(zip(region.arguments, arguments, strict=True))

    def value_of(source: Value) -> Value:
        found = values.get(source)
        if found is None:  # from outside of the region
            found = values[source] = _spread(b, source, like)
        return found

    for operation in region:
        if isinstance(operation, Yield | Return):
            return [value_of(source) for source in operation.values]
        if isinstance(operation, Constant):
            made = b.insert(clone_operation(operation, {}))
            values[operation.result] = _spread(b, made.result, like)
            continue
        types = [with_element(like, result.type) for result in operation.results]
        operands = [value_of(source) for source in operation.operands]
        made = b.insert(Operation(operation.spec, operands, operation.segments, operation.attributes, types, (), b.location))
        values.update(zip(operation.results, made.results, strict=True))
    raise AssertionError("a region ends with a terminator")


def _spread(b: Builder, value: Value, like: Type) -> Value:
    if not isinstance(like, TileType):
        return value
    spread: Value = b.splat(value, result=with_element(like, value.type))
    return spread


def called(rewriter: Rewriter, region: Region, arguments: Sequence[Value]) -> list[Value]:
    """What a region yields for ``arguments``: scalars, or tiles of one shape, for each element of
    which it is run."""
    terminator = region.terminator
    assert isinstance(terminator, Yield)
    found = lifted(rewriter, region, arguments, arguments[0].type)
    if found is not None:
        return found
    copied, mapping = Region([value.type for value in region.arguments]), dict(zip(region.arguments, arguments, strict=True))
    if isinstance(arguments[0].type, TileType):  # control flow, which is each element's own
        mapping = dict(zip(region.arguments, copied.arguments, strict=True))
        for operation in region:
            copied.append(clone_operation(operation, mapping))
        results = [with_element(arguments[0].type, value.type) for value in terminator.values]
        return rewriter.region_op("map", list(arguments), regions=[copied], results=results, pack=1).results
    for operation in region:
        if not operation.spec.terminator:
            insert_all(rewriter, clone_operation(operation, mapping))
    return [mapping.get(value, value) for value in terminator.values]


def insert_all(rewriter: Rewriter, operation: Operation) -> None:
    """Insert an operation, and have the rewriter look at all that its regions hold."""
    rewriter.insert(operation)
    for inner in operation.walk():
        rewriter.revisit(inner)


def encoded(b: Builder, value: Value) -> Value:
    """The bits of a value that is no integer, as unsigned integers; an integer itself."""
    element = element_type(value.type)
    if isinstance(element, IntType):
        return value
    bits: Value = b.bitcast(value, result=with_element(value.type, IntType(bit_width(element), signed=False)))
    return bits


def decoded(b: Builder, bits: Value, element: Type) -> Value:
    """What :func:`encoded` was made of."""
    if element_type(bits.type) is element:
        return bits
    value: Value = b.bitcast(bits, result=with_element(bits.type, element))
    return value


def positions(b: Builder, type_: TileType, axis: int) -> Value:
    """The position of each element of a tile along an axis, as i32."""
    extent = type_.shape[axis]
    line = b.arange(start=0, end=extent)
    thin = b.reshape(line, result=TileType(tuple(extent if own == axis else 1 for own in range(type_.rank)), I32))
    found: Value = b.broadcast(thin, result=with_element(type_, I32))
    return found


def is_at(b: Builder, type_: TileType, axis: int, position: Value) -> Value:
    """Which elements of a tile are at a position along an axis; ``position`` is an i32."""
    found: Value = b.cmp(positions(b, type_, axis), b.splat(position, result=with_element(type_, I32)), predicate="eq")
    return found


def pick(b: Builder, tile: Value, axis: int, position: Value) -> Value:
    """The elements of a tile at a position along an axis, without that axis: all others are masked
    to no bits, and the bits are joined by ``or``."""
    type_ = tile.type
    assert isinstance(type_, TileType)
    bits = encoded(b, tile)
    kept = b.select(is_at(b, type_, axis, position), bits, b.constant_like(bits.type, 0))
    element = element_type(bits.type)
    combine = Region([element, element], ["a", "b"])
    with b.at_region(combine):
        b.yield_([b.or_(*combine.arguments)])
    (found,) = b.region_op("reduce", [kept], regions=[combine], axis=axis).results
    return decoded(b, found, type_.element)


def spread(b: Builder, part: Value, type_: TileType, axis: int) -> Value:
    """What lacks an axis of a tile's shape, repeated along that axis."""
    element = element_type(part.type)
    if not isinstance(part.type, TileType):
        found: Value = b.splat(part, result=with_element(type_, element))
        return found
    thin = b.reshape(part, result=TileType((*type_.shape[:axis], 1, *type_.shape[axis + 1 :]), element))
    found = b.broadcast(thin, result=with_element(type_, element))
    return found


def without_axis(type_: TileType, axis: int) -> Type:
    return tile_or_scalar(type_.shape[:axis] + type_.shape[axis + 1 :], type_.element)


def zero(b: Builder, type_: Type) -> Value:
    """Zero, or the null pointer, of a type."""
    assert isinstance(element_type(type_), IntType | FloatType | PointerType)
    return b.constant_like(type_, 0)


def loop(b: Builder, count: int, carried: Sequence[Value], body: Callable[[Value, Sequence[Value]], Sequence[Value]], start: int = 0) -> list[Value]:
    """``for i in start .. count-1`` around what ``body(i, carried)`` writes; gives the values
    carried last."""
    bounds = [b.constant(value=value, result=I32) for value in (start, count, 1)]
    region = Region([I32, *(value.type for value in carried)])
    with b.at_region(region):
        b.yield_(list(body(region.arguments[0], region.arguments[1:])))
    return b.region_op("for", *bounds, list(carried), regions=[region]).results
