"""Weights of values under a shift of a gauge.

A *reference* is a tile m that a kernel subtracts before it exponentiates: the running maximum of
an online softmax, the maximum of a row. If m is shifted by d, an array with a number for each lane
of m, a value is multiplied by ``exp(scale * d)`` and moved by ``shift * d``, where one of the two
is zero. Each lane of the value belongs to one lane of m, by the axes that they share: a reduction
along such an axis mixes lanes that are shifted differently, and its result has no weight.

What is not followed has an unknown weight. Values outside of the analysis do not depend on m.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tilewright.ir.core import Location, Operation, Region, Value
from tilewright.ir.ops.arithmetic import Cast, Extremum, Fma, Select
from tilewright.ir.ops.control import If, Reduce, Scan
from tilewright.ir.ops.linear import Dot
from tilewright.ir.ops.shape import Broadcast, ExpandDims, Moved, Permute, Splat
from tilewright.ir.table import Effect
from tilewright.ir.types import FloatType, element_type, shape_of
from tilewright.passes.effects import effects_of
from tilewright.passes.rewriter import constant_of

#: The exponential functions that a gauge may have -> their inverse functions.
LOGARITHMS: Final[Mapping[str, str]] = {"exp": "log", "exp2": "log2"}

#: For each axis of the reference the axis of a tile; None where lanes are mixed.
Axes = tuple[int, ...] | None


class NoGaugeError(Exception):
    """A reference is no gauge.

    Attributes:
        reason: why not, for a remark.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Weight:
    """Change of a value under a shift of the gauge.

    Attributes:
        scale, shift: the exponent and the factor; one of them is zero, or both.
        axes: the lanes of the reference that the value's lanes belong to.
    """

    scale: int
    shift: int
    axes: Axes

    @property
    def is_invariant(self) -> bool:
        return self.scale == self.shift == 0


def place_of(location: Location | None) -> str:
    """Return the text of a place in the kernel's own source."""
    return "an unknown place" if location is None else str(location.chain()[-1])


