"""Relaxation of atomics: drop the acquire semantics of atomics that no memory access follows.

An acquire orders the later accesses of a thread. At the end of a kernel there are none, and the end
of the launch orders other kernels. Without it, the old value need not be returned (PTX's ``red``
instead of ``atom``), and no fence waits for the update.
"""

from __future__ import annotations

from tilewright.ir.core import Function, Operation
from tilewright.ir.ops.control import If
from tilewright.ir.ops.memory import AtomicCas, AtomicRmw
from tilewright.ir.table import Effect
from tilewright.passes.effects import effects_of

#: Memory orders without their acquire half.
_LEFT = {"acquire": "relaxed", "acq_rel": "release"}


def relax_atomics(function: Function) -> None:
    """Relax each atomic update that no later memory access of the kernel follows."""
    for operation in list(function.walk()):
        if (
            isinstance(operation, AtomicRmw | AtomicCas)
            and operation.order in _LEFT
            and _is_last(operation, function)
        ):
            operation.attributes["order"] = _LEFT[operation.order]


def _is_last(operation: Operation, function: Function) -> bool:
    """Return whether no operation with an effect runs after an operation."""
    place: Operation | None = operation
    while place is not None:
        region = place.parent
        assert region is not None
        later = place.next
        while later is not None:
            if effects_of(later) is not Effect.NONE:
                return False
            later = later.next
        if region is function.body:
            return True
        place = (
            region.owner if isinstance(region.owner, If) else None
        )  # what stands in a loop runs again
    return False
