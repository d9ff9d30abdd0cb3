"""Lookup of matmul plans: all plans of a target for a matmul, and the plan of an operation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from weakref import WeakKeyDictionary

from tilewright.errors import LoweringError
from tilewright.simt.dialect.ops.dot import Multiplication, Step
from tilewright.simt.target.fma_plan import FMA_IN_SEQUENCE, fma_plan
from tilewright.simt.target.matmul_plan import Matmul, MatmulPlan, matmul_of
from tilewright.simt.target.simt_target import SimtTarget

#: The plans of matmuls that were looked up, for each target.
_KNOWN: Final[WeakKeyDictionary[SimtTarget, dict[Matmul, Sequence[MatmulPlan]]]] = (
    WeakKeyDictionary()
)


def plans(matmul: Matmul, target: SimtTarget) -> Sequence[MatmulPlan]:
    """Return the plans for a matmul in order of preference: the target's, else multiply-adds."""
    known = _KNOWN.setdefault(target, {})
    found = known.get(matmul)
    if found is None:
        found = known[matmul] = tuple(target.matrix.plans(matmul)) or (fma_plan(target, matmul),)
    return found


def plan_of(operation: Multiplication | Step, target: SimtTarget) -> MatmulPlan:
    """Return the plan that an operation names.

    Raises:
        LoweringError: the target has no plan of that name for the matmul.
    """
    name = operation.plan
    if name == FMA_IN_SEQUENCE:
        return fma_plan(target, matmul_of(operation), name)
    known = plans(matmul_of(operation), target)
    found = next((plan for plan in known if plan.name == name), None)
    if found is None:
        raise LoweringError(
            f"{operation.name} at {operation.location}: {target.name} has no plan {name!r} for "
            f"this matmul; it has {', '.join(plan.name for plan in known)}"
        )
    return found
