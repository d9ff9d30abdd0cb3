"""Matmuls of f16 matrices with plain pointers: Tilewright against cuBLAS and Triton.

Triton runs the same source. Each side uses the fastest of a few configurations. With
``--mma-sync``, both are limited to ``mma.sync``; for Triton this is ``DISABLE_MMA_V3=1``, which is
set before Triton is loaded.
"""

from __future__ import annotations

import argparse
import os
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
    """Return one row."""
    import torch
    from side_by_side import instructions, product

    return {"size": size, **product(size, torch.float16, CONFIGURATIONS, instructions, 40)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("sizes", nargs="*", type=int, default=[4096])
    parser.add_argument(
        "--mma-sync",
        action="store_true",
        help="keep both sides to the matrix instructions of single warps",
    )
    outputs.add_options(parser)
    options = parser.parse_args()
    if options.mma_sync:
        os.environ["DISABLE_MMA_V3"] = "1"
    from side_by_side import report

    columns = ("tilewright_TFLOPs", "triton_TFLOPs", "cublas_TFLOPs", "speedup", "of_cublas")
    report("f16 matmul", [measure(size) for size in options.sizes], columns, options)


if __name__ == "__main__":
    main()
