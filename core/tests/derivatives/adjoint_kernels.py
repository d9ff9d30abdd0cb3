"""Adjoint kernels, written by hand: each program adds to what other programs add to as well."""

from __future__ import annotations

from online_softmax_kernels import HEADER

#: softmax(q kᵀ scale) v, from the saved output and the logarithms (base 2) of the sums.
ATTENTION_ADJOINT = (
    HEADER
    + """
def adjoint(
    q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr, d_out_ptr, d_q_ptr, d_k_ptr, d_v_ptr, scale, length,
    CAUSAL: tl.constexpr, M: tl.constexpr, N: tl.constexpr, D: tl.constexpr,
):
    head = tl.program_id(1) * length
    first = tl.program_id(0) * M
    rows = first + tl.arange(0, M)
    dims = tl.arange(0, D)
    inside = rows < length
    at = (head + rows[:, None]) * D + dims[None, :]
    q = tl.load(q_ptr + at, mask=inside[:, None], other=0.0)
    out = tl.load(out_ptr + at, mask=inside[:, None], other=0.0)
    d_out = tl.load(d_out_ptr + at, mask=inside[:, None], other=0.0)
    lse = tl.load(lse_ptr + head + rows, mask=inside, other=1e30)
    delta = tl.sum(out * d_out, axis=1)
    d_q = tl.zeros([M, D], dtype=tl.float32)
    end = tl.minimum(first + M, length) if CAUSAL else length
    for start in range(0, end, N):
        columns = start + tl.arange(0, N)
        there = (columns < length)[:, None]
        keys = (head + columns[:, None]) * D + dims[None, :]
        k = tl.load(k_ptr + keys, mask=there, other=0.0)
        v = tl.load(v_ptr + keys, mask=there, other=0.0)
        scores = tl.dot(q, tl.trans(k)) * scale
        seen = (columns < length)[None, :]
        if CAUSAL:
            seen = seen & (rows[:, None] >= columns[None, :])
        weights = tl.exp2(tl.where(seen, scores, -float("inf")) - lse[:, None])
        tl.atomic_add(d_v_ptr + keys, tl.dot(tl.trans(weights), d_out), mask=there, sem="relaxed")
        d_weights = tl.dot(d_out, tl.trans(v))
        d_scores = weights * (d_weights - delta[:, None]) * (0.6931471805599453 * scale)
        tl.atomic_add(d_k_ptr + keys, tl.dot(tl.trans(d_scores), q), mask=there, sem="relaxed")
        d_q = tl.dot(d_scores, k, d_q)
    tl.atomic_add(d_q_ptr + at, d_q, mask=inside[:, None], sem="relaxed")
"""
)

#: silu(a b) by tiles, a place in the grid for each tile.
MATMUL_ADJOINT = (
    HEADER
    + """
def adjoint(
    a_ptr, b_ptr, d_c_ptr, d_a_ptr, d_b_ptr, m, n, k, M: tl.constexpr, N: tl.constexpr,
    K: tl.constexpr,
):
    rows = tl.program_id(0) * M + tl.arange(0, M)
    columns = tl.program_id(1) * N + tl.arange(0, N)
    inner = tl.arange(0, K)
    a_at = a_ptr + rows[:, None] * k + inner[None, :]
    b_at = b_ptr + inner[:, None] * n + columns[None, :]
    acc = tl.zeros([M, N], dtype=tl.float32)
    for start in range(0, k, K):
        there = inner < k - start
        a = tl.load(a_at, mask=(rows < m)[:, None] & there[None, :], other=0.0)
        b = tl.load(b_at, mask=there[:, None] & (columns < n)[None, :], other=0.0)
        acc = tl.dot(a, b, acc)
        a_at += K
        b_at += K * n
    s = 1 / (1 + tl.exp(-acc))
    d_c = tl.load(
        d_c_ptr + rows[:, None] * n + columns[None, :],
        mask=(rows < m)[:, None] & (columns < n)[None, :],
        other=0.0,
    )
    d_acc = d_c * (s + acc * s * (1 - s))
    a_at = rows[:, None] * k + inner[None, :]
    b_at = inner[:, None] * n + columns[None, :]
    for start in range(0, k, K):
        there = inner < k - start
        a_mask = (rows < m)[:, None] & there[None, :]
        b_mask = there[:, None] & (columns < n)[None, :]
        a = tl.load(a_ptr + a_at, mask=a_mask, other=0.0)
        b = tl.load(b_ptr + b_at, mask=b_mask, other=0.0)
        tl.atomic_add(d_a_ptr + a_at, tl.dot(d_acc, tl.trans(b)), mask=a_mask, sem="relaxed")
        tl.atomic_add(d_b_ptr + b_at, tl.dot(tl.trans(a), d_acc), mask=b_mask, sem="relaxed")
        a_at += K
        b_at += K * n
"""
)

