"""Variances over any axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import array_api_compat

import tilewright as tw
import tilewright.language as tl
from tilewright_kernels.operations import Array, Launcher, Operation, strides
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
    views_of,
)


@tw.jit
def _merge(mean_1, squares_1, count_1, mean_2, squares_2, count_2):
    """Merge the means and the squared deviations of two sets of elements."""
    count = count_1 + count_2
    weight = count_2 / tl.maximum(count, 1)
    delta = mean_2 - mean_1
    mean = mean_1 + delta * weight
    return mean, squares_1 + squares_2 + delta * delta * count_1 * weight, count


@tw.jit
def variance_kernel(
    x_ptr,
    y_ptr,
    mean_ptr,
    squares_ptr,
    count_ptr,
    kept_1,
    reduced_0,
    reduced_1,
    x_kept_0,
    x_kept_1,
    x_reduced_0,
    x_reduced_1,
    y_kept_0,
    y_kept_1,
    mean_kept_0,
    mean_kept_1,
    split_stride,
    divisor,
    chunk,
    FLOAT: tl.constexpr,
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
    mean = tl.zeros([BLOCK_K, BLOCK_R], FLOAT)
    squares = tl.zeros([BLOCK_K, BLOCK_R], FLOAT)
    count = tl.zeros([1, BLOCK_R], FLOAT)
    for place_0 in range(begin_0, end_0):
        row_ptr = x_ptr + tl.cast(place_0, tl.int64) * x_reduced_0
        for place_1 in range(begin_1, end_1, BLOCK_R):
            is_element = (place_1 + tl.arange(0, BLOCK_R) < end_1)[None, :]
            place = tl.cast(place_1, tl.int64) * x_reduced_1
            x = tl.load(
                row_ptr + place + (along_kept + along_reduced),
                mask=is_kept[:, None] & is_element,
                other=0.0,
            ).to(FLOAT)
            one = is_element.to(FLOAT)
            count += one
            delta = x - mean
            mean += delta * (one / tl.maximum(count, 1))
            squares += delta * (x - mean) * one
    count = tl.broadcast_to(count, [BLOCK_K, BLOCK_R])
    mean_all, squares_all, count_all = tl.reduce((mean, squares, count), 1, _merge)
    split = tl.program_id(1).to(tl.int64) * split_stride
    kept = kept.to(tl.int64)
    mean_at = outer * mean_kept_0 + split + kept * mean_kept_1
    if y_ptr is not None:
        y = squares_all / (tl.zeros([BLOCK_K], FLOAT) + divisor)
        tl.store(y_ptr + outer * y_kept_0 + kept * y_kept_1, y, mask=is_kept)
    if mean_ptr is not None:
        tl.store(mean_ptr + mean_at, mean_all, mask=is_kept)
    if squares_ptr is not None:
        tl.store(squares_ptr + mean_at, squares_all, mask=is_kept)
        tl.store(count_ptr + mean_at, count_all, mask=is_kept)


@tw.jit
def merge_variances_kernel(
    mean_ptr,
    squares_ptr,
    count_ptr,
    y_ptr,
    total_mean_ptr,
    n_kept,
    n_splits,
    kept_1,
    y_kept_0,
    y_kept_1,
    divisor,
    FLOAT: tl.constexpr,
    BLOCK_K: tl.constexpr,
    SPLITS: tl.constexpr,
):
    kept = tl.program_id(0).to(tl.int64) * BLOCK_K + tl.arange(0, BLOCK_K)
    split = tl.arange(0, SPLITS)
    is_kept = kept < n_kept
    is_inside = is_kept[:, None] & (split < n_splits)[None, :]
    at = kept[:, None] + split[None, :].to(tl.int64) * n_kept
    mean, squares, _count = tl.reduce(
        (
            tl.load(mean_ptr + at, mask=is_inside, other=0.0),
            tl.load(squares_ptr + at, mask=is_inside, other=0.0),
            tl.load(count_ptr + at, mask=is_inside, other=0.0),
        ),
        1,
        _merge,
    )
    y_at = (kept // kept_1) * y_kept_0 + (kept % kept_1) * y_kept_1
    tl.store(y_ptr + y_at, squares / (tl.zeros([BLOCK_K], FLOAT) + divisor), mask=is_kept)
    if total_mean_ptr is not None:
        tl.store(total_mean_ptr + kept, mean, mask=is_kept)


def var_reference(
    x: Any,
    axis: int | Sequence[int] | None = None,
    *,
    correction: int = 0,
    keepdims: bool = False,
) -> Any:
    """Return the sum of squared deviations from the mean, by the elements' number - correction."""
    xp = array_api_compat.array_namespace(x)
    axis = tuple(axis) if isinstance(axis, Sequence) else axis
    deviation = x - xp.mean(x, axis=axis, keepdims=True)
    divisor = reduced_extent(x.shape, axes_of(axis, len(x.shape))) - correction
    return xp.sum(deviation * deviation, axis=axis, keepdims=keepdims) / divisor


