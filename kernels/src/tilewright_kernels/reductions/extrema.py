"""Maxima and minima over any axes, and their positions."""

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
from tilewright_kernels.reductions.numeric_types import compared_type, highest, lowest
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

#: Above every position.
_NOWHERE = tl.constexpr((1 << 63) - 1)


@tw.jit
def _is_nan(x):
    return x != x


@tw.jit
def _greater(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@tw.jit
def _smaller(a, b):
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)


@tw.jit
def _extremum_of(a, b, IS_MAXIMUM: tl.constexpr):
    if IS_MAXIMUM:
        return _greater(a, b)
    else:
        return _smaller(a, b)


@tw.jit
def _beats(a, b, IS_MAXIMUM: tl.constexpr):
    if IS_MAXIMUM:
        return ~(a <= b) & ~_is_nan(b)
    else:
        return ~(a >= b) & ~_is_nan(b)


@tw.jit
def extremum_kernel(
    x_ptr,
    x_index_ptr,
    y_ptr,
    index_ptr,
    kept_1,
    reduced_0,
    reduced_1,
    x_kept_0,
    x_kept_1,
    x_reduced_0,
    x_reduced_1,
    out_kept_0,
    out_kept_1,
    split_stride,
    chunk,
    VALUE: tl.constexpr,
    INDEX: tl.constexpr,
    INITIAL: tl.constexpr,
    IS_MAXIMUM: tl.constexpr,
    SPLITS_OUTER: tl.constexpr,
    IS_WIDE: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_R: tl.constexpr,
):
    outer, first = kept_elements(kept_1, BLOCK_K)
    kept = first + tl.arange(0, BLOCK_K)
    is_kept = kept < kept_1
    start = outer * x_kept_0 + first.to(tl.int64) * x_kept_1
    along_kept = lanes(BLOCK_K, IS_WIDE)[:, None] * x_kept_1
    along_reduced = lanes(BLOCK_R, IS_WIDE)[None, :] * x_reduced_1
    begin_0, end_0, begin_1, end_1 = split_bounds(reduced_0, reduced_1, chunk, SPLITS_OUTER)
    best = tl.zeros([BLOCK_K, BLOCK_R], VALUE) + INITIAL
    if x_index_ptr is not None:
        index = tl.full([BLOCK_K, BLOCK_R], _NOWHERE, tl.int64)
    else:
        # A lane begins at its first element, and meets its others in order of their positions.
        first_row = tl.zeros([BLOCK_K, BLOCK_R], INDEX) + begin_0
        index = first_row * reduced_1 + begin_1 + tl.arange(0, BLOCK_R)[None, :]
    for place_0 in range(begin_0, end_0):
        row = start + tl.cast(place_0, tl.int64) * x_reduced_0
        for place_1 in range(begin_1, end_1, BLOCK_R):
            place = place_1 + tl.arange(0, BLOCK_R)
            is_inside = is_kept[:, None] & (place < end_1)[None, :]
            at = row + tl.cast(place_1, tl.int64) * x_reduced_1 + (along_kept + along_reduced)
            x = tl.load(x_ptr + at, mask=is_inside, other=INITIAL).to(VALUE)
            if index_ptr is None:
                best = _extremum_of(best, x, IS_MAXIMUM)
            elif x_index_ptr is None:
                is_better = _beats(x, best, IS_MAXIMUM)
                x_index = (tl.zeros([1, BLOCK_R], INDEX) + place_0) * reduced_1 + place[None, :]
                index = tl.where(is_better, x_index, index)
                best = tl.where(is_better, x, best)
            else:
                x_index = tl.load(x_index_ptr + at, mask=is_inside, other=_NOWHERE)
                is_better = _beats(x, best, IS_MAXIMUM)
                is_equal = ~is_better & ~_beats(best, x, IS_MAXIMUM)
                index = tl.where(is_better | (is_equal & (x_index < index)), x_index, index)
                best = tl.where(is_better, x, best)
    if IS_MAXIMUM:
        y = tl.reduce(best, 1, _greater)
    else:
        y = tl.reduce(best, 1, _smaller)
    split = tl.program_id(1).to(tl.int64) * split_stride
    out_at = outer * out_kept_0 + split + kept.to(tl.int64) * out_kept_1
    if y_ptr is not None:
        tl.store(y_ptr + out_at, y, mask=is_kept)
    if index_ptr is not None:
        is_best = (best == y[:, None]) | (_is_nan(best) & _is_nan(y)[:, None])
        LAST: tl.constexpr = _NOWHERE if index.dtype == tl.int64 else (1 << 31) - 1
        position = tl.min(tl.where(is_best, index, LAST), axis=1)
        tl.store(index_ptr + out_at, position.to(tl.int64), mask=is_kept)


