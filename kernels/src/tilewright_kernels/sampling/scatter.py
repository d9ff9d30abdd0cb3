"""Gradients of what picks elements of rows: each goes back to its position."""

from __future__ import annotations

import math
from typing import Any

import tilewright as tw
import tilewright.language as tl
from tilewright_kernels.operations import Array, Launcher, Operation, strides
from tilewright_kernels.rows.shapes import matrix_of


@tw.jit
def fill_kernel(x_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + offsets, tl.zeros([BLOCK], x_ptr.dtype.element_ty), mask=offsets < n)


@tw.jit
def scatter_kernel(
    dy_ptr, indices_ptr, dx_ptr, n_picked, n_columns, dy_stride, indices_stride, BLOCK: tl.constexpr
):
    row = tl.program_id(1).to(tl.int64)
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    is_inside = column < n_picked
    index = tl.load(indices_ptr + row * indices_stride + column, mask=is_inside, other=0)
    dy = tl.load(dy_ptr + row * dy_stride + column, mask=is_inside)
    tl.store(dx_ptr + row * n_columns + index, dy, mask=is_inside)


def _shapes(make: Any, dy: Any, indices: Any, n_columns: int) -> tuple[Any, ...]:
    return (make((*dy.shape[:-1], n_columns), dy.dtype),)


def _launch(run: Launcher, dx: Any, dy: Array, indices: Array, n_columns: int) -> None:
    n_picked, size = dy.shape[-1], math.prod(dx.shape)
    if size == 0:
        return
    is_filled = n_picked < n_columns
    if is_filled:
        run(fill_kernel, (tw.cdiv(size, 2048),), dx, size, BLOCK=2048)
    dy, indices = matrix_of(dy), matrix_of(indices)
    block = min(tw.next_power_of_2(max(n_picked, 1)), 1024)
    run(
        scatter_kernel,
        (tw.cdiv(n_picked, block), dy.shape[0]),
        dy,
        indices,
        dx,
        n_picked,
        n_columns,
        strides(dy)[0],
        strides(indices)[0],
        BLOCK=block,
        updates=("dx_ptr",) if is_filled else (),
    )


#: Stores elements at positions, which differ within a row, and zero elsewhere.
SCATTER = Operation("scatter_rows", ("dx",), _shapes, _launch)
