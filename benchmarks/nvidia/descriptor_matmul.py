"""Matmuls of f16 and bf16 matrices through descriptors, by TMA and wgmma, against cuBLAS.

Every configuration is checked and timed, alternating with cuBLAS. A size is one number for M = N =
K, or ``MxNxK``.
"""

from __future__ import annotations

import argparse
import functools
import math
from collections.abc import Sequence
from typing import Any

import outputs
import torch
from descriptor_kernels import GREAT, OTHERS, Configuration, matmul, persistent_matmul
from side_by_side import milliseconds, report

from tilewright.runtime.arguments.descriptor import TensorDescriptor


def caller(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, configuration: Configuration) -> Any:
    """Return a call of a configuration that fills ``c``."""
    bm, bn, bk, warps, stages, divided, store, persistent, cluster = configuration
    (m, k), n = a.shape, b.shape[1]
    blocks = TensorDescriptor.from_tensor(a, [bm, bk]), TensorDescriptor.from_tensor(b, [bk, bn])
    out = (
        c
        if store == "pointers"
        else TensorDescriptor.from_tensor(c, [bm, bn // 2 if store == "halves" else bn])
    )
    tiles = -(-m // bm) * -(-n // bn)
    programs = (
        min(tiles, torch.cuda.get_device_properties(0).multi_processor_count // cluster)
        if persistent
        else tiles
    )
    options = {"num_warps": warps, "num_stages": stages, "num_ctas": cluster}
    constants = {"BM": bm, "BN": bn, "BK": bk, "GROUP": 16, "DIVIDED": divided, "STORE": store}
    if persistent:
        return functools.partial(
            persistent_matmul[(programs,)],
            *blocks,
            out,
            m,
            n,
            k,
            **constants,
            PROGRAMS=programs,
            **options,
        )
    return functools.partial(matmul[(programs,)], *blocks, out, m, n, k, **constants, **options)


def measure(
    shape: tuple[int, int, int],
    dtype: torch.dtype,
    configurations: Sequence[Configuration],
    rounds: int,
) -> list[dict[str, Any]]:
    """Return a row for each configuration."""
    m, n, k = shape
    a, b = (torch.randn(*extents, device="cuda", dtype=dtype) for extents in ((m, k), (k, n)))
    expected = a @ b
    c, size = torch.empty_like(expected), "x".join(map(str, shape))
    rows = []
    for configuration in configurations:
        call = caller(a, b, c, configuration)
        c.fill_(float("nan"))
        call()
        torch.testing.assert_close(c, expected, rtol=2e-2, atol=1.0)
        times = milliseconds(
            {"tilewright": call, "cublas": lambda: torch.mm(a, b, out=expected)},
            rounds,
            lead=1_000_000,
        )
        figures = {
            f"{library}_TFLOPs": 2 * m * n * k / taken / 1e9 for library, taken in times.items()
        }
        bm, bn, bk, warps, stages, *_ = configuration
        facts = {
            name: getattr(configuration, name)
            for name in ("divided", "store", "persistent", "cluster")
        }
        rows.append(
            {
                "size": size,
                "type": str(dtype)[6:],
                "configuration": f"{bm}x{bn}x{bk} w{warps} s{stages}",
                **facts,
                **figures,
            }
        )
        rows[-1]["of_cublas"] = times["cublas"] / times["tilewright"]
        print(
            "  "
            + "  ".join(
                f"{name}={value:.3f}" if isinstance(value, float) else f"{name}={value}"
                for name, value in rows[-1].items()
            ),
            flush=True,
        )
    return rows


def best(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the fastest row of each size and type, and a row with the geometric mean."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["size"], row["type"]), []).append(row)
    found = [max(group, key=lambda row: row["of_cublas"]) for group in groups.values()]
    mean = math.exp(sum(math.log(row["of_cublas"]) for row in found) / len(found))
    return [*found, {"size": "all", "type": "all", "of_cublas": mean}]


def extents(text: str) -> tuple[int, ...]:
    """Return M, N and K."""
    found = tuple(map(int, text.split("x")))
    return found * 3 if len(found) == 1 else found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "sizes",
        nargs="*",
        type=extents,
        default=[(size,) * 3 for size in (2048, 4096, 8192)],
        metavar="SIZE",
        help="4096, or 512x4096x4096",
    )
    parser.add_argument(
        "--all", action="store_true", help="all configurations, not only those for great products"
    )
    parser.add_argument("--types", default="float16,bfloat16")
    parser.add_argument("--only", default="", help="numbers of configurations")
    parser.add_argument("--rounds", type=int, default=20)
    outputs.add_options(parser)
    options = parser.parse_args()
    configurations = (*GREAT, *OTHERS) if options.all else GREAT
    if options.only:
        configurations = tuple((*GREAT, *OTHERS)[int(number)] for number in options.only.split(","))
    rows = [
        row
        for size in options.sizes
        for name in options.types.split(",")
        for row in measure(size, getattr(torch, name), configurations, options.rounds)
    ]
    report("matmul by descriptors", rows, ("of_cublas",), options)
    report("the best of each", best(rows), ("of_cublas",))


if __name__ == "__main__":
    main()
