"""Kernel for ``tuning.py``: a persistent f16 matmul with host-side descriptors, 48 configurations.

The right operand is transposed.
"""

from __future__ import annotations

import itertools

import triton
import triton.language as tl


def set_blocks(arguments):
    """Set the block shapes of the descriptors before a configuration runs."""
    bm, bn, bk = (arguments[name] for name in ("BM", "BN", "BK"))
    arguments["a"].block_shape = [bm, bk]
    arguments["b"].block_shape = [bn, bk]
    arguments["c"].block_shape = [bm, bn // 2 if arguments["HALVES"] else bn]


CONFIGURATIONS = [
    triton.Config(
        {"BM": 128, "BN": bn, "BK": bk, "GROUP": 8, "HALVES": halves},
        num_warps=warps,
        num_stages=stages,
        pre_hook=set_blocks,
    )
    for bn, bk, stages, warps, halves in itertools.product(
        (128, 256), (64, 128), (2, 3, 4), (4, 8), (True, False)
    )
]


@triton.jit
def place(tile, down, across, GROUP: tl.constexpr):
    each = GROUP * across
    first = tile // each * GROUP
    height = min(down - first, GROUP)
    return first + tile % height, tile % each // height


@triton.jit
def matmul(
    a, b, c, M, N, K, PROGRAMS: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, HALVES: tl.constexpr,
):  # fmt: skip
    down, across, steps = tl.cdiv(M, BM), tl.cdiv(N, BN), tl.cdiv(K, BK)
    stored = tl.program_id(0) - PROGRAMS
    for tile in tl.range(tl.program_id(0), down * across, PROGRAMS, flatten=True):
        row, column = place(tile, down, across, GROUP)
        total = tl.zeros((BM, BN), dtype=tl.float32)
        for step in range(steps):
            total = tl.dot(a.load([row * BM, step * BK]), b.load([column * BN, step * BK]).T, total)
        stored += PROGRAMS
        row, column = place(stored, down, across, GROUP)
        if HALVES:
            left, right = total.reshape(BM, 2, BN // 2).permute(0, 2, 1).split()
            c.store([row * BM, column * BN], left.to(tl.float16))
            c.store([row * BM, column * BN + BN // 2], right.to(tl.float16))
        else:
            c.store([row * BM, column * BN], total.to(tl.float16))
