"""Value ranges of floats: the limits between which a float, or any element of a tile of them, lies unless it is NaN."""

from __future__ import annotations

import math
from typing import Final

from tilewright.ir.core import Value
from tilewright.ir.ops.arithmetic import Cast, Extremum, Select
from tilewright.ir.ops.shape import Moved
from tilewright.ir.types import FloatType, element_type
from tilewright.passes.rewriter import constant_of

#: (lower, upper): infinite where there is none
Limits = tuple[float, float]
UNLIMITED: Final[Limits] = (-math.inf, math.inf)
#: How many operations are followed back.
_DEPTH: Final = 8


def float_limits(value: Value, depth: int = _DEPTH) -> Limits:
    """Return the limits of a float, or of an element of a tile of floats, that is not NaN."""
    constant = constant_of(value)
    if isinstance(constant, float) and not math.isnan(constant):
        return constant, constant
    operation = value.definition
    if depth == 0 or operation is None:
        return UNLIMITED
    if isinstance(operation, Extremum):
        return _of_extremum(operation, depth - 1)
    if isinstance(operation, Select):
        (low, high), (other_low, other_high) = (float_limits(each, depth - 1) for each in (operation.a, operation.b))
        return min(low, other_low), max(high, other_high)
    if isinstance(operation, Moved) or (isinstance(operation, Cast) and _is_widened(operation)):
        return float_limits(operation.x, depth - 1)
    if operation.forwarded:
        return float_limits(operation.forwarded[value.index], depth - 1)
    return UNLIMITED


def _of_extremum(operation: Extremum, depth: int) -> Limits:
    """Of a number and NaN the number may be the result: one operand's limit is the result's where that operand is never NaN."""
    (low, high), (other_low, other_high) = (float_limits(each, depth) for each in (operation.a, operation.b))
    certain = [float(constant) for constant in map(constant_of, (operation.a, operation.b)) if isinstance(constant, float) and not math.isnan(constant)]
    if operation.name == "min":
        return min(low, other_low), min([max(high, other_high), *certain])
    return max([min(low, other_low), *certain]), max(high, other_high)


def _is_widened(operation: Cast) -> bool:
    source, result = element_type(operation.x.type), element_type(operation.results[0].type)
    return isinstance(source, FloatType) and isinstance(result, FloatType) and source.bits < result.bits


__all__ = ["UNLIMITED", "Limits", "float_limits"]
