"""Common harness: one source and one clock for Triton and Tilewright, and the report."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import outputs
import torch

from tilewright_conformance.kernels import portable_kernels

_SOURCE = Path(portable_kernels.__file__)


def _load(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def kernels(source: Path = _SOURCE, folder: Path | None = None) -> dict[str, ModuleType]:
    """Return the kernels of a file for ``tilewright`` and, if it is installed, for ``triton``.

    Triton's source is written to ``folder``.
    """
    found = {"tilewright": _load("tilewright_kernels", source)}
    if importlib.util.find_spec("triton") is not None:
        path = (folder or Path(tempfile.mkdtemp(prefix="triton-benchmark-"))) / "triton_kernels.py"
        path.write_text(source.read_text().replace("import tilewright", "import triton"))
        found["triton"] = _load("triton_kernels", path)
    return found


def instructions(module: ModuleType) -> dict[str, Any]:
    """Return launch options that limit our kernels as ``DISABLE_MMA_V3`` limits Triton's."""
    return (
        {"asynchronous": False}
        if os.environ.get("DISABLE_MMA_V3") == "1" and module.__name__ != "triton_kernels"
        else {}
    )


_spoiler: Any = None


def milliseconds(
    calls: Mapping[str, Callable[[], Any]], rounds: int = 30, lead: int = 0
) -> dict[str, float]:
    """Return the median time of each call, by events.

    The L2 cache is overwritten before each call. Rivals alternate, so that they run at the same
    clocks.

    Args:
        lead: cycles for which the device waits before the first event, so that the host has
            enqueued the call by then; the result is the time of the device alone.
    """
    global _spoiler
    if _spoiler is None:
        _spoiler = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        for _ in range(3):
            call()
    torch.cuda.synchronize()
    for number in range(rounds):
        order = list(calls) if number % 2 == 0 else list(reversed(calls))
        for name in order:
            _spoiler.zero_()
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            if lead:
                torch.cuda._sleep(lead)
            start.record()
            calls[name]()
            end.record()
            end.synchronize()
            times[name].append(start.elapsed_time(end))
    return {name: statistics.median(taken) for name, taken in times.items()}


def host_microseconds(call: Callable[[], Any], launches: int = 200, rounds: int = 60) -> float:
    """Return the median host time of each call, over rounds.

    The host waits for the device after each round.
    """
    for _ in range(300):
        call()
    torch.cuda.synchronize()
    found = []
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(launches):
            call()
        found.append((time.perf_counter() - start) / launches * 1e6)
        torch.cuda.synchronize()
    return statistics.median(found)


def fastest(
    configurations: Sequence[tuple[Any, ...]],
    make: Callable[..., Callable[[], Any]],
    output: Any,
    check: Callable[[], None],
    operations: float,
) -> dict[str, Callable[[], Any]]:
    """Return each library's call in its fastest configuration.

    Each call is checked first. A configuration that a library cannot run is reported and omitted.

    Args:
        make: library's module, configuration -> call.
        output: the tensor that a call fills.
        check: raises an error if the output is wrong.
        operations: floating-point operations of a call.
    """
    best: dict[str, tuple[float, Callable[[], Any]]] = {}
    for library, module in kernels().items():
        for configuration in configurations:
            call = make(module, *configuration)
            shown = (
                f"{library} {'x'.join(map(str, configuration[:-2]))} w{configuration[-2]} "
                f"s{configuration[-1]}"
            )
            output.fill_(float("nan"))
            try:
                call()
                torch.cuda.synchronize()
            except Exception as error:
                print(f"{shown}: {type(error).__name__}: {str(error)[:160]}")
                continue
            check()
            taken = milliseconds({library: call}, 10)[library]
            print(f"{shown}: {operations / taken / 1e9:.1f} TFLOP/s", flush=True)
            if library not in best or taken < best[library][0]:
                best[library] = taken, call
    return {library: call for library, (_, call) in best.items()}


def product(
    size: int,
    dtype: torch.dtype,
    configurations: Sequence[tuple[Any, ...]],
    options: Callable[[ModuleType], Mapping[str, Any]],
    rounds: int,
) -> dict[str, Any]:
    """Return the speed of each library for a square matmul, and our ratio to the others.

    The fastest configuration of each library is timed again, alternating with cuBLAS.
    """
    a, b = (torch.randn(size, size, device="cuda", dtype=dtype) for _ in range(2))
    c = torch.empty(size, size, device="cuda", dtype=dtype)
    expected = a @ b

    def make(module: Any, bm: int, bn: int, bk: int, warps: int, stages: int) -> Callable[[], Any]:
        grid, own = (-(-size // bm) * -(-size // bn),), options(module)
        return lambda: module.matmul[grid](
            a,
            b,
            c,
            size,
            size,
            size,
            BM=bm,
            BN=bn,
            BK=bk,
            GROUP=8,
            num_warps=warps,
            num_stages=stages,
            **own,
        )

    best = fastest(
        configurations,
        make,
        c,
        lambda: torch.testing.assert_close(c, expected, rtol=1e-2, atol=0.5),
        2 * size**3,
    )
    times = milliseconds({**best, "cublas": lambda: torch.mm(a, b, out=c)}, rounds)
    row = {f"{library}_TFLOPs": 2 * size**3 / taken / 1e9 for library, taken in times.items()}
    row["of_cublas"] = times["cublas"] / times["tilewright"]
    if "triton" in times:
        row["speedup"] = times["triton"] / times["tilewright"]
    return row


def report(
    title: str,
    rows: list[dict[str, Any]],
    plotted: Sequence[str] = (),
    options: argparse.Namespace | None = None,
) -> None:
    """Print a table and a JSON line, and write the requested files (:mod:`outputs`)."""
    print(f"\n{title}")
    for row in rows:
        print(
            "  "
            + "  ".join(
                f"{name}={value:.3f}" if isinstance(value, float) else f"{name}={value}"
                for name, value in row.items()
            )
        )
    device = torch.cuda.get_device_name()
    print(json.dumps({"benchmark": title, "device": device, "rows": rows}))
    if options is not None:
        outputs.write(title, device, rows, plotted, options)
