"""``triton.runtime._allocation``: memory that kernels need at launch."""

from __future__ import annotations

from contextvars import Token
from typing import Any

from tilewright.runtime.devices.allocator import Allocator, current, set_allocator


class NullAllocator:
    """Gives no memory.

    Raises:
        RuntimeError: when it is asked for some.
    """

    def __call__(self, size: int, alignment: int, stream: Any) -> Any:
        raise RuntimeError(
            "Kernel requires a runtime memory allocation, but no allocator was set. Use "
            "triton.set_allocator to specify an allocator."
        )


class _OfContext:
    """The allocator of this context, which programs read and replace.

    Where there is none it is a :class:`NullAllocator`.
    """

    def get(self) -> Any:
        found = current.get()
        return NullAllocator() if found is None else found

    def set(self, allocator: Any) -> Token[Allocator | None]:
        return current.set(allocator)

    def reset(self, token: Token[Allocator | None]) -> None:
        current.reset(token)


_allocator = _OfContext()


class _AllocatorHolder:
    """An allocator that can be replaced, with a context variable's methods."""

    def __init__(self) -> None:
        self._allocator: Any = NullAllocator()

    def get(self) -> Any:
        return self._allocator

    def set(self, allocator: Any) -> None:
        self._allocator = allocator

    def __call__(self, size: int, alignment: int, stream: Any) -> Any:
        return self._allocator(size, alignment, stream)


_profile_allocator = _AllocatorHolder()


def set_profile_allocator(allocator: Any) -> None:
    """Keep an allocator for instrumented kernels, of which Tilewright has none."""
    _profile_allocator.set(NullAllocator() if allocator is None else allocator)


__all__ = ["Allocator", "NullAllocator", "set_allocator", "set_profile_allocator"]
