"""Attention forward in f16: Tilewright against PyTorch's flash attention, cuDNN and Triton.

Triton runs the same source. Each side uses the fastest of a few configurations. With
``--mma-sync``, both are limited to ``mma.sync``; for Triton this is ``DISABLE_MMA_V3=1``, which is
set before Triton is loaded. For causal attention, half of the matmul operations are counted.
"""

from __future__ import annotations

import argparse
import itertools
import os
from collections.abc import Callable
from typing import Any

import outputs

#: (BM, BN, num_warps, num_stages)
CONFIGURATIONS = (
    (128, 64, 4, 3),
    (128, 64, 8, 3),
    (128, 32, 4, 4),
    (128, 32, 4, 3),
    (64, 64, 4, 3),
    (64, 32, 4, 3),
    (128, 128, 8, 2),
    (128, 64, 8, 2),
)
BATCH, HEADS = 4, 32


def measure(length: int, depth: int, causal: bool) -> dict[str, Any]:
    """Return one row: attention with a batch of 4 and 32 heads.

    Every configuration is checked and timed, and the fastest of each side is timed again,
    alternating with the rivals.
    """
    import torch
    from side_by_side import fastest, instructions, milliseconds
    from torch.nn.attention import SDPBackend, sdpa_kernel

    q, k, v = (
        torch.randn(BATCH, HEADS, length, depth, device="cuda", dtype=torch.float16)
        for _ in range(3)
    )
    out = torch.empty_like(q)
    operations = 4 * BATCH * HEADS * length * length * depth / (2 if causal else 1)

    def rival(backend: SDPBackend) -> Callable[[], Any]:
        def call() -> Any:
            with sdpa_kernel(backend):
                return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

        return call

    def make(module: Any, bm: int, bn: int, warps: int, stages: int) -> Callable[[], Any]:
        grid, scale = (length // bm, BATCH * HEADS), depth**-0.5 * 1.4426950408889634
        options = {"num_warps": warps, "num_stages": stages, **instructions(module)}
        return lambda: module.attention[grid](
            q, k, v, out, length, scale, D=depth, BM=bm, BN=bn, CAUSAL=causal, **options
        )

    calls = {"flash": rival(SDPBackend.FLASH_ATTENTION)}
    expected = calls["flash"]()
    try:
        torch.testing.assert_close(
            rival(SDPBackend.CUDNN_ATTENTION)(), expected, rtol=1e-2, atol=5e-3
        )
        calls["cudnn"] = rival(SDPBackend.CUDNN_ATTENTION)
    except RuntimeError as error:  # PyTorch was built without it
        print(f"cudnn: {str(error)[:160]}")
    print(f"\nlength {length}, head dimension {depth}, {'causal' if causal else 'full'}")
    best = fastest(
        CONFIGURATIONS,
        make,
        out,
        lambda: torch.testing.assert_close(out, expected, rtol=1e-2, atol=5e-3),
        operations,
    )
    times = milliseconds({**best, **calls}, 30)
    row: dict[str, Any] = {"attention": f"d{depth} {'causal' if causal else 'full'} {length}"}
    row |= {f"{library}_TFLOPs": operations / taken / 1e9 for library, taken in times.items()}
    row |= {f"of_{library}": times[library] / times["tilewright"] for library in calls}
    if "triton" in times:
        row["speedup"] = times["triton"] / times["tilewright"]
    return row


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--lengths", nargs="*", type=int, default=[1024, 2048, 4096], help="multiples of 128"
    )
    parser.add_argument("--depths", nargs="*", type=int, default=[64, 128], help="head dimensions")
    parser.add_argument(
        "--mma-sync",
        action="store_true",
        help="keep both sides to the matrix instructions of single warps",
    )
    outputs.add_options(parser)
    options = parser.parse_args()
    if any(length % 128 for length in options.lengths):
        parser.error("lengths are multiples of 128")
    if options.mma_sync:
        os.environ["DISABLE_MMA_V3"] = "1"
    from side_by_side import report

    rows = [
        measure(*case) for case in itertools.product(options.lengths, options.depths, (False, True))
    ]
    columns = (
        "tilewright_TFLOPs",
        "triton_TFLOPs",
        "flash_TFLOPs",
        "cudnn_TFLOPs",
        "speedup",
        "of_flash",
        "of_cudnn",
    )
    report("f16 attention, forward", rows, columns, options)


if __name__ == "__main__":
    main()
