"""Errors of derivatives where hooks that they do not call would have set the blocks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tilewright.errors import CompilationError, helped
from tilewright.runtime.arguments.descriptor import TensorDescriptor
from tilewright.runtime.derivatives.bound_launch import BoundLaunch


@contextmanager
def skipped_hooks_named(kernel: Any, launch: BoundLaunch) -> Iterator[None]:
    """Add to a compilation error the ``pre_hook`` that might have set a descriptor's blocks.

    Args:
        kernel: what the derivative is of, with the autotuners around it.
    """
    try:
        yield
    except CompilationError as error:
        names = [
            name for name, value in launch.named.items() if isinstance(value, TensorDescriptor)
        ]
        if names and _has_hooks(kernel):
            helped(
                error,
                "derivatives do not call the pre_hook of a tw.Config, which may set the "
                f"block_shape of {', '.join(names)}: set block_shape yourself, there and in the "
                "descriptors of cotangents, and pass the block sizes by keyword; or pass arrays, "
                "and make descriptors in the kernel (tl.make_tensor_descriptor)",
            )
        raise


def _has_hooks(kernel: Any) -> bool:
    """Return whether a configuration of an autotuner around a kernel has a ``pre_hook``."""
    while kernel is not None:
        if any(config.pre_hook is not None for config in getattr(kernel, "configs", ())):
            return True
        kernel = getattr(kernel, "fn", None)
    return False


__all__ = ["skipped_hooks_named"]
