"""Matmuls of 1, 8 and 64 rows by bf16 weights against cuBLAS, and one row by 4-bit weights.

The 4-bit matmul is compared with the memory bandwidth, and all of them with Triton on the same
source. Each side uses the fastest of a few configurations. Times are the device's alone, and the
weights are not in any cache.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import outputs
import torch
from side_by_side import kernels, milliseconds, report

from tilewright_conformance.kernels import decode_kernels

SOURCE = Path(decode_kernels.__file__)
GROUP = 128
#: cycles that the device waits while the host enqueues a call
LEAD = 200_000
#: (BLOCK_N, BLOCK_K, num_warps, num_stages)
VECTOR = (
    (4, 1024, 4, 1),
    (8, 512, 4, 1),
    (8, 1024, 4, 1),
    (16, 256, 4, 1),
    (16, 512, 8, 1),
    (8, 512, 4, 3),
    (4, 2048, 4, 1),
    (16, 256, 4, 4),
)
PACKED = (
    (4, 2048, 4, 1),
    (8, 1024, 4, 1),
    (8, 2048, 4, 1),
    (16, 1024, 4, 1),
    (4, 4096, 4, 1),
    (8, 1024, 4, 3),
    (16, 512, 4, 4),
    (4, 2048, 2, 1),
)
FEW_ROWS = (
    (16, 128, 4, 5),
    (32, 128, 4, 4),
    (32, 128, 4, 6),
    (32, 256, 4, 3),
    (16, 256, 4, 5),
    (64, 128, 4, 4),
    (32, 256, 8, 4),
    (16, 512, 4, 3),
)

Make = Callable[[ModuleType, tuple[int, ...]], Callable[[], Any]]


def cases() -> Iterator[
    tuple[
        str,
        int,
        Make,
        tuple[tuple[int, ...], ...],
        torch.Tensor,
        torch.Tensor,
        Callable[[], Any] | None,
    ]
]:
    """Return the cases.

    Each is a tuple: name, minimum memory traffic in bytes, module and configuration -> call,
    configurations, output, expected output, cuBLAS's call.
    """
    for rows, size in ((1, 4096), (8, 4096), (64, 4096), (1, 8192), (8, 8192), (64, 8192)):
        x, w = (
            torch.randn(extent, size, device="cuda", dtype=torch.bfloat16)
            for extent in (rows, size)
        )
        out = torch.empty(rows, size, device="cuda", dtype=torch.bfloat16)
        moved = 2 * (x.numel() + w.numel() + out.numel())

        def make(
            module: Any, of: tuple[int, ...], x: Any = x, w: Any = w, out: Any = out
        ) -> Callable[[], Any]:
            (rows, size), (bn, bk, warps, stages) = x.shape, of
            options = {"BLOCK_N": bn, "BLOCK_K": bk, "num_warps": warps, "num_stages": stages}
            if rows == 1:
                return lambda: module.vector_matmul[(size // bn,)](x, w, out, size, size, **options)
            return lambda: module.few_rows_matmul[(size // bn,)](
                x, w, out, rows, size, size, BLOCK_M=max(16, rows), **options
            )

        def cublas(x: Any = x, w: Any = w, out: Any = out) -> Any:
            return torch.mm(x, w.T, out=out)

        yield (
            f"bf16 {rows}x{size}x{size}",
            moved,
            make,
            VECTOR if rows == 1 else FEW_ROWS,
            out,
            x.double() @ w.double().T,
            cublas,
        )
    for size in (4096, 8192):
        x = torch.randn(size, device="cuda", dtype=torch.float16)
        packed = torch.randint(
            -(1 << 31), 1 << 31, (size, size // 8), device="cuda", dtype=torch.int32
        )
        scales = torch.rand(size, size // GROUP, device="cuda", dtype=torch.float16)
        out = torch.empty(size, device="cuda", dtype=torch.float16)
        digits = ((packed[:, :, None] >> (4 * torch.arange(8, device="cuda"))) & 15).view(
            size, size
        ) - 8
        weights = digits.double() * scales.double().repeat_interleave(GROUP, 1)

        def make_packed(
            module: Any,
            of: tuple[int, ...],
            x: Any = x,
            packed: Any = packed,
            scales: Any = scales,
            out: Any = out,
        ) -> Callable[[], Any]:
            size, (bn, bk, warps, stages) = len(x), of
            options = {
                "GROUP": GROUP,
                "BLOCK_N": bn,
                "BLOCK_K": bk,
                "num_warps": warps,
                "num_stages": stages,
            }
            return lambda: module.packed_vector_matmul[(size // bn,)](
                x, packed, scales, out, size, size, **options
            )

        yield (
            f"w4a16 1x{size}x{size}",
            4 * packed.numel() + 2 * (scales.numel() + 2 * size),
            make_packed,
            PACKED,
            out,
            weights @ x.double(),
            None,
        )


def best_calls(
    name: str,
    make: Make,
    configurations: tuple[tuple[int, ...], ...],
    out: torch.Tensor,
    expected: torch.Tensor,
) -> dict[str, Callable[[], Any]]:
    """Return each library's call in its fastest configuration; every configuration is checked."""
    best: dict[str, tuple[float, str, Callable[[], Any]]] = {}
    for library, module in kernels(SOURCE).items():
        for configuration in configurations:
            call = make(module, configuration)
            out.fill_(float("nan"))
            try:
                call()
                torch.cuda.synchronize()
            except Exception as error:
                print(
                    f"{name} {library} {configuration}: {type(error).__name__}: {str(error)[:160]}"
                )
                continue
            wrong = float((out.double() - expected).norm() / expected.norm())
            if not wrong < 5e-3:
                raise AssertionError(
                    f"{name} {library} {configuration}: the results differ by {wrong:.1e} of "
                    "their norm"
                )
            taken = milliseconds({library: call}, 10, LEAD)[library]
            print(f"{name} {library} {configuration}: {taken * 1e3:.1f} us", flush=True)
            if library not in best or taken < best[library][0]:
                best[library] = taken, str(configuration), call
    for library, (_, configuration, _) in best.items():
        print(f"{name} {library}: the best is {configuration}")
    return {library: call for library, (_, _, call) in best.items()}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", help="the beginnings of cases' names; all by default")
    outputs.add_options(parser)
    options = parser.parse_args()
    rows = []
    for name, moved, make, configurations, out, expected, cublas in cases():
        if options.names and not any(name.startswith(each) for each in options.names):
            continue
        calls = best_calls(name, make, configurations, out, expected)
        if cublas is not None:
            calls["cublas"] = cublas
        times = milliseconds(calls, 40, LEAD)
        row: dict[str, Any] = {"case": name} | {
            f"{library}_us": taken * 1e3 for library, taken in times.items()
        }
        row["TB_per_s"] = moved / times["tilewright"] / 1e9
        row |= {
            f"of_{rival}": times[rival] / times["tilewright"]
            for rival in ("triton", "cublas")
            if rival in times
        }
        rows.append(row)
    report("matmuls of few rows", rows, ("of_cublas",), options)


if __name__ == "__main__":
    main()
