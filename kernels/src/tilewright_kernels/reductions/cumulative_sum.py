"""Prefix sums along an axis, from either end."""

from __future__ import annotations

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

#: Programs of a GPU where there are fewer rows: many, so that caches keep the chunks of the last.
_SPLITS = 1056


@tw.jit
def prefix_sum_kernel(
    x_ptr,
    before_ptr,
    y_ptr,
    n,
    n_inner,
    chunk,
    ACCUMULATOR: tl.constexpr,
    REVERSE: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_I: tl.constexpr,
    BLOCK_S: tl.constexpr,
):
    """Store prefix sums of a chunk, from the sum of what is before it on; or its sum alone.

    Prefix sums of the last chunk begin first: a cache has what was read for the sums last.
    """
    inner_blocks = tl.cdiv(n_inner, BLOCK_I)
    program = tl.program_id(0).to(tl.int64)
    outer, inner = program // inner_blocks, (program % inner_blocks) * BLOCK_I
    inner += tl.arange(0, BLOCK_I)
    split, n_splits = tl.program_id(1), tl.num_programs(1)
    if y_ptr is not None:
        split = n_splits - 1 - split
    begin, end = split * chunk, tl.minimum((split + 1) * chunk, n)
    is_inner = inner < n_inner
    carried = tl.zeros([BLOCK_I], ACCUMULATOR)
    sums_at = (outer * n_splits + split) * n_inner + inner
    if y_ptr is not None and before_ptr is not None:
        parts = tl.zeros([BLOCK_S, BLOCK_I], ACCUMULATOR)
        for first in range(0, split, BLOCK_S):
            earlier = first + tl.arange(0, BLOCK_S)
            at = (outer * n_splits + earlier.to(tl.int64)[:, None]) * n_inner + inner[None, :]
            is_earlier = (earlier < split)[:, None] & is_inner[None, :]
            parts += tl.load(before_ptr + at, mask=is_earlier, other=0)
        carried = tl.sum(parts, axis=0)
    total = tl.zeros([BLOCK_N, BLOCK_I], ACCUMULATOR)
    for start in range(begin, end, BLOCK_N):
        position = start + tl.arange(0, BLOCK_N)
        is_inside = (position < end)[:, None] & is_inner[None, :]
        if REVERSE:
            position = n - 1 - position
        at = outer * n * n_inner + position.to(tl.int64)[:, None] * n_inner + inner[None, :]
        x = tl.load(x_ptr + at, mask=is_inside, other=0).to(ACCUMULATOR)
        if y_ptr is None:
            total += x
        else:
            tl.store(y_ptr + at, carried[None, :] + tl.cumsum(x, axis=0), mask=is_inside)
            carried += tl.sum(x, axis=0)
    if y_ptr is None:
        tl.store(before_ptr + sums_at, tl.sum(total, axis=0), mask=is_inner)


def cumsum_reference(x: Any, axis: int = -1, *, reverse: bool = False) -> Any:
    """Return the sums of the elements up to each along an axis, itself included."""
    xp = array_api_compat.array_namespace(x)
    if not reverse:
        return xp.cumulative_sum(x, axis=axis)
    return xp.flip(xp.cumulative_sum(xp.flip(x, axis=axis), axis=axis), axis=axis)


def _shapes(make: Any, x: Any, axis: int, reverse: bool) -> tuple[Any, ...]:
    return (make(x.shape, x.dtype if is_floating(x.dtype) else "int64"),)


def _launch(run: Launcher, y: Any, x: Array, axis: int, reverse: bool = False) -> None:
    n, n_outer = x.shape[axis], math.prod(x.shape[:axis])
    n_inner = math.prod(x.shape[axis + 1 :])
    if n * n_outer * n_inner == 0:
        return
    x = contiguous(x)
    on_cpu = device_of(x).family == "cpu"
    block_i = min(tw.next_power_of_2(n_inner), 64)
    block_n = min(tw.next_power_of_2(n), max((1024 if on_cpu else 4096) // block_i, 1))
    programs = n_outer * tw.cdiv(n_inner, block_i)
    # a split reads its elements twice, and adds up the sums of those before it
    splits = min(tw.cdiv(16 if on_cpu else _SPLITS, programs), tw.cdiv(n, 8 * block_n))
    chunk = tw.cdiv(tw.cdiv(n, splits), block_n) * block_n
    splits = tw.cdiv(n, chunk)
    accumulator = accumulator_type(x.dtype)
    settings: dict[str, Any] = {
        "ACCUMULATOR": accumulator.dtype,
        "REVERSE": reverse,
        "BLOCK_N": block_n,
        "BLOCK_I": block_i,
        "BLOCK_S": min(tw.next_power_of_2(splits), max(2048 // block_i, 1)),
        "num_warps": max(min(block_n * block_i // 512, 8), 1),
    }
    before = None
    if splits > 1:
        before = run.empty((n_outer, splits, n_inner), accumulator.name)
        run(prefix_sum_kernel, (programs, splits), x, before, None, n, n_inner, chunk, **settings)
    run(prefix_sum_kernel, (programs, splits), x, before, y, n, n_inner, chunk, **settings)


CUMSUM = Operation("cumsum", ("y",), _shapes, _launch, reference=cumsum_reference)


@CUMSUM.differentiate(saved=())
def _gradients(saved: Any, dy: Any) -> Mapping[str, Any]:
    return {"x": CUMSUM(dy, saved.axis, not saved.reverse)}


def cumsum(x: Any, axis: int = -1, *, reverse: bool = False, out: Any = None) -> Any:
    """Compute inclusive prefix sums along an axis.

    Args:
        x: of floats, integers or booleans, of any shape and strides.
        axis: the axis.
        reverse: whether the sums run from the last element to the first.
        out: the array for the result.

    Returns:
        An array with the shape and element type of ``x``, or of int64 if ``x`` contains integers.
        Sums of floats are computed in float32, or in float64 if ``x`` is of float64.

    Raises:
        ValueError: the axis is out of range.
    """
    rank = len(x.shape)
    if not -rank <= axis < rank:
        raise ValueError(f"axis {axis} is out of range: the array has {rank} axes")
    return CUMSUM(x, axis % rank, reverse, out=out)