class GaugeWeights:
    """Weights of values that depend on a reference.

    Attributes:
        base: the exponential function, ``exp`` or ``exp2``.
        reference: the reference's name, for reasons.
        of: values that are computed from the reference -> their weights; None where unknown.
        effects: operations with effects that such values reach -> the axes of their operands.
    """

    def __init__(self, base: str, reference: str) -> None:
        self.base, self.reference = base, reference or "of the maximum"
        self.of: dict[Value, Weight | None] = {}
        self.effects: dict[Operation, Axes] = {}
        self._fixed: set[Value] = set()

    def set(self, value: Value, weight: Weight | None) -> None:
        """State the weight of a value, whatever it is computed from."""
        self.of[value] = weight
        self._fixed.add(value)

    def is_invariant(self, value: Value) -> bool:
        """Return whether a value is known not to depend on the gauge."""
        if value not in self.of:
            return True
        weight = self.of[value]
        return weight is not None and weight.is_invariant

    def follow(self, operation: Operation) -> None:
        """Find the weights of an operation's results.

        Raises:
            NoGaugeError: its effect depends on the gauge.
        """
        if isinstance(operation, If) and self.is_invariant(operation.condition):
            self._follow_branches(operation)
            return
        reads = {value for inner in operation.walk() for value in inner.operands}
        reached = [value for value in reads if value in self.of]
        if not reached:
            return
        if effects_of(operation) & (Effect.WRITE | Effect.ORDER):
            if not all(map(self.is_invariant, reached)):
                raise NoGaugeError(
                    f"the {operation.name} at {place_of(operation.location)} depends on the "
                    f"reference {self.reference} itself"
                )
            axes = {self.of[value].axes for value in reached}  # type: ignore[union-attr]
            self.effects[operation] = (
                axes.pop() if len(axes) == 1 and not operation.regions else None
            )
        for result, weight in zip(operation.results, self._weights(operation), strict=True):
            if result not in self._fixed:
                self.of[result] = weight

    def follow_to_end(self, operation: Operation | None) -> None:
        """Follow an operation and those after it in its region.

        Raises:
            NoGaugeError: an effect depends on the gauge, or what the region yields.
        """
        while operation is not None:
            if operation.spec.terminator:
                self._require_invariant(operation)
            else:
                self.follow(operation)
            operation = operation.next

    def _require_invariant(self, terminator: Operation) -> None:
        if not all(map(self.is_invariant, terminator.operands)):
            raise NoGaugeError(
                f"a value that depends on the reference {self.reference} leaves the region at "
                f"{place_of(terminator.location)}"
            )

    def _follow_branches(self, operation: If) -> None:
        yields = [self._follow_branch(region) for region in operation.regions]
        if operation.condition in self.of:  # which lanes see it is not known
            yields = [[self._mixed(value) for value in values] for values in yields]
        for result, a, b in zip(operation.results, *yields, strict=True):
            if a in self.of or b in self.of:
                self.of[result] = self._common(a, b)

    def _follow_branch(self, region: Region) -> list[Value]:
        for operation in region:
            if not operation.spec.terminator:
                self.follow(operation)
        assert region.last is not None
        return region.last.operands

    def _mixed(self, value: Value) -> Value:
        known = self.of.get(value)
        if known is not None:
            self.of[value] = Weight(known.scale, known.shift, None) if known.is_invariant else None
        return value

    def _common(self, a: Value, b: Value) -> Weight | None:
        if self.is_invariant(a) and self.is_invariant(b):
            return Weight(0, 0, self._common_axes([a, b]))
        return self.of[a] if a in self.of and self.of[a] == self.of.get(b) else None

    def _common_axes(self, values: list[Value]) -> Axes:
        """Return the axes of the values that have weights; None where these differ."""
        axes = {weight.axes for value in values if (weight := self.of.get(value)) is not None}
        return axes.pop() if len(axes) == 1 else None

    def _weights(self, operation: Operation) -> list[Weight | None]:
        facts = [self.of.get(value, _NONE) for value in operation.operands]
        nested = (
            value
            for inner in operation.walk()
            if inner is not operation
            for value in inner.operands
        )
        inside = [value for value in nested if value in self.of]
        found: Weight | None = None
        if all(map(self.is_invariant, (*operation.operands, *inside))):
            found = Weight(0, 0, None if inside else axes_of_result(operation, facts))
        elif not inside and all(fact is not None for fact in facts):
            axes, numbers = axes_of_result(operation, facts), self._numbers(operation, facts)
            if numbers is not None and (axes is not None or numbers == (0, 0)):
                found = Weight(*numbers, axes)
        return [found] * len(operation.results)

    def _numbers(self, operation: Operation, facts: Any) -> tuple[int, int] | None:
        """Return (scale, shift) of the results of an operation on values with known weights."""
        pairs = [(fact.scale, fact.shift) for fact in facts]
        if operation.name == self.base:
            ((scale, shift),) = pairs
            return (shift, 0) if scale == 0 else None
        if operation.name == LOGARITHMS[self.base]:
            ((scale, shift),) = pairs
            return (0, scale) if shift == 0 else None
        if isinstance(operation, Moved) or (operation.spec.forwards and len(pairs) == 1):
            return pairs[0]
        rule = _RULES.get(operation.name)
        return None if rule is None else rule(operation, pairs)


#: The weight of what does not depend on the gauge at all.
_NONE = Weight(0, 0, ())

Pair = tuple[int, int]
Pairs = list[Pair]


def _add(operation: Operation, pairs: Pairs) -> Pair | None:
    (scale, shift), (other, by) = pairs
    if scale or other:
        return _either(operation.operands, pairs, 0.0)
    return (0, shift + by)


def _sub(operation: Operation, pairs: Pairs) -> Pair | None:
    (scale, shift), (other, by) = pairs
    return _add(operation, pairs) if scale or other else (0, shift - by)


def _mul(operation: Operation, pairs: Pairs) -> Pair | None:
    (scale, shift), (other, by) = pairs
    return None if shift or by else (scale + other, 0)


def _div(operation: Operation, pairs: Pairs) -> Pair | None:
    (scale, shift), (other, by) = pairs
    return None if shift or by else (scale - other, 0)


def _neg(operation: Operation, pairs: Pairs) -> Pair:
    ((scale, shift),) = pairs
    return (scale, -shift)


def _abs(operation: Operation, pairs: Pairs) -> Pair | None:
    ((scale, shift),) = pairs
    return (scale, 0) if shift == 0 else None


def _fma(operation: Fma, pairs: Pairs) -> Pair | None:
    product = _mul(operation, pairs[:2])
    if product is None or product == pairs[2] or constant_of(operation.c) == 0.0:
        return product
    return pairs[2] if product[0] == pairs[2][0] == 0 else None


