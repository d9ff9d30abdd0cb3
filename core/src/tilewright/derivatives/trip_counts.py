"""The iterations of loops that are walked backward, counted before their tape is allocated."""

from __future__ import annotations

from collections.abc import Collection

from tilewright.derivatives.adjoint.loop_tape import trip_count
from tilewright.derivatives.kernel_arguments import normalized
from tilewright.derivatives.refusals import REWRITE, refusal
from tilewright.derivatives.shadow_addresses import add_argument
from tilewright.ir.builder import Builder
from tilewright.ir.core import Module
from tilewright.ir.ops.control import For
from tilewright.ir.ops.debug import Assume
from tilewright.ir.table import Effect
from tilewright.ir.types import I64, PointerType
from tilewright.ir.verifier import verify
from tilewright.passes.effects import effects_of
from tilewright.passes.pipeline import run as run_passes

#: The parameter to which the kernel that counts writes: an i64, zero before.
TRIPS_OUT = "trips"


def trip_counts(module: Module, loops: Collection[int]) -> Module:
    """Return the module of a kernel that finds the most iterations of some loops.

    The kernel has the original's parameters, then ``trips``, in which it leaves the maximum of all
    loops and programs. It has no other effects.

    Args:
        loops: numbers of loops, as the names of tapes have them.

    Raises:
        DerivativeError: the iterations depend on the result of an atomic operation.
    """
    counted = normalized(module)
    kernel = counted.kernel
    found = [operation for operation in kernel.walk() if isinstance(operation, For)]
    own = set()
    maximum = add_argument(kernel, PointerType(I64), TRIPS_OUT)
    for number in loops:
        loop = found[number]
        b = Builder.at(loop)
        trips = trip_count(b, loop.lower, loop.upper, loop.step)
        wide = trips if trips.type is I64 else b.cast(trips, result=I64)
        update = b.atomic_rmw(maximum, wide, kind="max", order="relaxed")
        own.add(update.owner)
    for operation in list(kernel.walk()):
        if operation.regions or operation in own or operation.spec.terminator:
            continue
        is_effect = bool(effects_of(operation) & (Effect.WRITE | Effect.ORDER))
        if is_effect and not any(result.uses for result in operation.results):
            operation.erase()
    run_passes(counted)
    for operation in kernel.walk():
        kept = operation in own or isinstance(operation, Assume) or operation.regions
        if not kept and effects_of(operation) & (Effect.WRITE | Effect.ORDER):
            raise refusal(
                operation, "the number of a loop's iterations depends on its result", REWRITE
            )
    function = counted.functions.pop(kernel.name)
    function.name = f"{function.name}_trips"
    counted.add(function)
    verify(counted)
    return counted
