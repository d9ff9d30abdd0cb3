"""Kernels with scales of rows and of blocks along K, and runs of them on the emulated machine."""

from __future__ import annotations

from typing import Any

import numpy as np
from matmul_kernels import BK, BM, BN, build

import tilewright.language as tl
from tilewright.ir import Module
from tilewright.language.definitions.callable import device_function
from tilewright.simt import emulator
from tilewright.simt.emulator import EmulatedDescriptor
from tilewright.testing.toy_targets import BulkTarget


@device_function
def scaled(
    a, b, a_scale, b_scale, out, M, N, K,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PARTS: tl.constexpr, BEFORE: tl.constexpr,
):  # fmt: skip
    """Add up matmuls of BK elements along K, each times a scale of the row and one of the block."""
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    rows, columns = row + tl.arange(0, BM), column + tl.arange(0, BN)
    blocks = tl.cdiv(K, BK)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in tl.range(0, K, BK, warp_specialize=PARTS):
        if BEFORE:
            of_rows = tl.load(a_scale + rows * blocks + k // BK, mask=rows < M, other=0.0)
            scale = of_rows[:, None] * tl.load(b_scale + k // BK)
            total += tl.dot(a.load([row, k]), b.load([k, column])) * scale
        else:
            one = tl.dot(a.load([row, k]), b.load([k, column]))
            of_rows = tl.load(a_scale + rows * blocks + k // BK, mask=rows < M, other=0.0)
            total += one * (of_rows[:, None] * tl.load(b_scale + k // BK))
    tl.store(
        out + rows[:, None] * N + columns[None, :],
        total,
        mask=(rows[:, None] < M) & (columns[None, :] < N),
    )


@device_function
def stepping(
    a, b, a_scale, b_scale, out, M, N, K,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PARTS: tl.constexpr, BEFORE: tl.constexpr,
):  # fmt: skip
    """The same, with pointers that the loop carries."""
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    rows, columns = row + tl.arange(0, BM), column + tl.arange(0, BN)
    of_rows = a_scale + rows * tl.cdiv(K, BK)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in tl.range(0, K, BK, warp_specialize=PARTS):
        one = tl.dot(a.load([row, k]), b.load([k, column]))
        scale = tl.load(of_rows, mask=rows < M, other=0.0) * tl.load(b_scale)
        total += one * scale[:, None]
        of_rows += 1
        b_scale += 1
    tl.store(
        out + rows[:, None] * N + columns[None, :],
        total,
        mask=(rows[:, None] < M) & (columns[None, :] < N),
    )


def module_of(kernel: Any, **constants: Any) -> Module:
    signature = {
        "a": f"tensordesc<fp32[{BM},{BK}]>",
        "b": f"tensordesc<fp32[{BK},{BN}]>",
        **dict.fromkeys(("a_scale", "b_scale", "out"), "*fp32"),
        **dict.fromkeys("MNK", "i32"),
    }
    return build(kernel, signature, BM=BM, BN=BN, BK=BK, **constants)


def run_scaled(
    kernel: Any, size: tuple[int, int, int], target: BulkTarget, constants: Any, **options: Any
) -> Module:
    """Compile and run a kernel of scaled matmuls, and compare with NumPy; return the module."""
    m, n, k = size
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, shape).astype(np.float32) for shape in ((m, k), (k, n)))
    blocks = -(-k // BK)
    a_scale = rng.integers(1, 4, (m, blocks)).astype(np.float32)
    b_scale = rng.integers(1, 4, (blocks,)).astype(np.float32)
    out = np.full((m, n), np.nan, np.float32)
    module = module_of(kernel, **constants)
    emulator.run(
        module,
        [
            *(EmulatedDescriptor(x if x.size else np.zeros((1, 1), np.float32)) for x in (a, b)),
            *(a_scale, b_scale, out, m, n, k),
        ],
        (-(-m // BM), -(-n // BN), 1),
        num_warps=2,
        target=target,
        **options,
    )
    expected = np.zeros((m, n), np.float32)
    for block in range(blocks):
        inner = slice(block * BK, (block + 1) * BK)
        expected += (a[:, inner] @ b[inner]) * (a_scale[:, block, None] * b_scale[block])
    np.testing.assert_array_equal(out, expected)
    return module
