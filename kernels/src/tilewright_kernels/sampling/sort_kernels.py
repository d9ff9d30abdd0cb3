"""Kernels that sort rows: whole rows in registers, and wide ones by merges in memory."""

from __future__ import annotations

import tilewright as tw
import tilewright.language as tl
from tilewright_kernels.sampling.packed_keys import (
    NOTHING,
    NOTHING_NARROW,
    elements_of,
    nothing,
    packed,
    position_of,
)

#: Positions that a search for the bounds of a merge tries at a time.
SEARCHED = tl.constexpr(32)


@tw.jit
def store_sorted(
    key,
    row,
    column,
    is_inside,
    x_ptr,
    payload_ptr,
    values_ptr,
    indices_ptr,
    payloads_ptr,
    x_stride,
    payload_stride,
    n_results,
    DESCENDING: tl.constexpr,
):
    """Store the elements, positions and payloads that packed elements are of."""
    position = position_of(key)
    out = row * n_results + column
    if values_ptr is not None:
        value = elements_of(key, x_ptr + row * x_stride, is_inside, DESCENDING)
        tl.store(values_ptr + out, value, mask=is_inside)
    if payloads_ptr is not None:
        payload = tl.load(payload_ptr + row * payload_stride + position, mask=is_inside)
        tl.store(payloads_ptr + out, payload, mask=is_inside)
    if indices_ptr is not None:
        tl.store(indices_ptr + out, position, mask=is_inside)


