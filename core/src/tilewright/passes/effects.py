"""Effects of operations, including attributes and regions; removability and speculatability."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.ir.core import Operation
from tilewright.ir.ops.arithmetic import Binary, Constant, Div, Rem
from tilewright.ir.ops.control import Call
from tilewright.ir.ops.debug import Extern, InlineAsm
from tilewright.ir.ops.memory import Load
from tilewright.ir.ops.shape import Gather, Splat
from tilewright.ir.table import Effect, Trait
from tilewright.ir.types import FloatType, element_type


def effects_of(operation: Operation) -> Effect:
    """Return an operation's effects, with the effects of its regions in place of ``Effect.REGION``.

    A volatile load counts as ordered, and pure assembly and pure calls as without effect.
    """
    effects = operation.spec.effects
    if effects is Effect.NONE or Effect.REGION not in effects:
        return _own_effects(operation)
    found = Effect.NONE
    for effects in {effects for _, effects in _effects_inside(operation)}:
        found |= effects
    return found


def _effects_inside(operation: Operation) -> Iterator[tuple[Operation, Effect]]:
    """Yield an operation and nested operations that have effects, in no particular order.

    The traversal is iterative, because regions may be nested hundreds deep.
    """
    pending = [operation]
    while pending:
        inner = pending.pop()
        effects = inner.spec.effects
        if effects is Effect.NONE:
            continue
        if effects & Effect.REGION:
            for region in inner.regions:
                pending.extend(iter(region))  # which has no length to count
            effects &= ~Effect.REGION
        else:
            effects = _own_effects(inner)
        if effects is not Effect.NONE:
            yield inner, effects


def _own_effects(operation: Operation) -> Effect:
    """Return the effects of an operation, without those of its regions."""
    effects = operation.spec.effects
    if isinstance(operation, Load):
        return effects | Effect.ORDER if operation.volatile else effects
    if isinstance(operation, InlineAsm | Extern | Call):
        return Effect.NONE if operation.pure else effects | Effect.READ | Effect.WRITE
    return effects


def is_removable(operation: Operation) -> bool:
    """Return whether an operation with unused results may be erased.

    Loads may; a loop may, for it ends.
    """
    return not operation.spec.terminator and kept_for(operation) is None


def kept_for(operation: Operation) -> Operation | None:
    """Return the nested operation, or itself, whose effects prevent removal; None if removable."""
    return next(
        (inner for inner, effects in _effects_inside(operation) if effects is not Effect.READ), None
    )


def clobbers_memory(operation: Operation) -> bool:
    """Return whether a load after the operation may see other values than one before it."""
    pending = [operation]
    while pending:
        inner = pending.pop()
        effects = inner.spec.effects
        if effects is Effect.NONE or effects is Effect.READ or Trait.NO_MEMORY in inner.spec.traits:
            continue
        if effects & Effect.REGION:
            for region in inner.regions:
                pending.extend(iter(region))  # which has no length to count
        elif _own_effects(inner) & (Effect.WRITE | Effect.ORDER):
            return True
    return False


def is_speculatable(operation: Operation) -> bool:
    """Return whether an operation may be executed speculatively: no effect, no read, no trap."""
    spec = operation.spec
    if spec.terminator:
        return False
    if spec.effects is Effect.NONE:
        if isinstance(operation, Div | Rem):
            return isinstance(element_type(operation.a.type), FloatType) or _safe_divisor(operation)
        return not isinstance(operation, Gather)
    if spec.effects is Effect.REGION:
        # Loops may run long; reductions, scans and maps are as cheap as their operands are large.
        return Trait.SCALAR_REGION in spec.traits and all(
            inner.spec.terminator or is_speculatable(inner)
            for region in operation.regions
            for inner in region
        )
    return False


def _safe_divisor(operation: Binary) -> bool:
    """Return whether an integer division's divisor is a constant other than 0 and -1."""
    divisor = operation.b.definition
    if isinstance(divisor, Splat):
        divisor = divisor.x.definition
    return isinstance(divisor, Constant) and divisor.value not in (0, -1)