#: x * rstd * w for each row.
NORM_ADJOINT = (
    HEADER
    + """
def adjoint(
    x_ptr, w_ptr, d_y_ptr, d_x_ptr, d_w_ptr, n, BLOCK: tl.constexpr,
):
    columns = tl.arange(0, BLOCK)
    at = tl.program_id(0) * n + columns
    inside = columns < n
    x = tl.load(x_ptr + at, mask=inside, other=0.0)
    w = tl.load(w_ptr + columns, mask=inside, other=0.0)
    d_y = tl.load(d_y_ptr + at, mask=inside, other=0.0)
    rstd = tl.rsqrt(tl.sum(x * x, axis=0) / n + 1e-5)
    tl.atomic_add(d_w_ptr + columns, d_y * x * rstd, mask=inside, sem="relaxed")
    d_h = d_y * w * rstd
    d_x = d_h - x * rstd * rstd * (tl.sum(d_h * x, axis=0) / n)
    tl.store(d_x_ptr + at, d_x, mask=inside)
"""
)

ADJOINT_TYPES = {
    **{f"{name}_ptr": "*fp32" for name in ("q", "k", "v", "out", "lse", "a", "b", "x", "w")},
    **{f"d_{name}_ptr": "*fp32" for name in ("q", "k", "v", "out", "a", "b", "c", "x", "w", "y")},
    **dict.fromkeys(("length", "m", "n", "k"), "i32"),
    "scale": "fp32",
}

#: a b in groups of rows of tiles, a grid of one axis.
GROUPED_ADJOINT = (
    MATMUL_ADJOINT.replace("m, n, k, M:", "m, n, k, GROUP: tl.constexpr, M:")
    .replace(
        "    rows = tl.program_id(0) * M",
        """    pid = tl.program_id(0)
    tiles_m, tiles_n = tl.cdiv(m, M), tl.cdiv(n, N)
    group = pid // (GROUP * tiles_n)
    in_group = tl.minimum(tiles_m - group * GROUP, GROUP)
    pid_m = group * GROUP + pid % (GROUP * tiles_n) % in_group
    pid_n = pid % (GROUP * tiles_n) // in_group
    rows = pid_m * M""",
    )
    .replace("tl.program_id(1)", "pid_n")
)

_LOOP = ATTENTION_ADJOINT.split("    end = ")[1].split("    tl.atomic_add(d_q_ptr")[0]
_BODY = _LOOP.split("N):\n")[1]
#: The keys left of a causal diagonal, then those on it.
TWO_LOOPS_ADJOINT = ATTENTION_ADJOINT.replace(
    f"    end = {_LOOP}",
    "    for start in range(0, first, N):\n"
    + _BODY
    + "    for start in range(first, first + M, N):\n"
    + _BODY,
)
#: One head of keys and values for all heads of queries.
MULTI_QUERY_ADJOINT = ATTENTION_ADJOINT.replace(
    "keys = (head + columns[:, None])", "keys = columns[:, None]"
)
