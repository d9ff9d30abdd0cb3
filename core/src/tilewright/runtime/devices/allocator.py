"""Allocator of the scratch memory that launches need, as for device-side tensor descriptors."""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from typing import Any

#: ``allocator(size in bytes, alignment, stream or None)`` -> an object with ``data_ptr()``
Allocator = Callable[[int, int, Any], Any]

#: The allocator of the current context (thread or task).
current: contextvars.ContextVar[Allocator | None] = contextvars.ContextVar(
    "tilewright_allocator", default=None
)


def set_allocator(allocator: Allocator | None) -> None:
    """Set the allocator of scratch memory for the launches of the current thread or asyncio task.

    The included backends need no allocator: each launch allocates the scratch memory
    itself. A backend from another package may call ``allocator(size, alignment, stream)`` to
    allocate memory for a launch.

    Args:
        allocator: a function of a size and an alignment in bytes, and of a stream or None, which
            returns an object with ``data_ptr()``. Pass None to remove the allocator.
    """
    current.set(allocator)


def allocate(size: int, alignment: int, stream: Any = None) -> Any:
    """Allocate scratch memory for a launch; called by launchers.

    Raises:
        RuntimeError: no allocator is set.
    """
    allocator = current.get()
    if allocator is None:
        raise RuntimeError(
            f"Kernel requires a runtime memory allocation of {size} bytes, but no allocator was "
            "set. Use tilewright.set_allocator to give one: tilewright.set_allocator(lambda size, "
            "alignment, stream: torch.empty(size, dtype=torch.int8, device=...))"
        )
    return allocator(size, alignment, stream)
