"""Chunks of sequences, of a batch or packed: where they lie, and tiles of their rows.

Chunks of T steps have numbers. Those of a batch follow one another. A packed sequence ``i`` that
begins with row ``b`` has numbers from ``b // T + i`` on, which leaves a gap at times, needs no
table, and keeps the numbers below ``rows // T + sequences``.
"""

from __future__ import annotations

import tilewright as tw
import tilewright.language as tl


@tw.jit
def first_chunk(cu_seqlens_ptr, sequence, length, T: tl.constexpr):
    """Return the batch, the first row, the end and the first chunk's number of a sequence."""
    if cu_seqlens_ptr is None:
        return sequence, sequence * 0, length, sequence * tl.cdiv(length, T)
    first = tl.load(cu_seqlens_ptr + sequence).to(tl.int32)
    end = tl.load(cu_seqlens_ptr + sequence + 1).to(tl.int32)
    return sequence * 0, first, end, first // T + sequence


@tw.jit
def rows_of_chunk(cu_seqlens_ptr, chunk, sequences, length, T: tl.constexpr):
    """Return the batch of a chunk, its first row, and the row after its sequence.

    The number of no chunk has a first row that is not below the end.
    """
    if cu_seqlens_ptr is None:
        chunks = tl.cdiv(length, T)
        batch = chunk // chunks
        return batch, (chunk - batch * chunks) * T, length
    BLOCK: tl.constexpr = 128
    count = chunk * 0
    for start in range(0, sequences, BLOCK):
        places = start + tl.arange(0, BLOCK)
        inside = places < sequences
        firsts = tl.load(cu_seqlens_ptr + places, mask=inside, other=0).to(tl.int32)
        count += tl.sum((inside & (firsts // T + places <= chunk)).to(tl.int32), 0)
    sequence = tl.maximum(count - 1, 0)
    first = tl.load(cu_seqlens_ptr + sequence).to(tl.int32)
    end = tl.load(cu_seqlens_ptr + sequence + 1).to(tl.int32)
    return chunk * 0, first + (chunk - first // T - sequence) * T, end


@tw.jit
def load_tile(
    ptr, row, end, stride, dim, ROWS: tl.constexpr, D: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Load rows from ``row`` on and WIDTH of their D elements; zeros outside."""
    rows, dims = tl.arange(0, ROWS), dim + tl.arange(0, WIDTH)
    inside = (row + rows)[:, None] < end
    if D % WIDTH != 0:
        inside = inside & (dims < D)[None, :]
    start = ptr + row.to(tl.int64) * stride
    return tl.load(start + rows[:, None] * stride + dims[None, :], mask=inside, other=0.0)


@tw.jit
def store_tile(
    ptr, row, end, stride, dim, values, ROWS: tl.constexpr, D: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Store rows from ``row`` on, but for what lies outside."""
    rows, dims = tl.arange(0, ROWS), dim + tl.arange(0, WIDTH)
    inside = (row + rows)[:, None] < end
    if D % WIDTH != 0:
        inside = inside & (dims < D)[None, :]
    start = ptr + row.to(tl.int64) * stride
    values = values.to(ptr.dtype.element_ty)
    tl.store(start + rows[:, None] * stride + dims[None, :], values, mask=inside)


@tw.jit
def load_state(
    ptr, dim, key_stride, value_stride, D: tl.constexpr, D_V: tl.constexpr,
    PADDED: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Load a state of D keys and WIDTH of its D_V values; zeros outside."""
    keys, values = tl.arange(0, PADDED), dim + tl.arange(0, WIDTH)
    inside = (keys < D)[:, None] & (values < D_V)[None, :]
    at = ptr + keys[:, None] * key_stride + values[None, :] * value_stride
    return tl.load(at, mask=inside, other=0.0)


@tw.jit
def store_state(
    ptr, dim, key_stride, value_stride, state, D: tl.constexpr, D_V: tl.constexpr,
    PADDED: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Store a state of D keys and WIDTH of its D_V values."""
    keys, values = tl.arange(0, PADDED), dim + tl.arange(0, WIDTH)
    inside = (keys < D)[:, None] & (values < D_V)[None, :]
    at = ptr + keys[:, None] * key_stride + values[None, :] * value_stride
    tl.store(at, state.to(ptr.dtype.element_ty), mask=inside)


@tw.jit
def decay_between(later, earlier, is_kept):
    """Return ``exp(later - earlier)`` where it is kept, else zero, without overflow."""
    return tl.exp(tl.where(is_kept, later - earlier, float("-inf")))


@tw.jit
def decay_to_end(a_ptr, row, end, ROWS: tl.constexpr):
    """Return the sum of a whole chunk's log decays, and the decays from each row to its end."""
    rows = row + tl.arange(0, ROWS)
    last = tl.load(a_ptr + tl.maximum(tl.minimum(row + ROWS, end) - 1, 0))
    a = tl.load(a_ptr + rows, mask=rows < end, other=float("inf"))
    return last, tl.exp(last - a)
