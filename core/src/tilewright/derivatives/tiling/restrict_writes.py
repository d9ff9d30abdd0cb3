"""The part of a kernel that writes some of its outputs.

One kernel is made for each group of cotangents that are summed over one axis of the grid.
"""

from __future__ import annotations

from collections.abc import Collection

from tilewright.derivatives.tiling.kernel_memory import (
    KernelMemory,
    NoTilingError,
    copied_kernel,
    place_in_kernel,
)
from tilewright.ir.core import Module
from tilewright.ir.ops.memory import Barrier
from tilewright.passes.pipeline import run as run_passes


def restrict_writes(
    module: Module, names: Collection[str], scratch: Collection[str] = ()
) -> Module:
    """Return the kernel that writes to the named arguments alone.

    Args:
        scratch: arguments that the kernel writes before it reads them, and that nothing else reads:
            tapes. They are still written where the rest reads them.

    Raises:
        NoTilingError: the kernel does not write to one of them, or what it writes there is computed
            from another argument that it writes to.
    """
    kept = set(names)
    unwritten = sorted(kept - KernelMemory(module).written())
    if unwritten:
        raise NoTilingError(f"it does not write to {unwritten[0]}")
    while True:
        made = _without(module, kept)
        memory = KernelMemory(made)
        needed = memory.read() & KernelMemory(module).written() - kept
        if not needed:
            break
        other = sorted(needed - set(scratch))
        if other:
            raise NoTilingError(
                f"what it writes to {', '.join(names)} is computed from {other[0]}, to which it "
                "writes as well"
            )
        kept |= needed
    if not memory.read() & memory.written():
        for operation in list(made.kernel.walk()):
            if isinstance(operation, Barrier):
                operation.erase()
    return made


def _without(module: Module, kept: Collection[str]) -> Module:
    """Return a kernel without its writes to other arguments."""
    made = copied_kernel(module)
    for operation, name in KernelMemory(made).writes.items():
        if name in kept:
            continue
        if any(result.uses for result in operation.results):
            raise NoTilingError(
                f"the {operation.name} at {place_in_kernel(operation)} returns what was in memory"
            )
        operation.erase()
    kernel = made.functions.pop(made.kernel.name)
    kernel.name = "_".join([kernel.name, *sorted(kept)])
    made.add(kernel)
    run_passes(made)
    return made


__all__ = ["restrict_writes"]
