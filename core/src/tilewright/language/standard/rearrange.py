"""The same elements in another shape or order."""

# These functions are typed by the compiler, call by call; to Python they are untyped.
# mypy: ignore-errors

from __future__ import annotations

from tilewright.language import core
from tilewright.language.definitions.callable import device_function
from tilewright.language.standard.extents import interleaved, normal_axis, only_on, without


@device_function
def ravel(x, can_reorder: core.constexpr = False):
    """Flatten a tensor to one axis, in row-major order.

    Args:
        x: a tensor.
        can_reorder: whether the elements may be in any order.

    Returns:
        A 1-D tensor.

    Example:
        flat = tl.ravel(x[:, None])
    """
    return core.reshape(x, [x.numel], can_reorder=can_reorder)


@device_function
def squeeze(x, dim: core.constexpr):
    """Remove an axis of extent 1.

    Args:
        x: a tensor.
        dim: the axis, whose extent is 1: a constexpr.

    Returns:
        A tensor with the elements of ``x`` and without the axis ``dim``.

    Raises:
        CompileTimeAssertionFailure: the axis has another extent.

    Example:
        flat = tl.squeeze(x[None, :], 0)
    """
    axis: core.constexpr = normal_axis(dim, len(x.shape))
    core.static_assert(x.shape[axis] == 1, "squeeze: the axis must have extent 1")
    return core.reshape(x, without(x.shape, axis))


@device_function
def unsqueeze(x, dim: core.constexpr):
    """Insert a new axis of extent 1.

    Args:
        x: a tensor.
        dim: the position of the axis in the result: a constexpr.

    Returns:
        A tensor with the elements of ``x`` and one more axis.

    Example:
        row = tl.unsqueeze(x, 0)
    """
    return core.expand_dims(x, dim)


@device_function
def interleave(a, b):
    """Interleave the elements of two tensors along the last axis.

    Args:
        a: a tensor or a number, which supplies the elements 0, 2, 4 and so on of the result.
        b: a tensor of the same shape or a number, which supplies the elements 1, 3, 5 and so on.

    Returns:
        A tensor whose last axis is twice as long as that of an operand. If both operands are
        scalars, the result has shape ``[2]``.

    Example:
        mixed = tl.interleave(x, y)
    """
    joined = core.join(a, b)
    if len(joined.shape) == 1:
        return joined
    return core.reshape(joined, interleaved(joined.shape))


@device_function
def flip(x, dim: core.constexpr = None):
    """Reverse the elements along an axis.

    Args:
        x: a tensor.
        dim: the axis, a constexpr; the last one by default.

    Returns:
        A tensor of the shape of ``x``.

    Example:
        backwards = tl.flip(x)
    """
    rank: core.constexpr = len(x.shape)
    axis: core.constexpr = normal_axis(rank - 1 if dim is None else dim, rank)
    extent: core.constexpr = x.shape[axis]
    index = core.reshape(extent - 1 - core.arange(0, extent), only_on(rank, axis, extent))
    return core.gather(x, core.broadcast_to(index, x.shape), axis)
