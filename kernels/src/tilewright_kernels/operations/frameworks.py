"""The frameworks whose arrays operations take."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np


class Framework(Protocol):
    """Memory of a framework."""

    name: str

    def empty(self, shape: Sequence[int], dtype: Any, beside: Any) -> Any:
        """Return an array of arbitrary elements on the device of ``beside``.

        ``dtype`` is a name of the language, such as ``"float32"``, or the ``dtype`` of an array.
        """

    def zeros(self, shape: Sequence[int], dtype: Any, beside: Any) -> Any:
        """Return an array of zeros on the device of ``beside``."""


class NumPyFramework:
    """NumPy's arrays."""

    name = "numpy"

    def empty(self, shape: Sequence[int], dtype: Any, beside: Any) -> Any:
        """Return an array of arbitrary elements."""
        return np.empty(shape, _numpy_dtype(dtype))

    def zeros(self, shape: Sequence[int], dtype: Any, beside: Any) -> Any:
        """Return an array of zeros."""
        return np.zeros(shape, _numpy_dtype(dtype))


class TorchFramework:
    """PyTorch's tensors."""

    name = "torch"

    def empty(self, shape: Sequence[int], dtype: Any, beside: Any) -> Any:
        """Return a tensor of arbitrary elements on the device of ``beside``."""
        return beside.new_empty(tuple(shape), dtype=_torch_dtype(dtype))

    def zeros(self, shape: Sequence[int], dtype: Any, beside: Any) -> Any:
        """Return a tensor of zeros on the device of ``beside``."""
        return beside.new_zeros(tuple(shape), dtype=_torch_dtype(dtype))


class JaxFramework:
    """JAX's arrays, traced or not: shapes stand for memory."""

    name = "jax"

    def empty(self, shape: Sequence[int], dtype: Any, beside: Any) -> Any:
        """Return the shape and the element type of an array that a kernel will make."""
        import jax

        return jax.ShapeDtypeStruct(tuple(shape), dtype)

    def zeros(self, shape: Sequence[int], dtype: Any, beside: Any) -> Any:
        """Return an array of zeros."""
        import jax.numpy as jnp

        return jnp.zeros(tuple(shape), dtype)


NUMPY, TORCH, JAX = NumPyFramework(), TorchFramework(), JaxFramework()


def framework_of(array: Any) -> NumPyFramework | TorchFramework | JaxFramework:
    """Return the framework that an array is of.

    Raises:
        TypeError: it is of none.
    """
    if isinstance(array, np.ndarray):
        return NUMPY
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        return TORCH
    jax = sys.modules.get("jax")
    if jax is not None and isinstance(array, jax.Array):
        return JAX
    raise TypeError(
        f"operations take tensors of PyTorch, and arrays of NumPy and JAX, not a "
        f"{type(array).__module__}.{type(array).__qualname__}"
    )


def strides(array: Any) -> tuple[int, ...]:
    """Return the strides of an array in elements."""
    stride = getattr(array, "stride", None)
    if stride is not None:
        return tuple(stride())
    if isinstance(array, np.ndarray):
        return tuple(each // array.itemsize for each in array.strides)
    found: list[int] = []
    step = 1
    for extent in reversed(array.shape):
        found.append(step)
        step *= extent
    return tuple(reversed(found))


def _numpy_dtype(dtype: Any) -> Any:
    if isinstance(dtype, str) and (dtype == "bfloat16" or dtype.startswith("float8")):
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, dtype))
    return np.dtype(dtype)


def _torch_dtype(dtype: Any) -> Any:
    import torch

    return getattr(torch, dtype) if isinstance(dtype, str) else dtype
