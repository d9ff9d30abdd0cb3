"""Matmuls of f16 matrices with plain pointers and ``asynchronous=True``: loads promoted to TMA.

They are compared with cuBLAS and with Triton on the same source. Each side uses the fastest of a
few configurations.
"""

from __future__ import annotations

import argparse
from types import ModuleType
from typing import Any

import outputs
import torch
from side_by_side import product, report

#: (BM, BN, BK, num_warps, num_stages)
CONFIGURATIONS = (
    (128, 256, 64, 8, 3),
    (128, 256, 64, 8, 4),
    (128, 128, 64, 4, 4),
    (128, 128, 64, 8, 4),
    (128, 128, 32, 4, 4),
)


def asynchronous(module: ModuleType) -> dict[str, Any]:
    """Return the launch options for a library's kernels."""
    return {"asynchronous": True} if module.__name__.startswith("tilewright") else {}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("sizes", nargs="*", type=int, default=[2048, 4096, 8192])
    parser.add_argument("--dtype", choices=("float16", "bfloat16"), default="float16")
    outputs.add_options(parser)
    options = parser.parse_args()
    rows = [
        {
            "size": size,
            "dtype": options.dtype,
            **product(size, getattr(torch, options.dtype), CONFIGURATIONS, asynchronous, 30),
        }
        for size in options.sizes
    ]
    report(
        "f16 matmul by pointers, asynchronous",
        rows,
        ("tilewright_TFLOPs", "triton_TFLOPs", "cublas_TFLOPs", "speedup", "of_cublas"),
        options,
    )


if __name__ == "__main__":
    main()
