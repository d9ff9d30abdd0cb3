"""Values that may not be finite where a cotangent is zero: there their product has to be zero.

Masked-off lanes read as zero, so ``1 / x`` and ``log(x)`` are infinite or NaN in them, and ``exp``
overflows where a function saturates, as in ``1 / (1 + exp(-x))``. The kernel does not store those
lanes, or divides by the infinity. Its adjoint multiplies them by a cotangent of zero, and sums over
the lanes of what the kernel broadcasts: one NaN spoils the sum.

The products with such values are strict (:meth:`~tilewright.derivatives.partials.Factor.times`).
A value that is finite wherever its operands are keeps its plain product.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

from tilewright.derivatives.analysis.logistic import logistic_argument
from tilewright.derivatives.cotangent_types import is_float
from tilewright.ir.core import Function, Operation, Value
from tilewright.ir.ops.arithmetic import Binary, Constant, Select
from tilewright.ir.ops.control import Call, Reduce
from tilewright.ir.ops.debug import Extern, Hint, InlineAsm
from tilewright.ir.ops.memory import Load
from tilewright.ir.ops.shape import Broadcast, ExpandDims, Reshape, Splat
from tilewright.ir.table import Trait
from tilewright.ir.types import TileType
from tilewright.passes.rewriter import constant_of

#: How far the sign and the reference of a value are followed.
_DEPTH = 8


class Finiteness:
    """Values of a function that may be infinite or NaN though all inputs are finite.

    Attributes:
        unsafe: those values.
    """

    def __init__(
        self,
        function: Function,
        normalizers: Collection[Value] = (),
        spoiled: Collection[Value] = (),
    ) -> None:
        """Analyze.

        Args:
            normalizers: values l for which ``exp(x - l)``, to the kernel's base, is at most 1: the
                logarithms of sums of such exponentials.
            spoiled: arguments that may be infinite or NaN.
        """
        self.unsafe: set[Value] = set(spoiled)
        self._normalizers = normalizers
        self._sources: set[Operation] = set()
        changed = True
        while changed:  # what loops carry may be found late
            before = len(self.unsafe)
            for operation in function.walk():
                self._visit(operation)
            changed = len(self.unsafe) != before

    def needs_strict(self, operation: Operation) -> bool:
        """Return whether a partial derivative of an operation may not be finite."""
        if operation in self._sources or any(value in self.unsafe for value in operation.results):
            return True
        if operation.name in EXPONENTIALS:
            return False  # the factor is the result
        return any(value in self.unsafe for value in operation.operands)

    def _visit(self, operation: Operation) -> None:
        if operation.regions:
            self._region(operation)
        elif not operation.spec.terminator and self._is_spoiled(operation):
            self.unsafe.update(filter(is_float, operation.results))

    def _is_spoiled(self, operation: Operation) -> bool:
        unsafe = self.unsafe
        if isinstance(operation, Select):
            choices = (operation.a, operation.b)
            if any(map(_is_finite_constant, choices)):
                # the select by which a kernel cleans its lanes, or a constant of its own
                return any(map(_is_infinite_constant, choices))
            return any(value in unsafe for value in choices)
        if isinstance(operation, Constant):
            return isinstance(operation.value, float) and not math.isfinite(operation.value)
        if isinstance(operation, Load):
            return operation.other is not None and operation.other in unsafe
        argument = logistic_argument(operation)
        if argument is not None:
            return argument in unsafe
        if operation.name in EXPONENTIALS:
            score = self._normalized(operation)
            if score is not None:
                return self._may_be_large(score)
            reference = _reference(operation)
            if reference is not None:
                difference, above = reference
                return difference.a in unsafe and isinstance(above.type, TileType)
        if isinstance(operation, Call | Extern | InlineAsm):
            self._sources.add(operation)
            return True
        is_singular = operation.name in _SINGULAR and not _SINGULAR[operation.name](operation)
        if is_singular and not _is_statistic(operation.result):
            self._sources.add(operation)
            return True
        return Trait.ACCESS not in operation.spec.traits and any(
            value in unsafe for value in operation.operands
        )

    def _normalized(self, operation: Any) -> Value | None:
        """Return x where an exponential is of ``x - l`` with a normalizer l."""
        difference = operation.x.definition
        if difference is None or difference.name != "sub":
            return None
        x: Value = difference.a
        return x if _narrowed(difference.b) in self._normalizers else None

    def _may_be_large(self, value: Value) -> bool:
        """Return whether a value may be NaN or infinite, but for minus infinity."""
        choice = value.definition
        if value not in self.unsafe:
            return False
        return not isinstance(choice, Select) or any(
            constant_of(option) != -math.inf and self._may_be_large(option)
            for option in (choice.a, choice.b)
        )

    def _region(self, operation: Operation) -> None:
        """Follow values into regions and out of them, all to all."""
        if isinstance(operation, Reduce) and not isinstance(operation.results[0].type, TileType):
            return  # one value of all lanes: what spoils it spoils what the kernel stores
        yields = [region.last for region in operation.regions if region.last is not None]
        flowing = [*operation.operands, *(value for last in yields for value in last.operands)]
        if any(value in self.unsafe for value in flowing):
            self.unsafe.update(filter(is_float, operation.results))
            for region in operation.regions:
                self.unsafe.update(filter(is_float, region.arguments))


def _is_statistic(value: Value, depth: int = _DEPTH) -> bool:
    """Return whether a value is computed from sums and maxima over all lanes of a tile.

    Then it is one value of all lanes, and where it is not finite, neither is what the kernel
    stores.
    """
    operation = value.definition
    if depth == 0 or operation is None or isinstance(value.type, TileType):
        return False
    if isinstance(operation, Reduce):
        return True
    return operation.spec.elementwise and any(
        _is_statistic(operand, depth - 1) for operand in operation.operands
    )


def _is_finite_constant(value: Value) -> bool:
    number = constant_of(value)
    return number is not None and math.isfinite(number)


def _is_infinite_constant(value: Value) -> bool:
    number = constant_of(value)
    return isinstance(number, float) and not math.isfinite(number)


# ---- operations that are singular somewhere, and when they are not


def _is_positive(value: Value, depth: int = _DEPTH) -> bool:
    """Return whether a value is above zero by a constant, unless it is infinite or NaN."""
    number = constant_of(value)
    if number is not None:
        return bool(number > 0)
    operation = value.definition
    if depth == 0 or operation is None or operation.name != "add":
        return False
    assert isinstance(operation, Binary)
    a, b = operation.a, operation.b
    return (_is_positive(a, depth - 1) and _is_nonnegative(b, depth - 1)) or (
        _is_positive(b, depth - 1) and _is_nonnegative(a, depth - 1)
    )


def _is_nonnegative(value: Value, depth: int) -> bool:
    operation = value.definition
    if _is_positive(value, depth):
        return True
    if operation is None:
        return False
    if operation.name == "mul":
        return operation.operands[0] is operation.operands[1]
    return operation.name in _NONNEGATIVE


def _divides_safely(operation: Any) -> bool:
    """Return whether a divisor is positive, or one number for all lanes.

    Where that number is zero, so is what the kernel stores not finite.
    """
    return _is_positive(operation.b) or isinstance(operation.b.definition, Splat)


def _reference(operation: Any) -> tuple[Any, Value] | None:
    """Return the difference and the maximum where an exponential is of ``x - max(x, ...)``."""
    difference = operation.x.definition
    if difference is None or difference.name != "sub":
        return None
    above = _narrowed(difference.b)
    return (difference, above) if _is_above(above, difference.a, _DEPTH) else None


def _narrowed(value: Value) -> Value:
    while isinstance(value.definition, Splat | Broadcast | ExpandDims | Reshape | Hint):
        value = value.definition.x
    return value


def _is_above(reference: Value, x: Value, depth: int) -> bool:
    """Return whether a reference is the maximum of x along an axis, or of that and others."""
    operation = reference.definition
    if depth == 0 or operation is None:
        return False
    if isinstance(operation, Reduce):
        combine = operation.combine.first
        return (
            list(operation.inputs) == [x]
            and combine is not None
            and combine.name == "max"
            and combine.next is operation.combine.last
        )
    if operation.name == "max":
        return any(_is_above(_narrowed(value), x, depth - 1) for value in operation.operands)
    return False


#: Operations that are singular -> whether this one is not.
_SINGULAR: dict[str, Any] = {
    "log": lambda operation: _is_positive(operation.x),
    "log2": lambda operation: _is_positive(operation.x),
    "rsqrt": lambda operation: _is_positive(operation.x),
    "sqrt": lambda operation: _is_positive(operation.x),
    "div": _divides_safely,
    "rem": _divides_safely,
    "exp": lambda operation: constant_of(operation.x) is not None,
    "exp2": lambda operation: constant_of(operation.x) is not None,
}
#: Exponentials -> their base. They overflow, and their partial derivative is their result.
EXPONENTIALS = {"exp": "e", "exp2": "2"}
#: Operations whose results are never negative -> why.
_NONNEGATIVE = {
    "exp": "a power of a positive number",
    "exp2": "a power of a positive number",
    "abs": "a magnitude",
    "sqrt": "the principal root",
}
