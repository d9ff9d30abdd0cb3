"""Time to the first launch of each kernel: Tilewright against Triton on the same source.

Cold times start with empty caches, warm ones with a filled disk cache. Each measurement is a new
process in which everything is imported and another kernel has run: it times the call
``kernel[grid](...)``, from the source (or the cache) to a loaded and launched kernel. The driver's
own cache is disabled.

``compile_time.py`` prints the medians of several rounds, and the ratios. ``--device cpu`` runs the
script without a GPU, on Tilewright's CPU backend.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import outputs

#: Limit in milliseconds for a kernel from the disk cache.
WARM_LIMIT = 5.0

Times = dict[str, dict[str, float]]


def cases(device: str) -> Iterator[tuple[str, Callable[[ModuleType], Any]]]:
    """Return the cases: (name, module -> the first launch)."""
    import torch

    def ones(*shape: int, dtype: Any = torch.float16) -> Any:
        return torch.ones(*shape, device=device, dtype=dtype)

    n = 8192
    x, y, z = (ones(n, dtype=torch.float32) for _ in range(3))
    yield "add", lambda m: m.add[(8,)](x, y, z, n, BLOCK=1024)
    yield "dropout", lambda m: m.dropout[(8,)](x, z, n, 0.5, 7, BLOCK=1024)
    rows, out = ones(4, 4096), ones(4, 4096)
    weight, bias = ones(4096), ones(4096)
    yield "softmax", lambda m: m.softmax[(4,)](rows, out, 4096, BLOCK=4096, num_warps=8)
    yield (
        "layer_norm",
        lambda m: m.layer_norm[(4,)](rows, weight, bias, out, 4096, 1e-5, BLOCK=4096, num_warps=8),
    )
    yield (
        "rms_norm",
        lambda m: m.rms_norm[(4,)](rows, weight, out, 4096, 1e-5, BLOCK=4096, num_warps=8),
    )
    labels, losses = torch.zeros(4, device=device, dtype=torch.int64), ones(4, dtype=torch.float32)
    yield (
        "cross_entropy",
        lambda m: m.cross_entropy[(4,)](rows, labels, losses, 4096, BLOCK=4096, num_warps=8),
    )
    a, b, c = (ones(256, 256) for _ in range(3))
    yield (
        "matmul",
        lambda m: m.matmul[(4,)](
            a, b, c, 256, 256, 256, BM=128, BN=128, BK=64, GROUP=8, num_warps=4, num_stages=3
        ),
    )
    q, k, v, o = (ones(1, 2, 256, 64) for _ in range(4))
    yield (
        "attention",
        lambda m: m.attention[(4, 2)](
            q, k, v, o, 256, 0.18, D=64, BM=64, BN=32, CAUSAL=True, num_warps=4, num_stages=3
        ),
    )


def child(library: str, device: str, folder: Path) -> Times:
    """Return the milliseconds of the first launch of every kernel in this process.

    For Tilewright, the result also has the times of its own stages, without the driver.
    """
    import torch
    from side_by_side import kernels

    module = kernels(folder=folder)[library]
    todo = list(cases(device))
    tensors = [torch.zeros(1024, device=device) for _ in range(5)]
    module.ten[(1,)](
        *tensors, 7, 9, 11, 13, 15
    )  # warm-up: imports, the device's context, the compiler
    found: Times = {}
    for name, launch in todo:
        if device == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        kernel = launch(module)
        taken = (time.perf_counter() - start) * 1e3
        found[name] = {"first_launch": taken}
        if library == "tilewright":
            stages = kernel.timings
            own = sum(
                stages.get(stage, 0.0) for stage in ("frontend", "passes", "lower")
            ) - stages.get("lower.link", 0.0)
            found[name].update(compiler=own, from_cache=float(kernel.cache_hit))
    if device == "cuda":
        torch.cuda.synchronize()
    return found


def measured(library: str, device: str, folder: Path) -> Times:
    """Return the measurements of a new process with its caches in ``folder``."""
    own = {
        "TRITON_CACHE_DIR": str(folder / "triton"),
        "TILEWRIGHT_CACHE_DIR": str(folder / "tilewright"),
        "TILEWRIGHT_BACKEND": "nvidia" if device == "cuda" else "cpu",
        "CUDA_CACHE_DISABLE": "1",
    }
    command = [
        sys.executable,
        __file__,
        "--child",
        library,
        "--device",
        device,
        "--folder",
        str(folder),
    ]
    done = subprocess.run(
        command,
        env={**os.environ, **own},
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parent,
    )
    if done.returncode:
        raise SystemExit(f"{library} failed:\n{done.stdout}{done.stderr}")
    times: Times = json.loads(done.stdout.splitlines()[-1])
    return times


def rounds_of(library: str, device: str, rounds: int) -> dict[str, Times]:
    """Return medians over rounds: ``cold`` in an empty folder, then ``warm`` in the same one."""
    found: dict[str, list[Times]] = {"cold": [], "warm": []}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(prefix="tilewright-compile-time-") as folder:
            for kept in found.values():
                kept.append(measured(library, device, Path(folder)))
    return {
        kind: {
            name: {fact: statistics.median(one[name][fact] for one in kept) for fact in facts}
            for name, facts in kept[0].items()
        }
        for kind, kept in found.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--child", choices=("tilewright", "triton"), help=argparse.SUPPRESS)
    outputs.add_options(parser)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(child(options.child, options.device, options.folder)))
        return
    libraries = ["tilewright"]
    if options.device == "cuda" and importlib.util.find_spec("triton") is not None:
        libraries.append("triton")
    times = {library: rounds_of(library, options.device, options.rounds) for library in libraries}
    ours, rows = times["tilewright"], []
    for name in ours["cold"]:
        cold, warm = ours["cold"][name], ours["warm"][name]
        if cold["from_cache"] or not warm["from_cache"]:
            raise SystemExit(
                f"{name}: the cold start was served by a cache, or the warm one was not"
            )
        row: dict[str, Any] = {
            "kernel": name,
            "cold_ms": cold["first_launch"],
            "compiler_ms": cold["compiler"],
            "warm_ms": warm["first_launch"],
        }
        row["warm_in_limit"] = warm["first_launch"] <= WARM_LIMIT
        if "triton" in times:
            row["triton_cold_ms"] = times["triton"]["cold"][name]["first_launch"]
            row["triton_warm_ms"] = times["triton"]["warm"][name]["first_launch"]
            row["cold_ratio"] = cold["first_launch"] / row["triton_cold_ms"]
            row["warm_ratio"] = warm["first_launch"] / row["triton_warm_ms"]
        rows.append(row)
    if "triton" in times:
        slower = [row["kernel"] for row in rows if row["cold_ratio"] > 1]
        print(f"cold compiles slower than Triton's: {', '.join(slower) or 'none'}")
    if options.device == "cuda":
        from side_by_side import report

        report(
            "compile time (tilewright / triton)",
            rows,
            ("cold_ms", "warm_ms", "cold_ratio", "warm_ratio"),
            options,
        )
    else:
        print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
