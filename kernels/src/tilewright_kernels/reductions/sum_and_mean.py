"""Sums and means over any axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import array_api_compat

import tilewright as tw
import tilewright.language as tl
from tilewright_kernels.operations import Array, Launcher, Operation
from tilewright_kernels.operations.devices import device_of
from tilewright_kernels.reductions.addresses import kept_elements, lanes, split_bounds
from tilewright_kernels.reductions.broadcasts import BROADCAST
from tilewright_kernels.reductions.numeric_types import accumulator_type, is_floating, name_of
from tilewright_kernels.reductions.views import (
    ReductionView,
    axes_in,
    axes_of,
    grid_of,
    reduced_extent,
    reduced_shape,
    reduction_blocks,
    sizes_of,
    splits_view,
    views_of,
)


@tw.jit
def sum_kernel(
    x_ptr,
    out_ptr,
    kept_1,
    reduced_0,
    reduced_1,
    x_kept_0,
    x_kept_1,
    x_reduced_0,
    x_reduced_1,
    out_kept_0,
    out_kept_1,
    out_split,
    divisor,
    chunk,
    IS_MEAN: tl.constexpr,
    ACCUMULATOR: tl.constexpr,
    SPLITS_OUTER: tl.constexpr,
    IS_WIDE: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_R: tl.constexpr,
):
    outer, first = kept_elements(kept_1, BLOCK_K)
    kept = first + tl.arange(0, BLOCK_K)
    is_kept = kept < kept_1
    x_ptr += outer * x_kept_0 + first.to(tl.int64) * x_kept_1
    along_kept = lanes(BLOCK_K, IS_WIDE)[:, None] * x_kept_1
    along_reduced = lanes(BLOCK_R, IS_WIDE)[None, :] * x_reduced_1
    begin_0, end_0, begin_1, end_1 = split_bounds(reduced_0, reduced_1, chunk, SPLITS_OUTER)
    total = tl.zeros([BLOCK_K, BLOCK_R], ACCUMULATOR)
    for place_0 in range(begin_0, end_0):
        row_ptr = x_ptr + tl.cast(place_0, tl.int64) * x_reduced_0
        for place_1 in range(begin_1, end_1, BLOCK_R):
            is_inside = is_kept[:, None] & (place_1 + tl.arange(0, BLOCK_R) < end_1)[None, :]
            place = tl.cast(place_1, tl.int64) * x_reduced_1
            x = tl.load(row_ptr + place + (along_kept + along_reduced), mask=is_inside, other=0)
            total += x.to(ACCUMULATOR)
    result = tl.sum(total, axis=1)
    if IS_MEAN:
        result /= tl.zeros([BLOCK_K], ACCUMULATOR) + divisor
    out_ptr += outer * out_kept_0 + tl.program_id(1).to(tl.int64) * out_split
    tl.store(out_ptr + kept.to(tl.int64) * out_kept_1, result, mask=is_kept)


def sum_reference(
    x: Any, axis: int | Sequence[int] | None = None, *, keepdims: bool = False
) -> Any:
    """Return the sum over axes, in the types of x."""
    xp = array_api_compat.array_namespace(x)
    axis = tuple(axis) if isinstance(axis, Sequence) else axis
    return xp.sum(x, axis=axis, keepdims=keepdims)


def mean_reference(
    x: Any, axis: int | Sequence[int] | None = None, *, keepdims: bool = False
) -> Any:
    """Return the mean over axes, in the types of x."""
    xp = array_api_compat.array_namespace(x)
    axis = tuple(axis) if isinstance(axis, Sequence) else axis
    return xp.mean(x, axis=axis, keepdims=keepdims)


def _by_formula(x: Any, axes: int, keepdims: bool, is_mean: bool) -> Any:
    reference = mean_reference if is_mean else sum_reference
    return reference(x, axes_in(axes, len(x.shape)), keepdims=keepdims)


def _shapes(make: Any, x: Any, axes: int, keepdims: bool, is_mean: bool) -> tuple[Any, ...]:
    dtype = x.dtype if is_floating(x.dtype) else "int64"
    return (make(reduced_shape(x.shape, axes, keepdims), dtype),)


def _launch(
    run: Launcher, y: Any, x: Array, axes: int, keepdims: bool = False, is_mean: bool = False
) -> None:
    divisor = reduced_extent(x.shape, axes)
    for each, out, view in views_of(x, y, axes, ordered=False):
        _reduce(run, each, out, view, divisor, is_mean)


def _reduce(
    run: Launcher, x: Any, out: Any, view: ReductionView, divisor: int, is_mean: bool
) -> None:
    if view.n_kept == 0:
        return
    accumulator = accumulator_type(x.dtype)
    blocks = reduction_blocks(view, device_of(x))
    is_split = blocks.splits > 1
    kept_0, kept_1 = view.kept
    target, target_strides = out, (kept_0.strides[1], kept_1.strides[1], 0)
    if is_split:
        target = run.empty((blocks.splits, view.n_kept), accumulator.name)
        target_strides = (kept_1.extent, 1, view.n_kept)
    out_kept_0, out_kept_1, out_split = target_strides
    run(
        sum_kernel,
        grid_of(view, blocks),
        x,
        target,
        out_kept_0=out_kept_0,
        out_kept_1=out_kept_1,
        out_split=out_split,
        divisor=divisor,
        IS_MEAN=is_mean and not is_split,
        ACCUMULATOR=accumulator.dtype,
        **sizes_of(view, blocks),
    )
    if is_split:
        _reduce(run, target, out, splits_view(view, blocks.splits), divisor, is_mean)


SUM = Operation("sum", ("y",), _shapes, _launch, reference=_by_formula)


@SUM.differentiate(saved=("x",))
def _gradients(saved: Any, dy: Any) -> Mapping[str, Any]:
    divisor = reduced_extent(saved.x.shape, saved.axes) if saved.is_mean else 1
    return {"x": BROADCAST(dy, saved.x, saved.axes, 1, divisor)}


def sum(
    x: Any,
    axis: int | Sequence[int] | None = None,
    *,
    keepdims: bool = False,
    out: Any = None,
) -> Any:
    """Add up elements over axes.

    Args:
        x: of floats, integers or booleans, of any shape and strides.
        axis: an axis, a tuple of axes, or None for all axes.
        keepdims: whether the result keeps the reduced axes with extent 1.
        out: the array for the result.

    Returns:
        An array of the element type of ``x``, or of int64 if ``x`` contains integers. Sums of
        floats are computed in float32, or in float64 if ``x`` is of float64. The order of additions
        depends only on the shape, the strides, whether the device is a GPU, and tuning records, so
        results have the same bits in each run.

    Raises:
        ValueError: an axis is out of range, or an axis is named twice.
    """
    return SUM(x, axes_of(axis, len(x.shape)), keepdims, False, out=out)


def mean(
    x: Any,
    axis: int | Sequence[int] | None = None,
    *,
    keepdims: bool = False,
    out: Any = None,
) -> Any:
    """Compute the mean of the elements over axes.

    Args:
        x: of floats, of any shape and strides.
        axis: an axis, a tuple of axes, or None for all axes.
        keepdims: whether the result keeps the reduced axes with extent 1.
        out: the array for the result.

    Returns:
        An array of the element type of ``x``. Sums are computed as in :func:`sum`. If there are no
        elements, the mean is NaN.

    Raises:
        TypeError: ``x`` contains integers.
        ValueError: an axis is out of range, or an axis is named twice.
    """
    if not is_floating(x.dtype):
        raise TypeError(f"mean: takes floats, not {name_of(x.dtype)}; convert the array first")
    return SUM(x, axes_of(axis, len(x.shape)), keepdims, True, out=out)
