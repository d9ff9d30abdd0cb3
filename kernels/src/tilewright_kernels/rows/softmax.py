"""Softmax and log-softmax over the last axis."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import array_api_compat

import tilewright as tw
import tilewright.language as tl
from tilewright_kernels.operations import Array, Launcher, Operation
from tilewright_kernels.rows.shapes import count_rows, loop_stages, row_blocks, with_rows
from tilewright_kernels.rows.tiles import (
    column_indices,
    log_of_sums,
    online_sum,
    row_indices,
    row_max,
    row_sum,
    within,
)


@tw.jit
def softmax_kernel(
    x_ptr,
    y_ptr,
    x_stride,
    y_stride,
    n_rows,
    n_columns,
    LOG: tl.constexpr,
    STAGES: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    WIDE: tl.constexpr,
):
    row = row_indices(ROWS)
    columns = column_indices(ROWS, BLOCK)
    x_ptr += row * x_stride
    y_ptr += row * y_stride
    if WIDE:
        maximum = tl.cast(-float("inf"), tl.float32)
        total = tl.zeros([BLOCK], tl.float32)
        for start in tl.range(0, n_columns, BLOCK, num_stages=STAGES):
            inside = start + columns < n_columns
            x = tl.load(x_ptr + start + columns, mask=inside, other=0.0).to(tl.float32)
            x = tl.where(inside, x, -float("inf"))
            maximum, total = online_sum(maximum, total, x)
        lse = log_of_sums(maximum, total)
        for start in tl.range(0, n_columns, BLOCK, num_stages=STAGES):
            inside = start + columns < n_columns
            y = tl.load(x_ptr + start + columns, mask=inside, other=0.0).to(tl.float32) - lse
            tl.store(y_ptr + start + columns, y if LOG else tl.exp(y), mask=inside)
    else:
        inside = within(row, columns, n_rows, n_columns, ROWS)
        x = tl.load(x_ptr + columns, mask=inside, other=-float("inf")).to(tl.float32)
        shifted = x - row_max(x, ROWS)
        weights = tl.exp(shifted)
        total = row_sum(weights, ROWS)
        y = shifted - tl.log(total) if LOG else weights / total
        tl.store(y_ptr + columns, y, mask=inside)


@tw.jit
def _slope(y, dy, total, LOG: tl.constexpr):
    return dy - tl.exp(y) * total if LOG else y * (dy - total)


@tw.jit
def softmax_backward_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    dy_stride,
    y_stride,
    dx_stride,
    n_rows,
    n_columns,
    LOG: tl.constexpr,
    STAGES: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    WIDE: tl.constexpr,
):
    row = row_indices(ROWS)
    columns = column_indices(ROWS, BLOCK)
    dy_ptr += row * dy_stride
    y_ptr += row * y_stride
    dx_ptr += row * dx_stride
    if WIDE:
        parts = tl.zeros([BLOCK], tl.float32)
        for start in tl.range(0, n_columns, BLOCK, num_stages=STAGES):
            inside = start + columns < n_columns
            dy = tl.load(dy_ptr + start + columns, mask=inside, other=0.0).to(tl.float32)
            if LOG:
                parts += dy
            else:
                y = tl.load(y_ptr + start + columns, mask=inside, other=0.0).to(tl.float32)
                parts += y * dy
        total = tl.sum(parts, axis=0)
        for start in tl.range(0, n_columns, BLOCK, num_stages=STAGES):
            inside = start + columns < n_columns
            dy = tl.load(dy_ptr + start + columns, mask=inside, other=0.0).to(tl.float32)
            y = tl.load(y_ptr + start + columns, mask=inside, other=0.0).to(tl.float32)
            tl.store(dx_ptr + start + columns, _slope(y, dy, total, LOG), mask=inside)
    else:
        inside = within(row, columns, n_rows, n_columns, ROWS)
        dy = tl.load(dy_ptr + columns, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + columns, mask=inside, other=0.0).to(tl.float32)
        total = row_sum(dy if LOG else y * dy, ROWS)
        tl.store(dx_ptr + columns, _slope(y, dy, total, LOG), mask=inside)


def softmax_reference(x: Any) -> Any:
    """Return ``exp(x) / sum(exp(x))`` over the last axis."""
    xp = array_api_compat.array_namespace(x)
    weights = xp.exp(x - xp.max(x, axis=-1, keepdims=True))
    return weights / xp.sum(weights, axis=-1, keepdims=True)


def log_softmax_reference(x: Any) -> Any:
    """Return ``x - log(sum(exp(x)))`` over the last axis."""
    xp = array_api_compat.array_namespace(x)
    shifted = x - xp.max(x, axis=-1, keepdims=True)
    return shifted - xp.log(xp.sum(xp.exp(shifted), axis=-1, keepdims=True))


def _shapes(make: Any, x: Any) -> tuple[Any, ...]:
    return (make(x.shape, x.dtype),)


def _launch_forward(run: Launcher, y: Any, x: Any, log: bool) -> None:
    n_columns = x.shape[-1]
    x, x_stride = with_rows(x)
    blocks = row_blocks("softmax", n_columns, x)
    run(
        softmax_kernel,
        blocks.grid(count_rows(x.shape)),
        x,
        y,
        x_stride,
        n_columns,
        count_rows(x.shape),
        n_columns,
        LOG=log,
        STAGES=loop_stages(x),
        **blocks.constants,
    )


def _launch_backward(run: Launcher, dx: Any, dy: Any, y: Any, log: bool) -> None:
    n_rows, n_columns = count_rows(y.shape), y.shape[-1]
    dy, dy_stride = with_rows(dy)
    y, y_stride = with_rows(y)
    blocks = row_blocks("softmax_gradient", n_columns, y, values=2)
    run(
        softmax_backward_kernel,
        blocks.grid(n_rows),
        dy,
        y,
        dx,
        dy_stride,
        y_stride,
        n_columns,
        n_rows,
        n_columns,
        LOG=log,
        STAGES=loop_stages(y),
        **blocks.constants,
    )


def _backward_shapes(make: Any, dy: Any, y: Any) -> tuple[Any, ...]:
    return (make(y.shape, y.dtype),)


def _softmax_launch(run: Launcher, y: Any, x: Array) -> None:
    _launch_forward(run, y, x, False)


def _log_softmax_launch(run: Launcher, y: Any, x: Array) -> None:
    _launch_forward(run, y, x, True)


def _softmax_backward_launch(run: Launcher, dx: Any, dy: Array, y: Array) -> None:
    _launch_backward(run, dx, dy, y, False)


def _log_softmax_backward_launch(run: Launcher, dx: Any, dy: Array, y: Array) -> None:
    _launch_backward(run, dx, dy, y, True)


SOFTMAX = Operation("softmax", ("y",), _shapes, _softmax_launch, reference=softmax_reference)
LOG_SOFTMAX = Operation(
    "log_softmax", ("y",), _shapes, _log_softmax_launch, reference=log_softmax_reference
)
SOFTMAX_BACKWARD = Operation(
    "softmax_backward", ("dx",), _backward_shapes, _softmax_backward_launch
)
LOG_SOFTMAX_BACKWARD = Operation(
    "log_softmax_backward", ("dx",), _backward_shapes, _log_softmax_backward_launch
)


@SOFTMAX.differentiate(saved=("y",))
def _softmax_gradients(saved: Any, dy: Any) -> Mapping[str, Any]:
    return {"x": SOFTMAX_BACKWARD(dy, saved.y)}


@LOG_SOFTMAX.differentiate(saved=("y",))
def _log_softmax_gradients(saved: Any, dy: Any) -> Mapping[str, Any]:
    return {"x": LOG_SOFTMAX_BACKWARD(dy, saved.y)}


def softmax(x: Any, *, out: Any = None) -> Any:
    """Compute the softmax of each row: its exponentials divided by their sum.

    Args:
        x: of shape (..., columns), of float16, bfloat16 or float32, of any strides.
        out: the array for the result.

    Returns:
        An array with the shape and element type of ``x``. The arithmetic is in float32. Rows of
        more than 32,768 columns (on a CPU 131,072) are read twice.

    Source: Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018.
    """
    return SOFTMAX(x, out=out)


def log_softmax(x: Any, *, out: Any = None) -> Any:
    """Compute the logarithm of the softmax of each row.

    Args:
        x: of shape (..., columns), of float16, bfloat16 or float32, of any strides.
        out: the array for the result.

    Returns:
        An array with the shape and element type of ``x``. The arithmetic is in float32.
    """
    return LOG_SOFTMAX(x, out=out)
