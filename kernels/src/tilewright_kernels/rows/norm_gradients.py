"""Backward passes of RMS norm and layer norm.

A program takes rows in turn, loads of the next ones in flight, and keeps its sums of the gradients
of weights in registers; another kernel adds up the sums of all programs, in order. Rows that are
longer than a tile are taken in blocks, in two passes, and gradients of weights by programs
of their own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import tilewright as tw
import tilewright.language as tl
from tilewright_kernels.operations import Launcher
from tilewright_kernels.operations.devices import device_of
from tilewright_kernels.rows.shapes import (
    RowBlocks,
    contiguous,
    count_rows,
    loop_stages,
    row_blocks,
    with_rows,
)
from tilewright_kernels.rows.tiles import column_indices, row_sum, within

#: Elements of a row in a thread of a GPU, whose registers hold sums of gradients of weights and of
#: biases, too; twice as many where there are no biases. Longer rows are taken in blocks.
_MOST_ELEMENTS, _WIDE_BLOCK = 16, 8192
#: Registers of 32 bits of a GPU's processor.
_REGISTER_FILE = 65536
#: Minimum rows of a program: its sums are written and read again.
_MINIMUM_ROWS = 16
#: Programs along the rows of long rows, the rows that one takes at a time, and their columns.
_PARTS, _ROWS, _COLUMNS = 32, 8, 256


@tw.jit
def add_pairs(first, second, other_first, other_second):
    return first + other_first, second + other_second


@tw.jit
def store_sums(parts_ptr, sums, n_columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Store the sums of the program's rows as its row of the parts."""
    column = tl.arange(0, BLOCK)
    if ROWS > 1:
        sums = tl.sum(sums, axis=0)
    place = tl.program_id(0).to(tl.int64) * n_columns
    tl.store(parts_ptr + place + column, sums, mask=column < n_columns)


