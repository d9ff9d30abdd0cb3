"""Division of rows by their Euclidean norms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import array_api_compat

import tilewright as tw
import tilewright.language as tl
from tilewright_kernels.operations import Array, Launcher, Operation
from tilewright_kernels.rows.shapes import count_rows, row_blocks, with_rows
from tilewright_kernels.rows.tiles import column_indices, row_indices, row_sum, within


@tw.jit
def row_products(
    x_ptr, y_ptr, row, n_rows, n_columns,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Return the dot of two rows, in float32."""
    columns = column_indices(ROWS, BLOCK)
    if WIDE:
        total = tl.zeros([BLOCK], tl.float32)
        for start in range(0, n_columns, BLOCK):
            inside = start + columns < n_columns
            x = tl.load(x_ptr + start + columns, mask=inside, other=0.0).to(tl.float32)
            total += x * tl.load(y_ptr + start + columns, mask=inside, other=0.0).to(tl.float32)
        return tl.sum(total, axis=0)
    inside = within(row, columns, n_rows, n_columns, ROWS)
    x = tl.load(x_ptr + columns, mask=inside, other=0.0).to(tl.float32)
    y = tl.load(y_ptr + columns, mask=inside, other=0.0).to(tl.float32)
    return row_sum(x * y, ROWS)


@tw.jit
def l2_norm_kernel(
    x_ptr, dy_ptr, y_ptr, x_stride, dy_stride, n_rows, n_columns, eps,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Store rows by their norms; with ``dy_ptr``, the gradient of what was divided."""
    row, columns = row_indices(ROWS), column_indices(ROWS, BLOCK)
    x_ptr += row * x_stride
    y_ptr += row * n_columns
    squares = row_products(x_ptr, x_ptr, row, n_rows, n_columns, ROWS, BLOCK, WIDE)
    factor = tl.rsqrt(squares + eps)
    along = factor * 0.0
    if dy_ptr is not None:
        dy_ptr += row * dy_stride
        along = row_products(x_ptr, dy_ptr, row, n_rows, n_columns, ROWS, BLOCK, WIDE)
        along *= factor * factor
    for start in range(0, n_columns, BLOCK):
        inside = within(row, start + columns, n_rows, n_columns, ROWS)
        x = tl.load(x_ptr + start + columns, mask=inside, other=0.0).to(tl.float32)
        y = x
        if dy_ptr is not None:
            dy = tl.load(dy_ptr + start + columns, mask=inside, other=0.0).to(tl.float32)
            y = dy - along * x
        tl.store(y_ptr + start + columns, y * factor, mask=inside)


def l2_norm_reference(x: Any, eps: float = 1e-6) -> Any:
    """Return ``x / sqrt(sum(x ** 2) + eps)`` over the last axis."""
    xp = array_api_compat.array_namespace(x)
    return x / xp.sqrt(xp.sum(x * x, axis=-1, keepdims=True) + eps)


def _shapes(make: Any, x: Any, eps: float) -> tuple[Any, ...]:
    return (make(x.shape, x.dtype),)


def _run(run: Launcher, y: Any, x: Any, dy: Any, eps: float) -> None:
    n_rows, n_columns = count_rows(x.shape), x.shape[-1]
    if n_rows * n_columns == 0:
        return
    x, x_stride = with_rows(x)
    dy, dy_stride = (None, 0) if dy is None else with_rows(dy)
    blocks = row_blocks("l2_norm", n_columns, x)
    run(
        l2_norm_kernel, blocks.grid(n_rows),
        x, dy, y, x_stride, dy_stride, n_rows, n_columns, eps, **blocks.constants,
    )  # fmt: skip


def _launch(run: Launcher, y: Any, x: Array, eps: float = 1e-6) -> None:
    _run(run, y, x, None, eps)


L2_NORM = Operation("l2_norm", ("y",), _shapes, _launch, reference=l2_norm_reference)


def _backward_shapes(make: Any, dy: Any, x: Any, eps: float) -> tuple[Any, ...]:
    return (make(x.shape, x.dtype),)


def _backward_launch(run: Launcher, dx: Any, dy: Array, x: Array, eps: float) -> None:
    _run(run, dx, x, dy, eps)


L2_NORM_BACKWARD = Operation("l2_norm_backward", ("dx",), _backward_shapes, _backward_launch)


@L2_NORM.differentiate(saved=("x",))
def _gradients(saved: Any, dy: Any) -> Mapping[str, Any]:
    return {"x": L2_NORM_BACKWARD(dy, saved.x, saved.eps)}


def l2_norm(x: Any, *, eps: float = 1e-6, out: Any = None) -> Any:
    """Divide each row by its Euclidean norm.

    Args:
        x: of shape (..., columns), of float16, bfloat16 or float32, of any strides.
        eps: a number that is added to the sum of squares.
        out: the array for the result.

    Returns:
        An array with the shape and element type of ``x``. The arithmetic is in float32.
    """
    return L2_NORM(x, eps, out=out)
