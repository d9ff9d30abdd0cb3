"""The logistic function, ``1 / (1 + exp(u))``: finite for any u, though its exponential is not."""

from __future__ import annotations

from tilewright.ir.core import Operation, Value
from tilewright.ir.ops.arithmetic import Binary, Div, Unary
from tilewright.passes.rewriter import constant_of


def logistic_argument(operation: Operation) -> Value | None:
    """Return u where an operation computes ``1 / (1 + exp(u))``; None for any other one."""
    if not isinstance(operation, Div) or constant_of(operation.a) != 1.0:
        return None
    total = operation.b.definition
    if not isinstance(total, Binary) or total.name != "add":
        return None
    for one, exponential in ((total.a, total.b), (total.b, total.a)):
        found = exponential.definition
        if constant_of(one) == 1.0 and isinstance(found, Unary) and found.name == "exp":
            return found.x
    return None


__all__ = ["logistic_argument"]
