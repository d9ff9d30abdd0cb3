"""Pieces of attention kernels: blocks of rows, ranges of keys, masks, scores."""

from __future__ import annotations

import tilewright as tw
import tilewright.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)


@tw.jit
def load_block(
    ptr, start, stride, end, N: tl.constexpr, D: tl.constexpr, PADDED: tl.constexpr
):  # fmt: skip
    """Load N rows of D elements from row ``start`` on, with zeros from row ``end`` on."""
    rows, dims = tl.arange(0, N), tl.arange(0, PADDED)
    inside = (start + rows)[:, None] < end
    if D != PADDED:
        inside = inside & (dims < D)[None, :]
    start_ptr = ptr + start.to(tl.int64) * stride
    return tl.load(start_ptr + rows[:, None] * stride + dims[None, :], mask=inside, other=0.0)


@tw.jit
def store_block(
    ptr, start, stride, end, values, N: tl.constexpr, D: tl.constexpr, PADDED: tl.constexpr
):  # fmt: skip
    """Store N rows of D elements from row ``start`` on, but those from row ``end`` on."""
    rows, dims = tl.arange(0, N), tl.arange(0, PADDED)
    inside = (start + rows)[:, None] < end
    if D != PADDED:
        inside = inside & (dims < D)[None, :]
    start_ptr = ptr + start.to(tl.int64) * stride
    values = values.to(ptr.dtype.element_ty)
    tl.store(start_ptr + rows[:, None] * stride + dims[None, :], values, mask=inside)


@tw.jit
def sequence(cu_seqlens_ptr, batch, length):
    """Return the first row and the length of a sequence, of a batch or of packed ones."""
    if cu_seqlens_ptr is None:
        return batch * 0, length
    first = tl.load(cu_seqlens_ptr + batch)
    return first, tl.load(cu_seqlens_ptr + batch + 1) - first


@tw.jit
def head_of(ptr, cu_seqlens_ptr, batch, head, stride_batch, stride_head):
    """Return the address of a head, of a sequence in a batch or of all packed sequences."""
    if cu_seqlens_ptr is None:
        ptr += batch.to(tl.int64) * stride_batch
    return ptr + head.to(tl.int64) * stride_head


@tw.jit
def first_block_row(first, batch, head, blocks_batch, blocks_head, M: tl.constexpr):
    """Return where the rows of a sequence are in an array of whole blocks of M rows.

    ``first`` is the row where the sequence begins among packed ones.
    """
    return head * blocks_head + (first + batch * blocks_batch) // M * M


