"""Prefix scans: cumulative addition and multiplication."""

# These functions are typed by the compiler, call by call; to Python they are untyped.
# mypy: ignore-errors

from __future__ import annotations

from tilewright.language import core
from tilewright.language.definitions.callable import device_function
from tilewright.language.standard.reductions import add
from tilewright.language.standard.result_types import cumprod_dtype, prefix_dtype


@device_function
def _mul(a, b):
    return a * b


@device_function
def cumsum(
    input,
    axis: core.constexpr = 0,
    reverse: core.constexpr = False,
    dtype: core.constexpr = None,
    order: core.constexpr = None,
):
    """Compute the cumulative sum along an axis.

    Args:
        input: a tensor of numbers.
        axis: a constexpr.
        reverse: whether to sum from the last element to the first.
        dtype: the type in which the sum is computed. By default, integers narrower than 32 bits
            widen to 32 bits, bf16 widens to fp32, and other types stay.
        order: ``"any"``, ``"tree"`` or ``"sequential"``, as for :func:`reduce`.

    Returns:
        A tensor of the shape of ``input``.

    Example:
        running = tl.cumsum(x, axis=0)
    """
    return core.associative_scan(
        input.to(prefix_dtype(input.dtype, dtype)), axis, add, reverse, order
    )


@device_function
def cumprod(
    input,
    axis: core.constexpr = 0,
    reverse: core.constexpr = False,
    dtype: core.constexpr = None,
    order: core.constexpr = None,
):
    """Compute the cumulative product along an axis.

    Args:
        input: a tensor of numbers.
        axis: a constexpr.
        reverse: whether to multiply from the last element to the first.
        dtype: the type in which the product is computed; by default the type of ``input``, but fp32
            for bf16.
        order: ``"any"``, ``"tree"`` or ``"sequential"``, as for :func:`reduce`.

    Returns:
        A tensor of the shape of ``input``.

    Example:
        running = tl.cumprod(x, axis=0)
    """
    return core.associative_scan(
        input.to(cumprod_dtype(input.dtype, dtype)), axis, _mul, reverse, order
    )
