"""Matmul of rows that are divided by their root mean square, in its epilogue."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import array_api_compat

import tilewright as tw
import tilewright.language as tl
from tilewright_kernels.linear.epilogues.epilogue_functions import row_scale
from tilewright_kernels.linear.matmul import matmul
from tilewright_kernels.operations import Array, Launcher, Operation
from tilewright_kernels.rows.shapes import contiguous, count_rows, row_blocks, with_rows
from tilewright_kernels.rows.tiles import column_indices, row_indices, row_sum, within


@tw.jit
def rstd_kernel(
    x_ptr, rstd_ptr, stride, n_rows, n_columns, eps,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Compute the reciprocal root mean square of each row."""
    row = row_indices(ROWS)
    columns = column_indices(ROWS, BLOCK)
    x_ptr += row * stride
    if WIDE:
        squares = tl.zeros([BLOCK], tl.float32)
        for start in range(0, n_columns, BLOCK):
            inside = start + columns < n_columns
            x = tl.load(x_ptr + start + columns, mask=inside, other=0.0).to(tl.float32)
            squares += x * x
        total = tl.sum(squares, axis=0)
    else:
        inside = within(row, columns, n_rows, n_columns, ROWS)
        x = tl.load(x_ptr + columns, mask=inside, other=0.0).to(tl.float32)
        total = row_sum(x * x, ROWS)
    tl.store(rstd_ptr + row, tl.rsqrt(total / n_columns + eps), mask=row < n_rows)


@functools.cache
def _adjoint() -> Any:
    return tw.vjp(rstd_kernel, outputs="rstd_ptr", wrt="x_ptr", deterministic=True)


def _rstd_reference(x: Any, eps: float) -> Any:
    xp = array_api_compat.array_namespace(x)
    return 1.0 / xp.sqrt(xp.mean(x * x, axis=-1) + eps)


def _shapes(make: Any, x: Any, eps: float) -> tuple[Any, ...]:
    return (make(x.shape[:-1], "float32"),)


def _run(run: Launcher, kernel: Any, x: Any, rstd: Any, eps: float, **gradients: Any) -> None:
    n_rows, n_columns = count_rows(x.shape), x.shape[-1]
    if n_rows == 0:
        return
    x, stride = with_rows(x)
    blocks = row_blocks("rms_norm_matmul", n_columns, x)
    grid = blocks.grid(n_rows)
    run(kernel, grid, x, rstd, stride, n_rows, n_columns, eps, **blocks.constants, **gradients)


def _launch(run: Launcher, rstd: Any, x: Array, eps: float = 1e-6) -> None:
    _run(run, rstd_kernel, x, rstd, eps)


RSTD = Operation("rstd", ("rstd",), _shapes, _launch, reference=_rstd_reference)


def _backward_shapes(make: Any, d_rstd: Any, x: Any, eps: float) -> tuple[Any, ...]:
    return (make(x.shape, x.dtype),)


def _backward_launch(run: Launcher, dx: Any, d_rstd: Array, x: Array, eps: float) -> None:
    d_rstd = contiguous(d_rstd)
    _run(run, _adjoint(), contiguous(x), d_rstd, eps, d_rstd_ptr=d_rstd, d_x_ptr=dx)


RSTD_BACKWARD = Operation("rstd_backward", ("dx",), _backward_shapes, _backward_launch)


@RSTD.differentiate(saved=("x",))
def _gradients(saved: Any, d_rstd: Any) -> Mapping[str, Any]:
    return {"x": RSTD_BACKWARD(d_rstd, saved.x, saved.eps)}


def rms_norm_matmul_reference(x: Any, w: Any, *, eps: float = 1e-6) -> Any:
    """Return ``x / sqrt(mean(x ** 2) + eps) @ w``, with means of the last axis."""
    xp = array_api_compat.array_namespace(x)
    return xp.matmul(x / xp.sqrt(xp.mean(x * x, axis=-1, keepdims=True) + eps), w)


def rms_norm_matmul(
    x: Any, w: Any, *, eps: float = 1e-6, invariant: bool | None = None, out: Any = None
) -> Any:
    """Multiply the RMS-normalized rows of ``x`` by a matrix, without storing normalized rows.

    One kernel computes the reciprocal of each row's root mean square. The epilogue of the matmul
    then multiplies each row of the product by the row's reciprocal, in float32.

    Args:
        x: of shape (..., K), of at least two axes, of float16, bfloat16 or float32.
        w: of shape (K, N). If the norm has a weight, multiply the rows of ``w`` by this weight
            beforehand.
        eps: a number that is added to the mean of squares.
        invariant: see :func:`.matmul`.
        out: the array for the result.

    Returns:
        An array of shape (..., N) with the element type of ``x``.

    Raises:
        ValueError: the shapes of the arguments do not match.

    Gradients: those of the matmul and its epilogue, and a derived one of the factors.
    """
    if w.ndim != 2:
        raise ValueError(f"w must be a matrix, and has the shape {tuple(w.shape)}")
    rstd = RSTD(x, eps).reshape(-1)
    return matmul(x, w, epilogue=row_scale, arrays=(rstd,), invariant=invariant, out=out)
