"""Backward passes of norms over rows that are longer than a program's tile.

A program takes a row in blocks, in two passes. The gradients of weights are sums over rows:
programs of another kernel each take some rows of a block of columns, and a third kernel adds up
their partial sums in order.
"""

from __future__ import annotations

from typing import Any

import tilewright as tw
import tilewright.language as tl
from tilewright_kernels.operations import Launcher
from tilewright_kernels.rows.shapes import contiguous, count_rows, row_blocks, with_rows

#: Programs along the rows.
_PARTS = 32
#: Columns of a program that sums over rows.
_COLUMNS = 512


@tw.jit
def input_gradient_kernel(
    dy_ptr,
    d_sum_ptr,
    x_ptr,
    mean_ptr,
    rstd_ptr,
    weight_ptr,
    dx_ptr,
    dy_stride,
    d_sum_stride,
    x_stride,
    n_columns,
    OFFSET: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    dy_ptr += row * dy_stride
    x_ptr += row * x_stride
    mean = 0.0
    if mean_ptr is not None:
        mean = tl.load(mean_ptr + row)
    rstd = tl.load(rstd_ptr + row)
    slopes = tl.zeros([BLOCK], tl.float32)
    weighted_sums = tl.zeros([BLOCK], tl.float32)
    for start in range(0, n_columns, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        inside = columns < n_columns
        slope = tl.load(dy_ptr + columns, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + columns, mask=inside, other=0.0).to(tl.float32)
        if weight_ptr is not None:
            slope *= tl.load(weight_ptr + columns, mask=inside, other=0.0).to(tl.float32) + OFFSET
        slopes += slope
        weighted_sums += slope * (x - mean)
    shift = 0.0
    if mean_ptr is not None:
        shift = tl.sum(slopes, axis=0) / n_columns
    factor = tl.sum(weighted_sums, axis=0) * rstd * rstd / n_columns
    for start in range(0, n_columns, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        inside = columns < n_columns
        slope = tl.load(dy_ptr + columns, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + columns, mask=inside, other=0.0).to(tl.float32)
        if weight_ptr is not None:
            slope *= tl.load(weight_ptr + columns, mask=inside, other=0.0).to(tl.float32) + OFFSET
        dx = (slope - shift - (x - mean) * factor) * rstd
        if d_sum_ptr is not None:
            d_sum = tl.load(d_sum_ptr + row * d_sum_stride + columns, mask=inside, other=0.0)
            dx += d_sum.to(tl.float32)
        tl.store(dx_ptr + row * n_columns + columns, dx, mask=inside)


@tw.jit
def partial_weight_gradient_kernel(
    dy_ptr,
    x_ptr,
    mean_ptr,
    rstd_ptr,
    weight_parts_ptr,
    bias_parts_ptr,
    dy_stride,
    x_stride,
    n_rows,
    n_columns,
    BLOCK: tl.constexpr,
):
    columns = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < n_columns
    part = tl.program_id(1)
    d_weight = tl.zeros([BLOCK], tl.float32)
    d_bias = tl.zeros([BLOCK], tl.float32)
    for row in range(part, n_rows, tl.num_programs(1)):
        start = tl.cast(row, tl.int64)
        dy = tl.load(dy_ptr + start * dy_stride + columns, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + start * x_stride + columns, mask=inside, other=0.0).to(tl.float32)
        if mean_ptr is not None:
            x -= tl.load(mean_ptr + row)
        d_weight += dy * x * tl.load(rstd_ptr + row)
        d_bias += dy
    place = part.to(tl.int64) * n_columns + columns
    if weight_parts_ptr is not None:
        tl.store(weight_parts_ptr + place, d_weight, mask=inside)
    if bias_parts_ptr is not None:
        tl.store(bias_parts_ptr + place, d_bias, mask=inside)


@tw.jit
def add_parts_kernel(parts_ptr, total_ptr, n_parts, n_columns, BLOCK: tl.constexpr):
    columns = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < n_columns
    total = tl.zeros([BLOCK], tl.float32)
    for part in range(n_parts):
        start = tl.cast(part, tl.int64) * n_columns
        total += tl.load(parts_ptr + start + columns, mask=inside, other=0.0)
    tl.store(total_ptr + columns, total, mask=inside)


def launch_wide_backward(
    run: Launcher,
    dx: Any,
    d_weight: Any,
    d_bias: Any,
    dy: Any,
    d_sum: Any,
    x: Any,
    mean: Any,
    rstd: Any,
    weight: Any,
    offset: float,
) -> None:
    """Launch the backward pass of RMS norm, or of layer norm where there is a mean."""
    n_rows, n_columns = count_rows(x.shape), x.shape[-1]
    dy, dy_stride = with_rows(dy)
    x, x_stride = with_rows(x)
    d_sum, d_sum_stride = (None, 0) if d_sum is None else with_rows(d_sum)
    blocks = row_blocks(n_columns, x)
    run(
        input_gradient_kernel,
        (n_rows,),
        dy,
        d_sum,
        x,
        mean,
        rstd,
        contiguous(weight),
        dx,
        dy_stride,
        d_sum_stride,
        x_stride,
        n_columns,
        OFFSET=offset,
        BLOCK=blocks.block,
        num_warps=blocks.num_warps,
    )
    if weight is None and d_bias is None:
        return
    parts = max(min(_PARTS, n_rows), 1)
    weight_parts = None if weight is None else run.empty((parts, n_columns), "float32")
    bias_parts = None if d_bias is None else run.empty((parts, n_columns), "float32")
    run(
        partial_weight_gradient_kernel,
        (tw.cdiv(n_columns, _COLUMNS), parts),
        dy,
        x,
        mean,
        rstd,
        weight_parts,
        bias_parts,
        dy_stride,
        x_stride,
        n_rows,
        n_columns,
        BLOCK=_COLUMNS,
        num_warps=2,
    )
    for sums, total in ((weight_parts, d_weight), (bias_parts, d_bias)):
        if sums is not None:
            run(
                add_parts_kernel,
                (tw.cdiv(n_columns, _COLUMNS),),
                sums,
                total,
                parts,
                n_columns,
                BLOCK=_COLUMNS,
                num_warps=4,
            )
