"""Launches of derivatives by XLA: all arguments by position, in its stream on a device.

Arrays of the host are passed as NumPy's.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import tilewright.language as tl
from tilewright.runtime.arguments.array_protocols import ArrayView
from tilewright.runtime.arguments.dtypes import ITEM_SIZE
from tilewright.runtime.derivatives.adjoint_kernel import AdjointKernel
from tilewright.runtime.derivatives.bound_launch import Workspace
from tilewright.runtime.derivatives.derivative_kernel import DerivativeKernel
from tilewright.runtime.integers import cdiv
from tilewright.runtime.launch.jit import jit

#: Bytes of an element -> the unsigned type of its bits: not every device computes with every type.
UNSIGNED: Final = {1: "u8", 2: "u16", 4: "u32", 8: "u64"}


@dataclass(frozen=True)
class _OwnParameter:
    """A parameter that a derivative adds to those of its kernel."""

    name: str
    has_default: bool = False
    default: Any = None


class PositionalDerivative:
    """A derivative that takes its own arguments, and its base's, after the innermost kernel's.

    Attributes:
        kernel: the derivative.
        arg_names: the kernel's parameters, then those of the derivative, then memory.
        params: the kernel's parameters, with their defaults, and those of the derivative.
        cache_key: identifies its code.
    """

    def __init__(self, kernel: DerivativeKernel, memory: tuple[str, ...] = ()) -> None:
        """Prepare.

        Args:
            memory: buffers of an adjoint that come in as arguments.
        """
        self.kernel, self.arg_names = kernel, [*kernel.arg_names, *memory]
        self._end = len(kernel.arg_names)
        innermost: Any = kernel
        while isinstance(innermost, DerivativeKernel):
            innermost = innermost.base_kernel
        self._count = len(innermost.arg_names)
        own = kernel.arg_names[self._count :]
        self.params = [*innermost.params, *(_OwnParameter(name) for name in own)]
        self.__name__ = kernel.__name__
        self.cache_key = _key_of(kernel)

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        def launch(*args: Any, **options: Any) -> Any:
            arrays = [_numpy_of(value) if _is_view(value) else value for value in args]
            return self.kernel[grid](*arrays[: self._count], **self._own(arrays), **options)

        return launch

    def run_in(self, stream: int, grid: Any, args: Sequence[Any], options: Any) -> None:
        """Launch on memory of a device, in a stream."""
        memory = dict(zip(self.arg_names[self._end :], args[self._end :], strict=True))
        workspace = Workspace(stream, memory, partial(_clear, stream=stream))
        own = self._own(args)
        self.kernel.run_in(workspace, *args[: self._count], grid=grid, **own, **options)

    def with_memory(
        self, args: Sequence[Any], grid: Any, options: Any
    ) -> tuple[PositionalDerivative, dict[str, int]]:
        """Return the derivative with its buffers as further arguments, and their bytes."""
        if not isinstance(self.kernel, AdjointKernel):
            return self, {}
        own = self._own(args)
        sizes = self.kernel.memory_sizes(*args[: self._count], grid=grid, **own, **options)
        return PositionalDerivative(self.kernel, tuple(sizes)), sizes

    def warmup(self, *args: Any, grid: Any, **options: Any) -> Any:
        """Compile for arguments that need not have memory."""
        given = args[: self._count]
        return self.kernel.warmup(*given, grid=grid, **self._own(args), **options)

    def _own(self, args: Any) -> dict[str, Any]:
        names = self.arg_names[self._count : self._end]
        return dict(zip(names, args[self._count : self._end], strict=True))


#: Words that a program sets to zero.
_CLEARED_AT_ONCE: Final = 4096


@jit
def cleared(target: Any, n: Any, block: tl.constexpr) -> None:
    """Set ``n`` words to zero."""
    offsets = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    tl.store(target + offsets, tl.zeros([block], target.dtype.element_ty), mask=offsets < n)


def _clear(view: ArrayView, stream: int) -> None:
    """Set the elements of a row-major array to zero, in a stream."""
    size = ITEM_SIZE[view.dtype]
    words = ArrayView(
        view.owner, view.pointer, UNSIGNED[size], view.shape, view.strides, view.device
    )
    count = math.prod(view.shape)
    grid = (cdiv(count, _CLEARED_AT_ONCE), 1, 1)
    compiled = cleared.warmup(words, count, _CLEARED_AT_ONCE, grid=grid)
    assert compiled is not None
    compiled[grid](words, count, _CLEARED_AT_ONCE, stream=stream)


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
