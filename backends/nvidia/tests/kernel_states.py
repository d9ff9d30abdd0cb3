"""States of writing kernels that there are not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tilewright_nvidia.kernel_state import KernelState
from tilewright_nvidia.words import Words


def state_of(words: Words) -> KernelState:
    """The state of a kernel that accesses no memory."""
    nothing: Any = None
    return KernelState(
        maps=nothing,
        memory=nothing,
        num_warps=4,
        light=False,
        moves_registers=False,
        programs=1,
        cluster=1,
        uniform_warps=True,
        waits_at_entry=False,
        words=words,
    )


def context_of(words: Words) -> Any:
    """Stands in for the context of a kernel whose instructions are not written."""
    return SimpleNamespace(writer=SimpleNamespace(module=SimpleNamespace(state=state_of(words))))
