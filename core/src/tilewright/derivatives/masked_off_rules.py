"""Derivatives that rules of users return in masked-off lanes: zero where they are not finite.

The results of a function have cotangents of zero in lanes that a mask switched off. The rule may
divide by what such lanes hold, and return NaN, which spoils sums over lanes. Where all cotangents
on which a lane depends are zero, what is not finite becomes zero; finite values stay as they are.

A lane depends on the cotangents of the same lane, and along the axes over which the function or
its rule reduces or scans, on those of all lanes. Where other operations mix lanes, it depends on
all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.derivatives.analysis.finiteness import Finiteness
from tilewright.derivatives.rule_calls import apply_rule
from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Region, Value
from tilewright.ir.ops.arithmetic import Arange, Constant
from tilewright.ir.ops.control import Reduce, Scan
from tilewright.ir.ops.debug import Hint
from tilewright.ir.ops.shape import Broadcast, ExpandDims, Splat
from tilewright.ir.types import I1, TileType, shape_of

#: Operations beside elementwise ones that keep lanes apart.
_APART = (Constant, Arange, Hint, Broadcast, Splat)


def apply_masked_rule(
    b: Builder,
    function: Function,
    rule: Function,
    values: Sequence[Value],
    given: Sequence[Value],
    unsafe: Sequence[bool],
) -> list[tuple[int, Value]]:
    """Append the call of a rule, and make its results strict where that is needed.

    Args:
        function: the function that the rule is of.
        values: the function's arguments and results.
        given: the cotangents of its results, or the tangents of its arguments.
        unsafe: whether each of ``values`` may not be finite in masked-off lanes.

    Returns:
        as :func:`.rule_calls.apply_rule`.
    """
    found = apply_rule(b, rule, [*values, *given])
    spoiled = [value for value, is_unsafe in zip(rule.arguments, unsafe, strict=False) if is_unsafe]
    finiteness = Finiteness(rule, spoiled=spoiled)
    assert rule.body.last is not None
    returned = rule.body.last.operands
    lanes = _DependentLanes.of(function, rule)
    made = []
    for (place, value), inner in zip(found, returned, strict=True):
        if inner in finiteness.unsafe and given:
            value = _strict(b, value, lanes.all_zero(b, given, value))
        made.append((place, value))
    return made


def _strict(b: Builder, value: Value, is_zero: Value) -> Value:
    """Append zero in place of what is not finite, where the condition holds."""
    infinity = b.constant_like(value.type, math.inf)
    is_finite = b.cmp(b.abs(value), infinity, predicate="lt")
    kept = b.select(is_zero, b.constant_like(value.type, 0.0), value)
    chosen: Value = b.select(is_finite, value, kept)
    return chosen


@dataclass(frozen=True)
class _DependentLanes:
    """The lanes of a function that depend on each other.

    Attributes:
        shape: of its tiles of the highest rank.
        mixed: the axes of the shape along which they do.
    """

    shape: tuple[int, ...]
    mixed: frozenset[int]

    @classmethod
    def of(cls, function: Function, rule: Function) -> _DependentLanes:
        """Return the lanes of a function and its rule."""
        arguments = (*function.arguments, *rule.arguments)
        shape = max((shape_of(value.type) for value in arguments), key=len)
        everything = frozenset(range(len(shape)))
        mixed: set[int] = set()
        spread: set[int] = set()
        for one in (function, rule):
            for operation in one.body:
                if isinstance(operation, Reduce | Scan):
                    if shape_of(operation.operands[0].type) != shape:
                        return cls(shape, everything)
                    mixed.add(operation.axis)
                elif isinstance(operation, ExpandDims):
                    spread.add(operation.axis)
                elif not (
                    operation.spec.elementwise
                    or operation.spec.terminator
                    or isinstance(operation, _APART)
                ):
                    return cls(shape, everything)
        return cls(shape, frozenset(mixed) if spread <= mixed else everything)

    def all_zero(self, b: Builder, given: Sequence[Value], like: Value) -> Value:
        """Append whether all values are zero on which the lanes of a result depend."""
        kept = tuple(n for axis, n in enumerate(self.shape) if axis not in self.mixed)
        wanted = shape_of(like.type)
        is_known = wanted in (self.shape, kept)
        total: Value | None = None
        for value in given:
            zero = b.constant_like(value.type, 0.0)
            found: Value = b.cmp(value, zero, predicate="eq")
            shape = shape_of(value.type)
            if shape == self.shape and is_known:
                for axis in sorted(self.mixed, reverse=True):
                    found = _all_along(b, found, axis)
            elif shape != kept or not is_known:
                for axis in reversed(range(len(shape))):
                    found = _all_along(b, found, axis)
            found = self._spread(b, found, wanted)
            total = found if total is None else b.and_(total, found)
        assert total is not None
        return total

    def _spread(self, b: Builder, condition: Value, wanted: tuple[int, ...]) -> Value:
        """Append a condition in the shape of a result."""
        shape = shape_of(condition.type)
        if shape == wanted:
            return condition
        result = TileType(wanted, I1)
        if not shape:
            wide: Value = b.splat(condition, result=result)
            return wide
        for axis in sorted(self.mixed):
            condition = b.expand_dims(condition, axis=axis)
        wide = b.broadcast(condition, result=result)
        return wide


def _all_along(b: Builder, condition: Value, axis: int) -> Value:
    combine = Region([I1, I1])
    with b.at_region(combine):
        b.yield_([b.and_(*combine.arguments)])
    (found,) = b.region_op("reduce", [condition], regions=[combine], axis=axis).results
    return found


__all__ = ["apply_masked_rule"]
