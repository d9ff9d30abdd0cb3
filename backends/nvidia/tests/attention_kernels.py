"""Attention through descriptors, for tests, of one head: forward, of any length, and backward."""

from __future__ import annotations

from typing import Any

import tilewright.language as tl
from tilewright.frontend.compile import compile_function
from tilewright.ir import Module
from tilewright.language.definitions.callable import device_function
from tilewright.passes import pipeline

#: Tilewright's names of element types, and what they are in signatures.
ELEMENTS = {"f16": "fp16", "bf16": "bf16"}


@device_function
def span(
    acc,
    total,
    highest,
    queries,
    k,
    v,
    rows,
    first,
    last,
    n,
    scale,
    BN: tl.constexpr,
    MASKED: tl.constexpr,
):
    for start in range(first, last, BN):
        scores = tl.dot(queries, k.load([start, 0]).T)
        if MASKED:
            columns = start + tl.arange(0, BN)[None, :]
            scores = scores * scale + tl.where(
                (rows[:, None] >= columns) & (columns < n), 0, -1.0e6
            )
            higher = tl.maximum(highest, tl.max(scores, 1))
            scores -= higher[:, None]
        else:
            higher = tl.maximum(highest, tl.max(scores, 1) * scale)
            scores = scores * scale - higher[:, None]
        weights = tl.exp2(scores)
        kept = tl.exp2(highest - higher)
        acc = acc * kept[:, None]
        values = v.load([start, 0])
        acc = tl.dot(weights.to(values.dtype), values, acc)
        total = total * kept + tl.sum(weights, 1)
        highest = higher
    return acc, total, highest


@device_function
def attention(
    q,
    k,
    v,
    out,
    lse,
    n,
    scale,
    D: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    CAUSAL: tl.constexpr,
):
    row = tl.program_id(0) * BM
    rows, lanes = row + tl.arange(0, BM), tl.arange(0, D)
    highest, total = tl.full([BM], -float("inf"), tl.float32), tl.zeros([BM], tl.float32)
    acc = tl.zeros([BM, D], tl.float32)
    queries = q.load([row, 0])
    if CAUSAL:
        acc, total, highest = span(
            acc, total, highest, queries, k, v, rows, 0, row, n, scale, BN, False
        )
        acc, total, highest = span(
            acc, total, highest, queries, k, v, rows, row, row + BM, n, scale, BN, True
        )
    else:
        whole = n // BN * BN
        acc, total, highest = span(
            acc, total, highest, queries, k, v, rows, 0, whole, n, scale, BN, False
        )
        acc, total, highest = span(
            acc, total, highest, queries, k, v, rows + n, whole, n, n, scale, BN, True
        )
    tl.store(lse + rows, highest + tl.log2(total), mask=rows < n)
    tl.store(
        out + rows[:, None] * D + lanes[None, :],
        (acc / total[:, None]).to(out.dtype.element_ty),
        mask=rows[:, None] < n,
    )


@device_function
def whole_tile(
    tile,
    q,
    k,
    v,
    out,
    lse,
    n,
    scale,
    D: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    CAUSAL: tl.constexpr,
    PARTS: tl.constexpr,
):
    row = tile * BM
    rows, lanes = row + tl.arange(0, BM), tl.arange(0, D)
    highest, total = tl.full([BM], -float("inf"), tl.float32), tl.zeros([BM], tl.float32)
    acc = tl.zeros([BM, D], tl.float32)
    queries = q.load([row, 0])
    first = 0
    if PARTS == 2:
        first = row
        acc, total, highest = span(
            acc, total, highest, queries, k, v, rows, 0, row, n, scale, BN, False
        )
    acc, total, highest = span(
        acc, total, highest, queries, k, v, rows, first, n, n, scale, BN, CAUSAL
    )
    tl.store(lse + rows, highest + tl.log2(total))
    tl.store(
        out + rows[:, None] * D + lanes[None, :], (acc / total[:, None]).to(out.dtype.element_ty)
    )


