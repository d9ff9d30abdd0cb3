"""Conditions that are read off a saved output: the sign of what an activation was taken of.

Leaky ReLU is ``where(x >= 0, x, 0.01 * x)``: its result has the sign of x, which its derivative
depends on. So x, the result of a matmul perhaps, is not computed again. A negative result that
rounds to zero is a negative zero.
"""

from __future__ import annotations

from tilewright.ir.builder import Builder
from tilewright.ir.core import Operation, Value
from tilewright.ir.ops.arithmetic import Cmp, Select
from tilewright.ir.types import IntType, bit_width, element_type, with_element
from tilewright.passes.rewriter import constant_of

#: Comparisons with zero that hold of a choice's result where they hold of x, if the choice is
#: between positive multiples of x.
_ORDERS = frozenset({"lt", "le", "gt", "ge"})


def saved_condition(operation: Operation) -> Cmp | None:
    """Return the condition of a select if it holds of the select's result where it holds of x.

    It is a comparison of x with zero that nothing else reads.
    """
    if not isinstance(operation, Select):
        return None
    condition = operation.condition.definition
    if not isinstance(condition, Cmp) or constant_of(condition.b) != 0.0:
        return None
    is_own = dict(condition.result.uses) == {operation: 1}
    if condition.parent is not operation.parent or not is_own:
        return None
    x, order = condition.a, condition.predicate
    first, second = (_is_positive_multiple(value, x) for value in (operation.a, operation.b))
    is_kept = (
        (first and second and order in _ORDERS)
        or (first and order == "gt" and constant_of(operation.b) == 0.0)
        or (second and order == "le" and constant_of(operation.a) == 0.0)
    )
    return condition if is_kept else None


def condition_on(b: Builder, result: Value, predicate: str) -> Value:
    """Return whether a comparison with zero holds of x, of which a choice has the sign.

    Args:
        result: the choice's result, as it was saved.
        predicate: of a comparison that :func:`saved_condition` found.
    """
    zero = b.constant_like(result.type, 0.0)
    if predicate in ("gt", "le"):
        compared: Value = b.cmp(result, zero, predicate=predicate)
        return compared
    # a negative zero is what a negative x rounded to
    type_ = with_element(result.type, IntType(bit_width(element_type(result.type))))
    bits = b.bitcast(result, result=type_)
    has_sign = b.cmp(bits, b.constant_like(type_, 0), predicate=predicate)
    is_number = b.cmp(result, zero, predicate="ge" if predicate == "ge" else "le")
    found: Value = b.and_(has_sign, is_number)
    return found


def _is_positive_multiple(value: Value, x: Value) -> bool:
    if value is x:
        return True
    product = value.definition
    if product is None or product.name != "mul" or x not in product.operands:
        return False
    (other,) = [operand for operand in product.operands if operand is not x] or [x]
    factor = constant_of(other)
    return factor is not None and factor > 0


__all__ = ["condition_on", "saved_condition"]
