"""Kernels whose descriptors differ in an extent alone: the end of a group of rows."""

from __future__ import annotations

from typing import Any

import tilewright.language as tl


def multiplied_along_rows(
    a: Any,
    b: Any,
    c: Any,
    ends: Any,
    groups: Any,
    M: Any,
    N: Any,
    B_M: tl.constexpr,
    B_N: tl.constexpr,
    B_K: tl.constexpr,
    PROGRAMS: tl.constexpr,
    ASSUMES: tl.constexpr,
) -> None:
    """Compute c[g] = a[rows of g].T @ b[rows of g]."""
    to = tl.make_tensor_descriptor(c, [groups, M, N], [M * N, N, 1], [1, B_M, B_N])
    across = tl.cdiv(N, B_N)
    blocks = tl.cdiv(M, B_M) * across
    for each in range(tl.program_id(0), groups * blocks, PROGRAMS):
        group, block = each // blocks, each % blocks
        start, end = tl.load(ends + group), tl.load(ends + group + 1)
        if ASSUMES:
            tl.assume(start >= 0)
        left = tl.make_tensor_descriptor(a, [end, M], [M, 1], [B_K, B_M])
        right = tl.make_tensor_descriptor(b, [end, N], [N, 1], [B_K, B_N])
        row, column = block // across * B_M, block % across * B_N
        total = tl.zeros((B_M, B_N), tl.float32)
        for k in tl.range(start, end, B_K, warp_specialize=True):
            total = tl.dot(left.load([k, row]).T, right.load([k, column]), total)
        to.store([group, row, column], total.to(to.dtype).reshape(1, B_M, B_N))


def copied_rows(
    x: Any,
    y: Any,
    ends: Any,
    groups: Any,
    K: Any,
    B_M: tl.constexpr,
    B_K: tl.constexpr,
    SHIFT: tl.constexpr,
) -> None:
    """Copy the rows [SHIFT, end) of each tensor of ``groups``, of a size of 16 rows."""
    for group in range(tl.program_id(0), groups, tl.num_programs(0)):
        end = tl.load(ends + group)
        source = tl.make_tensor_descriptor(x, [groups, end, K], [16 * K, K, 1], [1, B_M, B_K])
        target = tl.make_tensor_descriptor(y, [groups, end, K], [16 * K, K, 1], [1, B_M, B_K])
        for row in range(0, 24, B_M):
            block = source.load([group, row + SHIFT, 0])
            target.store([group, row + SHIFT, 0], block + 1)
