"""Kernels with back-to-back matmuls: attention, causal or not, and the gradients of its keys and
values."""

from __future__ import annotations

import numpy as np
from matmul_kernels import BM, BN, build

import tilewright.language as tl
from tilewright.ir import Module
from tilewright.language.definitions.callable import device_function
from tilewright_conformance.oracles import attention

HEAD = 8


def exp2_attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, causal: bool = False) -> np.ndarray:
    """Attention whose weights are powers of two."""
    (found,), _ = attention.forward(q[None], k[None], v[None], float(np.log(2)), causal)
    return found


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
    step,
    BN: tl.constexpr,
    MASKED: tl.constexpr,
    BACKWARDS: tl.constexpr = False,
):
    """With BACKWARDS, the last block of keys comes first, and is masked alone."""
    for place in tl.range(first, last, step):
        start = last - BN - place if BACKWARDS else place
        scores = tl.dot(queries, k.load([start, 0]).T)
        if MASKED:
            seen = rows[:, None] >= (start + tl.arange(0, BN))[None, :]
            if BACKWARDS:
                seen = seen | (place > 0)
            scores = tl.where(seen, scores, -1e6)
        higher = tl.maximum(highest, tl.max(scores, axis=1))
        weights = tl.exp2(scores - higher[:, None])
        kept = tl.exp2(highest - higher)
        acc = acc * kept[:, None]
        acc = tl.dot(weights, v.load([start, 0]), acc)
        total, highest = total * kept + tl.sum(weights, axis=1), higher
    return acc, total, highest


@device_function
def causal_attention(
    q,
    k,
    v,
    out,
    n,
    step,
    tiles,
    BM: tl.constexpr,
    BN: tl.constexpr,
    HEAD: tl.constexpr,
    CAUSAL: tl.constexpr,
):
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        row = tile * BM
        rows, dims = row + tl.arange(0, BM), tl.arange(0, HEAD)
        queries = q.load([row, 0])
        highest, total = (
            tl.full([BM], -float("inf"), dtype=tl.float32),
            tl.zeros([BM], dtype=tl.float32),
        )
        acc = tl.zeros([BM, HEAD], dtype=tl.float32)
        if CAUSAL == "backwards":
            acc, total, highest = span(
                acc, total, highest, queries, k, v, rows, 0, row + BM, step, BN, True, True
            )
        elif CAUSAL:
            acc, total, highest = span(
                acc, total, highest, queries, k, v, rows, 0, row, step, BN, False
            )
            acc, total, highest = span(
                acc, total, highest, queries, k, v, rows, row, row + BM, step, BN, True
            )
        else:
            acc, total, highest = span(
                acc, total, highest, queries, k, v, rows, 0, n, step, BN, False
            )
        tl.store(out + rows[:, None] * HEAD + dims[None, :], acc / total[:, None])


@device_function
def gradients(q, k, v, g, dk, dv, n, BM: tl.constexpr, BN: tl.constexpr, HEAD: tl.constexpr):
    """Back-to-back matmuls with keys and values, without a softmax.

    The late half also reads what the early half loads.
    """
    column = tl.program_id(0) * BN
    keys, values = k.load([column, 0]), v.load([column, 0])
    key_gradient, value_gradient = (
        tl.zeros([BN, HEAD], dtype=tl.float32),
        tl.zeros([BN, HEAD], dtype=tl.float32),
    )
    for start in tl.range(0, n, BM, warp_specialize=True):
        queries, incoming = q.load([start, 0]), g.load([start, 0])
        weights = tl.dot(keys, queries.T)
        value_gradient = tl.dot(weights, incoming, value_gradient)
        weights *= tl.dot(values, incoming.T)
        key_gradient = tl.dot(weights, queries, key_gradient)
    columns, dims = column + tl.arange(0, BN), tl.arange(0, HEAD)
    tl.store(dk + columns[:, None] * HEAD + dims[None, :], key_gradient)
    tl.store(dv + columns[:, None] * HEAD + dims[None, :], value_gradient)


@device_function
def shared_span(acc, queries, k, first, last, BN: tl.constexpr):
    for start in tl.range(first, last, BN, warp_specialize=True):
        keys = k.load([start, 0])
        acc = tl.dot(tl.dot(queries, keys.T), keys, acc)
    return acc


@device_function
def shared_operands(q, k, out, middle, n, BM: tl.constexpr, BN: tl.constexpr, HEAD: tl.constexpr):
    """Two loops whose matmuls all read one load: ``q @ k.T @ k``."""
    queries = q.load([0, 0])
    acc = tl.zeros([BM, HEAD], dtype=tl.float32)
    acc = shared_span(acc, queries, k, 0, middle, BN)
    acc = shared_span(acc, queries, k, middle, n, BN)
    rows, dims = tl.arange(0, BM), tl.arange(0, HEAD)
    tl.store(out + rows[:, None] * HEAD + dims[None, :], acc)


def attention_module(causal: bool | str, keys: int = BN) -> Module:
    blocks = {
        "q": f"tensordesc<fp32[{BM},{HEAD}]>",
        **dict.fromkeys("kv", f"tensordesc<fp32[{keys},{HEAD}]>"),
    }
    return build(
        causal_attention,
        {**blocks, "out": "*fp32", "n": "i32", "step": "i32", "tiles": "i32"},
        BM=BM,
        BN=keys,
        HEAD=HEAD,
        CAUSAL=causal,
    )