@tw.jit
def sort_rows_kernel(
    x_ptr,
    packed_ptr,
    payload_ptr,
    values_ptr,
    indices_ptr,
    payloads_ptr,
    n_rows,
    n_columns,
    n_results,
    x_stride,
    packed_stride,
    payload_stride,
    DESCENDING: tl.constexpr,
    IS_NARROW: tl.constexpr,
    KEPT: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Sort rows, of elements or of packed ones, and store the first ``n_results`` of each."""
    row = (tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS))[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    is_inside = (row < n_rows) & (column < n_columns)
    if packed_ptr is not None:
        key = tl.load(packed_ptr + row * packed_stride + column, mask=is_inside, other=NOTHING)
    else:
        x = tl.load(x_ptr + row * x_stride + column, mask=is_inside, other=0)
        key = tl.where(is_inside, packed(x, column, DESCENDING, IS_NARROW), nothing(IS_NARROW))
    if KEPT < BLOCK:
        key = tl.topk(key, KEPT, descending=False)
    else:
        key = tl.sort(key)
    column = tl.arange(0, KEPT)[None, :]
    is_inside = (row < n_rows) & (column < n_results)
    store_sorted(
        key,
        row,
        column,
        is_inside,
        x_ptr,
        payload_ptr,
        values_ptr,
        indices_ptr,
        payloads_ptr,
        x_stride,
        payload_stride,
        n_results,
        DESCENDING,
    )


@tw.jit
def best_of_blocks_kernel(
    x_ptr,
    packed_ptr,
    best_ptr,
    n_columns,
    x_stride,
    DESCENDING: tl.constexpr,
    KEPT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Store the first ``KEPT`` packed elements of each block, in order of their positions.

    A bisection over the bits of keys finds the last that is kept; of keys that equal it, those of
    the lowest positions are kept.
    """
    row, block = tl.program_id(1).to(tl.int64), tl.program_id(0)
    column = block * BLOCK + tl.arange(0, BLOCK)
    is_inside = column < n_columns
    if packed_ptr is not None:
        key = tl.load(packed_ptr + row * x_stride + column, mask=is_inside, other=NOTHING)
    else:
        x = tl.load(x_ptr + row * x_stride + column, mask=is_inside, other=0)
        key = tl.where(is_inside, packed(x, column, DESCENDING), NOTHING)
    upper = (key >> 32).to(tl.int32)
    last = tl.cast(-(1 << 31), tl.int64)
    for step in range(32):
        raised = last + (tl.cast(1, tl.int64) << (31 - step))
        n_before = tl.sum((upper < raised.to(tl.int32)).to(tl.int32), axis=0)
        last = tl.where(n_before < KEPT, raised, last)
    is_before = upper < last.to(tl.int32)
    is_last = (upper == last.to(tl.int32)).to(tl.int32)
    n_last = KEPT - tl.sum(is_before.to(tl.int32), axis=0)
    is_kept = is_before | ((is_last > 0) & (tl.cumsum(is_last, axis=0) <= n_last))
    place = tl.cumsum(is_kept.to(tl.int32), axis=0) - 1
    out = (row * tl.num_programs(0) + block) * KEPT
    tl.store(best_ptr + out + place, key, mask=is_kept)


@tw.jit
def sort_blocks_kernel(
    x_ptr,
    packed_ptr,
    n_columns,
    x_stride,
    packed_stride,
    DESCENDING: tl.constexpr,
    IS_NARROW: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Pack blocks, and sort each."""
    row, block = tl.program_id(1).to(tl.int64), tl.program_id(0)
    column = block * BLOCK + tl.arange(0, BLOCK)
    is_inside = column < n_columns
    x = tl.load(x_ptr + row * x_stride + column, mask=is_inside, other=0)
    key = packed(x, column, DESCENDING, IS_NARROW)
    key = tl.sort(tl.where(is_inside, key, nothing(IS_NARROW)))
    tl.store(packed_ptr + row * packed_stride + column, key, mask=is_inside)


@tw.jit
def counts_from_first(first_ptr, second_ptr, begin, end, n_first, n_second, step):
    """Return how many of the first ``begin`` and ``end`` elements of a merge are the first run's.

    Both searches take their steps together: each waits for memory.

    Args:
        first_ptr: a run of packed elements in order.
        second_ptr: another one.
        begin: a number of elements of the merge.
        end: another one.
        n_first: elements of the first run.
        n_second: elements of the second run.
        step: the largest power of 32 below ``n_first``, or 1.
    """
    is_end = tl.arange(0, 2) == 1
    diagonal = tl.where(is_end, end, begin)
    found = tl.maximum(diagonal - n_second, 0)
    last = tl.minimum(diagonal, n_first)
    while step > 0:
        tried = found[:, None] + (tl.arange(0, SEARCHED)[None, :] + 1) * step - 1
        is_tried = tried < last[:, None]
        first = tl.load(first_ptr + tried, mask=is_tried, other=0)
        second = tl.load(second_ptr + (diagonal[:, None] - 1 - tried), mask=is_tried, other=0)
        found += step * tl.sum((is_tried & (first <= second)).to(tl.int32), axis=1)
        step = step // SEARCHED
    return tl.sum(tl.where(is_end, 0, found), axis=0), tl.sum(tl.where(is_end, found, 0), axis=0)


@tw.jit
def merge_runs_kernel(
    x_ptr,
    runs_ptr,
    merged_ptr,
    payload_ptr,
    values_ptr,
    indices_ptr,
    payloads_ptr,
    n_columns,
    n_results,
    size,
    step,
    x_stride,
    payload_stride,
    DESCENDING: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Compute a block of the merge of two runs of ``size`` packed elements of a row.

    The block's elements are consecutive ones of each run: in order, followed by the second's in
    reverse, they are bitonic. Where ``merged_ptr`` is None, store what they are of.
    """
    row, block = tl.program_id(1).to(tl.int64), tl.program_id(0)
    blocks_of_merge = 2 * size // BLOCK
    start = (block // blocks_of_merge) * 2 * size
    first_ptr = runs_ptr + row * n_columns + start
    n_first = tl.minimum(size, n_columns - start)
    n_second = tl.minimum(size, n_columns - start - n_first)
    second_ptr = first_ptr + n_first
    begin = (block % blocks_of_merge) * BLOCK
    end = tl.minimum(begin + BLOCK, n_first + n_second)
    from_first, until_first = counts_from_first(
        first_ptr, second_ptr, begin, end, n_first, n_second, step
    )
    lane = tl.arange(0, BLOCK)
    n_of_first = until_first - from_first
    # elements that are not there are above all others, between the runs
    n_missing = BLOCK - (end - begin)
    of_second = end - until_first - 1 - (lane - n_of_first - n_missing)
    address = tl.where(lane < n_of_first, from_first + lane, n_first + of_second)
    is_there = (lane < n_of_first) | (lane >= n_of_first + n_missing)
    NONE: tl.constexpr = NOTHING if runs_ptr.dtype.element_ty == tl.int64 else NOTHING_NARROW
    key = tl.bitonic_merge(tl.load(first_ptr + address, mask=is_there, other=NONE))
    column = start + begin + lane
    if merged_ptr is not None:
        tl.store(merged_ptr + row * n_columns + column, key, mask=column < n_columns)
    else:
        store_sorted(
            key,
            row,
            column,
            column < n_results,
            x_ptr,
            payload_ptr,
            values_ptr,
            indices_ptr,
            payloads_ptr,
            x_stride,
            payload_stride,
            n_results,
            DESCENDING,
        )
