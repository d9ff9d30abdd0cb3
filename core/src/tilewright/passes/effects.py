"""What an operation does to the world, its attributes and regions considered; which operations may go, and which may run although the program did not ask."""

from __future__ import annotations

from tilewright.ir.core import Operation
from tilewright.ir.table import Effect
from tilewright.ir.types import FloatType, element_type

#: Ordered among effects, but neither readers nor writers of memory that programs see.
_ORDERED_WITHOUT_MEMORY = frozenset({"print", "assert", "assume"})


def effects_of(operation: Operation) -> Effect:
    """The operation's effects with those of its regions in place of ``Effect.REGION``; a volatile load counts as ordered, pure assembly as none."""
    effects = operation.spec.effects
    if effects is Effect.NONE:
        return effects
    if Effect.REGION in effects:
        effects &= ~Effect.REGION
        for region in operation.regions:
            for inner in region:
                if inner.spec.effects is not Effect.NONE:
                    effects |= effects_of(inner)
        return effects
    attributes = operation.attributes
    if effects is Effect.READ:
        return effects | Effect.ORDER if attributes.get("volatile") else effects
    if effects is Effect.ORDER and operation.spec.has_attribute("pure"):
        return Effect.NONE if operation.attribute("pure") else effects | Effect.READ | Effect.WRITE
    return effects


def is_removable(operation: Operation) -> bool:
    """Whether the operation may go when nobody reads its results. Loads may; a loop may, for it ends."""
    if operation.spec.terminator:
        return False
    return effects_of(operation) & ~Effect.READ is Effect.NONE


def clobbers_memory(operation: Operation) -> bool:
    """Whether a load after the operation may see other values than one before it."""
    effects = operation.spec.effects
    if effects is Effect.NONE or effects is Effect.READ or operation.name in _ORDERED_WITHOUT_MEMORY:
        return False
    if Effect.REGION in effects:
        return any(clobbers_memory(inner) for region in operation.regions for inner in region)
    return bool(effects_of(operation) & (Effect.WRITE | Effect.ORDER))


def is_speculatable(operation: Operation) -> bool:
    """Whether running the operation where the program would not have run it harms nothing: no effect, no read, nothing that can trap."""
    spec = operation.spec
    if spec.terminator:
        return False
    if spec.effects is Effect.NONE:
        if spec.name in ("div", "rem"):
            return isinstance(element_type(operation.operands[0].type), FloatType) or _safe_divisor(operation)
        return spec.name != "gather"
    if spec.effects is Effect.REGION:
        # Loops may run long; reductions, scans and maps are as cheap as their operands are large.
        return spec.name in ("reduce", "scan", "map") and all(
            inner.spec.terminator or is_speculatable(inner) for region in operation.regions for inner in region
        )
    return False


def _safe_divisor(operation: Operation) -> bool:
    """Whether an integer division's divisor is a constant that neither is zero nor lets the quotient overflow."""
    divisor = operation.operands[1].definition
    if divisor is not None and divisor.name == "splat":
        divisor = divisor.operands[0].definition
    return divisor is not None and divisor.name == "constant" and divisor.attributes["value"] not in (0, -1)
