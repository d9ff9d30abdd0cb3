"""Drops the acquire half of atomic updates that no access of memory follows.

An acquire orders what a thread does after it. At the end of a kernel nothing is left to be ordered:
the launch's end orders what other kernels do. Without it the old value need not come back (PTX's
``red`` in place of ``atom``), and no fence waits for the update.
"""

from __future__ import annotations

from tilewright.ir.core import Function, Operation
from tilewright.ir.ops.control import If
from tilewright.ir.ops.memory import AtomicCas, AtomicRmw
from tilewright.ir.table import Effect
from tilewright.passes.effects import effects_of

#: The order that is left of one that acquires.
_LEFT = {"acquire": "relaxed", "acq_rel": "release"}


def relax_atomics(function: Function) -> None:
    """Rewrite the order of each atomic update of a kernel behind which nothing touches memory."""
    for operation in list(function.walk()):
        if isinstance(operation, AtomicRmw | AtomicCas) and operation.order in _LEFT and _is_last(operation, function):
            operation.attributes["order"] = _LEFT[operation.order]


def _is_last(operation: Operation, function: Function) -> bool:
    """Return whether no operation with an effect runs after one."""
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
        place = region.owner if isinstance(region.owner, If) else None  # what stands in a loop runs again
    return False
