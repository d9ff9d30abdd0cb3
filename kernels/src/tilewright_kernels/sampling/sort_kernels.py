"""Kernels that sort rows: whole rows in registers, and wide ones by merges in memory."""

from __future__ import annotations

import tilewright as tw
import tilewright.language as tl
from tilewright_kernels.sampling.packed_keys import NOTHING, packed, position_of


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
):
    """Store the elements, positions and payloads that packed elements are of."""
    position = position_of(key)
    out = row * n_results + column
    if values_ptr is not None:
        value = tl.load(x_ptr + row * x_stride + position, mask=is_inside)
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
        key = tl.where(is_inside, packed(x, column, DESCENDING), NOTHING)
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
    BLOCK: tl.constexpr,
):
    """Pack blocks, and sort them in orders that alternate."""
    row, block = tl.program_id(1).to(tl.int64), tl.program_id(0)
    column = block * BLOCK + tl.arange(0, BLOCK)
    is_inside = column < n_columns
    x = tl.load(x_ptr + row * x_stride + column, mask=is_inside, other=0)
    key = tl.where(is_inside, packed(x, column, DESCENDING), NOTHING)
    flip = -(block & 1).to(tl.int64)
    key = tl.sort(key ^ flip) ^ flip
    tl.store(packed_ptr + row * packed_stride + column, key)


@tw.jit
def exchange_kernel(packed_ptr, packed_stride, size, distance, BLOCK: tl.constexpr):
    """Order the pairs at a distance, within bitonic sequences of a size."""
    row = tl.program_id(1).to(tl.int64)
    pair = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    lower = pair + (pair & -distance)
    at = packed_ptr + row * packed_stride + lower
    first, second = tl.load(at), tl.load(at + distance)
    is_swapped = (first > second) == ((lower & size) == 0)
    tl.store(at, tl.where(is_swapped, second, first))
    tl.store(at + distance, tl.where(is_swapped, first, second))


@tw.jit
def merge_blocks_kernel(packed_ptr, packed_stride, size, BLOCK: tl.constexpr):
    """Sort blocks that are bitonic, each in the order that sequences of a size need."""
    row, block = tl.program_id(1).to(tl.int64), tl.program_id(0)
    at = packed_ptr + row * packed_stride + block * BLOCK + tl.arange(0, BLOCK)
    is_descending = ((block * BLOCK) & size) != 0
    flip = -is_descending.to(tl.int64)
    tl.store(at, tl.bitonic_merge(tl.load(at) ^ flip) ^ flip)


@tw.jit
def unpack_kernel(
    x_ptr,
    packed_ptr,
    payload_ptr,
    values_ptr,
    indices_ptr,
    payloads_ptr,
    n_results,
    x_stride,
    packed_stride,
    payload_stride,
    BLOCK: tl.constexpr,
):
    """Store what packed elements that are in order are of."""
    row = tl.program_id(1).to(tl.int64)
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    is_inside = column < n_results
    key = tl.load(packed_ptr + row * packed_stride + column, mask=is_inside, other=0)
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
    )