@tw.jit
def key_spans(
    row, n_q, n_k, left, right, LEFT: tl.constexpr, RIGHT: tl.constexpr, SQUARE: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    """Return where the keys of M rows begin, need no mask, need one again, and end.

    The window of row i is from ``i + n_k - n_q - left`` to ``i + n_k - n_q + right``.
    """
    if SQUARE and RIGHT and not LEFT:
        # causal over equal lengths: N divides M, and rows past the end are not stored
        return 0, 0, row, row + M
    shift = n_k - n_q
    first, full, last = 0, 0, n_k
    masked = n_k // N * N
    if RIGHT:
        last = tl.minimum(n_k, tl.maximum(row + M + shift + right, 0))
        masked = tl.minimum(masked, tl.maximum(row + shift + right + 1, 0) // N * N)
    if LEFT:
        first = tl.maximum(row + shift - left, 0) // N * N
        full = tl.minimum(tl.cdiv(tl.maximum(row + M - 1 + shift - left, 0), N) * N, last)
        masked = tl.maximum(masked, full)
    return first, full, masked, last


@tw.jit
def row_spans(
    column, n_q, n_k, left, right, LEFT: tl.constexpr, RIGHT: tl.constexpr, SQUARE: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    """Return where the rows that see N keys begin, need no mask, need one again, and end."""
    if SQUARE and RIGHT and not LEFT:
        first = column // M * M
        return first, tl.minimum(first + tl.cdiv(N, M) * M, n_q), n_q, n_q
    shift = n_k - n_q
    first, full, masked, last = 0, 0, n_q, n_q
    if LEFT:
        last = tl.minimum(n_q, tl.maximum(column + N - shift + left, 0))
        masked = tl.maximum(column - shift + left + 1, 0) // M * M
    if RIGHT:
        first = tl.minimum(tl.maximum(column - shift - right, 0) // M * M, last)
        full = tl.cdiv(tl.maximum(column + N - 1 - shift - right, 0), M) * M
        full = tl.minimum(full, last)
    masked = tl.minimum(tl.maximum(masked, full), last)
    return first, full, masked, last


@tw.jit
def kept_scores(
    rows, columns, n_q, n_k, left, right, batch, head,
    LEFT: tl.constexpr, RIGHT: tl.constexpr, SQUARE: tl.constexpr, MASK: tl.constexpr,
):  # fmt: skip
    """Return whether queries see keys, for indices that are broadcast against each other.

    With SQUARE, ``n_q`` equals ``n_k`` and ``right`` is 0: a row that is stored sees no key past
    the end.
    """
    if SQUARE and RIGHT and not LEFT and MASK is None:
        return columns <= rows
    kept = (columns < n_k) & (rows < n_q)
    if RIGHT:
        kept = kept & (columns <= rows + (n_k - n_q + right))
    if LEFT:
        kept = kept & (columns >= rows + (n_k - n_q - left))
    if MASK is not None:
        kept = kept & MASK(batch, head, rows, columns)
    return kept


@tw.jit
def distance(rows, columns, n_q, n_k):
    """Return how far keys are from queries, which are aligned to the last key."""
    return tl.abs(rows + (n_k - n_q) - columns).to(tl.float32)


@tw.jit
def modified_scores(
    products, rows, columns, n_q, n_k, scale, softcap, slope, bias_ptr, bias_row, bias_column,
    SOFTCAP: tl.constexpr, SLOPES: tl.constexpr,
):  # fmt: skip
    """Return attention scores from the dots of queries and keys, and their derivative.

    Both are in units of log2: the exponential of a score is ``exp2`` of it.
    """
    scores = products * scale
    derivative = tl.full(scores.shape, scale, tl.float32)
    if SOFTCAP:
        # the hyperbolic tangent
        capped = 1.0 - 2.0 / (tl.math.exp2(scores * (2.0 * LOG2_E / softcap)) + 1.0)
        scores = softcap * capped
        derivative = scale * (1.0 - capped * capped)
    if SLOPES:
        scores -= slope * distance(rows, columns, n_q, n_k)
    if bias_ptr is not None:
        inside = (rows < n_q) & (columns < n_k)
        at = rows.to(tl.int64) * bias_row + columns * bias_column
        scores += tl.load(bias_ptr + at, mask=inside, other=0.0).to(tl.float32)
    return scores * LOG2_E, derivative


@tw.jit
def recomputed_weights(
    products, lse, row, column, n_q, n_k, scale, softcap, left, right,
    batch, head, slope, bias_ptr, bias_row, bias_column,
    MASKED: tl.constexpr, LEFT: tl.constexpr, RIGHT: tl.constexpr, SQUARE: tl.constexpr,
    MASK: tl.constexpr, SOFTCAP: tl.constexpr, SLOPES: tl.constexpr,
):  # fmt: skip
    """Return the weights from the dots of queries and keys, and the derivatives of scores.

    ``lse``, in units of log2, and the indices are broadcast against the products. Scores that
    nothing modifies have the derivative ``scale``, for which 1 is returned.
    """
    derivative = 1.0
    if SOFTCAP or SLOPES or bias_ptr is not None:
        scores, derivative = modified_scores(
            products, row, column, n_q, n_k, scale, softcap, slope,
            bias_ptr, bias_row, bias_column, SOFTCAP, SLOPES,
        )  # fmt: skip
        weights = tl.math.exp2(scores - lse)
    else:
        weights = tl.math.exp2(products * (scale * LOG2_E) - lse)
    if MASKED:
        kept = kept_scores(
            row, column, n_q, n_k, left, right, batch, head, LEFT, RIGHT, SQUARE, MASK
        )
        weights = tl.where(kept, weights, 0.0)
    return weights, derivative
