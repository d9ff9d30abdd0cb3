"""Products of f16 matrices through descriptors, by Hopper's products of warpgroups and copies of blocks, against cuBLAS.

Every configuration is checked and timed, with cuBLAS in turns. ``divided`` says whether loads have warps of their own.
"""

from __future__ import annotations

import argparse
from typing import Any

import outputs
import torch
from side_by_side import milliseconds, report

import tilewright as tw
import tilewright.language as tl
from tilewright.runtime.descriptor import TensorDescriptor

#: (BM, BN, BK, num_warps, num_stages, divided)
CONFIGURATIONS = (
    (128, 256, 64, 8, 3, False),
    (128, 256, 64, 8, 3, True),
    (128, 256, 64, 8, 4, False),
    (128, 256, 64, 8, 4, True),
    (128, 128, 64, 4, 4, False),
    (128, 128, 64, 8, 4, True),
)


@tw.jit
def matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, DIVIDED: tl.constexpr):
    program, across = tl.program_id(0), tl.cdiv(N, BN)
    first = program // (GROUP * across) * GROUP
    height = min(tl.cdiv(M, BM) - first, GROUP)
    row = (first + program % (GROUP * across) % height) * BM
    column = program % (GROUP * across) // height * BN
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in tl.range(0, K, BK, warp_specialize=DIVIDED):
        total = tl.dot(a.load([row, k]), b.load([k, column]), total)
    rows, columns = row + tl.arange(0, BM), column + tl.arange(0, BN)
    tl.store(c + rows[:, None] * N + columns[None, :], total.to(tl.float16), mask=(rows[:, None] < M) & (columns[None, :] < N))


def measure(size: int) -> list[dict[str, Any]]:
    """A row for each configuration."""
    a, b = (torch.randn(size, size, device="cuda", dtype=torch.float16) for _ in range(2))
    c, expected = torch.empty_like(a), a @ b
    rows = []
    for bm, bn, bk, warps, stages, divided in CONFIGURATIONS:
        blocks = TensorDescriptor.from_tensor(a, [bm, bk]), TensorDescriptor.from_tensor(b, [bk, bn])
        grid = (-(-size // bm) * -(-size // bn),)

        def call(
            blocks: Any = blocks, grid: Any = grid, extents: Any = (bm, bn, bk), warps: int = warps, stages: int = stages, divided: bool = divided
        ) -> None:
            sizes = dict(zip(("BM", "BN", "BK"), extents, strict=True))
            matmul[grid](*blocks, c, size, size, size, **sizes, GROUP=16, DIVIDED=divided, num_warps=warps, num_stages=stages)

        c.fill_(float("nan"))
        call()
        torch.testing.assert_close(c, expected, rtol=1e-2, atol=0.5)
        times = milliseconds({"tilewright": call, "cublas": lambda: torch.mm(a, b, out=expected)}, 20)
        figures = {f"{library}_TFLOPs": 2 * size**3 / taken / 1e9 for library, taken in times.items()}
        rows.append({"size": size, "configuration": f"{bm}x{bn}x{bk} w{warps} s{stages}", "divided": divided, **figures})
        rows[-1]["of_cublas"] = times["cublas"] / times["tilewright"]
    return rows


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("sizes", nargs="*", type=int, default=[4096, 8192])
    outputs.add_options(parser)
    options = parser.parse_args()
    report("f16 matmul by descriptors", [row for size in options.sizes for row in measure(size)], ("of_cublas",), options)


if __name__ == "__main__":
    main()
