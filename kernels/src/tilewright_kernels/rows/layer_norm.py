"""Layer norm over the last axis."""

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
def weighted(y, weight_ptr, bias_ptr, columns, inside):
    """Multiply by the weight and add the bias, where there are such."""
    if weight_ptr is not None:
        y *= tl.load(weight_ptr + columns, mask=inside, other=0.0).to(tl.float32)
    if bias_ptr is not None:
        y += tl.load(bias_ptr + columns, mask=inside, other=0.0).to(tl.float32)
    return y


@tw.jit
def layer_norm_kernel(
    x_ptr,
    weight_ptr,
    bias_ptr,
    y_ptr,
    mean_ptr,
    rstd_ptr,
    x_stride,
    y_stride,
    n_rows,
    n_columns,
    eps,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    WIDE: tl.constexpr,
):
    row = row_indices(ROWS)
    columns = column_indices(ROWS, BLOCK)
    x_ptr += row * x_stride
    y_ptr += row * y_stride
    if WIDE:
        parts = tl.zeros([BLOCK], tl.float32)
        for start in range(0, n_columns, BLOCK):
            inside = start + columns < n_columns
            parts += tl.load(x_ptr + start + columns, mask=inside, other=0.0).to(tl.float32)
        mean = tl.sum(parts, axis=0) / n_columns
        parts = tl.zeros([BLOCK], tl.float32)
        for start in range(0, n_columns, BLOCK):
            inside = start + columns < n_columns
            x = tl.load(x_ptr + start + columns, mask=inside, other=0.0).to(tl.float32)
            centred = tl.where(inside, x - mean, 0.0)
            parts += centred * centred
        rstd = tl.rsqrt(tl.sum(parts, axis=0) / n_columns + eps)
        for start in range(0, n_columns, BLOCK):
            inside = start + columns < n_columns
            x = tl.load(x_ptr + start + columns, mask=inside, other=0.0).to(tl.float32)
            y = weighted((x - mean) * rstd, weight_ptr, bias_ptr, start + columns, inside)
            tl.store(y_ptr + start + columns, y, mask=inside)
    else:
        inside = within(row, columns, n_rows, n_columns, ROWS)
        x = tl.load(x_ptr + columns, mask=inside, other=0.0).to(tl.float32)
        mean = row_sum(x, ROWS) / n_columns
        centred = tl.where(inside, x - mean, 0.0)
        rstd = tl.rsqrt(row_sum(centred * centred, ROWS) / n_columns + eps)
        y = weighted(centred * rstd, weight_ptr, bias_ptr, columns, columns < n_columns)
        tl.store(y_ptr + columns, y, mask=inside)
    if rstd_ptr is not None:
        tl.store(mean_ptr + row, mean, mask=row < n_rows)
        tl.store(rstd_ptr + row, rstd, mask=row < n_rows)


def layer_norm_reference(x: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    """Return ``(x - mean) / sqrt(variance + eps) * weight + bias`` over the last axis."""
    xp = array_api_compat.array_namespace(x)
    centred = x - xp.mean(x, axis=-1, keepdims=True)
    y = centred / xp.sqrt(xp.mean(centred * centred, axis=-1, keepdims=True) + eps)
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def _shapes(make: Any, x: Any, weight: Any, bias: Any, eps: float) -> tuple[Any, ...]:
    check_weights(x, weight, bias)
    rows = x.shape[:-1]
    return make(x.shape, x.dtype), make(rows, "float32"), make(rows, "float32")


def _launch(
    run: Launcher,
    y: Any,
    mean: Any,
    rstd: Any,
    x: Array,
    weight: Array | None = None,
    bias: Array | None = None,
    eps: float = 1e-5,
) -> None:
    n_rows, n_columns = count_rows(x.shape), x.shape[-1]
    x, x_stride = with_rows(x)
    blocks = row_blocks("layer_norm", n_columns, x, values=2)
    run(
        layer_norm_kernel,
        blocks.grid(n_rows),
        x,
        contiguous(weight),
        contiguous(bias),
        y,
        mean,
        rstd,
        x_stride,
        n_columns,
        n_rows,
        n_columns,
        eps,
        **blocks.constants,
    )


LAYER_NORM = Operation(
    "layer_norm",
    ("y", "mean", "rstd"),
    _shapes,
    _launch,
    residuals=("mean", "rstd"),
    reference=layer_norm_reference,
)


def _backward_shapes(
    make: Any, dy: Any, x: Any, mean: Any, rstd: Any, weight: Any, bias: Any, eps: float
) -> tuple[Any, ...]:
    return (
        make(x.shape, x.dtype),
        *(
            make((0,), x.dtype) if each is None else make(each.shape, each.dtype)
            for each in (weight, bias)
        ),
    )


def _backward_launch(
    run: Launcher,
    dx: Any,
    d_weight: Any,
    d_bias: Any,
    dy: Array,
    x: Array,
    mean: Array,
    rstd: Array,
    weight: Array | None,
    bias: Array | None,
    eps: float,
) -> None:
    d_weight = None if weight is None else d_weight
    d_bias = None if bias is None else d_bias
    launch_norm_backward(run, dx, d_weight, d_bias, dy, None, x, mean, rstd, weight)


LAYER_NORM_BACKWARD = Operation(
    "layer_norm_backward", ("dx", "d_weight", "d_bias"), _backward_shapes, _backward_launch
)


@LAYER_NORM.differentiate(saved=("x", "mean", "rstd", "weight", "bias"))
def _gradients(saved: Any, dy: Any) -> Mapping[str, Any]:
    dx, d_weight, d_bias = LAYER_NORM_BACKWARD(
        dy, saved.x, saved.mean, saved.rstd, saved.weight, saved.bias, saved.eps
    )
    found = {"x": dx}
    if saved.weight is not None:
        found["weight"] = d_weight
    if saved.bias is not None:
        found["bias"] = d_bias
    return found


def layer_norm(
    x: Any, weight: Any = None, bias: Any = None, *, eps: float = 1e-5, out: Any = None
) -> Any:
    """Normalize each row to mean 0 and variance 1, and apply weight and bias.

    Args:
        x: of shape (..., columns), of float16, bfloat16 or float32, of any strides.
        weight: of shape (columns,), or None.
        bias: of shape (columns,), or None.
        eps: a number that is added to the variance.
        out: the array for the result.

    Returns:
        An array with the shape and element type of ``x``. The arithmetic is in float32. The
        variance is computed after the mean, from the differences between the elements and the mean.

    Raises:
        ValueError: the shapes of the arguments do not match.

    Source: Ba, Kiros and Hinton, "Layer Normalization", 2016.
    """
    return LAYER_NORM(x, weight, bias, eps, out=out)
