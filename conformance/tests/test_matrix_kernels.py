"""Kernels around matrix products, as people write them: CPU and GPU against the reference and against float64, on odd shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright_conformance.cases._matrix_kernels import (
    attention_backward,
    attention_forward,
    convolution,
    dispatch,
    grouped_matmul,
    int4_matmul,
    paged_decode,
    route,
    split_k,
)
from tilewright_conformance.oracles import attention
from tilewright_conformance.placement import Addresses

RNG = np.random.default_rng(21)


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape, dtype=np.float32)


def poisoned(*shape: int, dtype: Any = np.float32) -> Any:
    return np.full(shape, np.nan if np.dtype(dtype).kind == "f" else 77, dtype)


# -- grouped products in a persistent loop ------------------------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("split", [1, 3])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_a_product_split_along_k(launch: Any, split: int, dtype: Any) -> None:
    m, n, k = 16, 32, 75
    a, b = normal(m, k).astype(dtype), normal(n, k).astype(dtype)
    c = np.zeros((m, n), np.float32)
    launch(split_k, (2 * 2, split), a, b, c, m, n, k, k, 1, 1, k, n, 1, BM=8, BN=16, BK=16, SPLIT=split, rtol=1e-4)
    np.testing.assert_allclose(c, a.astype(float) @ b.astype(float).T, rtol=1e-4, atol=1e-4)


# -- four-bit weights ---------------------------------------------------------------------------------------------------------------------------------


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


def test_attention_and_its_gradients(launch: Any) -> None:
    heads, length, depth = 2, 43, 16
    q, k, v, do = (normal(heads, length, depth) for _ in range(4))
    o, lse = poisoned(heads, length, depth), poisoned(heads, length)
    scale = depth**-0.5
    launch(attention_forward, (3, heads), q, k, v, o, lse, length, scale, D=depth, BM=16, BN=8)
    wanted, wanted_lse = attention.forward(q, k, v, scale, causal=True)
    np.testing.assert_allclose(o, wanted, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(lse, wanted_lse, rtol=1e-5, atol=1e-5)
    dq, dk, dv = poisoned(*q.shape), poisoned(*q.shape), poisoned(*q.shape)
    delta = (o * do).sum(-1)
    launch(attention_backward, (3, heads), q, k, v, do, lse, delta, dq, dk, dv, length, scale, D=depth, B=16, atol=1e-4)
    for found, exact in zip((dq, dk, dv), attention.gradients(q, k, v, do, scale, causal=True), strict=True):
        np.testing.assert_allclose(found, exact, rtol=1e-3, atol=1e-4)


# -- decoding over pages ------------------------------------------------------------------------------------------------------------------------------


def test_decoding_over_pages(launch: Any) -> None:
    sequences, heads, kv_heads, depth, page, pages = 3, 4, 2, 16, 8, 5
    lengths = np.array([1, 37, 16], np.int32)
    table = RNG.permutation(sequences * pages).reshape(sequences, pages).astype(np.int32)
    k, v = (normal(sequences * pages, page, kv_heads, depth) for _ in range(2))
    q, o = normal(sequences, heads, depth), poisoned(sequences, heads, depth)
    launch(paged_decode, (sequences, heads), q, k, v, table, lengths, o, depth**-0.5, heads, kv_heads, pages, PAGE=page, D=depth)
    for s, length in enumerate(lengths):
        keys, values = (x[table[s]].reshape(-1, kv_heads, depth)[:length].repeat(2, 1) for x in (k, v))
        np.testing.assert_allclose(o[s], attention.decode(q[s], keys, values, depth**-0.5), rtol=1e-4, atol=1e-5)


# -- convolution ------------------------------------------------------------------------------------------------------------------------------------------


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
