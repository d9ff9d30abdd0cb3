"""Run programs written for Triton on Triton and on Tilewright, each in a process of its own.

In both processes, the program alternates with PyTorch's own functions. A benchmark supplies cases
by name, each with two calls: ``program`` and ``torch``. ``speedup`` is Triton's time divided by
ours, both relative to PyTorch's time in the same process, which cancels differences of the GPU's
clocks. The times include the host's part of a call; with ``--lead`` they are the device's alone.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import outputs

#: prefix of a child's line with its figures
MARK = "figures:"
#: operations of a call (0 if only its time matters), and the calls ``program`` and ``torch``
Calls = tuple[float, dict[str, Callable[[], Any]]]


def child(names: Sequence[str], calls_of: Callable[[str], Calls], rounds: int, lead: int) -> None:
    """Check and time cases on this process's ``triton``, and print a line for each."""
    import torch
    from side_by_side import milliseconds

    for name in names:
        try:
            started = time.perf_counter()
            work, calls = calls_of(name)
            found, wanted = (_flat(call()) for call in (calls["program"], calls["torch"]))
            first = time.perf_counter() - started
            error = float((found - wanted).norm() / wanted.norm())
            if not error < 2e-2:
                raise AssertionError(f"the results differ by {error:.1e} of their norm")
            figures: dict[str, Any] = {
                "ms": milliseconds(calls, rounds, lead),
                "operations": work,
                "error": error,
                "first_s": first,
            }
        except Exception as failure:
            figures = {"failure": f"{type(failure).__name__}: {str(failure)[:200]}"}
        print(MARK, json.dumps({"case": name, **figures}), flush=True)
        torch.cuda.empty_cache()


def _flat(result: Any) -> Any:
    import torch

    return torch.cat(
        [
            one.detach().flatten().float()
            for one in (result if isinstance(result, list | tuple) else [result])
        ]
    )


def run(
    library: str, script: str, names: list[str], options: argparse.Namespace
) -> dict[str, dict[str, Any]]:
    """Return the figures of cases by name, from a process of a library."""
    shim = ["-m", "tilewright.compat.triton"] if library == "tilewright" else []
    timing = ["--rounds", str(options.rounds), "--lead", str(options.lead)]
    command = [sys.executable, *shim, str(Path(script).resolve()), "--child", *timing, *names]
    found = {}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=Path(script).parent
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith(MARK):
                figures = json.loads(line[len(MARK) :])
                found[figures["case"]] = figures
                print(f"{library} {line.strip()}", file=sys.stderr, flush=True)
    return found


def rows_of(
    found: dict[str, dict[str, dict[str, Any]]], names: list[str]
) -> Iterator[dict[str, Any]]:
    """Combine the figures of the libraries into one row per case."""
    for name in names:
        row: dict[str, Any] = {"case": name}
        parts = {}
        for library, figures in found.items():
            one = figures.get(name, {"failure": "the process ended"})
            if "failure" in one:
                row[f"{library}_failure"] = one["failure"]
                continue
            taken, rival = one["ms"]["program"], one["ms"]["torch"]
            parts[library] = taken / rival
            row[f"{library}_TFLOPs" if one["operations"] else f"{library}_us"] = (
                one["operations"] / taken / 1e9 if one["operations"] else taken * 1e3
            )
            row[f"{library}_of_torch"] = rival / taken
            row[f"{library}_first_s"] = one["first_s"]
        if len(parts) == 2:
            row["speedup"] = parts["triton"] / parts["tilewright"]
        yield row


def main(title: str, cases: Sequence[str], calls_of: Callable[[str], Calls], script: str) -> None:
    """Run the benchmark ``script`` with the cases ``cases``."""
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "cases", nargs="*", default=["*"], help="names or patterns, such as 'attention * forward'"
    )
    parser.add_argument("--libraries", nargs="*", default=["tilewright", "triton"])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument(
        "--lead",
        type=int,
        default=0,
        metavar="CYCLES",
        help="the device waits so long before each call, while the host prepares it",
    )
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    outputs.add_options(parser)
    options = parser.parse_args()
    if options.child:
        child(options.cases, calls_of, options.rounds, options.lead)
        return
    from side_by_side import report

    names = [
        name for name in cases if any(fnmatch.fnmatch(name, pattern) for pattern in options.cases)
    ]
    rows = list(
        rows_of(
            {library: run(library, script, names, options) for library in options.libraries}, names
        )
    )
    report(title, rows, ("speedup", "tilewright_of_torch"), options)
    speedups = [row["speedup"] for row in rows if "speedup" in row]
    if speedups:
        print(f"geometric mean of the speedups: {statistics.geometric_mean(speedups):.3f}")
