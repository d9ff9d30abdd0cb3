"""The launch that a kernel is explained for: its grid, and the arguments of its work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tilewright.ir import Module
from tilewright.passes.analysis.traffic import DescriptorTensor, Traffic, traffic_of
from tilewright.plugins.registry import Backend
from tilewright.runtime.arguments.descriptor import TensorDescriptor
from tilewright.runtime.arguments.mock_tensors import MockTensor
from tilewright.runtime.compiler.compile import Specialization
from tilewright.runtime.compiler.specialize import Signature
from tilewright.runtime.launch.grid import grid_of
from tilewright.runtime.launch.jit import JITFunction
from tilewright.runtime.options import resolve
from tilewright.tools.launch_arguments import parsed


@dataclass(frozen=True)
class Launch:
    """A launch, or as much of it as is known.

    Attributes:
        sizes: of the grid; None where it is not known.
        arguments: numbers and descriptors by the names that they have in the IR.
    """

    sizes: tuple[int, int, int] | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of_grid(cls, grid: Any, names: Mapping[str, Any]) -> Launch:
        """A launch of which the grid alone is known; a function of arguments gets ``names``."""
        return cls() if grid is None else cls(grid_of(grid, dict(names)))

    @classmethod
    def of_arguments(cls, kernel: JITFunction, bound: Sequence[Any], grid: Any) -> Launch:
        """A launch with these arguments, in the order of the kernel's parameters."""
        named = dict(zip(kernel.arg_names, bound, strict=True))
        found: dict[str, Any] = {}
        for name, value in named.items():
            found.update(_entries(name, value))
        return cls(None if grid is None else grid_of(grid, named), found)

    def traffic(self, module: Module) -> Traffic:
        """Return the work and memory traffic of the launch."""
        return traffic_of(module, self.arguments, self.sizes)


#: A launch of which nothing is known.
UNKNOWN: Final = Launch()


def _entries(name: str, value: Any) -> dict[str, Any]:
    if isinstance(value, TensorDescriptor):
        return {name: DescriptorTensor(tuple(value.shape), tuple(value.strides))}
    if isinstance(value, tuple):
        return {
            inner: entry
            for position, item in enumerate(value)
            for inner, entry in _entries(f"{name}.{position}", item).items()
        }
    number = getattr(value, "item", None)
    if (
        type(value).__module__ == "numpy"
        and getattr(value, "shape", None) == ()
        and callable(number)
    ):
        value = number()
    return {name: value} if isinstance(value, int | float) else {}


def bound_to(
    kernel: JITFunction, args: tuple[Any, ...], keywords: dict[str, Any], backend: Backend
) -> tuple[Sequence[Any], Specialization]:
    """Return a launch's bound parameters, and its specialization for a target.

    The backend need not have a device.

    Raises:
        KeyError: an option is unknown.
    """
    bound, kinds, options = kernel.bind(*args, **keywords)
    signature = Signature.of(kernel.params, kinds, bound)
    resolved = resolve(backend, kernel.__name__, options, {}, kernel.arg_names)
    return bound, Specialization(
        kernel, signature.types, signature.constants, signature.attributes, resolved
    )


def stand_ins(text: str) -> dict[str, Any]:
    """Return mock arguments of a text, without memory for arrays.

    See :mod:`tilewright.tools.launch_arguments`.

    Raises:
        UsageError: an entry is no argument.
    """
    return {
        name: MockTensor(*value) if isinstance(value, tuple) else value
        for name, value in parsed(text).items()
    }


__all__ = ["UNKNOWN", "Launch", "bound_to", "stand_ins"]
