"""Value ranges: the minimum and the maximum that an integer, or any element of a tile of them, can
have, and the limits of floats that are not NaN.

What is asked of one value is found from those it is computed from, a few steps back; a loop's
counter lies between the loop's bounds. Arithmetic that may wrap around yields anything its type
holds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

from tilewright.ir.core import Operation, Region, Value
from tilewright.ir.ops.arithmetic import (
    Arange,
    Binary,
    Cast,
    Constant,
    Extremum,
    NumPrograms,
    ProgramId,
    Select,
)
from tilewright.ir.ops.control import For
from tilewright.ir.ops.debug import Hint
from tilewright.ir.ops.shape import Moved
from tilewright.ir.types import FloatType, IntType, element_type
from tilewright.passes.analysis.transfer_functions import TRANSFER, Domain, Rule
from tilewright.passes.rewriter import constant_of

#: (minimum, maximum); None for other types
Interval = tuple[int, int] | None
#: (lower, upper) of floats: infinite where there is none
Limits = tuple[float, float]
UNLIMITED: Final[Limits] = (-math.inf, math.inf)
#: How many operations are followed back.
_DEPTH: Final = 8


def interval_of(value: Value, depth: int = _DEPTH) -> Interval:
    """Return the minimum and the maximum of an integer or of an element of a tile; None for other
    types."""
    anything = _anything(value)
    if anything is None or depth == 0:
        return anything
    operation = value.definition
    if operation is None:
        return _counter(value, depth) or anything
    if operation.regions or len(operation.results) != 1:
        return anything
    if operation.name not in _INTERVALS.rules:
        return anything
    return _INTERVALS.transfer(
        operation, [interval_of(operand, depth - 1) for operand in operation.operands]
    )


def _anything(value: Value) -> Interval:
    element = element_type(value.type)
    return (element.minimum, element.maximum) if isinstance(element, IntType) else None


def _counter(value: Value, depth: int) -> Interval:
    """The interval of a counter of a loop that counts up."""
    loop = value.owner.owner if isinstance(value.owner, Region) else None
    if not isinstance(loop, For) or value.index != 0:
        return None
    step, lower, upper = (
        constant_of(loop.step),
        interval_of(loop.lower, depth - 1),
        interval_of(loop.upper, depth - 1),
    )
    if step is None or step <= 0 or lower is None or upper is None or lower[0] >= upper[1]:
        return None
    return lower[0], upper[1] - 1


class _Intervals(Domain[Interval]):
    """Intervals as facts of operations."""

    def opaque(self, operation: Operation, facts: Sequence[Interval]) -> Interval:
        return _anything(operation.results[0])

    def _fitting(self, operation: Operation, *ends: int) -> Interval:
        """The interval that numbers span, where the type of the result holds them all."""
        anything = _anything(operation.results[0])
        if anything is None or min(ends) < anything[0] or max(ends) > anything[1]:
            return anything
        return min(ends), max(ends)

    def constant(self, operation: Constant) -> Interval:
        return int(operation.value), int(operation.value)

    def arange(self, operation: Arange) -> Interval:
        return operation.start, operation.end - 1

    def grid(self, operation: ProgramId | NumPrograms) -> Interval:
        return (0 if isinstance(operation, ProgramId) else 1), (1 << 31) - 1

    def sum(self, operation: Operation, a: Interval, b: Interval, sign: int) -> Interval:
        if a is None or b is None:
            return self.opaque(operation, ())
        return self._fitting(operation, *(x + sign * y for x in a for y in b))

    def multiple(self, operation: Operation, x: Interval, factor: int) -> Interval:
        return (
            self.opaque(operation, ())
            if x is None
            else self._fitting(operation, *(end * factor for end in x))
        )

    def product(self, operation: Binary, a: Interval, b: Interval) -> Interval:
        return (
            self.opaque(operation, ())
            if a is None or b is None
            else self._fitting(operation, *(x * y for x in a for y in b))
        )

    def quotient(self, operation: Binary, a: Interval, b: Interval) -> Interval:
        if a is None or b is None or a[0] < 0 or b[0] <= 0:
            return self.opaque(operation, ())
        return a[0] // b[1], a[1] // b[0]

    def remainder(self, operation: Binary, a: Interval, b: Interval) -> Interval:
        if a is None or b is None or a[0] < 0 or b[0] <= 0:
            return self.opaque(operation, ())
        return a if a[1] < b[0] else (0, min(a[1], b[1] - 1))

    def extreme(self, operation: Extremum, a: Interval, b: Interval) -> Interval:
        if a is None or b is None:
            return self.opaque(operation, ())
        choose = min if operation.name == "min" else max
        return choose(a[0], b[0]), choose(a[1], b[1])

    def choice(self, operation: Select, condition: Interval, a: Interval, b: Interval) -> Interval:
        return (
            self.opaque(operation, ())
            if a is None or b is None
            else (min(a[0], b[0]), max(a[1], b[1]))
        )

    def cast(self, operation: Cast, x: Interval) -> Interval:
        return self.opaque(operation, ()) if x is None else self._fitting(operation, *x)

    def moved(self, operation: Moved, x: Interval) -> Interval:
        return x

    def hinted(self, operation: Hint, x: Interval) -> Interval:
        return x

    def intersection(self, operation: Operation, a: Interval, b: Interval) -> Interval:
        """Return the interval of the bits that two integers share."""
        highest = [each[1] for each in (a, b) if each is not None and each[0] >= 0]
        return (0, min(highest)) if highest else self.opaque(operation, ())

    def shifted_right(self, operation: Operation, x: Interval, amount: Interval) -> Interval:
        if x is None or amount is None or amount[0] != amount[1]:
            return self.opaque(operation, ())
        bits = getattr(element_type(operation.results[0].type), "bits", 0)
        if not 0 <= amount[0] < bits:
            return self.opaque(operation, ())
        return x[0] >> amount[0], x[1] >> amount[0]

    rules: ClassVar[Mapping[str, Rule]] = {
        **TRANSFER,
        "and": lambda domain, operation, facts: domain.intersection(operation, *facts),
        "shr": lambda domain, operation, facts: domain.shifted_right(operation, *facts),
    }


_INTERVALS: Final = _Intervals()


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
        (low, high), (other_low, other_high) = (
            float_limits(each, depth - 1) for each in (operation.a, operation.b)
        )
        return min(low, other_low), max(high, other_high)
    if isinstance(operation, Moved) or (isinstance(operation, Cast) and _is_widened(operation)):
        return float_limits(operation.x, depth - 1)
    if operation.forwarded:
        return float_limits(operation.forwarded[value.index], depth - 1)
    return UNLIMITED


def _of_extremum(operation: Extremum, depth: int) -> Limits:
    """Of a number and NaN the number may be the result: one operand's limit is the result's where
    that operand is never NaN."""
    (low, high), (other_low, other_high) = (
        float_limits(each, depth) for each in (operation.a, operation.b)
    )
    certain = [
        float(constant)
        for constant in map(constant_of, (operation.a, operation.b))
        if isinstance(constant, float) and not math.isnan(constant)
    ]
    if operation.name == "min":
        return min(low, other_low), min([max(high, other_high), *certain])
    return max([min(low, other_low), *certain]), max(high, other_high)


def _is_widened(operation: Cast) -> bool:
    source, result = element_type(operation.x.type), element_type(operation.results[0].type)
    return (
        isinstance(source, FloatType)
        and isinstance(result, FloatType)
        and source.bits < result.bits
    )


__all__ = ["UNLIMITED", "Interval", "Limits", "float_limits", "interval_of"]
