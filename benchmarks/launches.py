"""Measure the host time of launches, each relative to a plain launch of the same kernel.

Launches are autotuned, with heuristics, with both, with keyword arguments, from a kept launcher,
with three tensor descriptors that are created for each call, and of derivatives. The kernel is
empty, but for derivatives, and takes five tensors, five integers and two constants. Each library
runs in a process of its own; the processes alternate, and the minimum counts. ``--device cuda``
measures on a GPU and includes Triton, which does not support CPUs.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

#: Each library's module, and the module of its tensor descriptors.
LIBRARIES = {
    "tilewright": ("tilewright", "tilewright"),
    "shim": ("triton", "triton.tools.tensor_descriptor"),
    "triton": ("triton", "triton.tools.tensor_descriptor"),
}


def microseconds(
    call: Callable[[], Any],
    launches: int,
    turns: int,
    clock: Callable[[], float],
    finish: Callable[[], Any],
) -> float:
    """Return the minimum host time per call, measured by ``clock``.

    ``finish`` empties the queue between rounds.
    """
    for _ in range(50):
        call()
    best = float("inf")
    for _ in range(turns):
        finish()
        started = clock()
        for _ in range(launches):
            call()
        best = min(best, clock() - started)
    return best / launches * 1e6


def calls(library: str, device: str) -> dict[str, Callable[[], Any]]:
    """Return the launches to measure, by name."""
    if library == "shim":
        importlib.import_module("tilewright.compat.triton")
    module, described = (importlib.import_module(name) for name in LIBRARIES[library])
    sys.modules["rival"], sys.modules["rival.language"] = (
        module,
        importlib.import_module(f"{LIBRARIES[library][0]}.language"),
    )
    import torch

    kernels = importlib.import_module("launched_kernels")
    a, b, c, d, e = (torch.zeros(64, 64, device=device) for _ in range(5))
    n, m, k, s, t = 7, 9, 11, 13, 15
    kept, kept_tuned = kernels.plain[(1,)], kernels.tuned[(1,)]

    def grid(meta: Any) -> tuple[int]:
        return (module.cdiv(meta["n"], meta["BLOCK"]),)

    def made() -> tuple[Any, Any, Any]:
        from_tensor = described.TensorDescriptor.from_tensor
        return from_tensor(a, [16, 16]), from_tensor(b, [16, 16]), from_tensor(c, [16, 16])

    kept_descriptors = made()
    derivatives: dict[str, Callable[[], Any]] = {}
    if library == "tilewright":
        adjoint = module.vjp(kernels.doubled, outputs="b", wrt="a")
        double = module.jvp(kernels.doubled, inputs="a", outputs="b")
        arguments = (a, b, c, d, e, n, m, k, s, t)
        derivatives = {
            "vjp": lambda: adjoint[(1,)](*arguments, BLOCK=4096, d_b=d, d_a=e),
            "jvp": lambda: double[(1,)](*arguments, BLOCK=4096, t_a=d, t_b=e),
        }
    return {
        "plain": lambda: kernels.plain[(1,)](a, b, c, d, e, n, m, k, s, t, BLOCK=64, FLAG=False),
        "plain, grid of a function": lambda: kernels.plain[grid](
            a, b, c, d, e, n, m, k, s, t, BLOCK=64, FLAG=False
        ),
        "plain, keywords": lambda: kernels.plain[(1,)](
            a=a, b=b, c=c, d=d, e=e, n=n, m=m, k=k, s=s, t=t, BLOCK=64, FLAG=False
        ),
        "plain, kept launcher": lambda: kept(a, b, c, d, e, n, m, k, s, t, BLOCK=64, FLAG=False),
        "autotuned": lambda: kernels.tuned[(1,)](a, b, c, d, e, n, m, k, s, t, FLAG=False),
        "autotuned, grid of a function": lambda: kernels.tuned[grid](
            a, b, c, d, e, n, m, k, s, t, FLAG=False
        ),
        "autotuned, keywords": lambda: kernels.tuned[(1,)](
            a=a, b=b, c=c, d=d, e=e, n=n, m=m, k=k, s=s, t=t, FLAG=False
        ),
        "autotuned, kept launcher": lambda: kept_tuned(a, b, c, d, e, n, m, k, s, t, FLAG=False),
        "autotuned, hook of the configuration": lambda: kernels.hooked[(1,)](
            a, b, c, d, e, n, m, k, s, t, FLAG=False
        ),
        "heuristics": lambda: kernels.guessed[(1,)](a, b, c, d, e, n, m, k, s, t, BLOCK=64),
        "heuristics around autotuned": lambda: kernels.guessed_tuned[(1,)](
            a, b, c, d, e, n, m, k, s, t
        ),
        "three kept descriptors": lambda: kernels.described[(1,)](*kept_descriptors, n, m),
        "three descriptors made": made,
        "three descriptors made and launched": lambda: kernels.described[(1,)](*made(), n, m),
        **derivatives,
    }


def measure(library: str, options: argparse.Namespace) -> dict[str, float]:
    """Return the microseconds of each launch in this process."""
    import torch

    # Thread time is more reliable than wall time under other load. It excludes waits for a GPU,
    # which take no processor time.
    clock, finish = (
        (time.perf_counter, torch.cuda.synchronize)
        if options.device == "cuda"
        else (time.thread_time, lambda: None)
    )
    return {
        name: microseconds(call, options.launches, options.turns, clock, finish)
        for name, call in calls(library, options.device).items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument(
        "--library",
        choices=LIBRARIES,
        help="measure one library in this process, and print its rows as JSON",
    )
    parser.add_argument("--launches", type=int, default=20_000, help="launches of a turn")
    parser.add_argument("--turns", type=int, default=5, help="turns of a process")
    parser.add_argument("--processes", type=int, default=2, help="processes of each library")
    options = parser.parse_args()
    if options.library:
        print(json.dumps(measure(options.library, options)))
        return
    libraries = [name for name in LIBRARIES if name != "triton" or options.device == "cuda"]
    best: dict[str, dict[str, float]] = {library: {} for library in libraries}
    passed = [
        "--device",
        options.device,
        "--launches",
        str(options.launches),
        "--turns",
        str(options.turns),
    ]
    for _ in range(options.processes):
        for library in libraries:
            environment = {**os.environ, "TILEWRIGHT_TRITON": "1" if library == "shim" else "0"}
            command = [sys.executable, __file__, "--library", library, *passed]
            found = json.loads(
                subprocess.run(
                    command, env=environment, stdout=subprocess.PIPE, check=True, text=True
                ).stdout.splitlines()[-1]
            )
            best[library] = {
                name: min(time_, best[library].get(name, time_)) for name, time_ in found.items()
            }
    print(f"{'':38}" + "".join(f"{library + ' us':>16}{'to plain':>10}" for library in libraries))
    for name in best[libraries[0]]:
        print(
            f"{name:38}"
            + "".join(
                f"{best[library][name]:16.2f}{best[library][name] / best[library]['plain']:10.2f}"
                if name in best[library]
                else f"{'':26}"
                for library in libraries
            )
        )


if __name__ == "__main__":
    main()
