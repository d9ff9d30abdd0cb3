"""Launches of kernels on memory that is there."""

from __future__ import annotations

import contextvars
from collections.abc import Sequence
from typing import Any, Protocol

from tilewright_kernels.operations.frameworks import Framework

#: Makes the launchers of operations, by ``launcher(framework, array, results)``, while a plan is
#: made or run; None otherwise.
plan_launchers: contextvars.ContextVar[Any] = contextvars.ContextVar(
    "tilewright_kernels_plan", default=None
)


class Launcher(Protocol):
    """Interface by which an operation launches its kernels.

    Operations launch through it alone, so that a framework without mutable arrays can make
    functions of the launches.
    """

    def empty(self, shape: Sequence[int], dtype: Any) -> Any:
        """Return scratch memory of arbitrary elements; ``dtype`` as in :meth:`Framework.empty`."""

    def zeros(self, shape: Sequence[int], dtype: Any) -> Any:
        """Return scratch memory of zeros."""

    def __call__(
        self, kernel: Any, grid: Any, *arguments: Any, updates: Sequence[str] = (), **keywords: Any
    ) -> None:
        """Launch ``kernel[grid](*arguments, **keywords)``.

        ``updates`` names the parameters whose arrays have elements already, which the kernel
        changes.
        """


class DirectLauncher:
    """Launches at once, with scratch memory where an array is.

    Args:
        framework: whose arrays they are.
        array: an array on the device.
    """

    __slots__ = ("_array", "_framework")

    def __init__(self, framework: Framework, array: Any) -> None:
        self._framework, self._array = framework, array

    def empty(self, shape: Sequence[int], dtype: Any) -> Any:
        """Return scratch memory of arbitrary elements."""
        return self._framework.empty(shape, dtype, self._array)

    def zeros(self, shape: Sequence[int], dtype: Any) -> Any:
        """Return scratch memory of zeros."""
        return self._framework.zeros(shape, dtype, self._array)

    def __call__(
        self, kernel: Any, grid: Any, *arguments: Any, updates: Sequence[str] = (), **keywords: Any
    ) -> None:
        """Launch a kernel."""
        kernel[grid](*arguments, **keywords)
