"""Results with leading axes, which kernels store as matrices."""

from __future__ import annotations

from typing import Any

from tilewright_kernels.linear.epilogue import packed
from tilewright_kernels.operations.frameworks import framework_of


def in_shape(out: Any, shape: tuple[int, ...]) -> Any:
    """Return an array of another shape in the memory of ``out``; None if that is not in C order."""
    return out.reshape(shape) if packed(out) is out else None


def returned(found: Any, shape: tuple[int, ...], out: Any, target: Any) -> Any:
    """Return a result in its shape, or ``out`` with it, which is copied if there is no target."""
    if out is None:
        return found.reshape(shape)
    if target is None:
        framework_of(out).copy(out, found.reshape(shape))
    return out
