"""Kernels as people write them, compiled and run by the reference interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

MATMUL = """
@jit
def leaky(x):
    return tl.where(x >= 0, x, 0.5 * x)

@jit
def kernel(a, b, c, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
           BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, ACTIVATION: tl.constexpr = ""):
    pid = tl.program_id(axis=0)
    num_m = tl.cdiv(M, BM)
    num_n = tl.cdiv(N, BN)
    in_group = GROUP * num_n
    group = pid // in_group
    first = group * GROUP
    size = min(num_m - first, GROUP)
    pid_m = first + (pid % in_group) % size
    pid_n = (pid % in_group) // size
    offs_m = (pid_m * BM + tl.arange(0, BM)) % M
    offs_n = (pid_n * BN + tl.arange(0, BN)) % N
    offs_k = tl.arange(0, BK)
    a_ptrs = a + (offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak)
    b_ptrs = b + (offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        x = tl.load(a_ptrs, mask=offs_k[None, :] < K - k * BK, other=0.0)
        y = tl.load(b_ptrs, mask=offs_k[:, None] < K - k * BK, other=0.0)
        acc = tl.dot(x, y, acc)
        a_ptrs += BK * stride_ak
        b_ptrs += BK * stride_bk
    if ACTIVATION == "leaky":
        acc = leaky(acc)
    offs_cm = pid_m * BM + tl.arange(0, BM)
    offs_cn = pid_n * BN + tl.arange(0, BN)
    c_ptrs = c + stride_cm * offs_cm[:, None] + stride_cn * offs_cn[None, :]
    tl.store(c_ptrs, acc, mask=(offs_cm[:, None] < M) & (offs_cn[None, :] < N))
"""


@pytest.mark.parametrize("activation", ["", "leaky"])
def test_a_matrix_product_with_grouped_programs(source: Any, activation: str) -> None:
    made = source(MATMUL)
    rng = np.random.default_rng(5)
    m, n, k = 37, 21, 19
    a, b = rng.standard_normal((m, k), np.float32), rng.standard_normal((k, n), np.float32)
    c = np.zeros((m, n), np.float32)
    scalars = dict.fromkeys(
        (
            "M",
            "N",
            "K",
            "stride_am",
            "stride_ak",
            "stride_bk",
            "stride_bn",
            "stride_cm",
            "stride_cn",
        ),
        "i32",
    )
    blocks = {"BM": 16, "BN": 8, "BK": 8, "GROUP": 2, "ACTIVATION": ("constexpr", activation)}
    module = made.compile(a="*fp32", b="*fp32", c="*fp32", **scalars, **blocks)
    made.interpret(module, [a, b, c, m, n, k, k, 1, n, 1, n, 1], (3 * 3, 1, 1))
    expected = a @ b
    if activation:
        expected = np.where(expected >= 0, expected, 0.5 * expected)
    np.testing.assert_allclose(c, expected, rtol=1e-5, atol=1e-5)


def test_a_spin_lock_and_a_first_come_branch(source: Any) -> None:
    made = source(
        """
        @jit
        def kernel(lock, count, total, x, N: tl.constexpr):
            part = tl.sum(tl.load(x + tl.program_id(0) * N + tl.arange(0, N)))
            while tl.atomic_cas(lock, 0, 1) == 1:
                pass
            if tl.load(count) == 0:
                tl.atomic_xchg(count, 1)
            else:
                part += tl.load(total)
            tl.store(total, part)
            tl.atomic_xchg(lock, 0)
        """
    )
    x = np.arange(32, dtype=np.float32)
    lock, count, total = np.zeros(1, np.int32), np.zeros(1, np.int32), np.full(1, 99, np.float32)
    made.run(
        [lock, count, total, x],
        grid=(4, 1, 1),
        lock="*i32",
        count="*i32",
        total="*fp32",
        x="*fp32",
        N=8,
    )
    assert total[0] == x.sum()


def test_problems_of_several_sizes_in_one_launch(source: Any) -> None:
    made = source(
        """
        @jit
        def kernel(pointers, sizes, problems, PROGRAMS: tl.constexpr, BLOCK: tl.constexpr):
            tile = tl.program_id(0)
            end = 0
            for g in range(problems):
                size = tl.load(sizes + g)
                tiles = tl.cdiv(size, BLOCK)
                while tile >= end and tile < end + tiles:
                    base = tl.load(pointers + g).to(tl.pointer_type(tl.float32))
                    offsets = (tile - end) * BLOCK + tl.arange(0, BLOCK)
                    mask = offsets < size
                    tl.store(base + offsets, tl.load(base + offsets, mask=mask) * (g + 1), mask=mask)
                    tile += PROGRAMS
                end += tiles
        """
    )
    arrays = [np.ones(n, np.float32) for n in (5, 17, 1, 40)]
    pointers = np.array([array.ctypes.data for array in arrays], np.int64)
    sizes = np.array([array.size for array in arrays], np.int32)
    types = {"pointers": "*i64", "sizes": "*i32", "problems": "i32"}
    made.run([pointers, sizes, 4], grid=(3, 1, 1), **types, PROGRAMS=3, BLOCK=8)
    for g, array in enumerate(arrays):
        assert (array == g + 1).all()


def test_a_binary_search_with_early_exit_in_every_lane_of_a_loop(source: Any) -> None:
    made = source(
        """
        @jit
        def search(p, n, wanted):
            low = 0
            high = n
            while low < high:
                middle = (low + high) // 2
                value = tl.load(p + middle)
                if value == wanted:
                    return middle
                if value < wanted:
                    low = middle + 1
                else:
                    high = middle
            return -1

        @jit
        def kernel(out, p, n, queries):
            i = tl.program_id(0)
            tl.store(out + i, search(p, n, tl.load(queries + i)))
        """
    )
    data = np.arange(0, 60, 3, dtype=np.int32)
    queries = np.arange(-2, 62, dtype=np.int32)
    out = np.zeros_like(queries)
    made.run(
        [out, data, len(data), queries],
        grid=(len(queries), 1, 1),
        out="*i32",
        p="*i32",
        n="i32",
        queries="*i32",
    )
    expected = [int(q) // 3 if 0 <= q < 60 and q % 3 == 0 else -1 for q in queries]
    assert out.tolist() == expected


def test_a_running_softmax_in_one_pass(source: Any) -> None:
    made = source(
        """
        @jit
        def kernel(out, x, n, BLOCK: tl.constexpr):
            row = tl.program_id(0)
            largest = tl.full((BLOCK,), float("-inf"), tl.float32)
            total = tl.zeros((BLOCK,), tl.float32)
            for start in range(0, n, BLOCK):
                offsets = start + tl.arange(0, BLOCK)
                value = tl.load(x + row * n + offsets, mask=offsets < n, other=float("-inf"))
                above = tl.maximum(largest, value)
                shift = tl.where(above == float("-inf"), 0.0, above)
                total = total * tl.exp(largest - shift) + tl.exp(value - shift)
                largest = above
            top = tl.max(largest, axis=0)
            scale = tl.sum(total * tl.exp(largest - top), axis=0)
            for start in range(0, n, BLOCK):
                offsets = start + tl.arange(0, BLOCK)
                value = tl.load(x + row * n + offsets, mask=offsets < n)
                tl.store(out + row * n + offsets, tl.exp(value - top) / scale, mask=offsets < n)
        """
    )
    x = np.random.default_rng(1).standard_normal((5, 77)).astype(np.float32)
    out = np.zeros_like(x)
    made.run([out, x, 77], grid=(5, 1, 1), out="*fp32", x="*fp32", n="i32", BLOCK=16)
    expected = np.exp(x - x.max(axis=1, keepdims=True))
    np.testing.assert_allclose(out, expected / expected.sum(axis=1, keepdims=True), rtol=1e-5)