@tw.jit
def norm_gradient_kernel(
    dy_ptr,
    d_sum_ptr,
    x_ptr,
    mean_ptr,
    rstd_ptr,
    weight_ptr,
    dx_ptr,
    weight_parts_ptr,
    bias_parts_ptr,
    dy_stride,
    d_sum_stride,
    x_stride,
    n_rows,
    n_columns,
    OFFSET: tl.constexpr,
    ROUND: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Compute the gradients of rows, and the program's sums of the gradients of weights."""
    columns = column_indices(ROWS, BLOCK)
    weight = 1.0
    if weight_ptr is not None:
        weight = tl.load(weight_ptr + columns, mask=columns < n_columns, other=0.0)
        weight = weight.to(tl.float32) + OFFSET
    d_weight = tl.zeros([BLOCK] if ROWS == 1 else [ROWS, BLOCK], tl.float32)
    d_bias = d_weight
    for tile in tl.range(
        tl.program_id(0), tl.cdiv(n_rows, ROWS), tl.num_programs(0), num_stages=STAGES
    ):
        row = tl.cast(tile, tl.int64) * ROWS
        if ROWS > 1:
            row = (row + tl.arange(0, ROWS))[:, None]
        inside = within(row, columns, n_rows, n_columns, ROWS)
        x = tl.load(x_ptr + row * x_stride + columns, mask=inside, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + row * dy_stride + columns, mask=inside, other=0.0).to(tl.float32)
        rstd = tl.load(rstd_ptr + row, mask=row < n_rows, other=0.0)
        if mean_ptr is not None:
            x -= tl.load(mean_ptr + row, mask=row < n_rows, other=0.0)
        y = x * rstd
        slope = dy * weight
        if mean_ptr is None:
            dx = slope - y * (row_sum(slope * y, ROWS) / n_columns)
        else:
            if ROWS == 1:
                total, weighted_total = tl.reduce((slope, slope * y), 0, add_pairs)
            else:
                total, weighted_total = tl.reduce((slope, slope * y), 1, add_pairs, keep_dims=True)
            dx = slope - total / n_columns - y * (weighted_total / n_columns)
        dx *= rstd
        if d_sum_ptr is not None:
            d_sum = tl.load(d_sum_ptr + row * d_sum_stride + columns, mask=inside, other=0.0)
            dx += d_sum.to(tl.float32)
        tl.store(dx_ptr + row * n_columns + columns, dx, mask=inside)
        if weight_parts_ptr is not None:
            d_weight += dy * (y.to(x_ptr.dtype.element_ty).to(tl.float32) if ROUND else y)
        if bias_parts_ptr is not None:
            d_bias += dy
    if weight_parts_ptr is not None:
        store_sums(weight_parts_ptr, d_weight, n_columns, ROWS, BLOCK)
    if bias_parts_ptr is not None:
        store_sums(bias_parts_ptr, d_bias, n_columns, ROWS, BLOCK)


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
    ROUND: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Add up the gradients of a block of columns over some rows, ROWS at a time."""
    columns = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < n_columns
    d_weight = tl.zeros([ROWS, BLOCK], tl.float32)
    d_bias = tl.zeros([ROWS, BLOCK], tl.float32)
    for start in range(tl.program_id(1) * ROWS, n_rows, tl.num_programs(1) * ROWS):
        row = (start + tl.arange(0, ROWS)).to(tl.int64)
        is_row = row < n_rows
        mask = is_row[:, None] & inside[None, :]
        dy = tl.load(dy_ptr + row[:, None] * dy_stride + columns[None, :], mask=mask, other=0.0)
        x = tl.load(x_ptr + row[:, None] * x_stride + columns[None, :], mask=mask, other=0.0)
        dy, y = dy.to(tl.float32), x.to(tl.float32)
        if mean_ptr is not None:
            y -= tl.load(mean_ptr + row, mask=is_row, other=0.0)[:, None]
        y *= tl.load(rstd_ptr + row, mask=is_row, other=0.0)[:, None]
        d_weight += dy * (y.to(x_ptr.dtype.element_ty).to(tl.float32) if ROUND else y)
        d_bias += dy
    place = tl.program_id(1).to(tl.int64) * n_columns + columns
    if weight_parts_ptr is not None:
        tl.store(weight_parts_ptr + place, tl.sum(d_weight, axis=0), mask=inside)
    if bias_parts_ptr is not None:
        tl.store(bias_parts_ptr + place, tl.sum(d_bias, axis=0), mask=inside)


@tw.jit
def add_parts_kernel(
    parts_ptr, total_ptr, n_parts, n_columns, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    columns = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < n_columns
    total = tl.zeros([ROWS, BLOCK], tl.float32)
    for start in range(0, n_parts, ROWS):
        part = start + tl.arange(0, ROWS)
        place = part.to(tl.int64)[:, None] * n_columns + columns[None, :]
        mask = (part < n_parts)[:, None] & inside[None, :]
        total += tl.load(parts_ptr + place, mask=mask, other=0.0)
    tl.store(total_ptr + columns, tl.sum(total, axis=0), mask=inside)


@dataclass(frozen=True)
class GradientBlocks:
    """Tiles of the backward pass.

    Attributes:
        rows: the tile of a program.
        programs: how many run at a time.
        stages: tiles whose loads are in flight or used.
    """

    rows: RowBlocks
    programs: int
    stages: int


def _gradient_blocks(x: Any, has_mean: bool) -> GradientBlocks:
    """Return the tiles for rows of an array; long rows are taken in blocks."""
    rows, device = row_blocks("norm_gradients", x.shape[-1], x), device_of(x)
    if device.family == "cpu":
        return GradientBlocks(rows, device.processors, 1)
    threads = 32 * rows.num_warps
    elements = rows.rows * rows.block // threads
    if elements > (_MOST_ELEMENTS if has_mean else 2 * _MOST_ELEMENTS):
        wide = replace(rows, block=min(rows.block, _WIDE_BLOCK), is_wide=True)
        return GradientBlocks(wide, 0, 1)
    # registers of a thread: the row, its gradients, weights, and sums of their gradients
    registers = 16 + (9 if has_mean else 7) * elements
    programs = device.processors * max(_REGISTER_FILE // (threads * registers), 1)
    return GradientBlocks(rows, programs, loop_stages(x) if elements <= _MOST_ELEMENTS else 1)


def launch_norm_backward(
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
    offset: float = 0.0,
    round_normalized: bool = False,
) -> None:
    """Launch the backward pass of RMS norm, or of layer norm where there is a mean.

    Args:
        run: launches the kernels.
        dx: receives the gradient of ``x``.
        d_weight: receives that of the weight, or is None.
        d_bias: receives that of the bias, or is None.
        dy: the cotangent of the norm.
        d_sum: a cotangent of ``x`` that is added, or None.
        x: what was normalized.
        mean: the mean of each row, or None.
        rstd: the inverse deviation of each row.
        weight: of shape (columns,), or None.
        offset: added to the weight.
        round_normalized: whether the weight multiplied rounded rows.
    """
    n_rows, n_columns = count_rows(x.shape), x.shape[-1]
    dy, dy_stride = with_rows(dy)
    x, x_stride = with_rows(x)
    d_sum, d_sum_stride = (None, 0) if d_sum is None else with_rows(d_sum)
    blocks = _gradient_blocks(x, mean is not None)
    tile = blocks.rows
    sources = (dy, d_sum, x, mean, rstd, contiguous(weight), dx)
    parts = _PARTS
    if not tile.is_wide:
        (tiles,) = tile.grid(n_rows)
        parts = min(blocks.programs, tiles, tw.cdiv(n_rows, _MINIMUM_ROWS))
    parts = max(min(parts, n_rows), 1)
    weight_parts = None if weight is None else run.empty((parts, n_columns), "float32")
    bias_parts = None if d_bias is None else run.empty((parts, n_columns), "float32")
    if not tile.is_wide:
        run(
            norm_gradient_kernel,
            (parts,),
            *sources,
            weight_parts,
            bias_parts,
            dy_stride,
            d_sum_stride,
            x_stride,
            n_rows,
            n_columns,
            OFFSET=offset,
            ROUND=round_normalized,
            ROWS=tile.rows,
            BLOCK=tile.block,
            STAGES=blocks.stages,
            num_warps=tile.num_warps,
        )
    else:
        run(
            input_gradient_kernel,
            (n_rows,),
            *sources,
            dy_stride,
            d_sum_stride,
            x_stride,
            n_columns,
            OFFSET=offset,
            BLOCK=tile.block,
            num_warps=tile.num_warps,
        )
        if weight_parts is not None or bias_parts is not None:
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
                ROUND=round_normalized,
                ROWS=_ROWS,
                BLOCK=_COLUMNS,
                num_warps=4,
            )
    for sums, total in ((weight_parts, d_weight), (bias_parts, d_bias)):
        if sums is not None:
            run(
                add_parts_kernel,
                (tw.cdiv(n_columns, 64),),
                sums,
                total,
                parts,
                n_columns,
                ROWS=min(tw.next_power_of_2(parts), 32),
                BLOCK=64,
                num_warps=8,
            )
