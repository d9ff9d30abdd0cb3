"""Flash attention backward: the weights are recomputed from the row sums of the forward pass.

See Dao et al., 2022.
"""

from __future__ import annotations

from typing import Any

import tilewright as tw
import tilewright.language as tl


@tw.jit
def load_rows(ptr, rows, length, HEAD: tl.constexpr):
    """Rows of a matrix [length, HEAD]; zeros past its end."""
    return tl.load(
        ptr + rows[:, None] * HEAD + tl.arange(0, HEAD)[None, :],
        mask=rows[:, None] < length,
        other=0.0,
    )


@tw.jit
def store_rows(ptr, rows, values, length, HEAD: tl.constexpr):
    tl.store(
        ptr + rows[:, None] * HEAD + tl.arange(0, HEAD)[None, :],
        values.to(ptr.dtype.element_ty),
        mask=rows[:, None] < length,
    )


@tw.jit
def delta_kernel(out_ptr, dout_ptr, delta_ptr, length, BLOCK: tl.constexpr, HEAD: tl.constexpr):
    head = tl.program_id(1)
    base = head.to(tl.int64) * length * HEAD
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    out = load_rows(out_ptr + base, rows, length, HEAD).to(tl.float32)
    dout = load_rows(dout_ptr + base, rows, length, HEAD).to(tl.float32)
    tl.store(delta_ptr + head * length + rows, tl.sum(out * dout, axis=1), mask=rows < length)


@tw.jit
def keys_and_values_kernel(
    q_ptr, k_ptr, v_ptr, dout_ptr, lse_ptr, delta_ptr, dk_ptr, dv_ptr, scale, length,
    CAUSAL: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, HEAD: tl.constexpr,
):  # fmt: skip
    """Process a program's BLOCK_N keys against all queries.

    Tiles are kept transposed, with keys along the rows, so that no matmul transposes P.
    """
    head = tl.program_id(1)
    base = head.to(tl.int64) * length * HEAD
    start_n = tl.program_id(0) * BLOCK_N
    columns = start_n + tl.arange(0, BLOCK_N)
    k = load_rows(k_ptr + base, columns, length, HEAD)
    v = load_rows(v_ptr + base, columns, length, HEAD)
    dk = tl.zeros([BLOCK_N, HEAD], dtype=tl.float32)
    dv = tl.zeros([BLOCK_N, HEAD], dtype=tl.float32)
    log2_scale = scale * 1.44269504
    first = start_n // BLOCK_M * BLOCK_M if CAUSAL else 0
    for start_m in range(first, length, BLOCK_M):
        rows = start_m + tl.arange(0, BLOCK_M)
        inside = rows < length
        q = load_rows(q_ptr + base, rows, length, HEAD)
        dout = load_rows(dout_ptr + base, rows, length, HEAD)
        # rows past the end weigh nothing
        lse = tl.load(lse_ptr + head * length + rows, mask=inside, other=float("inf"))
        delta = tl.load(delta_ptr + head * length + rows, mask=inside, other=0.0)
        weights = tl.exp2(tl.dot(k, tl.trans(q)) * log2_scale - lse[None, :])
        if CAUSAL:
            weights = tl.where(rows[None, :] >= columns[:, None], weights, 0.0)
        dv = tl.dot(weights.to(dout.dtype), dout, dv)
        dscores = weights * (tl.dot(v, tl.trans(dout)) - delta[None, :])
        dk = tl.dot(dscores.to(q.dtype), q, dk)
    store_rows(dk_ptr + base, columns, dk * scale, length, HEAD)
    store_rows(dv_ptr + base, columns, dv, length, HEAD)


@tw.jit
def queries_kernel(
    q_ptr, k_ptr, v_ptr, dout_ptr, lse_ptr, delta_ptr, dq_ptr, scale, length,
    CAUSAL: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, HEAD: tl.constexpr,
):  # fmt: skip
    """A program's BLOCK_M queries against all keys."""
    head = tl.program_id(1)
    base = head.to(tl.int64) * length * HEAD
    start_m = tl.program_id(0) * BLOCK_M
    rows = start_m + tl.arange(0, BLOCK_M)
    inside = rows < length
    q = load_rows(q_ptr + base, rows, length, HEAD)
    dout = load_rows(dout_ptr + base, rows, length, HEAD)
    lse = tl.load(lse_ptr + head * length + rows, mask=inside, other=float("inf"))
    delta = tl.load(delta_ptr + head * length + rows, mask=inside, other=0.0)
    dq = tl.zeros([BLOCK_M, HEAD], dtype=tl.float32)
    log2_scale = scale * 1.44269504
    end = tl.minimum(start_m + BLOCK_M, length) if CAUSAL else length
    for start_n in range(0, end, BLOCK_N):
        columns = start_n + tl.arange(0, BLOCK_N)
        k = load_rows(k_ptr + base, columns, length, HEAD)
        v = load_rows(v_ptr + base, columns, length, HEAD)
        weights = tl.exp2(tl.dot(q, tl.trans(k)) * log2_scale - lse[:, None])
        # a key past the end has the score 0, whose weight may be infinite
        kept = (
            (rows[:, None] >= columns[None, :]) & (columns[None, :] < length)
            if CAUSAL
            else columns[None, :] < length
        )
        weights = tl.where(kept, weights, 0.0)
        dscores = weights * (tl.dot(dout, tl.trans(v)) - delta[:, None])
        dq = tl.dot(dscores.to(k.dtype), k, dq)
    store_rows(dq_ptr + base, rows, dq * scale, length, HEAD)


def attention_backward(
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    lse: Any,
    dout: Any,
    dq: Any,
    dk: Any,
    dv: Any,
    delta: Any,
    causal: bool = False,
    block: tuple[int, int] = (64, 64),
) -> None:
    """Compute the gradients of attention.

    ``out`` and ``lse`` are the results of :func:`kernels.attention.attention`, and ``dout`` is the
    gradient of ``out``.
    """
    heads, length, head = q.shape
    block_m, block_n = block
    blocks = {"BLOCK_M": block_m, "BLOCK_N": block_n, "HEAD": head}
    rows, columns = (tw.cdiv(length, block_m), heads), (tw.cdiv(length, block_n), heads)
    delta_kernel[rows](out, dout, delta, length, BLOCK=block_m, HEAD=head)
    keys_and_values_kernel[columns](
        q, k, v, dout, lse, delta, dk, dv, head**-0.5, length, CAUSAL=causal, **blocks
    )
    queries_kernel[rows](q, k, v, dout, lse, delta, dq, head**-0.5, length, CAUSAL=causal, **blocks)
