"""The maximum and the minimum along an axis, and their positions."""

# These functions are typed by the compiler, call by call; to Python they are untyped.
# mypy: ignore-errors

from __future__ import annotations

from tilewright.language import core
from tilewright.language.definitions.callable import device_function
from tilewright.language.standard.extents import normal_axis, only_on
from tilewright.language.standard.rearrange import ravel
from tilewright.language.standard.result_types import extremum_dtype


@device_function
def _greater(a, b):
    return core.maximum(a, b)


@device_function
def _smaller(a, b):
    return core.minimum(a, b)


@device_function
def _beats(a, b, maximum: core.constexpr):
    """Return whether ``a`` is greater than ``b``, or less than it without ``maximum``.

    Every number beats NaN.
    """
    if a.dtype.is_floating():
        if maximum:
            return ~(a <= b) & (a == a)
        else:
            return ~(a >= b) & (a == a)
    else:
        return a > b if maximum else a < b


@device_function
def _better(
    value1, index1, value2, index2, tie_break_left: core.constexpr, maximum: core.constexpr
):
    """Return the maximum (else minimum) of two values and its index.

    Of two that tie it is the lower index, or any.
    """
    first = _beats(value1, value2, maximum)
    if tie_break_left:
        first = first | (~_beats(value2, value1, maximum) & (index1 < index2))
    return core.where(first, value1, value2), core.where(first, index1, index2)


@device_function
def argmax_combine(value1, index1, value2, index2, tie_break_left: core.constexpr):
    """The greater value and its index; of equal values, the lower index if ties break left.

    NaN is less than every number, and equal to NaN.
    """
    return _better(value1, index1, value2, index2, tie_break_left, True)


@device_function
def argmin_combine(value1, index1, value2, index2, tie_break_left: core.constexpr):
    """The smaller value and its index; of equal values, the lower index if ties break left.

    NaN is greater than every number, and equal to NaN.
    """
    return _better(value1, index1, value2, index2, tie_break_left, False)


@device_function
def _across(reduced, axis: core.constexpr):
    """Return what a reduction along ``axis`` left, with that axis again; a scalar as it is."""
    return core.expand_dims(reduced, axis) if reduced.type.is_block() else reduced


@device_function
def _reduce_with_indices(
    input, axis: core.constexpr, maximum: core.constexpr, keep_dims: core.constexpr
):
    """Reduce values along ``axis`` (None: in row-major order) with the result's first position.

    Two reductions whose combinations are single instructions cost less than one of pairs, which
    compares and selects for each pair of elements.
    """
    rank: core.constexpr = len(input.shape)
    if axis is None:
        values = ravel(input)
        along: core.constexpr = 0
        positions = core.arange(0, input.numel)
    else:
        values = input
        along: core.constexpr = normal_axis(axis, rank)
        positions = core.reshape(
            core.arange(0, input.shape[along]), only_on(rank, along, input.shape[along])
        )
    extent: core.constexpr = values.shape[along]
    extremum: core.constexpr = _greater if maximum else _smaller
    best = core.reduce(values, along, extremum)
    index = core.reduce(
        core.where(values == _across(best, along), positions, extent), along, _smaller
    )
    if input.dtype.is_floating():
        # NaNs alone equal nothing: of them too the first one counts
        index = core.where(index < extent, index, 0)
    if keep_dims:
        if len(values.shape) == 1:
            best = core.full(only_on(rank, 0, 1), best, best.dtype)
            index = core.full(only_on(rank, 0, 1), index, index.dtype)
        else:
            best = _across(best, along)
            index = _across(index, along)
    return best, index


