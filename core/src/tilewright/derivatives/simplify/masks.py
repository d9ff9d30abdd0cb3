"""Selects by which adjoints mask lanes: moved behind exponentials, and dropped.

A forward kernel masks scores before it takes their exponentials, ``exp(where(m, x, -inf) - l)``.
``where(m, exp(x - l), 0)`` is the same, the difference becomes part of the multiplication that
computes x, and the select may be one that is not needed:

- A lane that is not stored may hold anything, as long as it stays apart from those that are: a row
  of a matmul's first operand becomes a row of its result.
- The adjoint of a select masks the cotangent. Where that is a multiple of what the same select
  masked, and the other factors are finite, it is zero already.
"""

from __future__ import annotations

import math

from tilewright.derivatives.analysis.finiteness import EXPONENTIALS, Finiteness
from tilewright.derivatives.simplify.observed_lanes import axis_masks, is_observed_in
from tilewright.ir.builder import Builder
from tilewright.ir.core import Module, Operation, Value
from tilewright.ir.ops.arithmetic import Cast, Select
from tilewright.passes.rewriter import constant_of


def delay_masks(module: Module) -> bool:
    """Replace ``exp(where(m, x, -inf) - l)`` by ``where(m, exp(x - l), 0)``.

    Where l is minus infinity, and the first is NaN, the second is zero in masked lanes.

    Returns:
        whether there was one.
    """
    changed = False
    for operation in list(module.kernel.walk()):
        if operation.name not in EXPONENTIALS:
            continue
        difference = operation.operands[0].definition
        if difference is None or difference.name != "sub" or not _is_own(difference.result):
            continue
        mask = difference.operands[0].definition
        if not isinstance(mask, Select) or constant_of(mask.b) != -math.inf:
            continue
        readers = list(operation.result.uses)
        difference.set_operand(0, mask.a)
        b = Builder(operation.parent, operation.next, mask.location)
        zero = b.constant_like(operation.result.type, 0.0)
        masked = b.select(mask.condition, operation.result, zero)
        masked.name, operation.result.name = operation.result.name, ""
        _replace_in(readers, operation.result, masked)
        changed = True
    return changed


def drop_masks(module: Module) -> bool:
    """Drop selects, or parts of their conditions, that no stored lane depends on.

    Returns:
        whether there was one.
    """
    changed = False
    for operation in list(module.kernel.walk()):
        if isinstance(operation, Select) and constant_of(operation.b) == 0.0:
            changed |= _drop_unobserved(operation)
    unsafe = Finiteness(module.kernel).unsafe
    for operation in list(module.kernel.walk()):
        if not isinstance(operation, Select) or constant_of(operation.b) != 0.0:
            continue
        if _is_zero_outside(operation.condition, operation.a, unsafe):
            operation.result.replace_all_uses(operation.a)
            operation.erase()
            changed = True
    return changed


def _drop_unobserved(operation: Select) -> bool:
    """Drop those conjuncts of a select's condition that are about lanes which nothing stores."""
    kept, pending = [], [operation.condition]
    dropped = False
    while pending:
        part = pending.pop()
        both = part.definition
        if both is not None and both.name == "and":
            pending += [both.operands[1], both.operands[0]]
        elif any(is_observed_in(operation.result, mask) for mask in axis_masks(part)):
            dropped = True
        else:
            kept.append(part)
    if not dropped:
        return False
    if not kept:
        operation.result.replace_all_uses(operation.a)
        operation.erase()
        return True
    b = Builder.at(operation)
    condition, *rest = kept
    for part in rest:
        condition = b.and_(condition, part)
    operation.set_operand(0, condition)
    return True


def _is_zero_outside(condition: Value, value: Value, unsafe: set[Value]) -> bool:
    """Return whether a value is zero where a condition does not hold.

    Args:
        unsafe: values that may be infinite or NaN though all inputs are finite.
    """
    operation = value.definition
    if operation is None:
        return False
    if isinstance(operation, Select):
        return operation.condition is condition and constant_of(operation.b) == 0.0
    if operation.name == "neg" or isinstance(operation, Cast):
        return _is_zero_outside(condition, operation.operands[0], unsafe)
    if operation.name != "mul":
        return False
    a, b = operation.operands
    return (b not in unsafe and _is_zero_outside(condition, a, unsafe)) or (
        a not in unsafe and _is_zero_outside(condition, b, unsafe)
    )


def _is_own(value: Value) -> bool:
    return sum(value.uses.values()) == 1


def _replace_in(readers: list[Operation], value: Value, other: Value) -> None:
    for reader in readers:
        for position, operand in enumerate(reader.operands):
            if operand is value:
                reader.set_operand(position, other)


__all__ = ["delay_masks", "drop_masks"]
