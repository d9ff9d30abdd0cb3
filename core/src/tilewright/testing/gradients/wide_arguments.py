"""Copies of a launch's arguments, with float64 arrays in place of those of other floats."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.runtime.arguments.array_checks import layout_of
from tilewright.runtime.arguments.array_protocols import address_of, is_array
from tilewright.runtime.arguments.descriptor import TensorDescriptor
from tilewright.testing.compare import as_array

Array = NDArray[np.float64]


class WideArguments:
    """A launch's arguments by name.

    Attributes:
        values: parameter -> argument.
    """

    def __init__(self, values: Mapping[str, Any], *, widen: bool = True) -> None:
        """Copy arguments.

        Args:
            widen: whether arrays of floats become arrays of float64.
        """
        memory: dict[Any, Any] = {}  # address, type and layout of an array -> its copy
        self.values = {name: _converted(value, memory, widen) for name, value in values.items()}

    def copy(self) -> WideArguments:
        """Return the same with copies of all arrays."""
        return WideArguments(self.values, widen=False)

    def __getitem__(self, name: str) -> Any:
        """Return an argument, or an item of a tuple as ``t.0``; the array of a descriptor."""
        first, *items = name.split(".")
        value = self.values[first]
        for item in items:
            value = value[int(item)]
        return value.base if isinstance(value, TensorDescriptor) else value

    def like(self, name: str, array: Array) -> Any:
        """Return a derivative's argument for an array: a descriptor where the original is one."""
        first, *items = name.split(".")
        value = self.values[first]
        for item in items:
            value = value[int(item)]
        if isinstance(value, TensorDescriptor):
            return TensorDescriptor(array, value.shape, value.strides, value.block_shape)
        return array

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of an argument; of a number the empty one."""
        value = self[name]
        return value.shape if isinstance(value, np.ndarray) else ()

    def move(self, direction: Mapping[str, Array], step: float) -> None:
        """Add multiples of a direction to arrays and numbers."""
        for name, along in direction.items():
            value = self[name]
            if isinstance(value, np.ndarray):
                value += (step * along).astype(value.dtype)
            else:
                self.values[name] = value + step * float(along)

    def clear_nonfinite(self, names: Iterable[str]) -> None:
        """Set what is no number to zero in arrays, which kernels write."""
        for name in names:
            array = self[name]
            array[~np.isfinite(array)] = 0.0


def empty_like(array: NDArray[Any], type_: Any = np.float64) -> Array:
    """Return zeros with an array's shape and strides in elements."""
    strides = [stride // array.itemsize for stride in array.strides]
    if 0 in array.shape or any(stride < 0 for stride in strides):
        return np.zeros(array.shape, type_)
    extent = 1 + sum((size - 1) * stride for size, stride in zip(array.shape, strides, strict=True))
    flat = np.zeros(extent, type_)
    return np.lib.stride_tricks.as_strided(
        flat, array.shape, [stride * flat.itemsize for stride in strides]
    )


def _converted(value: Any, memory: dict[Any, Any], widen: bool) -> Any:
    """Return a copy of an argument; one array stays one."""
    if isinstance(value, tuple):
        items = [_converted(item, memory, widen) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    if isinstance(value, TensorDescriptor):
        base = _converted(value.base, memory, widen)
        return TensorDescriptor(base, value.shape, value.strides, value.block_shape, value.padding)
    if not is_array(value):
        return value
    place = (address_of(value), str(value.dtype), layout_of(value))
    if place not in memory:
        memory[place] = _copied(value, np.float64 if widen else None)
    return memory[place]


def _copied(value: Any, type_: Any) -> Any:
    """Return a copy of an array with its strides, of another type where it holds floats."""
    array = as_array(value)
    if array.dtype.kind != "f":
        return array.copy()
    copy = empty_like(array, type_ or array.dtype)
    with np.errstate(invalid="ignore"):
        copy[...] = array
    return copy
