"""Additions along an axis: of numbers, and of bits by exclusive or."""

# These functions are typed by the compiler, call by call; to Python they are untyped.
# mypy: ignore-errors

from __future__ import annotations

from tilewright.language import core
from tilewright.language.definitions.callable import device_function
from tilewright.language.standard.result_types import accumulator_dtype, sum_dtype


@device_function
def add(a, b):
    return a + b


@device_function
def _xor(a, b):
    return a ^ b


@device_function
def _or(a, b):
    return a | b


@device_function
def sum(
    input,
    axis=None,
    keep_dims=False,
    dtype: core.constexpr = None,
    order: core.constexpr = None,
):
    """Sum the elements along an axis.

    Args:
        input: a tensor of numbers.
        axis: the axis, a constexpr; None stands for all elements.
        keep_dims: whether to keep the axis, with extent 1.
        dtype: the type in which the sum is computed. By default, it is int32 or uint32 for integers
            narrower than 32 bits (uint32 for booleans), and the type of ``input`` otherwise.
        order: ``"any"``, ``"tree"`` or ``"sequential"``, as for :func:`reduce`.

    Returns:
        A tensor of the shape of ``input`` without the axis ``axis``, or a scalar if no axis is
        left.

    Example:
        total = tl.sum(x, axis=0)
    """
    result: core.constexpr = sum_dtype(input.dtype, dtype)
    terms = input.to(result).to(accumulator_dtype(result))
    return core.reduce(terms, axis, add, keep_dims=keep_dims, order=order).to(result)


@device_function
def xor_sum(input, axis=None, keep_dims=False):
    """Combine the elements along an axis by bitwise XOR.

    Args:
        input: an integer tensor.
        axis: the axis, a constexpr; None stands for all elements.
        keep_dims: whether to keep the axis, with extent 1.

    Returns:
        A tensor of the shape of ``input`` without the axis ``axis``, or a scalar if no axis is
        left.

    Raises:
        CompileTimeAssertionFailure: the elements of ``input`` are not integers.

    Example:
        parity = tl.xor_sum(offsets, axis=0)
    """
    core.static_assert(input.dtype.is_int(), "xor_sum only supported for integers")
    return core.reduce(input, axis, _xor, keep_dims=keep_dims)


@device_function
def reduce_or(input, axis, keep_dims=False):
    """Combine the elements along an axis by bitwise OR.

    Args:
        input: an integer tensor.
        axis: the axis, a constexpr; None stands for all elements.
        keep_dims: whether to keep the axis, with extent 1.

    Returns:
        A tensor of the shape of ``input`` without the axis ``axis``, or a scalar if no axis is
        left.

    Raises:
        CompileTimeAssertionFailure: the elements of ``input`` are not integers.

    Example:
        bits = tl.reduce_or(offsets, axis=0)
    """
    core.static_assert(input.dtype.is_int(), "reduce_or only supported for integers")
    return core.reduce(input, axis, _or, keep_dims=keep_dims)
