"""Products of f16 matrices by plain pointers: Tilewright against cuBLAS, and against Triton on the same source.

The best of a few configurations counts on each side. With ``--mma-sync`` both are kept to the matrix instructions of single warps, Triton by
``DISABLE_MMA_V3=1``, which is set before it is loaded.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import Any

import outputs

#: (BM, BN, BK, num_warps, num_stages)
CONFIGURATIONS = (
    (128, 128, 64, 4, 3),
    (128, 256, 64, 8, 3),
    (128, 256, 64, 8, 4),
    (128, 256, 32, 8, 4),
    (256, 128, 64, 8, 3),
    (128, 128, 64, 8, 3),
    (128, 128, 32, 4, 4),
    (256, 128, 32, 8, 3),
    (64, 128, 64, 4, 4),
)


def measure(size: int) -> dict[str, Any]:
    """One row: every configuration checked and timed, the best of each side timed again with the other."""
    import torch
    from side_by_side import fastest, instructions, milliseconds

    a, b = (torch.randn(size, size, device="cuda", dtype=torch.float16) for _ in range(2))
    c = torch.empty(size, size, device="cuda", dtype=torch.float16)
    expected = a @ b

    def make(module: Any, bm: int, bn: int, bk: int, warps: int, stages: int) -> Callable[[], Any]:
        grid = (-(-size // bm) * -(-size // bn),)
        options = {"num_warps": warps, "num_stages": stages, **instructions(module)}
        return lambda: module.matmul[grid](a, b, c, size, size, size, BM=bm, BN=bn, BK=bk, GROUP=8, **options)

    best = fastest(CONFIGURATIONS, make, c, lambda: torch.testing.assert_close(c, expected, rtol=1e-2, atol=0.5), 2 * size**3)
    times = milliseconds({**best, "cublas": lambda: torch.mm(a, b, out=c)}, 40)
    row: dict[str, Any] = {"size": size, **{f"{library}_TFLOPs": 2 * size**3 / taken / 1e9 for library, taken in times.items()}}
    row["of_cublas"] = times["cublas"] / times["tilewright"]
    if "triton" in times:
        row["speedup"] = times["triton"] / times["tilewright"]
    return row


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("sizes", nargs="*", type=int, default=[4096])
    parser.add_argument("--mma-sync", action="store_true", help="keep both sides to the matrix instructions of single warps")
    outputs.add_options(parser)
    options = parser.parse_args()
    if options.mma_sync:
        os.environ["DISABLE_MMA_V3"] = "1"
    from side_by_side import report

    columns = ("tilewright_TFLOPs", "triton_TFLOPs", "cublas_TFLOPs", "speedup", "of_cublas")
    report("f16 matmul", [measure(size) for size in options.sizes], columns, options)


if __name__ == "__main__":
    main()