@device_function
def whole_tiles(
    q,
    k,
    v,
    out,
    lse,
    n,
    scale,
    D: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    CAUSAL: tl.constexpr,
    PARTS: tl.constexpr,
    PERSISTENT: tl.constexpr,
):
    first = tl.program_id(0)
    if PERSISTENT:
        for tile in range(first, n // BM, tl.num_programs(0)):
            whole_tile(tile, q, k, v, out, lse, n, scale, D, BM, BN, CAUSAL, PARTS)
    else:
        whole_tile(first, q, k, v, out, lse, n, scale, D, BM, BN, CAUSAL, PARTS)


@device_function
def keys_backward(
    q, k, v, g, lse, delta, dk, dv, n, scale, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr
):
    column = tl.program_id(0) * BN
    keys, values = k.load([column, 0]), v.load([column, 0])
    dkey, dvalue = tl.zeros([BN, D], tl.float32), tl.zeros([BN, D], tl.float32)
    for start in range(0, n, BM):
        queries = q.load([start, 0])
        rows = start + tl.arange(0, BM)
        weights = tl.exp2(
            tl.dot(keys, queries.T) * (scale * 1.4426950408889634) - tl.load(lse + rows)[None, :]
        )
        incoming = g.load([start, 0])
        dvalue = tl.dot(weights.to(incoming.dtype), incoming, dvalue)
        slopes = weights * (tl.dot(values, incoming.T) - tl.load(delta + rows)[None, :])
        dkey = tl.dot(slopes.to(queries.dtype), queries, dkey)
    columns, lanes = column + tl.arange(0, BN), tl.arange(0, D)
    tl.store(dv + columns[:, None] * D + lanes[None, :], dvalue)
    tl.store(dk + columns[:, None] * D + lanes[None, :], dkey * scale)


@device_function
def queries_backward(
    q, k, v, g, lse, delta, dq, n, scale, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr
):
    row = tl.program_id(0) * BM
    queries, incoming = q.load([row, 0]), g.load([row, 0])
    rows, lanes = row + tl.arange(0, BM), tl.arange(0, D)
    logarithms, deltas = tl.load(lse + rows), tl.load(delta + rows)
    acc = tl.zeros([BM, D], tl.float32)
    for start in range(0, n, BN):
        keys = k.load([start, 0])
        weights = tl.exp2(
            tl.dot(queries, keys.T) * (scale * 1.4426950408889634) - logarithms[:, None]
        )
        slopes = weights * (tl.dot(incoming, v.load([start, 0]).T) - deltas[:, None])
        acc = tl.dot(slopes.to(keys.dtype), keys, acc)
    tl.store(dq + rows[:, None] * D + lanes[None, :], acc * scale)


def backward_module(part: str, element: str, d: int, bm: int, bn: int) -> Module:
    """Tile IR of the kernel for ``keys`` (and values) or ``queries``; lengths are multiples of its
    blocks."""
    constants: dict[str, Any] = {"D": d, "BM": bm, "BN": bn}
    blocks = {
        name: f"tensordesc<{ELEMENTS[element]}[{rows},{d}]>"
        for name, rows in (("q", bm), ("k", bn), ("v", bn), ("g", bm))
    }
    outputs = ("dk", "dv") if part == "keys" else ("dq",)
    pointers = dict.fromkeys(("lse", "delta", *outputs), "*fp32")
    signature = {
        **blocks,
        **pointers,
        "n": "i32",
        "scale": "fp32",
        **dict.fromkeys(constants, "constexpr"),
    }
    facts = {name: {"divisibility": 16} for name in (*blocks, *pointers, "n")}
    module = compile_function(
        keys_backward if part == "keys" else queries_backward, signature, constants, facts
    )
    pipeline.run(module)
    return module


def attention_module(
    element: str,
    d: int,
    bm: int,
    bn: int,
    causal: bool,
    parts: int | None = None,
    persistent: bool = False,
) -> Module:
    """The kernel's Tile IR.

    With ``parts``, lengths are multiples of its blocks, and there are so many loops over keys.
    """
    constants: dict[str, Any] = {"D": d, "BM": bm, "BN": bn, "CAUSAL": causal}
    if parts is not None:
        constants |= {"PARTS": parts, "PERSISTENT": persistent}
    type_ = ELEMENTS[element]
    blocks = {
        name: f"tensordesc<{type_}[{rows},{d}]>" for name, rows in (("q", bm), ("k", bn), ("v", bn))
    }
    signature = {
        **blocks,
        "out": f"*{type_}",
        "lse": "*fp32",
        "n": "i32",
        "scale": "fp32",
        **dict.fromkeys(constants, "constexpr"),
    }
    facts = {name: {"divisibility": 16} for name in ("q", "k", "v", "out", "lse")}
    kernel = attention if parts is None else whole_tiles
    module = compile_function(kernel, signature, constants, facts)
    pipeline.run(module)
    return module
