"""Strict products with a finite constant become plain: ``where(x == 0, 0, c * x)`` is ``c * x``."""

from __future__ import annotations

import math

from tilewright.ir.core import Module, Operation, Value
from tilewright.ir.ops.arithmetic import Cmp, Select
from tilewright.passes.rewriter import constant_of


def fold_strict_zeros(module: Module) -> bool:
    """Replace the selects of a module that choose zero where their other choice is zero.

    The sign of a zero may change, which no gradient depends on.

    Returns:
        whether there was one.
    """
    changed = False
    for operation in list(module.kernel.walk()):
        if isinstance(operation, Select) and _is_needless(operation):
            operation.result.replace_all_uses(operation.b)
            operation.erase()
            changed = True
    return changed


def _is_needless(operation: Select) -> bool:
    condition = operation.condition.definition
    return (
        isinstance(condition, Cmp)
        and condition.predicate == "eq"
        and constant_of(condition.b) == 0.0
        and constant_of(operation.a) == 0.0
        and _is_multiple(operation.b, condition.a)
    )


def _is_multiple(value: Value, of: Value) -> bool:
    """Return whether a value is another one times a finite constant."""
    if value is of:
        return True
    product: Operation | None = value.definition
    if product is None or product.name not in ("mul", "neg"):
        return False
    others = [operand for operand in product.operands if operand is not of]
    factors = [constant_of(other) for other in others]
    return len(others) == len(product.operands) - 1 and all(
        isinstance(factor, float) and math.isfinite(factor) for factor in factors
    )


__all__ = ["fold_strict_zeros"]
