"""Launches of derivatives by XLA: all arguments by position, and arrays of the host as NumPy's."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from typing import Any

from tilewright.runtime.arguments.array_protocols import ArrayView
from tilewright.runtime.arguments.dtypes import ITEM_SIZE
from tilewright.runtime.derivatives.derivative_kernel import DerivativeKernel


class PositionalDerivative:
    """A derivative that takes its own arguments, and its base's, after the innermost kernel's.

    Attributes:
        kernel: the derivative.
        arg_names: the kernel's parameters, then those of the derivative.
        cache_key: identifies its code.
    """

    def __init__(self, kernel: DerivativeKernel) -> None:
        self.kernel, self.arg_names = kernel, list(kernel.arg_names)
        innermost: Any = kernel
        while isinstance(innermost, DerivativeKernel):
            innermost = innermost.base_kernel
        self._count = len(innermost.arg_names)
        self.__name__ = kernel.__name__
        self.cache_key = _key_of(kernel)

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        def launch(*args: Any, **options: Any) -> Any:
            arrays = [_numpy_of(value) if _is_view(value) else value for value in args]
            return self.kernel[grid](*arrays[: self._count], **self._own(arrays), **options)

        return launch

    def warmup(self, *args: Any, grid: Any, **options: Any) -> Any:
        """Compile for arguments that need not have memory."""
        given = args[: self._count]
        return self.kernel.warmup(*given, grid=grid, **self._own(args), **options)

    def _own(self, args: Any) -> dict[str, Any]:
        return dict(zip(self.arg_names[self._count :], args[self._count :], strict=True))


def _key_of(kernel: Any) -> str:
    """Return a text that identifies a kernel, or what is derived from it."""
    if not isinstance(kernel, DerivativeKernel):
        key: str = kernel.cache_key
        return key
    return f"{_key_of(kernel.base_kernel)} {kernel.prefix}{kernel.record_mark}"


def _is_view(value: Any) -> bool:
    return isinstance(value, ArrayView)


def _numpy_of(view: ArrayView) -> Any:
    """Return the array of the host's memory that a view is of."""
    import numpy as np

    count = math.prod(view.shape)
    size = count * ITEM_SIZE[view.dtype]
    data: Any = (ctypes.c_char * size).from_address(view.pointer) if size else b""
    return np.frombuffer(data, _dtype(view.dtype), count).reshape(view.shape)


def _dtype(text: str) -> Any:
    """Return NumPy's type of a signature text."""
    import numpy as np

    kind, bits = text.rstrip("0123456789"), text.lstrip("abcdefghijklmnopqrstuvwxyz")
    plain = {"i": "int", "u": "uint", "fp": "float"}.get(kind)
    if text == "i1":
        return np.dtype(bool)
    if plain is not None:
        return np.dtype(f"{plain}{bits}")
    import ml_dtypes  # installed by JAX

    names = {"bf16": "bfloat16", "fp8e5": "float8_e5m2", "fp8e4nv": "float8_e4m3fn"}
    return np.dtype(getattr(ml_dtypes, names[text]))
