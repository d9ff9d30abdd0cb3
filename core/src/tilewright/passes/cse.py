"""Common subexpression elimination: replace an operation by an equal one that dominates it.

An operation sees the operations before it in its region and in the regions around. Loads merge as
well, as long as nothing in between, nor anything in a loop around, may have written.
"""

from __future__ import annotations

import struct
from typing import Any

from tilewright.ir.core import Module, Operation, Region, Value
from tilewright.ir.ops.arithmetic import Constant
from tilewright.ir.ops.control import If
from tilewright.ir.ops.shape import Splat
from tilewright.ir.table import Effect, Trait
from tilewright.passes.effects import clobbers_memory, effects_of


def cse(module: Module) -> bool:
    """Merge equal computations; return whether anything changed."""
    changed = False
    for function in module.functions.values():
        changed |= _Scopes(_Summaries(function.body)).region(function.body)
    return changed


class _Summaries:
    """Summaries of operations with regions, computed before anything is merged.

    Each operation is visited once, because regions may be nested hundreds deep.

    Attributes:
        effects: effects by operation.
        alike: operations that another one may be equal to; the others need no key of their regions.
    """

    __slots__ = ("alike", "effects")

    def __init__(self, body: Region) -> None:
        self.effects: dict[Operation, Effect] = {}
        by_shape: dict[Any, list[Operation]] = {}
        self._region(body, by_shape)
        self.alike = {
            operation for found in by_shape.values() if len(found) > 1 for operation in found
        }

    def _region(self, region: Region, by_shape: dict[Any, list[Operation]]) -> tuple[int, Effect]:
        """Return (a hash that regions with equal keys share, the effects of the operations)."""
        shape: list[Any] = []
        effects = Effect.NONE
        for operation in region:
            own = operation.spec.effects
            shape.append(operation.name)
            if operation.regions:
                inside = Effect.NONE
                for inner in operation.regions:
                    found, others = self._region(inner, by_shape)
                    shape.append(found)
                    inside |= others
                own = (
                    (own & ~Effect.REGION) | inside
                    if Effect.REGION in own
                    else effects_of(operation)
                )
                self.effects[operation] = own
                by_shape.setdefault(
                    (operation.name, tuple(shape[-len(operation.regions) :])), []
                ).append(operation)
            elif own is not Effect.NONE:
                own = effects_of(operation)
            effects |= own
        return hash(tuple(shape)), effects


class _Scopes:
    """Scoped table of available operations: ``known`` maps keys to operations.

    A key includes the state of memory if the operation reads it.
    """

    __slots__ = ("known", "memory", "summaries")

    def __init__(self, summaries: _Summaries) -> None:
        self.summaries = summaries
        self.known: dict[tuple[Any, ...], Operation] = {}
        self.memory = 0

    def region(self, region: Region) -> bool:
        added: list[tuple[Any, ...]] = []
        changed = False
        for operation in region:
            spec = operation.spec
            if spec.terminator:
                continue
            effects = (
                self.summaries.effects[operation] if operation.regions else effects_of(operation)
            )
            if (effects is Effect.NONE or effects is Effect.READ) and (
                not operation.regions or operation in self.summaries.alike
            ):
                key = (_key(operation), self.memory if effects is Effect.READ else -1)
                earlier = self.known.get(key)
                if earlier is not None:
                    _merge(earlier, operation)
                    changed = True
                    continue
                self.known[key] = operation
                added.append(key)
            if operation.regions:
                changed |= self._inside(operation)
            elif clobbers_memory(operation):
                self.memory += 1
        for key in added:
            del self.known[key]
        return changed

    def _inside(self, operation: Operation) -> bool:
        changed = False
        if Trait.SCALAR_REGION in operation.spec.traits:
            # Their regions are scalar programs of their own: outer values are not available
            # there.
            saved, self.known = self.known, {}
            for region in operation.regions:
                changed |= self.region(region)
            self.known = saved
            return changed
        if not isinstance(operation, If) and clobbers_memory(operation):
            self.memory += 1  # an earlier iteration may have written
        for region in operation.regions:
            changed |= self.region(region)
        return changed


def _merge(earlier: Operation, later: Operation) -> None:
    for ours, theirs in zip(earlier.results, later.results, strict=True):
        theirs.replace_all_uses(ours)
        if not isinstance(earlier, Constant | Splat):
            ours.name = ours.name or theirs.name
        elif ours.name != theirs.name:
            ours.name = ""  # a zero called after one of the many it serves would mislead
    later.erase()


def _key(operation: Operation) -> tuple[Any, ...]:
    spec = operation.spec
    operands: Any = tuple(operation.operands)
    if Trait.COMMUTATIVE in spec.traits:
        operands = frozenset(operands)
    types = tuple([value.type for value in operation.results])
    key = (spec.name, operands, operation.segments, _attributes(operation), types)
    return (
        (*key, *[_region_key(region, {}) for region in operation.regions])
        if operation.regions
        else key
    )


def _region_key(region: Region, numbers: dict[Value, int]) -> tuple[Any, ...]:
    """Return a region's structure: inner values by number, outer values as themselves."""
    parts: list[Any] = [tuple([value.type for value in region.arguments])]
    for argument in region.arguments:
        numbers[argument] = len(numbers)
    for operation in region:
        operands = tuple([numbers.get(value, value) for value in operation.operands])
        types = tuple([value.type for value in operation.results])
        parts.append((operation.name, operands, operation.segments, _attributes(operation), types))
        for result in operation.results:
            numbers[result] = len(numbers)
        parts += [_region_key(inner, numbers) for inner in operation.regions]
    return tuple(parts)


def _attributes(operation: Operation) -> tuple[Any, ...]:
    declared_attributes = operation.spec.attributes
    if not declared_attributes:
        return ()
    given, found = operation.attributes, []
    for declared in declared_attributes:
        value = given.get(declared.name, declared.default)
        # 0.0 and -0.0 are equal and a NaN is not, but a constant is its bits.
        found.append(struct.pack("<d", value) if isinstance(value, float) else value)
    return tuple(found)
