"""Transformations of a module that a compilation does besides its passes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilewright.ir import Module

#: A launcher, called with a grid of three, a stream and the runtime arguments.
LaunchFunction = Callable[..., None]


@dataclass(frozen=True)
class Preparation:
    """Transformation of a module, before the passes or before lowering.

    Attributes:
        name: identifies it completely: it is part of the disk cache's key.
        run: changes the module in place.
        adapt: ``adapt(launcher, compiled kernel)`` wraps the backend's launcher where the kernel
            has other parameters than its source, which only a transformation before the passes may
            lead to; None where it has the same.
        replaced_dots: operand type and accumulators of the dots that it replaces by others, which
            kernels may use though the backend does not declare them.
    """

    name: str
    run: Callable[[Module], object]
    adapt: Callable[[LaunchFunction, Any], LaunchFunction] | None = None
    replaced_dots: tuple[tuple[str, tuple[str, ...]], ...] = ()
