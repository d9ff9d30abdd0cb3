"""One source for Triton and Tilewright, one clock for both, and what is printed."""

from __future__ import annotations

import importlib.util
import json
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

_SOURCE = Path(__file__).with_name("kernels.py")


def _load(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def kernels() -> dict[str, ModuleType]:
    """The kernels for ``tilewright`` and, where it is installed, ``triton``."""
    text = (
        _SOURCE.read_text()
        .replace("import triton.language as tl", "import tilewright.language as tl")
        .replace("import triton\n", "import tilewright as triton\n")
    )
    folder = Path(tempfile.mkdtemp(prefix="tilewright-benchmark-"))
    (folder / "tilewright_kernels.py").write_text(text)
    found = {"tilewright": _load("tilewright_kernels", folder / "tilewright_kernels.py")}
    if importlib.util.find_spec("triton") is not None:
        found["triton"] = _load("triton_kernels", _SOURCE)
    return found


_spoiler: Any = None


def milliseconds(calls: Mapping[str, Callable[[], Any]], rounds: int = 30) -> dict[str, float]:
    """The median time of each call, by events, the second-level cache overwritten before each; rivals take turns, so that clocks treat them alike."""
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
            start.record()
            calls[name]()
            end.record()
            end.synchronize()
            times[name].append(start.elapsed_time(end))
    return {name: statistics.median(taken) for name, taken in times.items()}


def report(title: str, rows: list[dict[str, Any]]) -> None:
    """A table, and one line of JSON for tools."""
    print(f"\n{title}")
    for row in rows:
        print("  " + "  ".join(f"{name}={value:.3f}" if isinstance(value, float) else f"{name}={value}" for name, value in row.items()))
    print(json.dumps({"benchmark": title, "device": torch.cuda.get_device_name(), "rows": rows}))
