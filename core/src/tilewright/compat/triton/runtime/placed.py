"""The kernels whose plans hold for one active driver: those that were launched without tensors."""

from __future__ import annotations

import weakref

from tilewright.runtime.launch.jit import JITFunction

_placed: weakref.WeakSet[JITFunction] = weakref.WeakSet()


def place(kernel: JITFunction) -> None:
    """A kernel is planned for the active driver."""
    _placed.add(kernel)


def forget_placed() -> None:
    """Plan launches without tensors anew: the active driver is another one."""
    for kernel in list(_placed):
        kernel.clear_cache()
    _placed.clear()
