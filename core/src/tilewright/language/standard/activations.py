"""The logistic function and softmax."""

# These functions are typed by the compiler, call by call; to Python they are untyped.
# mypy: ignore-errors

from __future__ import annotations

from tilewright.language import core, math
from tilewright.language.definitions.callable import device_function
from tilewright.language.standard.extrema import max
from tilewright.language.standard.reductions import sum


@device_function
def sigmoid(x):
    """The logistic function, ``1 / (1 + exp(-x))``.

    Args:
        x: a tensor or a number, of fp32 or fp64.

    Returns:
        A tensor of the same type and shape.

    Raises:
        ValueError: the operand has another type.

    Example:
        y = tl.sigmoid(x)
    """
    return 1 / (1 + math.exp(-x))


@device_function
def softmax(
    x,
    dim: core.constexpr = None,
    keep_dims: core.constexpr = False,
    ieee_rounding: core.constexpr = False,
):
    """Compute the softmax along an axis: the exponentials, divided by their sum.

    The function first subtracts the maximum from all elements, so the exponentials do not overflow.

    Args:
        x: a tensor of floats.
        dim: the axis, a constexpr; the first one by default.
        keep_dims: has no effect: the result always has the shape of ``x``.
        ieee_rounding: whether the divisions are correctly rounded.

    Returns:
        A tensor of the shape of ``x``. Its type is fp64 if ``x`` has this type, and fp32 otherwise.

    Raises:
        ValueError: the operand has another type.

    Example:
        weights = tl.softmax(x, dim=0)
    """
    axis: core.constexpr = 0 if dim is None else dim
    powers = math.exp(x - max(x, axis, keep_dims=True))
    return math.fdiv(powers, sum(powers, axis, keep_dims=True), ieee_rounding)
