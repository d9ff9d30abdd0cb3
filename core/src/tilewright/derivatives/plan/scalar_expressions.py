"""Floats that a kernel computes from its scalar arguments, evaluated at a launch."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tilewright.ir.core import Value
from tilewright.ir.ops.arithmetic import Constant
from tilewright.ir.types import FloatType, IntType

#: Operations that are evaluated -> how.
_OPERATIONS: Mapping[str, Callable[..., float]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "neg": lambda x: -x,
    "cast": lambda x: x,
    "sqrt": math.sqrt,
    "rsqrt": lambda x: 1 / math.sqrt(x),
}


@dataclass(frozen=True, slots=True)
class ScalarExpression:
    """A float in terms of a kernel's scalar arguments, without the rounding of its operations.

    Attributes:
        operation: the name of an operation, ``constant`` or ``argument``.
        operands: those of the operation.
        constant: the number.
        argument: the argument's name.
    """

    operation: str
    operands: tuple[ScalarExpression, ...] = ()
    constant: float = 0.0
    argument: str = ""

    def at(self, arguments: Mapping[str, int | float]) -> float | None:
        """Return its value; None where it has none, or an argument is no number."""
        if self.operation == "constant":
            return self.constant
        if self.operation == "argument":
            number = arguments.get(self.argument)
            return None if number is None else float(number)
        operands = [operand.at(arguments) for operand in self.operands]
        if None in operands:
            return None
        try:
            return _OPERATIONS[self.operation](*operands)
        except (ArithmeticError, ValueError):
            return None


def scalar_expression(value: Value) -> ScalarExpression | None:
    """Return a scalar in terms of arguments; None where it depends on anything else."""
    operation = value.definition
    if not isinstance(value.type, FloatType | IntType):
        return None
    if operation is None:
        return ScalarExpression("argument", argument=value.name)
    if isinstance(operation, Constant):
        return ScalarExpression("constant", constant=float(operation.value))
    if operation.name not in _OPERATIONS:
        return None
    operands = []
    for operand in operation.operands:
        found = scalar_expression(operand)
        if found is None:
            return None
        operands.append(found)
    return ScalarExpression(operation.name, tuple(operands))


__all__ = ["ScalarExpression", "scalar_expression"]
