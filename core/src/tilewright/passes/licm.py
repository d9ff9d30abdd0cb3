"""Loop-invariant code motion: what computes the same in every iteration moves before the loop.

Only what may run although the loop might not: pure operations that cannot trap. Loads, integer
divisions and gathers move too where the loop is sure to run, and loads only if nothing in it may
write. The attribute ``no_licm`` keeps a loop as it is.
"""

from __future__ import annotations

from tilewright.ir.core import Module, Operation, Region, Value
from tilewright.ir.ops.control import For, While
from tilewright.ir.table import Effect, Trait
from tilewright.passes.effects import clobbers_memory, effects_of, is_speculatable
from tilewright.passes.rewriter import constant_of


def licm(module: Module) -> bool:
    """Hoist invariant operations out of loops; return whether anything changed."""
    changed = False
    for function in module.functions.values():
        changed |= _region(function.body)
    return changed


def _region(region: Region) -> bool:
    """Inner loops first, so that what leaves them can leave the outer ones too."""
    changed = False
    for operation in region:
        if (
            operation.spec.effects & Effect.REGION
            and Trait.SCALAR_REGION not in operation.spec.traits
        ):
            for inner in operation.regions:
                changed |= _region(inner)
            if isinstance(operation, For | While) and not operation.no_licm:
                changed |= _hoist(operation)
    return changed


def _hoist(loop: For | While) -> bool:
    """Move the loop's invariant operations before it, in order."""
    changed = False
    writes = clobbers_memory(loop)
    varying: set[Value] = set()
    for index, region in enumerate(loop.regions):
        certain = _runs(loop) if isinstance(loop, For) else index == 0
        varying.update(region.arguments)
        for operation in region:
            if operation.spec.terminator:
                continue
            if not _reads_any(operation, varying) and _may_move(operation, certain, writes):
                operation.move_before(loop)
                changed = True
            else:
                varying.update(operation.results)
    return changed


def _runs(loop: For) -> bool:
    """Return whether the body of a ``for`` is sure to run."""
    lower, upper = constant_of(loop.lower), constant_of(loop.upper)
    return lower is not None and upper is not None and lower < upper


def _may_move(operation: Operation, certain: bool, writes: bool) -> bool:
    """``certain``: the operation is sure to run at least once; ``writes``: something in the loop
    may write memory."""
    if is_speculatable(operation):
        return True
    if not certain:
        return False
    effects = effects_of(operation)
    return effects is Effect.NONE or (effects is Effect.READ and not writes)


def _reads_any(operation: Operation, values: set[Value]) -> bool:
    if not values.isdisjoint(operation.operands):
        return True
    return bool(operation.regions) and any(
        _reads_any(inner, values) for region in operation.regions for inner in region
    )
