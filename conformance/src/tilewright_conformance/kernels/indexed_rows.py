"""Kernels that read and write rows named by an index: gathers, scatters, paged keys and values.

Operands of a mixture of experts are among them.
"""
# Kernels are written in the language, whose types a checker of Python does not know.
# mypy: ignore-errors

from __future__ import annotations

import tilewright as tw
import tilewright.language as tl


@tw.jit
def gather_rows(rows_ptr, index_ptr, out_ptr, stride, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """``out = rows[index]``, ROWS rows a program."""
    at, columns = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    index = tl.load(index_ptr + at)
    tl.store(
        out_ptr + at[:, None] * COLUMNS + columns[None, :],
        tl.load(rows_ptr + index[:, None] * stride + columns[None, :]),
    )


@tw.jit
def scatter_rows(rows_ptr, index_ptr, out_ptr, stride, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """``out[index] = rows``, ROWS rows a program."""
    at, columns = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    index = tl.load(index_ptr + at)
    tl.store(
        out_ptr + index[:, None] * stride + columns[None, :],
        tl.load(rows_ptr + at[:, None] * COLUMNS + columns[None, :]),
    )


@tw.jit
def paged_values(
    q_ptr,
    keys_ptr,
    values_ptr,
    table_ptr,
    out_ptr,
    n,
    page,
    row,
    H: tl.constexpr,
    T: tl.constexpr,
    D: tl.constexpr,
    PAGE: tl.constexpr,
):
    """``(q @ k.T) @ v`` of n keys and values in pages of PAGE rows, which a table names.

    Strides of pages and rows are in elements.
    """
    heads, d = tl.arange(0, H), tl.arange(0, D)
    q = tl.load(q_ptr + heads[:, None] * D + d[None, :])
    total = tl.zeros((H, D), tl.float32)
    for start in tl.range(0, n, T):
        at = start + tl.arange(0, T)
        known = at < n
        place = (
            tl.load(table_ptr + at // PAGE, mask=known, other=0).to(tl.int64) * page
            + (at % PAGE) * row
        )
        k = tl.load(keys_ptr + place[None, :] + d[:, None], mask=known[None, :], other=0.0)
        v = tl.load(values_ptr + place[:, None] + d[None, :], mask=known[:, None], other=0.0)
        total += tl.dot(tl.dot(q, k).to(v.dtype), v)
    tl.store(out_ptr + heads[:, None] * D + d[None, :], total)


@tw.jit
def expert_rows(
    a_ptr,
    b_ptr,
    order_ptr,
    expert_ptr,
    out_ptr,
    tokens,
    N,
    K,
    TOP: tl.constexpr,
    M: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    """Rows of ``a`` times the matrices of their experts.

    Slot i of a program is row ``order[i] // TOP``, none where that is ``tokens * TOP`` or more.
    """
    slots, columns, inner = (
        tl.program_id(0) * M + tl.arange(0, M),
        tl.program_id(1) * BN + tl.arange(0, BN),
        tl.arange(0, BK),
    )
    order = tl.load(order_ptr + slots)
    real = order < tokens * TOP
    a = a_ptr + (order // TOP)[:, None] * K + inner[None, :]
    b = (
        b_ptr
        + tl.load(expert_ptr + tl.program_id(0)).to(tl.int64) * N * K
        + columns[None, :] * K
        + inner[:, None]
    )
    total = tl.zeros((M, BN), tl.float32)
    for k in range(0, K, BK):
        x = tl.load(a, mask=real[:, None] & (k + inner < K)[None, :], other=0.0)
        y = tl.load(b, mask=(k + inner < K)[:, None] & (columns < N)[None, :], other=0.0)
        total = tl.dot(x, y, total)
        a += BK
        b += BK
    tl.store(
        out_ptr + order[:, None] * N + columns[None, :],
        total,
        mask=real[:, None] & (columns < N)[None, :],
    )


#: By name: the kernel, the types of its parameters, and constants that one test or another uses.
KERNELS = {
    "gather": (
        gather_rows,
        {"rows_ptr": "*fp16", "index_ptr": "*i32", "out_ptr": "*fp16", "stride": "i32"},
        {"ROWS": 32, "COLUMNS": 128},
    ),
    "scatter": (
        scatter_rows,
        {"rows_ptr": "*fp16", "index_ptr": "*i32", "out_ptr": "*fp16", "stride": "i32"},
        {"ROWS": 32, "COLUMNS": 128},
    ),
    "paged": (
        paged_values,
        {
            "q_ptr": "*fp16",
            "keys_ptr": "*fp16",
            "values_ptr": "*fp16",
            "table_ptr": "*i32",
            "out_ptr": "*fp32",
            "n": "i32",
            "page": "i64",
            "row": "i32",
        },
        {"H": 16, "T": 64, "D": 128, "PAGE": 16},
    ),
    "experts": (
        expert_rows,
        {
            "a_ptr": "*fp16",
            "b_ptr": "*fp16",
            "order_ptr": "*i32",
            "expert_ptr": "*i32",
            "out_ptr": "*fp16",
            "tokens": "i32",
            "N": "i32",
            "K": "i32",
        },
        {"TOP": 2, "M": 64, "BN": 64, "BK": 64},
    ),
}
