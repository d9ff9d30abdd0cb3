"""Memory-bound kernels: Tilewright against Triton on the same source, and against a device copy.

``speedup`` is Triton's time divided by Tilewright's. ``of_copy`` is the achieved bandwidth divided
by that of a copy of as many bytes.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import outputs
import torch
from side_by_side import kernels, milliseconds, report

Case = tuple[str, Callable[[ModuleType], Callable[[], Any]], int, Callable[[], Any], Any]


def power_of_two(n: int) -> int:
    return 1 << (n - 1).bit_length()


def cases(quick: bool) -> Iterator[Case]:
    """Return the cases: (name, module -> call, bytes moved, PyTorch's call, the output)."""
    for n in (1 << 24,) if quick else (1 << 20, 1 << 24, 1 << 26, 98_432_000):
        x, y = torch.randn(n, device="cuda"), torch.randn(n, device="cuda")
        z = torch.empty_like(x)
        yield (
            f"add {n}",
            lambda m, x=x, y=y, z=z, n=n: lambda: m.add[(-(-n // 1024),)](x, y, z, n, BLOCK=1024),
            12 * n,
            lambda x=x, y=y: x + y,
            z,
        )
        yield (
            f"dropout {n}",
            lambda m, x=x, z=z, n=n: (
                lambda: m.dropout[(-(-n // 1024),)](x, z, n, 0.5, 7, BLOCK=1024)
            ),
            8 * n,
            lambda: None,
            z,
        )
    for columns in (4096,) if quick else (1024, 2048, 4096, 8192, 12544):
        rows, block = 8192, power_of_two(columns)
        warps = 4 if block <= 2048 else 8 if block <= 8192 else 16
        x = torch.randn(rows, columns, device="cuda")
        w, b = torch.randn(columns, device="cuda"), torch.randn(columns, device="cuda")
        z = torch.empty_like(x)
        grid, size = (rows,), 8 * rows * columns
        yield (
            f"softmax {columns}",
            lambda m, x=x, z=z, c=columns, k=block, n=warps, g=grid: (
                lambda: m.softmax[g](x, z, c, BLOCK=k, num_warps=n)
            ),
            size,
            lambda x=x: torch.softmax(x, 1),
            z,
        )
        yield (
            f"layer_norm {columns}",
            lambda m, x=x, w=w, b=b, z=z, c=columns, k=block, n=warps, g=grid: (
                lambda: m.layer_norm[g](x, w, b, z, c, 1e-5, BLOCK=k, num_warps=n)
            ),
            size,
            lambda x=x, w=w, b=b, c=columns: torch.nn.functional.layer_norm(x, (c,), w, b, 1e-5),
            z,
        )
        yield (
            f"rms_norm {columns}",
            lambda m, x=x, w=w, z=z, c=columns, k=block, n=warps, g=grid: (
                lambda: m.rms_norm[g](x, w, z, c, 1e-5, BLOCK=k, num_warps=n)
            ),
            size,
            lambda x=x, w=w, c=columns: torch.nn.functional.rms_norm(x, (c,), w, 1e-5),
            z,
        )
        labels = torch.randint(0, columns, (rows,), device="cuda")
        losses = torch.empty(rows, device="cuda")
        yield (
            f"cross_entropy {columns}",
            lambda m, x=x, t=labels, z=losses, c=columns, k=block, n=warps, g=grid: (
                lambda: m.cross_entropy[g](x, t, z, c, BLOCK=k, num_warps=n)
            ),
            4 * rows * columns,
            lambda x=x, t=labels: torch.nn.functional.cross_entropy(x, t, reduction="none"),
            losses,
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="one size each")
    outputs.add_options(parser)
    options = parser.parse_args()
    modules, rows = kernels(), []
    for name, make, size, expected, output in cases(options.quick):
        calls = {library: make(module) for library, module in modules.items()}
        wanted = expected()
        for library, call in calls.items():
            output.fill_(float("nan"))
            call()
            if wanted is not None:
                torch.testing.assert_close(
                    output,
                    wanted,
                    rtol=1e-3,
                    atol=1e-4,
                    msg=lambda text, library=library, name=name: f"{library}, {name}: {text}",
                )
        source = torch.empty(size // 8, dtype=torch.float32, device="cuda")
        target = torch.empty_like(source)
        times = milliseconds(
            {**calls, "copy": lambda source=source, target=target: target.copy_(source)}
        )
        row: dict[str, Any] = {
            "kernel": name,
            "tilewright_us": times["tilewright"] * 1e3,
            "GB/s": size / times["tilewright"] / 1e6,
        }
        row["of_copy"] = times["copy"] / times["tilewright"]
        if "triton" in times:
            row["triton_us"], row["speedup"] = (
                times["triton"] * 1e3,
                times["triton"] / times["tilewright"],
            )
        rows.append(row)
    report("memory-bound kernels", rows, ("speedup", "of_copy"), options)


if __name__ == "__main__":
    main()
