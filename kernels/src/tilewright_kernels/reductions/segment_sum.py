"""Sums of consecutive rows, whose bounds are in an array."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any

import array_api_compat

import tilewright as tw
import tilewright.language as tl
from tilewright_kernels.operations import Array, Launcher, Operation
from tilewright_kernels.operations.devices import device_of
from tilewright_kernels.reductions.numeric_types import accumulator_type, is_floating
from tilewright_kernels.reductions.views import contiguous

#: Blocks of rows whose loads are in flight or used, on GPUs.
_STAGES = 3


@tw.jit
def segment_sum_kernel(
    x_ptr,
    bounds_ptr,
    y_ptr,
    n_columns,
    ACCUMULATOR: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_C: tl.constexpr,
    STAGES: tl.constexpr,
):
    segment = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    begin, end = tl.load(bounds_ptr + segment), tl.load(bounds_ptr + segment + 1)
    is_column = column < n_columns
    total = tl.zeros([BLOCK_R, BLOCK_C], ACCUMULATOR)
    for start in tl.range(begin, end, BLOCK_R, num_stages=STAGES):
        row = start + tl.arange(0, BLOCK_R)
        at = row.to(tl.int64)[:, None] * n_columns + column[None, :]
        is_inside = (row < end)[:, None] & is_column[None, :]
        total += tl.load(x_ptr + at, mask=is_inside, other=0).to(ACCUMULATOR)
    tl.store(y_ptr + segment * n_columns + column, tl.sum(total, axis=0), mask=is_column)


@tw.jit
def segment_gradient_kernel(
    dy_ptr,
    bounds_ptr,
    dx_ptr,
    n_rows,
    n_columns,
    n_segments,
    steps,
    BLOCK_R: tl.constexpr,
    BLOCK_C: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64) * BLOCK_R + tl.arange(0, BLOCK_R)
    column = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    # the number of bounds that are at most the row, by bisection
    count = tl.zeros([BLOCK_R], tl.int64)
    for step in range(steps):
        raised = count + (tl.full([BLOCK_R], 1, tl.int64) << (steps - 1 - step))
        is_bound = raised <= n_segments + 1
        bound = tl.load(bounds_ptr + raised - 1, mask=is_bound, other=0)
        count = tl.where(is_bound & (bound <= row), raised, count)
    is_in_segment = (count > 0) & (count <= n_segments)
    is_inside = (row < n_rows)[:, None] & (column < n_columns)[None, :]
    dy = tl.load(
        dy_ptr + (count - 1)[:, None] * n_columns + column[None, :],
        mask=is_inside & is_in_segment[:, None],
        other=0.0,
    )
    tl.store(dx_ptr + row[:, None] * n_columns + column[None, :], dy, mask=is_inside)


def segment_sum_reference(x: Any, bounds: Any) -> Any:
    """Return the sums of rows ``bounds[i]`` to ``bounds[i + 1]``, the last one excluded."""
    xp = array_api_compat.array_namespace(x)
    segments = [
        xp.sum(x[int(begin) : int(end)], axis=0) for begin, end in itertools.pairwise(bounds)
    ]
    return xp.stack(segments)


def _blocks(rows: int, n_columns: int, on_cpu: bool) -> tuple[int, int]:
    block_c = min(tw.next_power_of_2(max(n_columns, 1)), 256)
    most = (1024 if on_cpu else 4096) // block_c
    return min(tw.next_power_of_2(max(rows, 1)), most), block_c


def _shapes(make: Any, x: Any, bounds: Any) -> tuple[Any, ...]:
    dtype = x.dtype if is_floating(x.dtype) else "int64"
    return (make((bounds.shape[0] - 1, *x.shape[1:]), dtype),)


def _launch(run: Launcher, y: Any, x: Array, bounds: Array) -> None:
    n_columns, n_segments = math.prod(x.shape[1:]), bounds.shape[0] - 1
    if n_columns * n_segments == 0:
        return
    mean, on_cpu = tw.cdiv(x.shape[0], n_segments), device_of(x).family == "cpu"
    block_r, block_c = _blocks(mean, n_columns, on_cpu)
    run(
        segment_sum_kernel,
        (n_segments, tw.cdiv(n_columns, block_c)),
        contiguous(x),
        contiguous(bounds),
        y,
        n_columns,
        ACCUMULATOR=accumulator_type(x.dtype).dtype,
        BLOCK_R=block_r,
        BLOCK_C=block_c,
        STAGES=1 if on_cpu else _STAGES,
        num_warps=max(min(block_r * block_c // 512, 4), 1),
    )


SEGMENT_SUM = Operation("segment_sum", ("y",), _shapes, _launch, reference=segment_sum_reference)


def _gradient_shapes(make: Any, dy: Any, bounds: Any, x: Any) -> tuple[Any, ...]:
    return (make(x.shape, x.dtype),)


def _gradient_launch(run: Launcher, dx: Any, dy: Array, bounds: Array, x: Array) -> None:
    n_rows, n_columns = x.shape[0], math.prod(x.shape[1:])
    if n_rows * n_columns == 0:
        return
    block_r, block_c = _blocks(n_rows, n_columns, device_of(x).family == "cpu")
    run(
        segment_gradient_kernel,
        (tw.cdiv(n_rows, block_r), tw.cdiv(n_columns, block_c)),
        contiguous(dy),
        contiguous(bounds),
        dx,
        n_rows,
        n_columns,
        bounds.shape[0] - 1,
        bounds.shape[0].bit_length(),
        BLOCK_R=block_r,
        BLOCK_C=block_c,
        num_warps=max(min(block_r * block_c // 512, 4), 1),
    )


SEGMENT_SUM_GRADIENT = Operation(
    "segment_sum_gradient", ("dx",), _gradient_shapes, _gradient_launch
)


@SEGMENT_SUM.differentiate(saved=("x", "bounds"))
def _gradients(saved: Any, dy: Any) -> Mapping[str, Any]:
    return {"x": SEGMENT_SUM_GRADIENT(dy, saved.bounds, saved.x)}


def segment_sum(x: Any, bounds: Any, *, out: Any = None) -> Any:
    """Add up the rows of each segment of consecutive rows.

    Args:
        x: of shape (rows, ...), of floats or integers.
        bounds: of int32 or int64, of shape (segments + 1,), in ascending order: segment i has the
            rows ``bounds[i]`` to ``bounds[i + 1]``, the last one excluded. Rows outside all
            segments are ignored; their gradient is zero.
        out: the array for the result.

    Returns:
        An array of shape (segments, ...), with one row for each segment. It has the element type of
        ``x``, or int64 if ``x`` contains integers. Sums of floats are computed in float32, or in
        float64 if ``x`` is of float64. The order of additions depends only on the shapes and
        whether the device is a GPU. The sum of an empty segment is zero.

    Raises:
        ValueError: ``bounds`` is not a vector of at least one element.
    """
    if len(bounds.shape) != 1 or bounds.shape[0] < 1:
        raise ValueError(
            f"segment_sum: bounds must be a vector of segments + 1 elements, not of shape "
            f"{tuple(bounds.shape)}"
        )
    return SEGMENT_SUM(x, bounds, out=out)
