"""Refusal of arrays whose memory differs from what they show (negative or conjugate bit, gaps).

A kernel takes an array as a pointer to its first element. Shape and strides are not passed along,
and neither are the bits by which PyTorch negates or conjugates lazily.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tilewright.errors import LaunchError

if TYPE_CHECKING:
    from tilewright.ir.core import Function


def check_plain(kernel: Function, values: Sequence[Any]) -> None:
    """Refuse tensors with the negative or conjugate bit; warn of non-contiguous arrays.

    The warning is for arrays none of whose strides is an argument or a constant of the kernel.

    Raises:
        LaunchError: a tensor's memory holds other numbers than the tensor.
    """
    from tilewright.ir.ops.arithmetic import Constant

    numbers = {value for value in values if type(value) is int}
    numbers.update(
        operation.value
        for operation in kernel.walk()
        if isinstance(operation, Constant) and isinstance(operation.value, int)
    )
    for argument, value in zip(kernel.arguments, values, strict=False):
        name = argument.name
        for bit, asks, remedy in (
            ("negative", "is_neg", "resolve_neg"),
            ("conjugate", "is_conj", "resolve_conj"),
        ):
            if callable(getattr(value, asks, None)) and getattr(value, asks)():
                raise LaunchError(
                    f"{kernel.name}: argument {name!r} is a tensor with the {bit} bit, which a "
                    f"kernel does not see: pass {name}.{remedy}()"
                )
        layout = layout_of(value)
        if layout is None:
            continue
        shape, strides = layout
        if not is_contiguous(shape, strides) and not numbers.intersection(
            stride for stride in strides if stride != 1
        ):
            message = (
                f"{kernel.name}: argument {name!r} is not contiguous (shape {shape}, strides "
                f"{strides}), and no argument is one of its strides: the kernel takes it as a "
                "pointer to its first element"
            )
            warnings.warn(message, UserWarning, stacklevel=2)


def layout_of(value: Any) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return the shape and element strides of a NumPy array or tensor; None for anything else."""
    if callable(getattr(value, "stride", None)) and hasattr(value, "shape"):
        return tuple(value.shape), tuple(value.stride())
    strides, size = getattr(value, "strides", None), getattr(value, "itemsize", 0)
    if isinstance(strides, tuple) and isinstance(size, int) and size > 0:
        return tuple(value.shape), tuple(stride // size for stride in strides)
    return None


def is_contiguous(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Return whether an array's elements lie beside each other in row-major order."""
    if 0 in shape:
        return True
    expected = 1
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent != 1 and stride != expected:
            return False
        expected *= extent
    return True
