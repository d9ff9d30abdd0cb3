"""Arguments that are batch sizes: found in maskings and grids, refused as extents and strides."""

from __future__ import annotations

import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.ir import Module
from tilewright.passes.analysis.batch_sizes import batch_sizes
from tilewright.plugins.manifest import Target
from tilewright.plugins.registry import registry
from tilewright.runtime.compiler.compile import Specialization, build_module


@tw.jit
def grouped_matmul(a, b, c, M, N, K, stride_a, stride_b, stride_c, B: tl.constexpr):
    blocks_m, blocks_n = tl.cdiv(M, B), tl.cdiv(N, B)
    first = tl.program_id(0) // (8 * blocks_n) * 8
    inside = tl.program_id(0) % (8 * blocks_n)
    rows = (first + inside % min(blocks_m - first, 8)) * B + tl.arange(0, B)
    columns = inside // min(blocks_m - first, 8) * B + tl.arange(0, B)
    k = tl.arange(0, B)
    a_ptrs = a + (rows % M)[:, None] * stride_a + k[None, :]
    b_ptrs = b + k[:, None] * stride_b + columns[None, :]
    acc = tl.zeros((B, B), tl.float32)
    for start in range(0, K, B):
        left = tl.load(a_ptrs, mask=k[None, :] < K - start, other=0.0)
        right = tl.load(b_ptrs, mask=columns[None, :] < N, other=0.0)
        acc = tl.dot(left, right, acc)
        a_ptrs += B
        b_ptrs += B * stride_b
    fits = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(c + rows[:, None] * stride_c + columns[None, :], acc, mask=fits)


@tw.jit
def persistent(a, b, c, M, N, K, B: tl.constexpr):
    blocks_n = tl.cdiv(N, B)
    for tile in range(tl.program_id(0), tl.cdiv(M, B) * blocks_n, tl.num_programs(0)):
        rows = tile // blocks_n * B + tl.arange(0, B)
        columns = tile % blocks_n * B + tl.arange(0, B)
        acc = tl.zeros((B, B), tl.float32)
        for start in range(0, K, B):
            k = start + tl.arange(0, B)
            left = tl.load(a + rows[:, None] * K + k[None, :], mask=rows[:, None] < M, other=0.0)
            acc = tl.dot(left, tl.load(b + k[:, None] + columns[None, :] * K), acc)
        tl.store(c + rows[:, None] * 64 + columns[None, :], acc, mask=rows[:, None] < M)


@tw.jit
def softmax(x, out, M, N, ROWS: tl.constexpr, B: tl.constexpr):
    rows, columns = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, B)
    fits = (rows[:, None] < M) & (columns[None, :] < N)
    values = tl.load(x + rows[:, None] * 128 + columns[None, :], fits, -float("inf"))
    e = tl.exp(values - tl.max(values, 1)[:, None])
    places = out + columns[:, None] + rows[None, :] * 128
    tl.store(places, tl.trans(e / tl.sum(e, 1)[:, None]), tl.trans(fits))


@tw.jit
def column_sums(x, out, M, N, B: tl.constexpr):
    rows, columns = tl.arange(0, B), tl.program_id(0) * B + tl.arange(0, B)
    fits = (rows[:, None] < M) & (columns[None, :] < N)
    values = tl.load(x + rows[:, None] * 128 + columns[None, :], fits, 0.0)
    tl.store(out + columns, tl.sum(values, 0), columns < N)


@tw.jit
def mean(x, out, M, N, B: tl.constexpr):
    row, total = tl.program_id(0), 0.0
    if row < M:
        for start in range(0, N, B):
            total += tl.sum(tl.load(x + row * 128 + start + tl.arange(0, B)), 0)
        tl.store(out + row, total / M)


@tw.jit
def described(x, out, M, N, B: tl.constexpr):
    rows = tl.make_tensor_descriptor(x, [M, N], [128, 1], [B, B])
    total = tl.zeros((B,), tl.float32)
    for start in range(0, N, B):
        total += tl.sum(rows.load([tl.program_id(0) * B, start]), 1)
    tl.store(out + tl.program_id(0) * B + tl.arange(0, B), total)


@tw.jit
def guarded(x, out, M, lock, B: tl.constexpr):
    while tl.atomic_cas(lock, 0, 1) < M:
        tl.store(out, tl.load(x + tl.arange(0, B)).sum())


def built(kernel) -> Module:
    backend = registry().get("reference")
    pointers = {"a", "b", "c", "x", "out"}
    types = {"B": "constexpr", "ROWS": "constexpr", "lock": "*i32"}
    signature = {
        name: types.get(name, "*fp32" if name in pointers else "i32") for name in kernel.arg_names
    }
    constants = {name: 16 for name in ("B", "ROWS") if name in kernel.arg_names}
    return build_module(
        Specialization(kernel, signature, constants, {}, dict(backend.manifest.options)),
        backend,
        Target("reference", "numpy", kind="cpu"),
    )


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        (grouped_matmul, {"M": True, "N": True}),
        (persistent, {"M": False, "N": True}),
        (softmax, {"M": False}),
        (column_sums, {"N": False}),
        (mean, {}),
        (described, {"M": False}),
        (guarded, {}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_batch_sizes_of(kernel, expected) -> None:
    assert {found.name: found.divides for found in batch_sizes(built(kernel))} == expected