def _by_formula(x: Any, axes: int, keepdims: bool, correction: int) -> Any:
    axis = axes_in(axes, len(x.shape))
    return var_reference(x, axis, correction=correction, keepdims=keepdims)


def _shapes(make: Any, x: Any, axes: int, keepdims: bool, correction: int) -> tuple[Any, ...]:
    shape = reduced_shape(x.shape, axes, keepdims)
    return make(shape, x.dtype), make(shape, accumulator_type(x.dtype).name)


def _launch(
    run: Launcher,
    y: Any,
    mean: Any,
    x: Array,
    axes: int,
    keepdims: bool = False,
    correction: int = 0,
) -> None:
    divisor = reduced_extent(x.shape, axes) - correction
    if mean is not None and strides(y) != strides(mean):
        raise AssertionError("residuals are in C order, as results are that are not given")
    for each, out, view in views_of(x, y, axes, ordered=False):
        _reduce(run, each, out, mean, view, divisor)


def _reduce(run: Launcher, x: Any, y: Any, mean: Any, view: ReductionView, divisor: int) -> None:
    if view.n_kept == 0:
        return
    accumulator = accumulator_type(x.dtype)
    blocks = reduction_blocks(view, device_of(x))
    (kept_0, kept_1), is_split = view.kept, blocks.splits > 1
    y_kept = (kept_0.strides[1], kept_1.strides[1])
    shape = (blocks.splits, view.n_kept)
    partial = [run.empty(shape, accumulator.name) for _ in range(3 if is_split else 0)]
    targets = (None, *partial) if is_split else (y, mean, None, None)
    mean_kept = (kept_1.extent, 1) if is_split else y_kept
    run(
        variance_kernel,
        grid_of(view, blocks),
        x,
        *targets,
        y_kept_0=y_kept[0],
        y_kept_1=y_kept[1],
        mean_kept_0=mean_kept[0],
        mean_kept_1=mean_kept[1],
        split_stride=view.n_kept if is_split else 0,
        divisor=divisor,
        FLOAT=accumulator.dtype,
        **sizes_of(view, blocks),
    )
    if is_split:
        splits = tw.next_power_of_2(blocks.splits)
        block = max(min(1024 // splits, tw.next_power_of_2(view.n_kept)), 1)
        run(
            merge_variances_kernel,
            (tw.cdiv(view.n_kept, block),),
            *partial,
            y,
            mean,
            view.n_kept,
            blocks.splits,
            kept_1.extent,
            *y_kept,
            divisor,
            FLOAT=accumulator.dtype,
            BLOCK_K=block,
            SPLITS=splits,
        )


VARIANCE = Operation(
    "variance", ("y", "mean"), _shapes, _launch, residuals=("mean",), reference=_by_formula
)


@VARIANCE.differentiate(saved=("x", "mean"))
def _gradients(saved: Any, dy: Any) -> Mapping[str, Any]:
    divisor = reduced_extent(saved.x.shape, saved.axes) - saved.correction
    return {"x": BROADCAST(dy, saved.x, saved.axes, 2, divisor, saved.mean)}


def var(
    x: Any,
    axis: int | Sequence[int] | None = None,
    *,
    correction: int = 0,
    keepdims: bool = False,
    out: Any = None,
) -> Any:
    """Return the variance over axes, in one pass over memory.

    Args:
        x: of floats, of any shape and strides.
        axis: an axis, a tuple of axes, or None for all axes.
        correction: a number that is subtracted from the number of elements in the divisor; 1 is
            Bessel's correction.
        keepdims: whether the result keeps the reduced axes with extent 1.
        out: the array for the result.

    Returns:
        An array of the element type of ``x``. The arithmetic is in float32, or in float64 if ``x``
        is of float64.

    Raises:
        TypeError: ``x`` contains integers.
        ValueError: an axis is out of range, or an axis is named twice.

    Source: Welford, "Note on a method for calculating corrected sums of squares and products",
    1962; partial results are merged as in Chan, Golub and LeVeque, 1979.
    """
    if not is_floating(x.dtype):
        raise TypeError(f"var: takes floats, not {name_of(x.dtype)}; convert the array first")
    return VARIANCE(x, axes_of(axis, len(x.shape)), keepdims, correction, out=out)
