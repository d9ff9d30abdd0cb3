"""Sorting along the last axis."""

# These functions are typed by the compiler, call by call; to Python they are untyped.
# mypy: ignore-errors

from __future__ import annotations

from tilewright.language import core
from tilewright.language.definitions.callable import device_function
from tilewright.language.standard.extents import (
    is_power_of_two,
    last_axis,
    log2,
    only_on,
    with_axes,
)
from tilewright.language.standard.extrema import max, min

# A network sorts by comparisons, and comparisons with NaN are all false: one NaN would leave
# numbers on either side of it out of order. Floats are therefore sorted as integers of the same
# order.


@device_function
def _keys(x):
    """Integers in the order of the numbers ``x``: NaN above all of them, -0 below 0."""
    if x.dtype.is_floating():
        signed: core.constexpr = core.get_int_dtype(x.dtype.primitive_bitwidth, True)
        most: core.constexpr = (1 << (x.dtype.primitive_bitwidth - 1)) - 1
        bits = x.to(signed, bitcast=True)
        return core.where(x == x, core.where(bits < 0, bits ^ most, bits), most)
    else:
        return x


@device_function
def _numbers(keys, dtype: core.constexpr):
    """The numbers of type ``dtype`` that :func:`_keys` made ``keys`` of, as wide as these are."""
    if dtype.is_floating():
        bits = keys.to(core.get_int_dtype(dtype.primitive_bitwidth, True))
        most: core.constexpr = (1 << (dtype.primitive_bitwidth - 1)) - 1
        numbers = core.where(bits < 0, bits ^ most, bits).to(dtype, bitcast=True)
        if keys.dtype.primitive_bitwidth > dtype.primitive_bitwidth:
            numbers = numbers.to(core.float32)
        return numbers
    else:
        return keys


@device_function
def _positions(x):
    """The index of every element along the last axis, in a shape that broadcasts with ``x``."""
    last: core.constexpr = len(x.shape) - 1
    extent: core.constexpr = x.shape[last]
    return core.reshape(core.arange(0, extent), only_on(last + 1, last, extent))


@device_function
def _compare_and_swap(x, index, distance, ascending):
    """One step of a bitonic network along the last axis.

    Each element meets the one whose index differs in bit ``distance``; the smaller one goes to the
    lower index where ``ascending`` holds. Equal ones may change places: they have the same bits.
    """
    partner = core.gather(x, core.broadcast_to(index ^ distance, x.shape), len(x.shape) - 1)
    wants_smaller = ((index & distance) == 0) == ascending
    return core.where((partner < x) == wants_smaller, partner, x)


# The steps of a network are loops, not unrolled code: as fast at run time, and ten times as fast to
# compile. Their bounds are constants once the outer loop is unrolled, for a backend that wants the
# distances known.


@device_function
def _merge(x, bits, ascending):
    """Sort runs of ``2**bits`` elements of the last axis, each of which is bitonic."""
    index = _positions(x)
    for step in core.range(0, bits):
        x = _compare_and_swap(x, index, 1 << (bits - 1 - step), ascending)
    return x


@device_function
def _ascending_runs(x, length, descending: core.constexpr):
    """Return a mask of elements in ascending runs of ``length``: every other run of the axis."""
    return ((_positions(x) & length) == 0) != descending


@device_function
def _sort_runs(x, bits: core.constexpr, descending: core.constexpr):
    """Sort runs of ``2**bits`` elements of the last axis, neighbouring runs in opposite orders.

    The first one is descending where ``descending``.
    """
    for stage in core.range(1, bits + 1):
        x = _merge(x, stage, _ascending_runs(x, 1 << stage, descending))
    return x


@device_function
def _best_of_pairs(x, length: core.constexpr, descending: core.constexpr):
    """Select the ``length`` best of every two neighbouring runs of ``length`` elements.

    The runs come sorted in opposite orders; the results are sorted in alternating orders.
    """
    last: core.constexpr = len(x.shape) - 1
    pairs: core.constexpr = x.shape[-1] // (2 * length)
    grouped = core.reshape(x, with_axes(x.shape, last, [pairs, 2, length]))
    if descending:
        best = max(grouped, last + 1)
    else:
        best = min(grouped, last + 1)
    best = core.reshape(best, with_axes(x.shape, last, [pairs * length]))
    return _merge(best, log2(length), _ascending_runs(best, length, descending))


