"""Mocks of the state of writing a kernel, for tests of single instructions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tilewright_nvidia.codegen.kernel_state import KernelState
from tilewright_nvidia.codegen.packed_registers import PackedRegisters


def state_of(words: PackedRegisters) -> KernelState:
    """Return the state of a kernel that accesses no memory."""
    nothing: Any = None
    return KernelState(
        maps=nothing,
        frugal=False,
        num_warps=4,
        most_registers=None,
        programs=1,
        cluster=1,
        uniform_warps=True,
        waits_at_entry=False,
        words=words,
    )


def context_of(words: PackedRegisters) -> Any:
    """Return a mock of the lowering context of a kernel whose packed registers are ``words``."""
    return SimpleNamespace(writer=SimpleNamespace(module=SimpleNamespace(state=state_of(words))))
