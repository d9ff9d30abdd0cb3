"""Pipelined loops over matmuls, with their arguments, for the tests of all pipeline forms.

Each function returns a kernel, the types of its arguments, and the arguments.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import tilewright.language as tl
from tilewright.language.definitions.callable import device_function
from tilewright.testing.emulator_check import small

Run = tuple[Any, dict[str, str], list[Any]]


def poisoned(*shape: int) -> np.ndarray[Any, Any]:
    return np.full(shape, 7, np.float32)


@device_function
def steps(
    a,
    b,
    out,
    first,
    last,
    step,
    K,
    BK: tl.constexpr,
    M: tl.constexpr,
    N: tl.constexpr,
    A_FILL: tl.constexpr = 0.0,
    B_FILL: tl.constexpr = 0.0,
):
    rows, columns = tl.arange(0, M), tl.arange(0, N)
    total = tl.zeros((M, N), dtype=tl.float32)
    for start in range(first, last, step):
        inner = start + tl.arange(0, BK)
        x = tl.load(a + rows[:, None] * 128 + inner[None, :], mask=inner[None, :] < K, other=A_FILL)
        y = tl.load(
            b + inner[:, None] * N + columns[None, :], mask=inner[:, None] < K, other=B_FILL
        )
        total = tl.dot(x, y, total)
    tl.store(out + rows[:, None] * N + columns[None, :], total)


#: The types of its arguments.
STEPS = {
    "a": "*fp32",
    "b": "*fp32",
    "out": "*fp32",
    "first": "i32",
    "last": "i32",
    "step": "i32",
    "K": "i32",
}


@device_function
def near_the_end(a, b, out, first, last, step, BK: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    rows, columns = tl.arange(0, M), tl.arange(0, N)
    total = tl.zeros((M, N), dtype=tl.float32)
    for start in range(first, last, step):
        inner = ((start - first) // step).to(tl.int32) * BK + tl.arange(0, BK)
        x = tl.load(a + rows[:, None] * 128 + inner[None, :])
        y = tl.load(b + inner[:, None] * N + columns[None, :])
        total = tl.dot(x, y, total)
    tl.store(out + rows[:, None] * N + columns[None, :], total)


def counting_to(top: int, type_: str) -> Run:
    """Three iterations, the last at the last values of a type that ends at ``top``."""
    rng, step = np.random.default_rng(0), top // 8
    arguments = [
        small(rng, 16, 128),
        small(rng, 128, 8),
        poisoned(16, 8),
        top - 3 * step,
        top - 1,
        step,
    ]
    return (
        near_the_end,
        {
            "a": "*fp32",
            "b": "*fp32",
            "out": "*fp32",
            **dict.fromkeys(("first", "last", "step"), type_),
        },
        arguments,
    )


@device_function
def carried_pointers(a, b, out, n, stride, BK: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    rows, columns, inner = tl.arange(0, M), tl.arange(0, N), tl.arange(0, BK)
    x_at = a + rows[:, None] * 128 + inner[None, :]
    y_at = b + columns[:, None] * 128 + inner[None, :]
    advance = BK
    total = tl.zeros((M, N), dtype=tl.float32)
    for i in range(n):
        x, y = tl.load(x_at), tl.load(y_at)
        total = tl.dot(x, tl.trans(y), total)
        x_at += advance
        y_at += advance
        advance += stride
    tl.store(out + rows[:, None] * N + columns[None, :], total)


def advancing(trips: int) -> Run:
    """Pointers that advance by a loop-carried distance, and a transposed operand."""
    rng = np.random.default_rng(trips)
    arguments = [small(rng, 16, 128), small(rng, 16, 128), poisoned(16, 16), trips, 4]
    return (
        carried_pointers,
        {"a": "*fp32", "b": "*fp32", "out": "*fp32", "n": "i32", "stride": "i32"},
        arguments,
    )


@device_function
def attention(q, k, v, out, n, D: tl.constexpr, BLOCK: tl.constexpr):
    rows, lanes, columns = tl.arange(0, BLOCK), tl.arange(0, D), tl.arange(0, BLOCK)
    query = tl.load(q + rows[:, None] * D + lanes[None, :])
    total = tl.zeros((BLOCK, D), dtype=tl.float32)
    largest = tl.full((BLOCK,), -1000.0, dtype=tl.float32)
    for start in range(0, n, BLOCK):
        at = start + columns
        keys = tl.load(k + at[:, None] * D + lanes[None, :], mask=at[:, None] < n, other=0.0)
        values = tl.load(v + at[:, None] * D + lanes[None, :], mask=at[:, None] < n, other=0.0)
        scores = tl.dot(query, tl.trans(keys))
        scores = tl.where(at[None, :] < n, scores, -1000.0)
        largest = tl.maximum(largest, tl.max(scores, 1))
        total = tl.dot(scores - largest[:, None], values, total)
    tl.store(out + rows[:, None] * D + lanes[None, :], total)


#: The types of its arguments.
ATTENTION = {"q": "*fp32", "k": "*fp32", "v": "*fp32", "out": "*fp32", "n": "i32"}


def attending(n: int) -> Run:
    """Two back-to-back matmuls."""
    rng = np.random.default_rng(n)
    arguments = [small(rng, 16, 16), small(rng, 64, 16), small(rng, 64, 16), poisoned(16, 16), n]
    return attention, ATTENTION, arguments


@device_function
def shared_operands(a, b, out, sums, n, M: tl.constexpr):
    rows, inner = tl.arange(0, M), tl.arange(0, M)
    total = tl.zeros((M, M), dtype=tl.float32)
    row_sums = tl.zeros((M,), dtype=tl.float32)
    for i in range(n):
        x = tl.load(a + i * M * M + rows[:, None] * M + inner[None, :])
        y = tl.load(b + i * M * M + rows[:, None] * M + inner[None, :]).to(tl.float32)
        row_sums += tl.sum(x, 1)
        total = tl.dot(x, y, total)
        if i % 2 == 0:
            total = tl.dot(y, tl.trans(x), total)
    tl.store(out + rows[:, None] * M + inner[None, :], total)
    tl.store(sums + rows, row_sums)


def several_readers() -> Run:
    """Loads that matmuls and sums read."""
    rng = np.random.default_rng(3)
    arguments = [
        small(rng, 5, 16, 16),
        small(rng, 5, 16, 16).astype(np.float16),
        poisoned(16, 16),
        poisoned(16),
        5,
    ]
    return (
        shared_operands,
        {"a": "*fp32", "b": "*fp16", "out": "*fp32", "sums": "*fp32", "n": "i32"},
        arguments,
    )


@device_function
def gathered(a, index, rows_of, scale, out, n, D: tl.constexpr, M: tl.constexpr):
    rows, inner, lanes = tl.arange(0, M), tl.arange(0, M), tl.arange(0, D)
    query = tl.load(a + rows[:, None] * D + lanes[None, :])
    total = tl.zeros((M, D), dtype=tl.float32)
    largest = tl.zeros((M,), dtype=tl.int32)
    for i in range(n):
        at = tl.load(index + i * M + inner)
        found = tl.load(rows_of + at[:, None] * D + lanes[None, :])
        scores = tl.dot(query, tl.trans(found)) - tl.load(scale + at)[None, :]
        scores = tl.where(at[None, :] >= rows[:, None], scores, at[None, :].to(tl.float32))
        total = tl.dot(scores, found, total)
        largest = tl.maximum(largest, at)
    tl.store(out + rows[:, None] * D + lanes[None, :], total + largest[:, None])


@device_function
def chased(a, links, rows_of, out, n, D: tl.constexpr, M: tl.constexpr):
    rows, lanes = tl.arange(0, M), tl.arange(0, D)
    query = tl.load(a + rows[:, None] * M + rows[None, :])
    total = tl.zeros((M, D), dtype=tl.float32)
    at = rows
    for i in range(n):
        left = query + at[:, None]
        found = tl.load(rows_of + at[:, None] * D + lanes[None, :])
        at = tl.load(links + at)
        total = tl.dot(left + at[None, :], found, total)
    tl.store(out + rows[:, None] * D + lanes[None, :], total)


def gathering(n: int) -> Run:
    """Rows gathered by indices that are loaded, and used again: by other loads, in a mask, in
    arithmetic."""
    rng = np.random.default_rng(n)
    index = np.full(16 * (n + 4), 2**28, np.int32)
    index[: 16 * n] = rng.integers(0, 32, 16 * n)
    arguments = [small(rng, 16, 16), index, small(rng, 32, 16), small(rng, 32), poisoned(16, 16), n]
    return (
        gathered,
        {
            "a": "*fp32",
            "index": "*i32",
            "rows_of": "*fp32",
            "scale": "*fp32",
            "out": "*fp32",
            "n": "i32",
        },
        arguments,
    )


def chasing(n: int) -> Run:
    """Rows gathered by indices that each iteration loads for the next."""
    rng = np.random.default_rng(n)
    arguments = [
        small(rng, 16, 16),
        rng.permutation(16).astype(np.int32),
        small(rng, 16, 16),
        poisoned(16, 16),
        n,
    ]
    return (
        chased,
        {"a": "*fp32", "links": "*i32", "rows_of": "*fp32", "out": "*fp32", "n": "i32"},
        arguments,
    )


@device_function
def gathered_last(a, index, rows_of, out, n, M: tl.constexpr):
    rows, inner = tl.arange(0, M), tl.arange(0, M)
    query = tl.load(a + rows[:, None] * M + inner[None, :])
    total = tl.zeros((M, M), dtype=tl.float32)
    beside = tl.zeros((M, M), dtype=tl.float32)
    for i in range(n):
        at = tl.load(index + i * M + inner)
        beside = tl.dot(query + at[:, None], query, beside)
        x = tl.load(a + i * M * M + rows[:, None] * M + inner[None, :])
        y = tl.load(rows_of + at[:, None] * M + inner[None, :])
        total = tl.dot(x, y, total)
    tl.store(out + rows[:, None] * M + inner[None, :], total - beside)


def gathering_last(n: int) -> Run:
    """Rows gathered for a matmul that reads only prefetched tiles.

    The matmul may be written in K steps.
    """
    rng = np.random.default_rng(n)
    index = np.full(16 * (n + 4), 2**28, np.int32)
    index[: 16 * n] = rng.integers(0, 32, 16 * n)
    arguments = [small(rng, 8, 16, 16), index, small(rng, 32, 16), poisoned(16, 16), n]
    return (
        gathered_last,
        {"a": "*fp32", "index": "*i32", "rows_of": "*fp32", "out": "*fp32", "n": "i32"},
        arguments,
    )
