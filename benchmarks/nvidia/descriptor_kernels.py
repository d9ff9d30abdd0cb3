"""The kernels of :mod:`descriptor_matmul`: products of matrices that come in blocks through descriptors."""

from __future__ import annotations

import tilewright as tw
import tilewright.language as tl

#: (BM, BN, BK, num_warps, num_stages, divided, how the result is stored, persistent)
CONFIGURATIONS = (
    (128, 256, 64, 8, 4, False, "pointers", False),
    (128, 256, 64, 8, 4, True, "pointers", False),
    (128, 256, 64, 8, 4, False, "blocks", False),
    (128, 256, 64, 8, 4, True, "blocks", False),
    (128, 256, 64, 8, 3, True, "blocks", True),
    (128, 256, 64, 8, 4, True, "blocks", True),
    (128, 256, 64, 8, 4, True, "halves", True),
    (128, 128, 64, 8, 5, True, "blocks", True),
)


@tw.jit
def corner(block, M, N, BM: tl.constexpr, BN: tl.constexpr, GROUP: tl.constexpr):
    """The first row and column of a block of the result; blocks go column by column through ``GROUP`` rows of them."""
    across = tl.cdiv(N, BN)
    first = block // (GROUP * across) * GROUP
    height = min(tl.cdiv(M, BM) - first, GROUP)
    return (first + block % (GROUP * across) % height) * BM, block % (GROUP * across) // height * BN


@tw.jit
def put(c, total, row, column, M, N, BM: tl.constexpr, BN: tl.constexpr, STORE: tl.constexpr):
    """Store a block of the result: by pointers, through a descriptor, or through one in two halves."""
    if STORE == "pointers":
        rows, columns = row + tl.arange(0, BM), column + tl.arange(0, BN)
        tl.store(c + rows[:, None] * N + columns[None, :], total.to(c.dtype.element_ty), mask=(rows[:, None] < M) & (columns[None, :] < N))
    elif STORE == "halves":
        left, right = total.reshape(BM, 2, BN // 2).permute(0, 2, 1).split()
        c.store([row, column], left.to(c.dtype))
        c.store([row, column + BN // 2], right.to(c.dtype))
    else:
        c.store([row, column], total.to(c.dtype))


@tw.jit
def matmul(
    a, b, c, M, N, K,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, DIVIDED: tl.constexpr, STORE: tl.constexpr,
):  # fmt: skip
    """A program for each block of the result."""
    row, column = corner(tl.program_id(0), M, N, BM, BN, GROUP)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in tl.range(0, K, BK, warp_specialize=DIVIDED):
        total = tl.dot(a.load([row, k]), b.load([k, column]), total)
    put(c, total, row, column, M, N, BM, BN, STORE)


@tw.jit
def persistent_matmul(
    a, b, c, M, N, K,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, DIVIDED: tl.constexpr, STORE: tl.constexpr, PROGRAMS: tl.constexpr,
):  # fmt: skip
    """``PROGRAMS`` programs, each of which walks the blocks of the result."""
    for block in tl.range(tl.program_id(0), tl.cdiv(M, BM) * tl.cdiv(N, BN), PROGRAMS, flatten=True, warp_specialize=DIVIDED):
        row, column = corner(block, M, N, BM, BN, GROUP)
        total = tl.zeros((BM, BN), dtype=tl.float32)
        for k in range(0, K, BK):
            total = tl.dot(a.load([row, k]), b.load([k, column]), total)
        put(c, total, row, column, M, N, BM, BN, STORE)
