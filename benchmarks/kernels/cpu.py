"""Time every operation on a CPU beside PyTorch's fastest eager functions.

    cpu.py                      all cases, on one thread
    cpu.py --threads 2          on two threads, each pinned to a processor
    cpu.py softmax matmul       those whose names begin so
    cpu.py --json FILE          writes the figures, too

A line for each case and pass: our time and PyTorch's, and PyTorch's by ours, of the wall clock and
of the processors. Both have the same threads and alternate in one process; a time is the minimum
of all rounds. Ends with the geometric mean of the ratios of the wall clock, and with status 1 where
a result differs.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

#: Seconds that the rounds of a case take at most.
_SECONDS = 1.5
_LEAST_ROUNDS, _MOST_ROUNDS = 5, 60


def times_of(calls: dict[str, Callable[[], Any]]) -> dict[str, tuple[float, float]]:
    """Return the minimum seconds of each call by the wall clock and of the processors."""
    found = {name: [float("inf")] * 2 for name in calls}
    until = time.perf_counter() + _SECONDS
    for number in range(_MOST_ROUNDS):
        for name, call in calls.items():
            processors, wall = time.process_time(), time.perf_counter()
            call()
            taken = time.perf_counter() - wall, time.process_time() - processors
            found[name] = [min(pair) for pair in zip(found[name], taken, strict=True)]
        if number + 1 >= _LEAST_ROUNDS and time.perf_counter() > until:
            break
    return {name: (wall, processors) for name, (wall, processors) in found.items()}


def passes_of(case: Any) -> dict[str, dict[str, Callable[[], Any]]]:
    """Return pass -> whose -> call, after a check of results and gradients.

    Raises:
        AssertionError: a result differs from PyTorch's.
    """
    import torch
    from cpu_cases import largest_difference

    leaves = [each for each in case.inputs if getattr(each, "requires_grad", False)]
    inputs = [each.detach() if hasattr(each, "detach") else each for each in case.inputs]
    functions = {"ours": case.ours, "torch": case.rival}
    passes = {
        "forward": {
            name: (lambda function=function: function(*inputs))
            for name, function in functions.items()
        }
    }
    results = {name: call() for name, call in passes["forward"].items()}
    if case.tolerance is not None:
        difference = largest_difference(results["ours"], results["torch"])
        assert difference <= case.tolerance, f"differs by {difference:.1e}"
    if leaves:
        made = {name: function(*case.inputs) for name, function in functions.items()}
        slope = torch.randn_like(made["torch"])
        passes["backward"] = {
            name: (lambda y=y: torch.autograd.grad(y, leaves, slope, retain_graph=True))
            for name, y in made.items()
        }
        if case.tolerance is not None:
            pairs = zip(*(call() for call in passes["backward"].values()), strict=True)
            difference = max(largest_difference(one, other) for one, other in pairs)
            assert difference <= case.tolerance, f"a gradient differs by {difference:.1e}"
    return passes


def main() -> int:
    """Measure the cases that are named."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    processors = sorted(os.sched_getaffinity(0))[: options.threads]
    os.sched_setaffinity(0, processors)
    # before any of them starts its threads
    for variable in ("TILEWRIGHT_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = str(options.threads)
    os.environ["OMP_PROC_BIND"] = "true"
    import torch
    from cpu_cases import all_cases

    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    rows, wrong = [], 0
    for case in all_cases():
        if options.names and not case.name.startswith(tuple(options.names)):
            continue
        try:
            passes = passes_of(case)
        except Exception as error:
            print(f"{case.name:42} {type(error).__name__}: {error}", flush=True)
            wrong += 1
            continue
        for label, calls in passes.items():
            found = times_of(calls)
            ours, theirs = found["ours"], found["torch"]
            ratios = [theirs[place] / ours[place] for place in (0, 1)]
            rows.append((case.name, label, ours[0], theirs[0], *ratios))
            print(
                f"{case.name:42} {label:8} {ours[0] * 1e3:8.2f} ms {theirs[0] * 1e3:8.2f} ms  "
                f"wall {ratios[0]:5.2f}  processors {ratios[1]:5.2f}",
                flush=True,
            )
    if rows:
        for place, name in ((4, "wall"), (5, "processors")):
            ratios = [row[place] for row in rows]
            mean = statistics.geometric_mean(ratios)
            print(f"{name}: geometric mean {mean:.2f}, minimum {min(ratios):.2f}")
    if options.json:
        names = ("case", "pass", "ours", "torch", "wall", "processors")
        options.json.write_text(json.dumps([dict(zip(names, row, strict=True)) for row in rows]))
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