@device_function
def sort_impl(
    x,
    k: core.constexpr = None,
    dim: core.constexpr = None,
    descending: core.constexpr = core.CONSTEXPR_0,
):
    """Sort the ``k`` largest or smallest elements along an axis, for :func:`sort` and :func:`topk`.

    Bitonic sort (K. Batcher, Sorting networks and their applications, 1968) of runs of ``k``; then,
    while several runs are left, the elementwise extrema of two neighbours that are sorted in
    opposite orders are the ``k`` best of both, and are bitonic.

    Args:
        x: a tensor of numbers.
        k: how many to keep: a constexpr, a power of two; None keeps all.
        dim: the last axis, or None.
        descending: whether to put the largest element first; if false, the smallest.

    Returns:
        A tensor whose last axis has ``k`` elements.

    Raises:
        ValueError: ``dim`` is not the last axis.
        CompileTimeAssertionFailure: ``k`` is not a power of two, or exceeds the extent.

    Example:
        ordered = tl.standard.sort_impl(x)
    """
    axis: core.constexpr = last_axis(dim, len(x.shape), "sort")
    extent: core.constexpr = x.shape[axis]
    kept: core.constexpr = extent if k is None else k
    core.static_assert(is_power_of_two(kept), "k must be a power of two")
    core.static_assert(kept <= extent, "k must not exceed the extent of the axis")
    down: core.constexpr = descending != 0
    keys = _sort_runs(_keys(x), log2(kept), down)
    for _step in core.static_range(log2(extent) - log2(kept)):
        keys = _best_of_pairs(keys, kept, down)
    return _numbers(keys, x.dtype)


@device_function
def sort(x, dim: core.constexpr = None, descending: core.constexpr = core.CONSTEXPR_0):
    """Sort along the last axis; NaN counts as greater than every number, and -0.0 as less than 0.0.

    Args:
        x: a tensor of numbers.
        dim: the last axis, or None.
        descending: whether to put the largest element first.

    Returns:
        A tensor of the type and shape of ``x``.

    Raises:
        ValueError: ``dim`` is not the last axis, or ``x`` is a scalar.

    Example:
        ordered = tl.sort(x)
    """
    return sort_impl(x, dim=dim, descending=descending)


@device_function
def topk(x, k: core.constexpr, dim: core.constexpr = None, descending: core.constexpr = True):
    """Return the ``k`` largest elements along the last axis, in descending order.

    NaN counts as greater than every number.

    Args:
        x: a tensor of numbers.
        k: the number of elements: a constexpr, a power of two.
        dim: the last axis, or None.
        descending: whether to return the largest elements, in descending order; if false, the
            smallest, in ascending order.

    Returns:
        A tensor whose last axis has ``k`` elements. If ``k`` is less than the extent of the last
        axis of ``x``, elements of integer types narrower than 32 bits are converted to int32, and
        elements of fp16 and bf16 are converted to fp32.

    Raises:
        ValueError: ``dim`` is not the last axis, or ``x`` is a scalar.
        CompileTimeAssertionFailure: ``k`` is not a power of two, or exceeds the extent.

    Example:
        best = tl.topk(x, 4)
    """
    return sort_impl(x, k=k, dim=dim, descending=descending)


@device_function
def bitonic_merge(x, dim: core.constexpr = None, descending: core.constexpr = core.CONSTEXPR_0):
    """Sort a bitonic tensor along its last axis; the result is that of :func:`sort`.

    A sequence is bitonic if it first rises and then falls, or if a rotation of it does so.

    Args:
        x: a tensor of numbers.
        dim: the last axis, or None.
        descending: whether to put the largest element first.

    Returns:
        A tensor of the type and shape of ``x``.

    Raises:
        ValueError: ``dim`` is not the last axis, or ``x`` is a scalar.

    Example:
        ordered = tl.bitonic_merge(x)
    """
    axis: core.constexpr = last_axis(dim, len(x.shape), "bitonic_merge")
    return _numbers(_merge(_keys(x), log2(x.shape[axis]), descending == 0), x.dtype)