def _reference(name: str, x: Any, axis: Any, keepdims: bool) -> Any:
    xp = array_api_compat.array_namespace(x)
    axis = tuple(axis) if isinstance(axis, Sequence) else axis
    return getattr(xp, name)(x, axis=axis, keepdims=keepdims)


def max_reference(
    x: Any, axis: int | Sequence[int] | None = None, *, keepdims: bool = False
) -> Any:
    """Return the maximum over axes."""
    return _reference("max", x, axis, keepdims)


def min_reference(
    x: Any, axis: int | Sequence[int] | None = None, *, keepdims: bool = False
) -> Any:
    """Return the minimum over axes."""
    return _reference("min", x, axis, keepdims)


def argmax_reference(x: Any, axis: int | None = None, *, keepdims: bool = False) -> Any:
    """Return the position of the maximum along an axis (None: in C order)."""
    return _reference("argmax", x, axis, keepdims)


def argmin_reference(x: Any, axis: int | None = None, *, keepdims: bool = False) -> Any:
    """Return the position of the minimum along an axis (None: in C order)."""
    return _reference("argmin", x, axis, keepdims)


def _by_formula(x: Any, axes: int, keepdims: bool, is_maximum: bool) -> Any:
    axis = axes_in(axes, len(x.shape))
    return _reference("max" if is_maximum else "min", x, axis, keepdims)


def _position_by_formula(x: Any, axes: int, keepdims: bool, is_maximum: bool) -> Any:
    axis = axes_in(axes, len(x.shape))
    name = "argmax" if is_maximum else "argmin"
    return _reference(name, x, axis[0] if len(axis) == 1 else None, keepdims)


def _shapes(make: Any, x: Any, axes: int, keepdims: bool, is_maximum: bool) -> tuple[Any, ...]:
    shape = reduced_shape(x.shape, axes, keepdims)
    return make(shape, x.dtype), make(shape, "int64")


def _launch(
    run: Launcher,
    y: Any,
    index: Any,
    x: Array,
    axes: int,
    keepdims: bool = False,
    is_maximum: bool = True,
) -> None:
    if reduced_extent(x.shape, axes) == 0 and 0 not in (index if y is None else y).shape:
        raise ValueError("no elements have no maximum and no minimum")
    if y is not None and index is not None:
        views = list(views_of(x, y, axes, ordered=True))
        if len(views) == 1 and strides(y) == strides(index):
            _reduce(run, (views[0][0], None), (y, index), views[0][2], is_maximum)
            return
        _launch(run, None, index, x, axes, keepdims, is_maximum)
        index = None
    if index is None:
        for each, part, view in views_of(x, y, axes, ordered=False):
            _reduce(run, (each, None), (part, None), view, is_maximum)
    else:
        for each, part, view in views_of(x, index, axes, ordered=True):
            _reduce(run, (each, None), (None, part), view, is_maximum)