@device_function
def max(
    input,
    axis: core.constexpr = None,
    return_indices: core.constexpr = False,
    return_indices_tie_break_left: core.constexpr = True,
    keep_dims: core.constexpr = False,
):
    """Return the maximum along an axis. The maximum is NaN only if all elements are NaN.

    With ``return_indices=True``, the function also returns the position of the maximum. If several
    elements are equal to the maximum, this is the position of the first of them; 0.0 and -0.0 count
    as equal. If all elements are NaN, it is the position of the first element.

    Args:
        input: a tensor of numbers.
        axis: the axis, a constexpr; None stands for all elements.
        return_indices: whether to return the positions too.
        return_indices_tie_break_left: whether to return the position of the first of equal values
            (or NaNs); if false, that of any of them.
        keep_dims: whether to keep the axis, with extent 1.

    Returns:
        A tensor of the maxima or, with ``return_indices=True``, a tuple of the maxima and their
        ``int32`` positions. Without ``return_indices``, maxima of integers narrower than 32 bits
        have type int32, and maxima of fp16 and bf16 elements have type fp32. With
        ``return_indices=True``, maxima of bf16 elements have type fp32, and maxima of all other
        elements have the type of the elements.

    Example:
        largest, where = tl.max(x, axis=0, return_indices=True)
    """
    wide = input.to(extremum_dtype(input.dtype, return_indices))
    if return_indices:
        return _reduce_with_indices(wide, axis, True, keep_dims)
    else:
        return core.reduce(wide, axis, _greater, keep_dims=keep_dims)


@device_function
def min(
    input,
    axis: core.constexpr = None,
    return_indices: core.constexpr = False,
    return_indices_tie_break_left: core.constexpr = True,
    keep_dims: core.constexpr = False,
):
    """Return the minimum along an axis. The minimum is NaN only if all elements are NaN.

    With ``return_indices=True``, the function also returns the position of the minimum. If several
    elements are equal to the minimum, this is the position of the first of them; 0.0 and -0.0 count
    as equal. If all elements are NaN, it is the position of the first element.

    Args:
        input: a tensor of numbers.
        axis: the axis, a constexpr; None stands for all elements.
        return_indices: whether to return the positions too.
        return_indices_tie_break_left: whether to return the position of the first of equal values
            (or NaNs); if false, that of any of them.
        keep_dims: whether to keep the axis, with extent 1.

    Returns:
        A tensor of the minima or, with ``return_indices=True``, a tuple of the minima and their
        ``int32`` positions. Without ``return_indices``, minima of integers narrower than 32 bits
        have type int32, and minima of fp16 and bf16 elements have type fp32. With
        ``return_indices=True``, minima of bf16 elements have type fp32, and minima of all other
        elements have the type of the elements.

    Example:
        smallest = tl.min(x, axis=0)
    """
    wide = input.to(extremum_dtype(input.dtype, return_indices))
    if return_indices:
        return _reduce_with_indices(wide, axis, False, keep_dims)
    else:
        return core.reduce(wide, axis, _smaller, keep_dims=keep_dims)


@device_function
def argmax(input, axis, tie_break_left: core.constexpr = True, keep_dims: core.constexpr = False):
    """Return the position of the maximum along an axis.

    The function ignores NaN elements unless all elements are NaN.

    Args:
        input: a tensor of numbers.
        axis: the axis, a constexpr; None searches all elements in row-major order.
        tie_break_left: whether to return the position of the first of equal values; if false, that
            of any of them.
        keep_dims: whether to keep the axis, with extent 1.

    Returns:
        An ``int32`` tensor of positions. It has the shape of ``input`` without the axis ``axis``.

    Example:
        best = tl.argmax(x, axis=0)
    """
    _value, index = max(
        input,
        axis,
        return_indices=True,
        return_indices_tie_break_left=tie_break_left,
        keep_dims=keep_dims,
    )
    return index


@device_function
def argmin(input, axis, tie_break_left: core.constexpr = True, keep_dims: core.constexpr = False):
    """Return the position of the minimum along an axis.

    The function ignores NaN elements unless all elements are NaN.

    Args:
        input: a tensor of numbers.
        axis: the axis, a constexpr; None searches all elements in row-major order.
        tie_break_left: whether to return the position of the first of equal values; if false, that
            of any of them.
        keep_dims: whether to keep the axis, with extent 1.

    Returns:
        An ``int32`` tensor of positions. It has the shape of ``input`` without the axis ``axis``.

    Example:
        best = tl.argmin(x, axis=0)
    """
    _value, index = min(
        input,
        axis,
        return_indices=True,
        return_indices_tie_break_left=tie_break_left,
        keep_dims=keep_dims,
    )
    return index
