"""Kernels around matrix products, as people write them: CPU and GPU against the reference and against float64, on odd shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright_conformance.launching import Addresses

RNG = np.random.default_rng(21)


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape, dtype=np.float32)


def poisoned(*shape: int, dtype: Any = np.float32) -> Any:
    return np.full(shape, np.nan if np.dtype(dtype).kind == "f" else 77, dtype)


# -- grouped products in a persistent loop ------------------------------------------------------------------------------------------------------------


@tw.jit
def tile_of(index, tiles_m, tiles_n, GROUP: tl.constexpr):
    width = GROUP * tiles_n
    group = index // width
    size = min(tiles_m - group * GROUP, GROUP)
    return group * GROUP + (index % width) % size, (index % width) // size


@tw.jit
def grouped_matmul(a_ptrs, b_ptrs, c_ptrs, sizes, problems, GROUP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    tile = tl.program_id(0)
    done = 0
    for problem in range(problems):
        M, N, K = tl.load(sizes + 3 * problem), tl.load(sizes + 3 * problem + 1), tl.load(sizes + 3 * problem + 2)
        tiles_m, tiles_n = tl.cdiv(M, BM), tl.cdiv(N, BN)
        count = tiles_m * tiles_n
        a = tl.load(a_ptrs + problem).to(tl.pointer_type(tl.float32))
        b = tl.load(b_ptrs + problem).to(tl.pointer_type(tl.float32))
        c = tl.load(c_ptrs + problem).to(tl.pointer_type(tl.float32))
        while tile >= done and tile < done + count:
            pid_m, pid_n = tile_of(tile - done, tiles_m, tiles_n, GROUP)
            rows, columns, inner = pid_m * BM + tl.arange(0, BM), pid_n * BN + tl.arange(0, BN), tl.arange(0, BK)
            acc = tl.zeros((BM, BN), dtype=tl.float32)
            for k in tl.range(0, K, BK, num_stages=3, loop_unroll_factor=2):
                x = tl.load(a + rows[:, None] * K + (k + inner)[None, :], mask=(rows[:, None] < M) & (k + inner[None, :] < K), other=0.0)
                y = tl.load(b + (k + inner)[:, None] * N + columns[None, :], mask=(k + inner[:, None] < K) & (columns[None, :] < N), other=0.0)
                acc = tl.dot(x, y, acc, input_precision="ieee")
            tl.store(c + rows[:, None] * N + columns[None, :], acc, mask=(rows[:, None] < M) & (columns[None, :] < N))
            tile += tl.num_programs(0)
        done += count


def test_grouped_products_in_a_persistent_loop(launch: Any) -> None:
    sizes = [(33, 17, 20), (5, 40, 7), (64, 1, 16)]
    a = [normal(m, k) for m, n, k in sizes]
    b = [normal(k, n) for m, n, k in sizes]
    c = [poisoned(m, n) for m, n, k in sizes]
    tables = [Addresses(arrays) for arrays in (a, b, c)]
    launch(grouped_matmul, (3,), *tables, np.array(sizes, np.int32).ravel(), len(sizes), GROUP=2, BM=16, BN=16, BK=8)
    for x, y, found in zip(a, b, c, strict=True):
        np.testing.assert_allclose(found, x.astype(float) @ y.astype(float), rtol=1e-4, atol=1e-5)


# -- split-K ------------------------------------------------------------------------------------------------------------------------------------------


@tw.jit
def split_k(a, b, c, M, N, K, sam, sak, sbk, sbn, scm, scn, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SPLIT: tl.constexpr):
    pid, part = tl.program_id(0), tl.program_id(1)
    pid_m, pid_n = pid // tl.cdiv(N, BN), pid % tl.cdiv(N, BN)
    rows, columns = pid_m * BM + tl.arange(0, BM), pid_n * BN + tl.arange(0, BN)
    inner = part * BK + tl.arange(0, BK)
    rows_in = tl.max_contiguous(tl.multiple_of(rows % M, BM), BM)
    columns_in = tl.max_contiguous(tl.multiple_of(columns % N, BN), BN)
    a += rows_in[:, None] * sam + inner[None, :] * sak
    b += inner[:, None] * sbk + columns_in[None, :] * sbn
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(tl.cdiv(K, BK * SPLIT)):
        left = K - k * (BK * SPLIT)
        x = tl.load(a, mask=inner[None, :] < left, other=0.0)
        y = tl.load(b, mask=inner[:, None] < left, other=0.0)
        acc += tl.dot(x, y, allow_tf32=False)
        a += BK * SPLIT * sak
        b += BK * SPLIT * sbk
    c += rows[:, None] * scm + columns[None, :] * scn
    mask = (rows < M)[:, None] & (columns < N)[None, :]
    if SPLIT == 1:
        tl.store(c, acc, mask=mask)
    else:
        tl.atomic_add(c, acc, mask=mask, sem="relaxed")


@pytest.mark.parametrize("split", [1, 3])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_a_product_split_along_k(launch: Any, split: int, dtype: Any) -> None:
    m, n, k = 16, 32, 75
    a, b = normal(m, k).astype(dtype), normal(n, k).astype(dtype)
    c = np.zeros((m, n), np.float32)
    launch(split_k, (2 * 2, split), a, b, c, m, n, k, k, 1, 1, k, n, 1, BM=8, BN=16, BK=16, SPLIT=split, rtol=1e-4)
    np.testing.assert_allclose(c, a.astype(float) @ b.astype(float).T, rtol=1e-4, atol=1e-4)


# -- four-bit weights ---------------------------------------------------------------------------------------------------------------------------------


@tw.jit
def int4_matmul(x, packed, scales, zeros, y, M, N, K, GROUP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    shift = (inner % 8) * 4
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        k = start + inner
        a = tl.load(x + rows[:, None] * K + k[None, :], mask=(rows[:, None] < M) & (k[None, :] < K), other=0.0)
        words = tl.load(packed + (k // 8)[:, None] * N + columns[None, :], mask=(k[:, None] < K) & (columns[None, :] < N), other=0)
        group = (k // GROUP)[:, None]
        inside = (k[:, None] < K) & (columns[None, :] < N)
        scale = tl.load(scales + group * N + columns[None, :], mask=inside, other=0.0)
        zero = tl.load(zeros + group * (N // 8) + (columns // 8)[None, :], mask=inside, other=0)
        zero = (zero >> ((columns % 8) * 4)[None, :]) & 0xF
        nibbles = (words >> shift[:, None]) & 0xF
        b = ((nibbles - zero).to(tl.float32) * scale).to(a.dtype)
        acc += tl.dot(a, b)
    tl.store(y + rows[:, None] * N + columns[None, :], acc.to(y.dtype.element_ty), mask=(rows[:, None] < M) & (columns[None, :] < N))


def test_a_product_with_four_bit_weights(launch: Any) -> None:
    m, n, k, group = 5, 24, 48, 16
    weights, zeros = RNG.integers(0, 16, (k, n)), RNG.integers(0, 16, (k // group, n))
    nibble = np.arange(8) * 4
    packed = (weights.reshape(k // 8, 8, n) << nibble[None, :, None]).sum(1).astype(np.uint32).view(np.int32)
    packed_zeros = (zeros.reshape(k // group, n // 8, 8) << nibble).sum(-1).astype(np.uint32).view(np.int32)
    scales, x, y = normal(k // group, n), normal(m, k), poisoned(m, n)
    launch(int4_matmul, (1, 2), x, packed, scales, packed_zeros, y, m, n, k, GROUP=group, BM=16, BN=16, BK=32, rtol=1e-4, atol=1e-3)
    exact = x.astype(float) @ ((weights - zeros.repeat(group, 0)) * scales.astype(float).repeat(group, 0))
    np.testing.assert_allclose(y, exact, rtol=1e-4, atol=1e-3)


# -- attention: forward, and backward in two passes ---------------------------------------------------------------------------------------------------


@tw.jit
def attention_block(acc, total, top, q, k_ptr, v_ptr, rows, start, stop, length, scale, D: tl.constexpr, BN: tl.constexpr, MASKED: tl.constexpr):
    column = tl.arange(0, D)
    for first in range(start, stop, BN):
        at = first + tl.arange(0, BN)
        k = tl.load(k_ptr + at[:, None] * D + column[None, :], mask=at[:, None] < length, other=0.0)
        scores = tl.dot(q, k.T) * scale
        if MASKED:
            scores = tl.where((rows[:, None] >= at[None, :]) & (at[None, :] < length), scores, float("-inf"))
        new_top = tl.maximum(top, tl.max(scores, 1))
        p = tl.exp2((scores - new_top[:, None]) * 1.4426950408889634)
        shrink = tl.exp2((top - new_top) * 1.4426950408889634)
        v = tl.load(v_ptr + at[:, None] * D + column[None, :], mask=at[:, None] < length, other=0.0)
        acc = tl.dot(p, v, acc * shrink[:, None])
        total = total * shrink + tl.sum(p, 1)
        top = new_top
    return acc, total, top


@tw.jit
def attention_forward(q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, length, scale, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    block, head = tl.program_id(0), tl.program_id(1)
    base = head * length * D
    rows, column = block * BM + tl.arange(0, BM), tl.arange(0, D)
    mask = rows[:, None] < length
    q = tl.load(q_ptr + base + rows[:, None] * D + column[None, :], mask=mask, other=0.0)
    state = tl.zeros((BM, D), tl.float32), tl.zeros((BM,), tl.float32), tl.full((BM,), float("-inf"), tl.float32)
    state = attention_block(*state, q, k_ptr + base, v_ptr + base, rows, 0, block * BM, length, scale, D, BN, MASKED=False)
    stop = min((block + 1) * BM, length)
    acc, total, top = attention_block(*state, q, k_ptr + base, v_ptr + base, rows, block * BM, stop, length, scale, D, BN, MASKED=True)
    tl.store(o_ptr + base + rows[:, None] * D + column[None, :], acc / total[:, None], mask=mask)
    tl.store(lse_ptr + head * length + rows, top + tl.log(total), mask=rows < length)


@tw.jit
def attention_backward(q_ptr, k_ptr, v_ptr, do_ptr, lse_ptr, delta_ptr, dq_ptr, dk_ptr, dv_ptr, length, scale, D: tl.constexpr, B: tl.constexpr):
    block, head = tl.program_id(0), tl.program_id(1)
    base = head * length * D
    lse_ptr += head * length
    delta_ptr += head * length
    column = tl.arange(0, D)[None, :]
    mine = block * B + tl.arange(0, B)
    inside = mine < length
    tile = base + mine[:, None] * D + column
    # This program's keys against all queries from the diagonal on: dk and dv.
    k = tl.load(k_ptr + tile, mask=inside[:, None], other=0.0)
    v = tl.load(v_ptr + tile, mask=inside[:, None], other=0.0)
    dk, dv = tl.zeros_like(k), tl.zeros_like(v)
    for first in range(block * B, length, B):
        at = first + tl.arange(0, B)
        q = tl.load(q_ptr + base + at[:, None] * D + column, mask=at[:, None] < length, other=0.0)
        do = tl.load(do_ptr + base + at[:, None] * D + column, mask=at[:, None] < length, other=0.0)
        lse = tl.load(lse_ptr + at, mask=at < length, other=float("inf"))
        delta = tl.load(delta_ptr + at, mask=at < length, other=0.0)
        p = tl.where(at[None, :] >= mine[:, None], tl.exp(tl.dot(k, tl.trans(q)) * scale - lse[None, :]), 0.0)
        dv += tl.dot(p, do)
        ds = p * (tl.dot(v, tl.trans(do)) - delta[None, :])
        dk += tl.dot(ds, q)
    tl.store(dk_ptr + tile, dk * scale, mask=inside[:, None])
    tl.store(dv_ptr + tile, dv, mask=inside[:, None])
    # Its queries against all keys up to the diagonal: dq.
    q = tl.load(q_ptr + tile, mask=inside[:, None], other=0.0)
    do = tl.load(do_ptr + tile, mask=inside[:, None], other=0.0)
    lse = tl.load(lse_ptr + mine, mask=inside, other=float("inf"))
    delta = tl.load(delta_ptr + mine, mask=inside, other=0.0)
    dq = tl.zeros_like(q)
    for first in range(0, (block + 1) * B, B):
        at = first + tl.arange(0, B)
        k = tl.load(k_ptr + base + at[:, None] * D + column, mask=at[:, None] < length, other=0.0)
        v = tl.load(v_ptr + base + at[:, None] * D + column, mask=at[:, None] < length, other=0.0)
        p = tl.where(mine[:, None] >= at[None, :], tl.exp(tl.dot(q, k.T) * scale - lse[:, None]), 0.0)
        dq = tl.dot(p * (tl.dot(do, v.T) - delta[:, None]), k, dq)
    tl.store(dq_ptr + tile, dq * scale, mask=inside[:, None])


def test_attention_and_its_gradients(launch: Any) -> None:
    heads, length, depth = 2, 43, 16
    q, k, v, do = (normal(heads, length, depth) for _ in range(4))
    o, lse = poisoned(heads, length, depth), poisoned(heads, length)
    scale = depth**-0.5
    launch(attention_forward, (3, heads), q, k, v, o, lse, length, scale, D=depth, BM=16, BN=8)
    q64, k64, v64, do64 = (x.astype(float) for x in (q, k, v, do))
    scores = np.where(np.tri(length, dtype=bool), q64 @ k64.swapaxes(1, 2) * scale, -np.inf)
    exact_lse = np.log(np.exp(scores).sum(-1))
    p = np.exp(scores - exact_lse[..., None])
    np.testing.assert_allclose(o, p @ v64, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(lse, exact_lse, rtol=1e-5, atol=1e-5)
    dq, dk, dv = poisoned(*q.shape), poisoned(*q.shape), poisoned(*q.shape)
    delta = (o * do).sum(-1)
    launch(attention_backward, (3, heads), q, k, v, do, lse, delta, dq, dk, dv, length, scale, D=depth, B=16, atol=1e-4)
    ds = p * (do64 @ v64.swapaxes(1, 2) - (p @ v64 * do64).sum(-1, keepdims=True))
    np.testing.assert_allclose(dv, p.swapaxes(1, 2) @ do64, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(dk, ds.swapaxes(1, 2) @ q64 * scale, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(dq, ds @ k64 * scale, rtol=1e-3, atol=1e-4)


# -- decoding over pages ------------------------------------------------------------------------------------------------------------------------------


@tw.jit
def paged_decode(q_ptr, k_ptr, v_ptr, table_ptr, lengths, o_ptr, scale, heads, kv_heads, pages, PAGE: tl.constexpr, D: tl.constexpr):
    sequence, head = tl.program_id(0), tl.program_id(1)
    kv_head = head // (heads // kv_heads)
    column, slot = tl.arange(0, D), tl.arange(0, PAGE)
    q = tl.load(q_ptr + (sequence * heads + head) * D + column) * scale
    length = tl.load(lengths + sequence)
    acc = tl.zeros((D,), tl.float32)
    top, total = float("-inf"), 0.0
    for page in range(tl.cdiv(length, PAGE)):
        physical = tl.load(table_ptr + sequence * pages + page).to(tl.int64)
        at = ((physical * PAGE + slot) * kv_heads + kv_head)[:, None] * D + column[None, :]
        mask = page * PAGE + slot < length
        scores = tl.sum(tl.load(k_ptr + at, mask=mask[:, None], other=0.0) * q[None, :], axis=1)
        scores = tl.where(mask, scores, float("-inf"))
        new_top = tl.maximum(tl.max(scores, axis=0), top)
        p, shrink = tl.exp(scores - new_top), tl.exp(top - new_top)
        acc = acc * shrink + tl.sum(p[:, None] * tl.load(v_ptr + at, mask=mask[:, None], other=0.0), axis=0)
        total = total * shrink + tl.sum(p, axis=0)
        top = new_top
    tl.store(o_ptr + (sequence * heads + head) * D + column, acc / total)


def test_decoding_over_pages(launch: Any) -> None:
    sequences, heads, kv_heads, depth, page, pages = 3, 4, 2, 16, 8, 5
    lengths = np.array([1, 37, 16], np.int32)
    table = RNG.permutation(sequences * pages).reshape(sequences, pages).astype(np.int32)
    k, v = (normal(sequences * pages, page, kv_heads, depth) for _ in range(2))
    q, o = normal(sequences, heads, depth), poisoned(sequences, heads, depth)
    launch(paged_decode, (sequences, heads), q, k, v, table, lengths, o, depth**-0.5, heads, kv_heads, pages, PAGE=page, D=depth)
    for s, length in enumerate(lengths):
        keys, values = (x[table[s]].reshape(-1, kv_heads, depth)[:length].astype(float).repeat(2, 1) for x in (k, v))
        scores = np.einsum("hd,lhd->hl", q[s].astype(float), keys) * depth**-0.5
        p = np.exp(scores - scores.max(1, keepdims=True))
        np.testing.assert_allclose(o[s], np.einsum("hl,lhd->hd", p / p.sum(1, keepdims=True), values), rtol=1e-4, atol=1e-5)


# -- convolution ------------------------------------------------------------------------------------------------------------------------------------------


@tw.jit
def convolution(
    x, w, bias, y, H, W, OH, OW, stride, pad, C: tl.constexpr, OUT: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr
):
    image = tl.program_id(1)
    pixel = tl.program_id(0) * BM + tl.arange(0, BM)
    top, left = pixel // OW * stride - pad, pixel % OW * stride - pad
    out = tl.arange(0, OUT)
    acc = tl.zeros((BM, OUT), tl.float32) + tl.load(bias + out)[None, :]
    for first in tl.static_range(0, C * KH * KW, BK):
        k = first + tl.arange(0, BK)
        channel, dy, dx = k // (KH * KW), k // KW % KH, k % KW
        row, column = top[:, None] + dy[None, :], left[:, None] + dx[None, :]
        mask = (row >= 0) & (row < H) & (column >= 0) & (column < W) & (k < C * KH * KW)[None, :]
        patches = tl.load(x + ((image * C + channel)[None, :] * H + row) * W + column, mask=mask, other=0.0)
        weights = tl.load(w + out[None, :] * (C * KH * KW) + k[:, None], mask=(k < C * KH * KW)[:, None], other=0.0)
        acc = tl.dot(patches, weights, acc)
    at = (image * OUT + out)[None, :] * (OH * OW) + pixel[:, None]
    tl.store(y + at, tl.maximum(acc, 0.0), mask=pixel[:, None] < OH * OW)


@pytest.mark.parametrize(("stride", "pad"), [(1, 1), (2, 0)])
def test_a_convolution_over_patches(launch: Any, stride: int, pad: int) -> None:
    images, channels, height, width, out, kernel = 2, 3, 11, 9, 8, 3
    x, w, bias = normal(images, channels, height, width), normal(out, channels, kernel, kernel), normal(out)
    oh, ow = (height + 2 * pad - kernel) // stride + 1, (width + 2 * pad - kernel) // stride + 1
    y = poisoned(images, out, oh, ow)
    sizes = {"C": channels, "OUT": out, "KH": kernel, "KW": kernel, "BM": 32, "BK": 16}
    launch(convolution, (-(-oh * ow // 32), images), x, w, bias, y, height, width, oh, ow, stride, pad, **sizes)
    padded = np.pad(x.astype(float), ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (kernel, kernel), (2, 3))[:, :, ::stride, ::stride]
    exact = np.einsum("bchwij,ocij->bohw", windows, w.astype(float)) + bias[:, None, None]
    np.testing.assert_allclose(y, np.maximum(exact, 0), rtol=1e-4, atol=1e-4)


# -- routing of tokens to experts -----------------------------------------------------------------------------------------------------------------------


@tw.jit
def route(choices, ranks, counts, starts, tokens, EXPERTS: tl.constexpr, BLOCK: tl.constexpr):
    expert = tl.arange(0, EXPERTS)
    seen = tl.zeros((EXPERTS,), tl.int32)
    for first in range(0, tokens, BLOCK):
        at = first + tl.arange(0, BLOCK)
        choice = tl.load(choices + at, mask=at < tokens, other=-1)
        chosen = (choice[:, None] == expert[None, :]).to(tl.int32)
        before = tl.cumsum(chosen, axis=0) - chosen + seen[None, :]
        tl.store(ranks + at, tl.sum(before * chosen, axis=1), mask=at < tokens)
        seen += tl.sum(chosen, axis=0)
    tl.store(counts + expert, seen)
    tl.store(starts + expert, tl.cumsum(seen, 0) - seen)


@tw.jit
def dispatch(x, choices, ranks, starts, gathered, order, tokens, width, BLOCK: tl.constexpr):
    token = tl.program_id(0)
    expert = tl.load(choices + token)
    if expert < 0:
        return
    place = tl.load(starts + expert) + tl.load(ranks + token)
    tl.store(order + place, token)
    for first in range(0, width, BLOCK):
        at = first + tl.arange(0, BLOCK)
        tl.store(gathered + place * width + at, tl.load(x + token * width + at, mask=at < width), mask=at < width)


def test_tokens_go_to_their_experts(launch: Any) -> None:
    tokens, experts, width = 53, 8, 11
    choices = RNG.integers(0, experts - 1, tokens).astype(np.int32)
    ranks, counts, starts = (poisoned(n, dtype=np.int32) for n in (tokens, experts, experts))
    launch(route, (1,), choices, ranks, counts, starts, tokens, EXPERTS=experts, BLOCK=16)
    np.testing.assert_array_equal(counts, np.bincount(choices, minlength=experts))
    np.testing.assert_array_equal(starts, np.cumsum(counts) - counts)
    x, gathered, order = normal(tokens, width), poisoned(tokens, width), poisoned(tokens, dtype=np.int32)
    launch(dispatch, (tokens,), x, choices, ranks, starts, gathered, order, tokens, width, BLOCK=4)
    expected = np.argsort(choices, kind="stable")
    np.testing.assert_array_equal(order, expected)
    np.testing.assert_array_equal(gathered, x[expected])
