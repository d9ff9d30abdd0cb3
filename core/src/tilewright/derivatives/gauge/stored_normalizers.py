"""Stored results that choose a gauge: the logarithm of a sum, and normalized rows.

Where a kernel stores ``m + log(a)`` of a sum a, the gauge that this number is has a = 1. Where it
stores ``e / s`` of two values that are scaled alike, the gauge with s = 1 has e = the quotient.

A store may be masked. Its masked-off lanes hold nothing in memory, so that they may only be used
where nothing observes them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from tilewright.derivatives.gauge.gauge_weights import LOGARITHMS, Axes, moved_axes
from tilewright.derivatives.gauge.rescaled_loops import RescaledLoop
from tilewright.ir.builder import Builder
from tilewright.ir.core import Module, Operation, Value
from tilewright.ir.ops.memory import AtomicRmw, Store
from tilewright.ir.ops.shape import Moved
from tilewright.ir.table import Effect, Trait
from tilewright.passes.analysis.argument_access import accesses_of
from tilewright.passes.analysis.mask_conjuncts import Conjunct, conjuncts
from tilewright.passes.clone import clone_operation
from tilewright.passes.effects import effects_of


@dataclass(frozen=True, slots=True)
class StoredLogarithm:
    """A store of ``m + log(a)``.

    Attributes:
        store: the store.
        state: the place of a among the carried values.
    """

    store: Store
    state: int


def sole_stores(module: Module, saved: Collection[str]) -> list[Store]:
    """Return the stores that happen once, and alone write to their argument, which is saved.

    An operation that may write anywhere leaves none.
    """
    accesses = {access.operation: access for access in accesses_of(module)}
    writers: dict[int, list[Operation]] = {}
    for operation in module.kernel.walk():
        if operation.regions or Effect.WRITE not in effects_of(operation):
            continue
        access = accesses.get(operation)
        if access is None or Trait.ACCESS not in operation.spec.traits:
            return []
        for argument in access.arguments:
            writers.setdefault(argument, []).append(operation)
    names = [argument.name for argument in module.kernel.arguments]
    return [
        found[0]
        for argument, found in writers.items()
        if names[argument] in saved
        and len(found) == 1
        and isinstance(found[0], Store)
        and found[0].parent is module.kernel.body
        and len(accesses[found[0]].arguments) == 1
    ]


def stored_logarithm(
    link: RescaledLoop, stores: Iterable[Store], effects: dict[Operation, Axes]
) -> StoredLogarithm | None:
    """Return the store of a logarithm of a state, if every effect that the loop reaches is masked
    as it is.

    Args:
        effects: the effects that the loop's results reach -> the axes of the reference there.
    """
    sums = {link.loop.results[position]: position for position in link.positions}
    for store in stores:
        addition = store.value.definition
        if store.parent is not link.loop.parent or addition is None or addition.name != "add":
            continue
        others = [value for value in addition.operands if value is not link.result]
        logarithm = others[0].definition if len(others) == 1 else None
        if logarithm is None or logarithm.name != LOGARITHMS[link.correction.name]:
            continue
        state = sums.get(logarithm.operands[0])
        if state is not None and all(
            _implies(effect, axes, store.mask) for effect, axes in effects.items()
        ):
            return StoredLogarithm(store, state)
    return None


def _implies(effect: Operation, axes: Axes, mask: Value | None) -> bool:
    """Return whether an effect is masked off where the mask of the reference's lanes is."""
    if mask is None:
        return True
    if not isinstance(effect, Store | AtomicRmw) or effect.mask is None or axes is None:
        return False
    given = {(part.condition, _axes_of(part)) for part in conjuncts(effect.mask)}
    for part in conjuncts(mask):
        own = _axes_of(part)
        if own is None or (part.condition, tuple(axes[axis] for axis in own)) not in given:
            return False
    return True


def _axes_of(part: Conjunct) -> Axes:
    """Return the axes of a mask to which those of a condition in it were moved."""
    axes: Axes = tuple(range(_rank(part.condition)))
    for move in reversed(part.moves):
        axes = None if axes is None else moved_axes(move, 0, axes)
    return axes


def _rank(value: Value) -> int:
    return len(getattr(value.type, "shape", ()))


def implies(mask: Value, other: Value) -> bool:
    """Return whether each conjunct of another mask is one of a mask of the same shape."""
    given, wanted = (
        {(part.condition, tuple(map(_move, part.moves))) for part in conjuncts(value)}
        for value in (mask, other)
    )
    return wanted <= given


def _move(move: Moved) -> tuple[object, ...]:
    types = tuple(result.type for result in move.results)
    return (move.name, types, tuple(sorted(move.attributes.items())))


# ---- copies of addresses


def copies(values: Sequence[Value], b: Builder) -> list[Value] | None:
    """Append copies of what values are computed from, as far as it is not there before.

    Returns:
        the values at the builder's place; None, with nothing appended, if one is not computed from
        what is known there by operations without effect.
    """
    assert b.before is not None
    before = set(_operations_before(b.before))
    order: dict[Operation, None] = {}
    for value in values:
        if not _collect(value, before, b.before, order):
            return None
    mapping: dict[Value, Value] = {}
    for operation in order:
        b.insert(clone_operation(operation, mapping))
    return [mapping.get(value, value) for value in values]


def _operations_before(operation: Operation) -> Iterable[Operation]:
    before = operation.previous
    while before is not None:
        yield before
        before = before.previous


def _collect(
    value: Value, before: set[Operation], place: Operation, order: dict[Operation, None]
) -> bool:
    """Collect the operations to copy, operands first; return whether they can be copied."""
    operation = value.definition
    if operation is None or operation in before or operation in order:
        return True
    if operation.parent is not place.parent:
        return True  # in a region around
    if operation.regions or operation.spec.effects is not Effect.NONE:
        return False
    if not all(_collect(operand, before, place, order) for operand in operation.operands):
        return False
    order[operation] = None
    return True


__all__ = ["StoredLogarithm", "copies", "implies", "sole_stores", "stored_logarithm"]
