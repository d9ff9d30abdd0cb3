"""A kernel of several loops that write as one kernel for each.

Attention with a loop over the keys left of the diagonal and one over those on it adds to the
gradients of keys in both. Additions may be done by several kernels, one after the other: the first
loop is interchanged, and the second, whose addresses move with the program, adds to elements that
no other program has.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.derivatives.tiling.kernel_memory import (
    KernelMemory,
    NoTilingError,
    copied_kernel,
    is_addition,
)
from tilewright.derivatives.tiling.restrict_writes import outermost, without_writes
from tilewright.ir.core import Module, Operation


def split_writes(module: Module) -> list[Module]:
    """Return kernels that together write what a kernel writes, to be launched in this order.

    Each has the writes of one loop or branch of the kernel's outermost level, or those that stand
    at that level themselves.

    Raises:
        NoTilingError: the kernel reads what it writes, or stores to an argument in several of them.
    """
    source = copied_kernel(module)
    memory = KernelMemory(source)
    memory.require_apart()
    groups: dict[int | None, None] = {}
    written: dict[str, set[int | None]] = {}
    numbers = {operation: number for number, operation in enumerate(source.kernel.body)}
    for write, name in memory.writes.items():
        group = _group(write, numbers)
        groups[group] = None
        written.setdefault(name, set()).add(group)
    for write, name in memory.writes.items():
        if len(written[name]) > 1 and not is_addition(write):
            raise NoTilingError(f"{name}: it is stored in several loops, and not added to")
    if len(groups) < 2:
        return [source]
    made = []
    for number, group in enumerate(groups):
        part = without_writes(source, _others(group))
        part.kernel.name = f"{source.kernel.name}_{number}"
        made.append(_renamed(part))
    return made


def _group(write: Operation, numbers: dict[Operation, int]) -> int | None:
    """Return the number of the operation that a write stands in; None for the outermost level."""
    outer = outermost(write)
    return None if outer is write else numbers[outer]


def _others(group: int | None) -> Callable[[Operation, str], bool]:
    """Return a predicate of the writes of other groups, of a copy of the kernel."""

    def is_other(write: Operation, name: str) -> bool:
        outer = outermost(write)
        assert outer.parent is not None
        numbers = {operation: number for number, operation in enumerate(outer.parent)}
        return _group(write, numbers) != group

    return is_other


def _renamed(module: Module) -> Module:
    kernel = module.kernel
    module.functions.clear()
    module.add(kernel)
    return module


__all__ = ["split_writes"]
