"""RMS norm over the last axis, alone or after the addition of a residual."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import array_api_compat

import tilewright as tw
import tilewright.language as tl
from tilewright_kernels.operations import Array, Launcher, Operation
from tilewright_kernels.rows.norm_gradients import launch_norm_backward
from tilewright_kernels.rows.shapes import (
    check_weights,
    contiguous,
    count_rows,
    row_blocks,
    with_rows,
)
from tilewright_kernels.rows.tiles import column_indices, row_indices, row_sum, within


@tw.jit
def scaled_by_weight(y, weight_ptr, columns, inside, offset: tl.constexpr):
    """Multiply by the weight and its offset, where there is a weight."""
    if weight_ptr is not None:
        y *= tl.load(weight_ptr + columns, mask=inside, other=0.0).to(tl.float32) + offset
    return y


@tw.jit
def rms_norm_kernel(
    x_ptr,
    residual_ptr,
    weight_ptr,
    y_ptr,
    sum_ptr,
    rstd_ptr,
    x_stride,
    residual_stride,
    y_stride,
    n_rows,
    n_columns,
    eps,
    OFFSET: tl.constexpr,
    ROUND: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    WIDE: tl.constexpr,
):
    row = row_indices(ROWS)
    columns = column_indices(ROWS, BLOCK)
    x_ptr += row * x_stride
    y_ptr += row * y_stride
    if residual_ptr is not None:
        residual_ptr += row * residual_stride
    if sum_ptr is not None:
        sum_ptr += row * y_stride
    element = x_ptr.dtype.element_ty
    if WIDE:
        squares = tl.zeros([BLOCK], tl.float32)
        for start in range(0, n_columns, BLOCK):
            inside = start + columns < n_columns
            x = tl.load(x_ptr + start + columns, mask=inside, other=0.0).to(tl.float32)
            if residual_ptr is not None:
                x += tl.load(residual_ptr + start + columns, mask=inside, other=0.0).to(tl.float32)
                tl.store(sum_ptr + start + columns, x, mask=inside)
            squares += x * x
        rstd = tl.rsqrt(tl.sum(squares, axis=0) / n_columns + eps)
        for start in range(0, n_columns, BLOCK):
            inside = start + columns < n_columns
            x = tl.load(x_ptr + start + columns, mask=inside, other=0.0).to(tl.float32)
            if residual_ptr is not None:
                x += tl.load(residual_ptr + start + columns, mask=inside, other=0.0).to(tl.float32)
            y = x * rstd
            if ROUND:
                y = y.to(element).to(tl.float32)
            y = scaled_by_weight(y, weight_ptr, start + columns, inside, OFFSET)
            tl.store(y_ptr + start + columns, y, mask=inside)
    else:
        inside = within(row, columns, n_rows, n_columns, ROWS)
        x = tl.load(x_ptr + columns, mask=inside, other=0.0).to(tl.float32)
        if residual_ptr is not None:
            x += tl.load(residual_ptr + columns, mask=inside, other=0.0).to(tl.float32)
        if sum_ptr is not None:
            tl.store(sum_ptr + columns, x, mask=inside)
        rstd = tl.rsqrt(row_sum(x * x, ROWS) / n_columns + eps)
        y = x * rstd
        if ROUND:
            y = y.to(element).to(tl.float32)
        y = scaled_by_weight(y, weight_ptr, columns, columns < n_columns, OFFSET)
        tl.store(y_ptr + columns, y, mask=inside)
    if rstd_ptr is not None:
        tl.store(rstd_ptr + row, rstd, mask=row < n_rows)


def rms_norm_reference(x: Any, weight: Any = None, eps: float = 1e-6, offset: float = 0.0) -> Any:
    """Return ``x / sqrt(mean(x ** 2) + eps) * (offset + weight)`` over the last axis."""
    xp = array_api_compat.array_namespace(x)
    y = x / xp.sqrt(xp.mean(x * x, axis=-1, keepdims=True) + eps)
    return y if weight is None else y * (weight + offset)


def add_rms_norm_reference(
    x: Any, residual: Any, weight: Any = None, eps: float = 1e-6, offset: float = 0.0
) -> tuple[Any, Any]:
    """Return the RMS norm of ``x + residual``, and ``x + residual``."""
    total = x + residual
    return rms_norm_reference(total, weight, eps, offset), total


def _shapes(make: Any, x: Any, weight: Any, *settings: Any) -> tuple[Any, ...]:
    check_weights(x, weight)
    return make(x.shape, x.dtype), make(x.shape[:-1], "float32")


def _add_shapes(make: Any, x: Any, residual: Any, weight: Any, *settings: Any) -> tuple[Any, ...]:
    check_weights(x, weight)
    if tuple(x.shape) != tuple(residual.shape):
        raise ValueError(
            f"x has the shape {tuple(x.shape)}, and residual {tuple(residual.shape)}: give arrays "
            "of one shape"
        )
    return make(x.shape, x.dtype), make(x.shape, x.dtype), make(x.shape[:-1], "float32")


def _run(
    run: Launcher,
    x: Any,
    residual: Any,
    weight: Any,
    y: Any,
    total: Any,
    rstd: Any,
    eps: float,
    offset: float,
    round_normalized: bool,
) -> None:
    n_rows, n_columns = count_rows(x.shape), x.shape[-1]
    x, x_stride = with_rows(x)
    residual, residual_stride = (None, 0) if residual is None else with_rows(residual)
    blocks = row_blocks("rms_norm", n_columns, x)
    run(
        rms_norm_kernel,
        blocks.grid(n_rows),
        x,
        residual,
        contiguous(weight),
        y,
        total,
        rstd,
        x_stride,
        residual_stride,
        n_columns,
        n_rows,
        n_columns,
        eps,
        OFFSET=offset,
        ROUND=round_normalized,
        **blocks.constants,
    )


def _launch(
    run: Launcher,
    y: Any,
    rstd: Any,
    x: Array,
    weight: Array | None = None,
    eps: float = 1e-6,
    offset: float = 0.0,
    round_normalized: bool = False,
) -> None:
    _run(run, x, None, weight, y, None, rstd, eps, offset, round_normalized)


def _add_launch(
    run: Launcher,
    y: Any,
    total: Any,
    rstd: Any,
    x: Array,
    residual: Array,
    weight: Array | None = None,
    eps: float = 1e-6,
    offset: float = 0.0,
    round_normalized: bool = False,
) -> None:
    _run(run, x, residual, weight, y, total, rstd, eps, offset, round_normalized)


RMS_NORM = Operation(
    "rms_norm", ("y", "rstd"), _shapes, _launch, residuals=("rstd",), reference=rms_norm_reference
)
ADD_RMS_NORM = Operation(
    "add_rms_norm",
    ("y", "total", "rstd"),
    _add_shapes,
    _add_launch,
    residuals=("rstd",),
    reference=add_rms_norm_reference,
)


def _backward_shapes(
    make: Any, dy: Any, d_total: Any, x: Any, rstd: Any, weight: Any, *settings: Any
) -> tuple[Any, ...]:
    if weight is None:
        return make(x.shape, x.dtype), make((0,), x.dtype)
    return make(x.shape, x.dtype), make(weight.shape, weight.dtype)


def _backward_launch(
    run: Launcher,
    dx: Any,
    d_weight: Any,
    dy: Array,
    d_total: Array | None,
    x: Array,
    rstd: Array,
    weight: Array | None,
    eps: float,
    offset: float,
    round_normalized: bool,
) -> None:
    launch_norm_backward(
        run,
        dx,
        d_weight,
        None,
        dy,
        d_total,
        x,
        None,
        rstd,
        weight,
        offset,
        round_normalized,
    )


RMS_NORM_BACKWARD = Operation(
    "rms_norm_backward", ("dx", "d_weight"), _backward_shapes, _backward_launch
)


def _gradients_of(saved: Any, x: Any, dy: Any, d_total: Any) -> tuple[Any, Mapping[str, Any]]:
    if dy is None:
        return d_total, {}
    dx, d_weight = RMS_NORM_BACKWARD(
        dy, d_total, x, saved.rstd, saved.weight, saved.eps, saved.offset, saved.round_normalized
    )
    return dx, {} if saved.weight is None else {"weight": d_weight}


@RMS_NORM.differentiate(saved=("x", "weight", "rstd"))
def _gradients(saved: Any, dy: Any) -> Mapping[str, Any]:
    dx, others = _gradients_of(saved, saved.x, dy, None)
    return {"x": dx, **others}


@ADD_RMS_NORM.differentiate(saved=("total", "weight", "rstd"))
def _add_gradients(saved: Any, dy: Any, d_total: Any) -> Mapping[str, Any]:
    dx, others = _gradients_of(saved, saved.total, dy, d_total)
    return {"x": dx, "residual": dx, **others}


def rms_norm(
    x: Any,
    weight: Any = None,
    *,
    eps: float = 1e-6,
    offset: float = 0.0,
    round_normalized: bool = False,
    out: Any = None,
) -> Any:
    """Divide each row by its root mean square, and multiply it by the weight.

    Args:
        x: of shape (..., columns), of float16, bfloat16 or float32, of any strides.
        weight: of shape (columns,), or None.
        eps: a number that is added to the mean of squares.
        offset: a number that is added to the weight; Gemma uses 1.
        round_normalized: whether to round the normalized row to the type of ``x`` before it is
            multiplied by the weight, as Llama and Qwen do. Otherwise, all arithmetic is in float32.
        out: the array for the result.

    Returns:
        An array with the shape and element type of ``x``. Sums are in float32.

    Raises:
        ValueError: the shapes of the arguments do not match.

    Source: Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.
    """
    return RMS_NORM(x, weight, eps, offset, round_normalized, out=out)


def add_rms_norm(
    x: Any,
    residual: Any,
    weight: Any = None,
    *,
    eps: float = 1e-6,
    offset: float = 0.0,
    round_normalized: bool = False,
    out: Any = None,
) -> Any:
    """Add a residual, and normalize the sum as :func:`rms_norm` does.

    Args:
        x: of shape (..., columns), of float16, bfloat16 or float32, of any strides.
        residual: of the shape of ``x``.
        weight: of shape (columns,), or None.
        eps: a number that is added to the mean of squares.
        offset: a number that is added to the weight; Gemma uses 1.
        round_normalized: as in :func:`rms_norm`.
        out: a pair of arrays for the results.

    Returns:
        A pair: the normalized sum, and the sum itself, both with the shape and element type of
        ``x``. The function normalizes the sum before it rounds the sum to the type of ``x``.

    Raises:
        ValueError: the shapes of the arguments do not match.
    """
    return ADD_RMS_NORM(x, residual, weight, eps, offset, round_normalized, out=out)
