"""Kernels of :mod:`descriptor_matmul`: matmuls whose operands are loaded through descriptors."""

from __future__ import annotations

from typing import NamedTuple

import tilewright as tw
import tilewright.language as tl


class Configuration(NamedTuple):
    """A configuration of a matmul.

    Attributes:
        rows, columns, inner: extents of a block of the result, and elements along K per iteration.
        warps: warps per CTA.
        stages: slots of the multi-buffered operands.
        divided: whether the loop is warp-specialized.
        store: how the result is stored: through ``pointers``, as one TMA store (``blocks``), or as
            two TMA stores (``halves``).
        persistent: whether the grid has only as many programs as are resident, each of which
            computes several blocks of the result.
        cluster: CTAs that run a program together.
    """

    rows: int
    columns: int
    inner: int
    warps: int
    stages: int
    divided: bool
    store: str
    persistent: bool
    cluster: int = 1


#: For matmuls with many blocks of the result per SM.
GREAT = (
    Configuration(128, 256, 64, 8, 4, False, "pointers", False),
    Configuration(128, 256, 64, 8, 4, True, "pointers", False),
    Configuration(128, 256, 64, 8, 4, False, "blocks", False),
    Configuration(128, 256, 64, 8, 4, True, "blocks", False),
    Configuration(128, 256, 64, 8, 3, True, "blocks", True),
    Configuration(128, 256, 64, 8, 4, True, "blocks", True),
    Configuration(128, 256, 64, 8, 4, True, "halves", True),
    Configuration(128, 128, 64, 8, 5, True, "blocks", True),
)
#: Additional configurations for matmuls whose larger blocks leave SMs idle.
OTHERS = (
    Configuration(128, 128, 64, 4, 5, False, "blocks", False),
    Configuration(128, 128, 64, 8, 5, True, "blocks", False),
    Configuration(64, 256, 64, 4, 5, True, "blocks", False),
    Configuration(128, 64, 64, 4, 8, False, "blocks", False),
    Configuration(128, 64, 64, 4, 8, True, "blocks", False),
    Configuration(128, 64, 128, 4, 4, True, "blocks", False),
    Configuration(128, 128, 64, 4, 8, False, "blocks", False, 2),
    Configuration(128, 128, 64, 4, 8, True, "blocks", False, 2),
    Configuration(128, 128, 128, 4, 4, True, "blocks", False, 2),
    Configuration(128, 256, 64, 4, 8, True, "blocks", False, 4),
    Configuration(256, 128, 64, 8, 6, True, "blocks", False, 2),
    Configuration(128, 256, 64, 8, 6, True, "blocks", False, 2),
    Configuration(128, 256, 64, 8, 6, True, "blocks", True, 2),
    Configuration(256, 256, 64, 8, 4, True, "blocks", True, 2),
)


@tw.jit
def corner(block, M, N, BM: tl.constexpr, BN: tl.constexpr, GROUP: tl.constexpr):
    """Return the first row and column of a block of the result.

    Blocks are ordered column by column within ``GROUP`` rows of blocks.
    """
    across = tl.cdiv(N, BN)
    first = block // (GROUP * across) * GROUP
    height = min(tl.cdiv(M, BM) - first, GROUP)
    return (first + block % (GROUP * across) % height) * BM, block % (GROUP * across) // height * BN


@tw.jit
def put(c, total, row, column, M, N, BM: tl.constexpr, BN: tl.constexpr, STORE: tl.constexpr):
    """Store a block of the result: through pointers, through a descriptor, or in two halves."""
    if STORE == "pointers":
        rows, columns = row + tl.arange(0, BM), column + tl.arange(0, BN)
        tl.store(
            c + rows[:, None] * N + columns[None, :],
            total.to(c.dtype.element_ty),
            mask=(rows[:, None] < M) & (columns[None, :] < N),
        )
    elif STORE == "halves":
        left, right = total.reshape(BM, 2, BN // 2).permute(0, 2, 1).split()
        c.store([row, column], left.to(c.dtype))
        c.store([row, column + BN // 2], right.to(c.dtype))
    else:
        c.store([row, column], total.to(c.dtype))


@tw.jit
def matmul(
    a, b, c, M, N, K,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
    DIVIDED: tl.constexpr, STORE: tl.constexpr,
):  # fmt: skip
    """Compute a matmul with one program per block of the result."""
    row, column = corner(tl.program_id(0), M, N, BM, BN, GROUP)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in tl.range(0, K, BK, warp_specialize=DIVIDED):
        total = tl.dot(a.load([row, k]), b.load([k, column]), total)
    put(c, total, row, column, M, N, BM, BN, STORE)


@tw.jit
def persistent_matmul(
    a, b, c, M, N, K,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
    DIVIDED: tl.constexpr, STORE: tl.constexpr, PROGRAMS: tl.constexpr,
):  # fmt: skip
    """Compute a matmul with ``PROGRAMS`` programs, each of which computes several blocks."""
    for block in tl.range(
        tl.program_id(0),
        tl.cdiv(M, BM) * tl.cdiv(N, BN),
        PROGRAMS,
        flatten=True,
        warp_specialize=DIVIDED,
    ):
        row, column = corner(block, M, N, BM, BN, GROUP)
        total = tl.zeros((BM, BN), dtype=tl.float32)
        for k in range(0, K, BK):
            total = tl.dot(a.load([row, k]), b.load([k, column]), total)
        put(c, total, row, column, M, N, BM, BN, STORE)