def _cast(operation: Cast, pairs: Pairs) -> Pair | None:
    ends = (element_type(operation.x.type), element_type(operation.result.type))
    return pairs[0] if all(isinstance(end, FloatType) for end in ends) else None


def _extremum(operation: Extremum, pairs: Pairs) -> Pair | None:
    return pairs[0] if pairs[0] == pairs[1] else None


def _select(operation: Select, pairs: Pairs) -> Pair | None:
    if pairs[0] != (0, 0):
        return None
    return _either([operation.a, operation.b], pairs[1:], None)


def _reduce(operation: Reduce, pairs: Pairs) -> Pair | None:
    if len(pairs) != 1:
        return None
    name, (scale, shift) = combination_of(operation), pairs[0]
    combining = operation.combine.first
    if isinstance(combining, Extremum):
        return (scale, shift) if name else None
    return (scale, 0) if name == "add" and shift == 0 else None


def _dot(operation: Dot, pairs: Pairs) -> Pair | None:
    product = _mul(operation, pairs[:2])
    if product is None:
        return None
    if product == pairs[2]:
        return product if product[1] == 0 else None
    return product if constant_of(operation.c) == 0.0 else None


def _either(values: list[Value], pairs: Pairs, neutral: float | None) -> Pair | None:
    """Return the weight of either of two values: zero has any scale, minus infinity any shift.

    Args:
        neutral: 0.0 where the two are added, so that they must be scaled.
    """
    if pairs[0] == pairs[1]:
        return pairs[0]
    for i in (0, 1):
        number, (scale, shift) = constant_of(values[i]), pairs[1 - i]
        if number == 0.0 and shift == 0:
            return (scale, shift)
        if neutral is None and number == -float("inf") and scale == 0:
            return (scale, shift)
    return None


#: Rules of operations: (scale, shift) of the operands to that of the result.
_RULES: Final[dict[str, Callable[[Any, Pairs], Pair | None]]] = {
    "abs": _abs,
    "add": _add,
    "cast": _cast,
    "div": _div,
    "dot": _dot,
    "fma": _fma,
    "max": _extremum,
    "min": _extremum,
    "mul": _mul,
    "neg": _neg,
    "reduce": _reduce,
    "select": _select,
    "sub": _sub,
}


def combination_of(operation: Reduce | Scan) -> str:
    """Return the name of the one operation that combines; empty where it is none."""
    first, last = operation.combine.first, operation.combine.last
    assert first is not None
    assert last is not None
    is_plain = (
        first.next is last
        and len(first.operands) == 2
        and set(first.operands) == set(operation.combine.arguments)
        and last.operands == first.results
    )
    return first.name if is_plain else ""


# ---- axes


def axes_of_result(operation: Operation, facts: list[Weight | None]) -> Axes:
    """Return the lanes of the reference that a result's lanes belong to.

    Args:
        facts: the weights of the operands.
    """
    found: set[Axes] = set()
    for position, fact in enumerate(facts):
        if fact is _NONE or fact is None:
            continue
        found.add(None if fact.axes is None else moved_axes(operation, position, fact.axes))
    return found.pop() if len(found) == 1 else None


def moved_axes(operation: Operation, position: int, axes: tuple[int, ...]) -> Axes:
    """Return the axes of a result by those of one operand; None where lanes are mixed.

    Args:
        position: the operand's.
        axes: the axes of the operand, one for each axis of the reference.
    """
    if not axes:  # the reference is a scalar
        return ()
    operand = operation.operands[position]
    if operation.spec.elementwise:
        return axes
    match operation:
        case Splat():
            return None
        case Broadcast():
            before, after = shape_of(operand.type), shape_of(operation.result.type)
            return axes if all(before[axis] == after[axis] for axis in axes) else None
        case ExpandDims():
            return tuple(axis + (axis >= operation.axis) for axis in axes)
        case Permute():
            return tuple(operation.order.index(axis) for axis in axes)
        case Reduce():
            if operation.axis in axes:
                return None
            return tuple(axis - (axis > operation.axis) for axis in axes)
        case Dot():
            rank = len(shape_of(operand.type))
            contracted = {0: rank - 1, 1: rank - 2}.get(position)
            return None if contracted in axes else axes
    return None


__all__ = [
    "LOGARITHMS",
    "Axes",
    "GaugeWeights",
    "NoGaugeError",
    "Weight",
    "combination_of",
    "moved_axes",
    "place_of",
]
