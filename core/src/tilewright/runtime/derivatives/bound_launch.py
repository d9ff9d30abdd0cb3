"""Launches of derivatives, bound, and the compiled kernels that take them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tilewright.runtime.compiler.selection import Selected
from tilewright.runtime.compiler.specialize import value_picker
from tilewright.runtime.launch.compiled_kernel import CompiledKernel


class Workspace(NamedTuple):
    """The stream of a launch, and memory that its caller allocated there.

    Attributes:
        stream: the handle that launchers take.
        memory: buffers of the plan -> bytes.
        clear: sets an array to zero in the stream.
    """

    stream: Any
    memory: Mapping[str, Any]
    clear: Callable[[Any], None]


class BoundLaunch(NamedTuple):
    """A launch of a derivative, bound.

    Attributes:
        bound: the kernel's arguments, in the order of its parameters.
        named: the same by name.
        grid: its sizes.
        own: the derivative's own arguments, by name.
        kinds: those of ``own``.
        originals: argument of ``own`` -> the kernel's argument that it is about, and its kind.
        selected: the kernel's selection.
        workspace: where it works, other than in the current stream.
    """

    bound: tuple[Any, ...]
    named: Mapping[str, Any]
    grid: tuple[int, int, int]
    own: Mapping[str, Any]
    kinds: tuple[Any, ...]
    originals: Mapping[str, tuple[Any, Any]]
    selected: Selected
    workspace: Workspace | None = None


class DerivedPlan:
    """A compiled derivative, and the order of its arguments.

    Attributes:
        kernel: the compiled kernel.
        own: the parameters after the kernel's.
        pick: selects the values of the others from the kernel's arguments.
    """

    def __init__(self, kernel: CompiledKernel, launch: BoundLaunch) -> None:
        converters = launch.selected.signature.converters
        self.kernel, self.pick = kernel, value_picker(converters)
        self.own = kernel.parameters[len(converters) :]

    def __call__(
        self,
        launch: BoundLaunch,
        own: Mapping[str, Any],
        grid: tuple[int, int, int] | None = None,
    ) -> None:
        """Launch with the values of the parameters after the kernel's, by name.

        Args:
            grid: the launch's if None.
        """
        grid = launch.grid if grid is None else grid
        if 0 in grid:
            return
        values = (*self.pick(launch.bound), *(own[parameter.name] for parameter in self.own))
        stream = None if launch.workspace is None else launch.workspace.stream
        self.kernel.run(grid, stream, values)


def launched_value(value: Any, kind: Any) -> Any:
    """Return what a launcher takes for an argument of a kind."""
    convert = getattr(kind, "convert", None)
    return value if convert is None else convert(value)


def converters(launch: BoundLaunch) -> dict[str, Callable[[Any], Any]]:
    """Return the own arguments of a launch that launchers take another value for, with how."""
    found = {}
    for name, kind in zip(launch.own, launch.kinds, strict=True):
        convert = getattr(kind, "convert", None)
        if convert is not None:
            found[name] = convert
    return found


__all__ = ["BoundLaunch", "DerivedPlan", "converters", "launched_value"]
