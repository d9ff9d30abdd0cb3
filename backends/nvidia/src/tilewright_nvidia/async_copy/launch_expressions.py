"""Scalars that are functions of kernel arguments, as expressions that launchers evaluate."""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.errors import LoweringError
from tilewright.gpu_host.expressions import OPERATORS, Expression, word
from tilewright.ir.core import Function, Value
from tilewright.ir.ops.arithmetic import Binary, Cast, Constant, Unary
from tilewright.ir.types import IntType, PointerType


def expressions_of(values: Iterable[Value], function: Function) -> tuple[Expression, ...]:
    """Return launch-time expressions of scalars, over the function's one-word arguments.

    Raises:
        LoweringError: a scalar is made of something else than arguments; the message names it.
    """
    return tuple(_expression(value, function) for value in values)


def _expression(value: Value, function: Function) -> Expression:
    operation = value.definition
    if (
        operation is None
        and value.owner is function.body
        and isinstance(value.type, IntType | PointerType)
    ):
        return word(value.index)
    if operation is not None and isinstance(value.type, IntType):
        if isinstance(operation, Constant):
            return int(operation.value)
        if isinstance(operation, Binary) and operation.name in OPERATORS:
            return (
                operation.name,
                _expression(operation.a, function),
                _expression(operation.b, function),
            )
        if isinstance(operation, Cast) and isinstance(operation.x.type, IntType):
            return _expression(operation.x, function)
        if (
            isinstance(operation, Binary)
            and operation.name == "shl"
            and isinstance(shift := _expression(operation.b, function), int)
        ):
            return ("mul", _expression(operation.a, function), 1 << shift)
        if isinstance(operation, Unary) and operation.name == "neg":
            return ("sub", 0, _expression(operation.x, function))
    made = (
        f"{operation.name} at {operation.location}"
        if operation is not None
        else f"an argument of a region ({value.name or value.type})"
    )
    raise LoweringError(
        f"a tensor's extent or stride is computed of more than the kernel's arguments: {made}"
    )
