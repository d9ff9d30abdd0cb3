"""Tensors of zeros."""

# These functions are typed by the compiler, call by call; to Python they are untyped.
# mypy: ignore-errors

from __future__ import annotations

from tilewright.language import core
from tilewright.language.definitions.callable import device_function


@device_function
def zeros(shape, dtype):
    """Create a tensor of zeros.

    Args:
        shape: the extents, constexprs; ``()`` makes a scalar.
        dtype: any number type.

    Returns:
        A tensor with the given shape and element type.

    Example:
        acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    """
    return core.full(shape, 0, dtype)


@device_function
def zeros_like(input):
    """Create a tensor of zeros with the shape and the type of another tensor.

    Args:
        input: a tensor.

    Returns:
        A tensor of the shape and type of ``input``.

    Example:
        acc = tl.zeros_like(x)
    """
    return zeros(input.shape, input.dtype)
