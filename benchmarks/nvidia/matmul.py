"""Products of f16 matrices by plain pointers: Tilewright against cuBLAS, and against Triton on the same source, restricted to the same instructions.

The best of a few configurations counts on each side. ``DISABLE_MMA_V3=1`` keeps Triton to ``mma.sync``; it is set here before Triton is loaded unless
``--all-instructions`` is given.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import Any

#: (BM, BN, BK, num_warps, num_stages)
CONFIGURATIONS = ((128, 128, 64, 4, 3), (128, 256, 64, 8, 3), (128, 128, 64, 8, 3), (128, 128, 32, 4, 4), (256, 128, 32, 8, 3), (64, 128, 64, 4, 4))


def measure(size: int) -> dict[str, Any]:
    """One row: every configuration checked and timed, the best of each side timed again with the other."""
    import torch
    from side_by_side import kernels, milliseconds

    a, b = (torch.randn(size, size, device="cuda", dtype=torch.float16) for _ in range(2))
    c = torch.empty(size, size, device="cuda", dtype=torch.float16)
    expected = a @ b
    best: dict[str, tuple[float, Callable[[], Any]]] = {}

    def make(module: Any, bm: int, bn: int, bk: int, warps: int, stages: int) -> Callable[[], Any]:
        grid = (-(-size // bm) * -(-size // bn),)
        return lambda: module.matmul[grid](a, b, c, size, size, size, BM=bm, BN=bn, BK=bk, GROUP=8, num_warps=warps, num_stages=stages)

    for library, module in kernels().items():
        for configuration in CONFIGURATIONS:
            call = make(module, *configuration)
            shown = f"{library} {'x'.join(map(str, configuration[:3]))} w{configuration[3]} s{configuration[4]}"
            try:
                c.fill_(float("nan"))
                call()
                torch.cuda.synchronize()
            except Exception as error:
                print(f"{shown}: {type(error).__name__}: {str(error)[:160]}")
                continue
            torch.testing.assert_close(c, expected, rtol=1e-2, atol=0.5)
            taken = milliseconds({library: call}, 10)[library]
            print(f"{shown}: {2 * size**3 / taken / 1e9:.1f} TFLOP/s")
            if library not in best or taken < best[library][0]:
                best[library] = taken, call
    times = milliseconds({**{library: call for library, (_, call) in best.items()}, "cublas": lambda: torch.mm(a, b, out=c)}, 40)
    row: dict[str, Any] = {"size": size, **{f"{library}_TFLOPs": 2 * size**3 / taken / 1e9 for library, taken in times.items()}}
    row["of_cublas"] = times["cublas"] / times["tilewright"]
    if "triton" in times:
        row["speedup"] = times["triton"] / times["tilewright"]
    return row


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("sizes", nargs="*", type=int, default=[4096])
    parser.add_argument("--all-instructions", action="store_true", help="let Triton use what it likes")
    options = parser.parse_args()
    if not options.all_instructions:
        os.environ["DISABLE_MMA_V3"] = "1"
    from side_by_side import report

    report("f16 matmul", [measure(size) for size in options.sizes])


if __name__ == "__main__":
    main()
