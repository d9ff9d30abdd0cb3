"""Rows of the catalogue of decompositions, and helpers to write them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Operation, Region, Value
from tilewright.ir.expressions import Number
from tilewright.ir.ops import TABLE
from tilewright.ir.ops.arithmetic import Constant
from tilewright.ir.ops.control import Return, Yield
from tilewright.ir.types import (
    I32,
    FloatType,
    IntType,
    PointerType,
    TileType,
    Type,
    bit_width,
    element_type,
    tile_or_scalar,
    with_element,
)
from tilewright.passes.clone import clone_operation
from tilewright.passes.math.math_expressions import Scope
from tilewright.passes.rewriter import Rewriter


@dataclass(frozen=True, slots=True)
class Decomposition:
    """Replacement of an operation by simpler ones.

    Attributes:
        operation: the name of the operation.
        law: the replacement, in one line.
        into: the operations that may be left in its place, each of which may have a row of its own.
        apply: returns values for the operation's results,
            :data:`~tilewright.passes.rewriter.DONE`, or None if this operation has to stay.
    """

    operation: str
    law: str
    into: tuple[str, ...]
    apply: Callable[[Any, Rewriter], Any]  # the operation is of the class of that name


_Helper = TypeVar("_Helper", bound=Callable[..., Any])
#: Helper -> the operations that it emits.
_EMITTED: dict[Callable[..., Any], tuple[str, ...]] = {}


def emits(*parts: str | Callable[..., Any]) -> Callable[[_Helper], _Helper]:
    """Declare what a helper emits: operations by name, and what other helpers emit."""

    def declare(helper: _Helper) -> _Helper:
        _EMITTED[helper] = emitted(*parts)
        return helper

    return declare


def emitted(*parts: str | Callable[..., Any]) -> tuple[str, ...]:
    """Return the names of operations, in which helpers stand for those that they emit."""
    names = ((part,) if isinstance(part, str) else _EMITTED[part] for part in parts)
    return tuple(dict.fromkeys(name for own in names for name in own))


#: Builds a scalar function from the operands and the operation's attributes.
ScalarLaw = Callable[..., Number | None]


def scalar(operation: str, law: str, into: tuple[str, ...], write: ScalarLaw) -> Decomposition:
    """Return a row for an elementwise operation, whose law is written for one element.

    ``write(*operands, **attributes)`` returns the result, or None if the operation has to stay.
    """
    spec = TABLE[operation]

    @functools.cache
    def function(
        types: tuple[Type, ...], result: Type, attributes: tuple[tuple[str, Any], ...]
    ) -> Function | None:
        scope = Scope(operation, types, result)
        found = write(*scope.arguments, **dict(attributes))
        return None if found is None else scope.finish(found)

    def apply(found: Operation, rewriter: Rewriter) -> Any:
        types = tuple(element_type(operand.type) for operand in found.operands)
        attributes = tuple(
            (declared.name, found.attribute(declared.name)) for declared in spec.attributes
        )
        body = function(types, element_type(found.result.type), attributes)
        return (
            None if body is None else lifted(rewriter, body.body, found.operands, found.result.type)
        )

    return Decomposition(operation, law, into, apply)


@emits("constant", "splat")
def lifted(
    b: Builder, region: Region, arguments: Sequence[Value], like: Type
) -> list[Value] | None:
    """Apply a region of elementwise operations on scalars to tiles of the shape of ``like``.

    It emits the region's operations besides. None if the region has other operations.
    """
    if not all(
        operation.spec.elementwise or operation.spec.terminator or isinstance(operation, Constant)
        for operation in region
    ):
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
        made = b.insert(
            Operation(
                operation.spec,
                operands,
                operation.segments,
                operation.attributes,
                types,
                (),
                b.location,
            )
        )
        values.update(zip(operation.results, made.results, strict=True))
    raise AssertionError("a region ends with a terminator")


def _spread(b: Builder, value: Value, like: Type) -> Value:
    if not isinstance(like, TileType):
        return value
    spread: Value = b.splat(value, result=with_element(like, value.type))
    return spread


@emits(lifted, "map")
def called(rewriter: Rewriter, region: Region, arguments: Sequence[Value]) -> list[Value]:
    """Inline a region on ``arguments``: scalars, or tiles of one shape, for each element."""
    terminator = region.terminator
    assert isinstance(terminator, Yield)
    found = lifted(rewriter, region, arguments, arguments[0].type)
    if found is not None:
        return found
    copied, mapping = (
        Region([value.type for value in region.arguments]),
        dict(zip(region.arguments, arguments, strict=True)),
    )
    if isinstance(arguments[0].type, TileType):  # control flow differs between elements
        mapping = dict(zip(region.arguments, copied.arguments, strict=True))
        for operation in region:
            copied.append(clone_operation(operation, mapping))
        results = [with_element(arguments[0].type, value.type) for value in terminator.values]
        return rewriter.region_op(
            "map", list(arguments), regions=[copied], results=results, pack=1
        ).results
    for operation in region:
        if not operation.spec.terminator:
            insert_all(rewriter, clone_operation(operation, mapping))
    return [mapping.get(value, value) for value in terminator.values]


def insert_all(rewriter: Rewriter, operation: Operation) -> None:
    """Insert an operation, and make the rewriter revisit all operations in its regions."""
    rewriter.insert(operation)
    for inner in operation.walk():
        rewriter.revisit(inner)


@emits("bitcast")
def encoded(b: Builder, value: Value) -> Value:
    """Bitcast a value to unsigned integers; an integer stays as it is."""
    element = element_type(value.type)
    if isinstance(element, IntType):
        return value
    bits: Value = b.bitcast(
        value, result=with_element(value.type, IntType(bit_width(element), signed=False))
    )
    return bits


@emits("bitcast")
def decoded(b: Builder, bits: Value, element: Type) -> Value:
    """Invert :func:`encoded`."""
    if element_type(bits.type) is element:
        return bits
    value: Value = b.bitcast(bits, result=with_element(bits.type, element))
    return value


@emits("arange", "reshape", "broadcast")
def positions(b: Builder, type_: TileType, axis: int) -> Value:
    """Return the position of each element of a tile along an axis, as i32."""
    extent = type_.shape[axis]
    line = b.arange(start=0, end=extent)
    thin = b.reshape(
        line, result=TileType(tuple(extent if own == axis else 1 for own in range(type_.rank)), I32)
    )
    found: Value = b.broadcast(thin, result=with_element(type_, I32))
    return found


@emits(positions, "splat", "cmp")
def is_at(b: Builder, type_: TileType, axis: int, position: Value) -> Value:
    """Return a mask of the elements at a position along an axis; ``position`` is an i32."""
    found: Value = b.cmp(
        positions(b, type_, axis),
        b.splat(position, result=with_element(type_, I32)),
        predicate="eq",
    )
    return found


@emits(encoded, is_at, "constant", "select", "or", "yield", "reduce", decoded)
def pick(b: Builder, tile: Value, axis: int, position: Value) -> Value:
    """Extract the elements at a position along an axis, and drop that axis.

    All other elements are masked to zero bits, and the bits reduced by ``or``.
    """
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


@emits("splat", "reshape", "broadcast")
def spread(b: Builder, part: Value, type_: TileType, axis: int) -> Value:
    """Broadcast a tile that lacks an axis of ``type_`` along that axis."""
    element = element_type(part.type)
    if not isinstance(part.type, TileType):
        found: Value = b.splat(part, result=with_element(type_, element))
        return found
    thin = b.reshape(
        part, result=TileType((*type_.shape[:axis], 1, *type_.shape[axis + 1 :]), element)
    )
    found = b.broadcast(thin, result=with_element(type_, element))
    return found


def without_axis(type_: TileType, axis: int) -> Type:
    return tile_or_scalar(type_.shape[:axis] + type_.shape[axis + 1 :], type_.element)


@emits("constant")
def zero(b: Builder, type_: Type) -> Value:
    """Return the zero, or the null pointer, of a type."""
    assert isinstance(element_type(type_), IntType | FloatType | PointerType)
    return b.constant_like(type_, 0)


@emits("constant", "yield", "for")
def loop(
    b: Builder,
    count: int,
    carried: Sequence[Value],
    body: Callable[[Value, Sequence[Value]], Sequence[Value]],
    start: int = 0,
) -> list[Value]:
    """Build ``for i in start .. count-1`` around the operations of ``body(i, carried)``.

    Return the final loop-carried values.
    """
    bounds = [b.constant(value=value, result=I32) for value in (start, count, 1)]
    region = Region([I32, *(value.type for value in carried)])
    with b.at_region(region):
        b.yield_(list(body(region.arguments[0], region.arguments[1:])))
    return b.region_op("for", *bounds, list(carried), regions=[region]).results
