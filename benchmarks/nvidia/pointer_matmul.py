"""Products of f16 matrices by plain pointers with ``asynchronous=True``, whose loads become copies of blocks, against Triton on the same source and cuBLAS.

The best of a few configurations counts on each side.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import outputs
import torch
from side_by_side import fastest, milliseconds, report

#: (BM, BN, BK, num_warps, num_stages)
CONFIGURATIONS = (
    (128, 256, 64, 8, 3),
    (128, 256, 64, 8, 4),
    (128, 128, 64, 4, 4),
    (128, 128, 64, 8, 4),
    (128, 128, 32, 4, 4),
)


def measure(size: int, dtype: torch.dtype) -> dict[str, Any]:
    """One row: every configuration checked and timed, the best of each side timed again with the other."""
    a, b = (torch.randn(size, size, device="cuda", dtype=dtype) for _ in range(2))
    c = torch.empty(size, size, device="cuda", dtype=dtype)
    expected = a @ b

    def make(module: Any, bm: int, bn: int, bk: int, warps: int, stages: int) -> Callable[[], Any]:
        grid = (-(-size // bm) * -(-size // bn),)
        own = {"asynchronous": True} if module.__name__.startswith("tilewright") else {}
        return lambda: module.matmul[grid](a, b, c, size, size, size, BM=bm, BN=bn, BK=bk, GROUP=8, num_warps=warps, num_stages=stages, **own)

    best = fastest(CONFIGURATIONS, make, c, lambda: torch.testing.assert_close(c, expected, rtol=1e-2, atol=0.5), 2 * size**3)
    times = milliseconds({**best, "cublas": lambda: torch.mm(a, b, out=c)}, 30)
    row: dict[str, Any] = {
        "size": size,
        "dtype": str(dtype).removeprefix("torch."),
        **{f"{library}_TFLOPs": 2 * size**3 / taken / 1e9 for library, taken in times.items()},
    }
    row["of_cublas"] = times["cublas"] / times["tilewright"]
    if "triton" in times:
        row["speedup"] = times["triton"] / times["tilewright"]
    return row


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("sizes", nargs="*", type=int, default=[2048, 4096, 8192])
    parser.add_argument("--dtype", choices=("float16", "bfloat16"), default="float16")
    outputs.add_options(parser)
    options = parser.parse_args()
    rows = [measure(size, getattr(torch, options.dtype)) for size in options.sizes]
    report("f16 matmul by pointers, asynchronous", rows, ("tilewright_TFLOPs", "triton_TFLOPs", "cublas_TFLOPs", "speedup", "of_cublas"), options)


if __name__ == "__main__":
    main()
