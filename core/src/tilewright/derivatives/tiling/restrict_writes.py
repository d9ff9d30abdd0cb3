"""The part of a kernel that writes some of its outputs.

One kernel is made for each group of cotangents that are summed over one axis of the grid.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from tilewright.derivatives.tiling.kernel_memory import (
    KernelMemory,
    NoTilingError,
    copied_kernel,
    place_in_kernel,
)
from tilewright.ir.core import Module, Operation
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
    made = without_writes(module, lambda write, name: name not in kept)
    kernel = made.functions.pop(made.kernel.name)
    kernel.name = "_".join([kernel.name, *sorted(kept)])
    made.add(kernel)
    return made


def without_writes(module: Module, is_dropped: Callable[[Operation, str], bool]) -> Module:
    """Return a kernel without some of its writes, after the standard passes.

    Args:
        is_dropped: whether a write to an argument of a name goes.

    Raises:
        NoTilingError: the kernel reads what one of them returns.
    """
    made = copied_kernel(module)
    writes = KernelMemory(made).writes
    dropped = [write for write, name in writes.items() if is_dropped(write, name)]
    for write in dropped:
        if any(result.uses for result in write.results):
            raise NoTilingError(
                f"the {write.name} at {place_in_kernel(write)} returns what was in memory"
            )
        write.erase()
    run_passes(made)
    return made


def outermost(operation: Operation) -> Operation:
    """Return the operation of the kernel's outermost level that an operation stands in."""
    found = operation
    for outer in operation.ancestors():
        found = outer
    return found


__all__ = ["outermost", "restrict_writes", "without_writes"]