def _reduce(
    run: Launcher,
    given: tuple[Any, Any],
    results: tuple[Any, Any],
    view: ReductionView,
    is_maximum: bool,
) -> None:
    if view.n_kept == 0:
        return
    (x, x_index), (y, index) = given, results
    blocks = reduction_blocks(view, device_of(x))
    is_split = blocks.splits > 1
    kept_0, kept_1 = view.kept
    target, placement = (y, index), (kept_0.strides[1], kept_1.strides[1], 0)
    if is_split:
        shape = (blocks.splits, view.n_kept)
        target = (run.empty(shape, x.dtype), None if index is None else run.empty(shape, "int64"))
        placement = (kept_1.extent, 1, view.n_kept)
    out_kept_0, out_kept_1, split_stride = placement
    run(
        extremum_kernel,
        grid_of(view, blocks),
        x,
        x_index,
        *target,
        out_kept_0=out_kept_0,
        out_kept_1=out_kept_1,
        split_stride=split_stride,
        VALUE=compared_type(x.dtype),
        INDEX=tl.int32 if view.n_reduced < (1 << 31) - 4096 else tl.int64,
        INITIAL=lowest(x.dtype) if is_maximum else highest(x.dtype),
        IS_MAXIMUM=is_maximum,
        **sizes_of(view, blocks),
    )
    if is_split:
        _reduce(run, target, results, splits_view(view, blocks.splits), is_maximum)


EXTREMUM = Operation(
    "extremum", ("y", "index"), _shapes, _launch, residuals=("index",), reference=_by_formula
)


@EXTREMUM.differentiate(saved=("x", "index"))
def _gradients(saved: Any, dy: Any) -> Mapping[str, Any]:
    return {"x": BROADCAST(dy, saved.x, saved.axes, 1, 1, None, saved.index)}


def _index_shapes(
    make: Any, x: Any, axes: int, keepdims: bool, is_maximum: bool
) -> tuple[Any, ...]:
    return (make(reduced_shape(x.shape, axes, keepdims), "int64"),)


def _index_launch(
    run: Launcher, index: Any, x: Array, axes: int, keepdims: bool = False, is_maximum: bool = True
) -> None:
    _launch(run, None, index, x, axes, keepdims, is_maximum)


POSITION = Operation(
    "extremum_position",
    ("index",),
    _index_shapes,
    _index_launch,
    reference=_position_by_formula,
)


def max(
    x: Any, axis: int | Sequence[int] | None = None, *, keepdims: bool = False, out: Any = None
) -> Any:
    """Return the maximum over axes.

    Args:
        x: of floats or integers, of any shape and strides.
        axis: an axis, a tuple of axes, or None for all axes.
        keepdims: whether the result keeps the reduced axes with extent 1.
        out: the array for the result.

    Returns:
        An array of the element type of ``x``. If one of the elements is NaN, their maximum is NaN.
        If several elements are equal to the maximum, only the first of these elements receives the
        gradient of the maximum.

    Raises:
        ValueError: there are no elements, an axis is out of range, or an axis is named twice.
    """
    return EXTREMUM(x, axes_of(axis, len(x.shape)), keepdims, True, out=out)


def min(
    x: Any, axis: int | Sequence[int] | None = None, *, keepdims: bool = False, out: Any = None
) -> Any:
    """Return the minimum over axes; the arguments and the result are as in :func:`max`."""
    return EXTREMUM(x, axes_of(axis, len(x.shape)), keepdims, False, out=out)


def argmax(x: Any, axis: int | None = None, *, keepdims: bool = False, out: Any = None) -> Any:
    """Return the position of the first maximum along an axis.

    Args:
        x: of floats or integers, of any shape and strides.
        axis: the axis. None: the array is flattened in C order.
        keepdims: whether the result keeps the reduced axis with extent 1.
        out: the array for the result.

    Returns:
        An array of int64. If an element is NaN, the result is the position of the first NaN.

    Raises:
        ValueError: there are no elements, or the axis is out of range.
    """
    return POSITION(x, axes_of(axis, len(x.shape)), keepdims, True, out=out)


def argmin(x: Any, axis: int | None = None, *, keepdims: bool = False, out: Any = None) -> Any:
    """Return the position of the first minimum along an axis; arguments as in :func:`argmax`."""
    return POSITION(x, axes_of(axis, len(x.shape)), keepdims, False, out=out)
