"""Attention through descriptors, for tests: forward, of one head, of any length."""

from __future__ import annotations

from typing import Any

import tilewright.language as tl
from tilewright.frontend.compile import compile_function
from tilewright.ir import Module
from tilewright.language.callable import device_function
from tilewright.passes import pipeline

#: Tilewright's names of element types, and what they are in signatures.
ELEMENTS = {"f16": "fp16", "bf16": "bf16"}


@device_function
def span(acc, total, highest, queries, k, v, rows, first, last, n, scale, BN: tl.constexpr, MASKED: tl.constexpr):
    for start in range(first, last, BN):
        scores = tl.dot(queries, k.load([start, 0]).T)
        if MASKED:
            columns = start + tl.arange(0, BN)[None, :]
            scores = scores * scale + tl.where((rows[:, None] >= columns) & (columns < n), 0, -1.0e6)
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
def attention(q, k, v, out, lse, n, scale, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, CAUSAL: tl.constexpr):
    row = tl.program_id(0) * BM
    rows, lanes = row + tl.arange(0, BM), tl.arange(0, D)
    highest, total = tl.full([BM], -float("inf"), tl.float32), tl.zeros([BM], tl.float32)
    acc = tl.zeros([BM, D], tl.float32)
    queries = q.load([row, 0])
    if CAUSAL:
        acc, total, highest = span(acc, total, highest, queries, k, v, rows, 0, row, n, scale, BN, False)
        acc, total, highest = span(acc, total, highest, queries, k, v, rows, row, row + BM, n, scale, BN, True)
    else:
        whole = n // BN * BN
        acc, total, highest = span(acc, total, highest, queries, k, v, rows, 0, whole, n, scale, BN, False)
        acc, total, highest = span(acc, total, highest, queries, k, v, rows + n, whole, n, n, scale, BN, True)
    tl.store(lse + rows, highest + tl.log2(total), mask=rows < n)
    tl.store(out + rows[:, None] * D + lanes[None, :], (acc / total[:, None]).to(out.dtype.element_ty), mask=rows[:, None] < n)


def attention_module(element: str, d: int, bm: int, bn: int, causal: bool) -> Module:
    """The kernel's Tile IR."""
    constants: dict[str, Any] = {"D": d, "BM": bm, "BN": bn, "CAUSAL": causal}
    type_ = ELEMENTS[element]
    blocks = {name: f"tensordesc<{type_}[{rows},{d}]>" for name, rows in (("q", bm), ("k", bn), ("v", bn))}
    signature = {**blocks, "out": f"*{type_}", "lse": "*fp32", "n": "i32", "scale": "fp32", **dict.fromkeys(constants, "constexpr")}
    facts = {name: {"divisibility": 16} for name in ("q", "k", "v", "out", "lse")}
    module = compile_function(attention, signature, constants, facts)
    pipeline.run(module)
    return module
