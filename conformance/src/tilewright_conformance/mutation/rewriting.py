"""Rewrites that make Tile IR wrong: one visit to each operation of a well-formed copy."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

from tilewright.ir import Builder, Function, Module, Operation, Value, verify
from tilewright.ir.types import (
    I32,
    FloatType,
    IntType,
    TileType,
    Type,
    element_type,
    shape_of,
    with_element,
)
from tilewright.passes.clone import clone_operation

#: Returned by a rewrite that changed the operation in place.
CHANGED: Final = object()
#: (an operation, a builder in front of it) -> values for its results, :data:`CHANGED`, or None to
#: leave it as it is.
Rewrite = Callable[[Operation, Builder], Any]


def copy_of(module: Module) -> Module:
    """A module that shares nothing with ``module``."""
    copy = Module(module.version)
    copy.attributes.update(module.attributes)
    for function in module.functions.values():
        types, names = (
            [value.type for value in function.arguments],
            [value.name for value in function.arguments],
        )
        made = copy.add(
            Function(
                function.name,
                types,
                function.result_types,
                names,
                kernel=function.kernel,
                location=function.location,
            )
        )
        made.argument_attributes = [dict(facts) for facts in function.argument_attributes]
        mapping = dict(zip(function.arguments, made.arguments, strict=True))
        for operation in function.body:
            made.body.append(clone_operation(operation, mapping))
    return copy


def rewritten(module: Module, operations: Collection[str], rewrite: Rewrite) -> Module:
    """A copy of the module with ``rewrite`` applied once to each operation of the given names.

    Raises:
        VerificationError: the rewrite made a malformed module.
    """
    copy = copy_of(module)
    for operation in [found for found in copy.walk() if found.name in operations]:
        replace(operation, rewrite(operation, Builder.at(operation)))
    verify(copy)
    return copy


def replace(operation: Operation, found: Any) -> None:
    """Let what a rewrite gave stand for the operation's results."""
    if found is None or found is CHANGED:
        return
    values: Sequence[Value] = (found,) if isinstance(found, Value) else found
    for old, new in zip(operation.results, values, strict=True):
        old.replace_all_uses(new)
    operation.erase()


# ---- pieces of rewrites


def again(operation: Operation, b: Builder) -> Operation:
    """The operation once more, in front of itself."""
    return b.insert(clone_operation(operation, {}))


def element(value: Value) -> Type:
    return element_type(value.type)


def is_float(value: Value) -> bool:
    return isinstance(element(value), FloatType)


def is_signed(value: Value) -> bool:
    type_ = element(value)
    return isinstance(type_, IntType) and type_.signed


def is_unsigned(value: Value) -> bool:
    """Return whether a value is of an unsigned integer type; booleans are not."""
    type_ = element(value)
    return isinstance(type_, IntType) and not type_.signed and type_.bits > 1


def as_type(b: Builder, value: Value, element_: Type) -> Value:
    """The value cast to another element type."""
    found: Value = b.cast(value, result=with_element(value.type, element_))
    return found


def as_bits(b: Builder, value: Value, element_: Type) -> Value:
    """The bits of the value as another element type."""
    found: Value = b.bitcast(value, result=with_element(value.type, element_))
    return found


def other_sign(value: Value) -> IntType:
    """The integer type of the same width and the other signedness."""
    type_ = element(value)
    assert isinstance(type_, IntType)
    return IntType(type_.bits, not type_.signed)


def positions(b: Builder, shape: tuple[int, ...], axis: int) -> Value:
    """The coordinate along ``axis`` of every element of a tile of ``shape``, in i32."""
    found: Value = b.arange(start=0, end=shape[axis])
    if len(shape) > 1:
        found = b.reshape(
            found,
            result=TileType(
                tuple(extent if i == axis else 1 for i, extent in enumerate(shape)), I32
            ),
        )
        found = b.broadcast(found, result=TileType(shape, I32))
    return found


def number_of_each(b: Builder, shape: tuple[int, ...]) -> Value:
    """The position in row-major order of every element of a tile of ``shape``, in i32."""
    found: Value = b.arange(start=0, end=math.prod(shape))
    return found if len(shape) == 1 else b.reshape(found, result=TileType(shape, I32))


def picked(
    b: Builder, value: Value, axis: int, index: Callable[[Value], Value], extent: int | None = None
) -> Value:
    """Gather along ``axis`` at ``index(coordinate)``.

    The result has ``extent`` elements along the axis; for None, as many as the tile.
    """
    shape = list(shape_of(value.type))
    shape[axis] = shape[axis] if extent is None else extent
    found: Value = b.gather(value, index(positions(b, tuple(shape), axis)), axis=axis)
    return found


def like(b: Builder, value: Value, number: float) -> Value:
    """A constant of the value's type."""
    return b.constant_like(value.type, number)


def mask_lost(operation: Operation, b: Builder) -> Any:
    """An operation on one operand and a mask, without the mask."""
    if operation.operand("mask") is None:
        return None
    operation.replace_operands(operation.operands[:1], (1, 0))
    return CHANGED
