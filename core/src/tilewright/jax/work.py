"""Launches and copies in an XLA stream; without a stream, on CPUs, they are synchronous."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any, Final

import tilewright.language as tl
from tilewright.jax.derivative_launch import UNSIGNED, PositionalDerivative
from tilewright.runtime.arguments.array_protocols import ArrayView
from tilewright.runtime.arguments.dtypes import ITEM_SIZE
from tilewright.runtime.integers import cdiv
from tilewright.runtime.launch.jit import JITFunction, jit

#: Elements that a program copies.
_COPIED_AT_ONCE: Final = 1024


@jit
def copied(source: Any, target: Any, n: Any, block: tl.constexpr) -> None:
    """Copy ``n`` elements."""
    offsets = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    tl.store(target + offsets, tl.load(source + offsets, mask=offsets < n), mask=offsets < n)


def start(
    kernel: JITFunction | PositionalDerivative,
    grid: tuple[int, int, int],
    arguments: Sequence[Any],
    options: Mapping[str, Any],
    stream: int | None,
) -> None:
    """Launch a kernel with the arguments of all its parameters."""
    if stream is None:
        kernel[grid](*arguments, **options)
        return
    if isinstance(kernel, PositionalDerivative):
        kernel.run_in(stream, grid, arguments, options)
        return
    compiled = kernel.warmup(*arguments, grid=grid, **options)
    assert compiled is not None
    compiled[grid](*arguments, stream=stream)


def copy(source: ArrayView, target: ArrayView, count: int, stream: int | None) -> None:
    """Copy the first ``count`` elements of a row-major array to another of the same type."""
    size = ITEM_SIZE[source.dtype]
    if stream is None:
        ctypes.memmove(target.pointer, source.pointer, count * size)
    elif count:
        plain = [moved(array, 0, UNSIGNED[size]) for array in (source, target)]
        start(
            copied,
            (cdiv(count, _COPIED_AT_ONCE), 1, 1),
            [*plain, count, _COPIED_AT_ONCE],
            {},
            stream,
        )


def moved(array: ArrayView, offset: int, dtype: str = "") -> ArrayView:
    """Return a view ``offset`` elements further on, optionally of another type of the same size."""
    pointer = array.pointer + offset * ITEM_SIZE[array.dtype]
    return ArrayView(
        array.owner, pointer, dtype or array.dtype, array.shape, array.strides, array.device
    )
