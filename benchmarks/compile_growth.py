"""Measure how compile time grows with the length of a kernel.

Each program repeats a statement hundreds or thousands of times in its body. The time is CPU time of
the compilation, including child processes.

    python benchmarks/compile_growth.py
    python benchmarks/compile_growth.py --backend cpu --backend amd --program stores --sizes
    250,2000

Prints a line per program and backend: for each size the seconds from the Python function to code,
without the disk cache, and the growth: the time of the longest program divided by the time of the
shortest one, relative to the ratio of their lengths. The reference backend generates no code; its
time covers the frontend, the passes and the interpretation of one program. Each backend runs in a
process of its own, after a warm-up with short kernels of the same programs. Short compilations are
repeated, and the minimum counts.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tilewright as tw
import tilewright.language as tl

ROOT = Path(__file__).resolve().parents[1]
#: Repeat a compilation until this many seconds have passed, three times at most.
ENOUGH = 2.0
#: Maximum growth per repetition that counts as linear.
LINEAR = 1.2


@tw.jit
def elementwise(x, out, k, COUNT: tl.constexpr):
    lanes = tl.arange(0, 64)
    v = tl.load(x + lanes)
    a = tl.load(x + 64 + lanes)
    for _ in tl.static_range(COUNT // 2):
        v = v * a
        v = v + k
    tl.store(out + lanes, v)


@tw.jit
def reductions(x, out, k, COUNT: tl.constexpr):
    lanes = tl.arange(0, 64)
    v = tl.load(x + lanes)
    for _ in tl.static_range(COUNT):
        v = v + tl.sum(v)
    tl.store(out + lanes, v)


@tw.jit
def stores(x, out, k, COUNT: tl.constexpr):
    lanes = tl.arange(0, 64)
    v = tl.load(x + lanes)
    for i in tl.static_range(COUNT):
        tl.store(out + i * 64 + lanes, v + i)


@tw.jit
def branches(x, out, k, COUNT: tl.constexpr):
    lanes = tl.arange(0, 64)
    v = tl.load(x + lanes)
    for i in tl.static_range(COUNT):
        if k > i:
            tl.store(out + i * 64 + lanes, v + i)


@tw.jit
def products(x, out, k, COUNT: tl.constexpr):
    i = tl.arange(0, 16)
    at = i[:, None] * 16 + i[None, :]
    a = tl.load(x + at)
    v = a
    for _ in tl.static_range(COUNT):
        v = tl.dot(v, a)
    tl.store(out + at, v)


@tw.jit
def scans(x, out, k, COUNT: tl.constexpr):
    lanes = tl.arange(0, 64)
    v = tl.load(x + lanes)
    for _ in tl.static_range(COUNT):
        v = tl.cumsum(v, 0)
    tl.store(out + lanes, v)


@tw.jit
def pointers(x, out, k, COUNT: tl.constexpr):
    p = x + tl.arange(0, 64)
    for _ in tl.static_range(COUNT):
        p = p + k
    tl.store(out + tl.arange(0, 64), tl.load(p))


#: program -> (kernel, sizes)
PROGRAMS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "elementwise": (elementwise, (250, 500, 1000, 2000)),
    "reductions": (reductions, (250, 500, 1000)),
    "stores": (stores, (250, 500, 1000, 2000, 5000)),
    "branches": (branches, (250, 500, 1000)),
    "products": (products, (125, 250, 500)),
    "scans": (scans, (125, 250, 500)),
    "pointers": (pointers, (250, 500, 1000)),
}


@dataclass(frozen=True)
class Place:
    """A backend, by name, and a target architecture; None for that of its first device."""

    backend: str
    architecture: str = ""


PLACES = {
    "cpu": Place("cpu"),
    "nvidia": Place("nvidia", "sm_90a"),
    "amd": Place("amd", "gfx942"),
    "c": Place("c"),
    "reference": Place("reference"),
}


def cpu_seconds() -> float:
    """Return the CPU time of this process and of its children that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def compilation(kernel: Any, place: Place, count: int) -> Callable[[], object]:
    """Return a function that compiles a kernel anew, or runs it on the reference backend."""
    from tilewright.plugins.registry import registry
    from tilewright.runtime.compiler.compile import Specialization, compile_kernel
    from tilewright.runtime.devices import device_registry
    from tilewright.runtime.storage.disk_cache import disk_cache
    from tilewright.tools.inspect import resolved_options

    if place.backend == "reference":
        import numpy as np

        x, out = np.zeros(1 << 16, np.float32), np.zeros(64 * count + 256, np.float32)

        def run() -> None:
            disk_cache().clear()
            kernel.clear_cache()
            kernel[(1,)](x, out, 7, COUNT=count)

        return run
    backend = registry().get(place.backend)
    target = (
        device_registry.named_target(backend, place.architecture)
        if place.architecture
        else device_registry.target_of(backend, device_registry.find(backend, None))
    )
    types = {"x": "*fp32", "out": "*fp32", "k": "i32", "COUNT": "constexpr"}
    facts = {"x": {"divisibility": 16}, "out": {"divisibility": 16}}
    specialization = Specialization(
        kernel, types, {"COUNT": count}, facts, resolved_options(backend, kernel.__name__, {})
    )
    return lambda: compile_kernel(specialization, backend, target, anew=True)


def seconds_of(call: Callable[[], object]) -> float:
    """Return the minimum CPU time of several calls."""
    taken: list[float] = []
    while len(taken) < 3 and sum(taken) < ENOUGH:
        started = cpu_seconds()
        call()
        taken.append(cpu_seconds() - started)
    return min(taken)


def child(name: str, sizes: dict[str, list[int]]) -> None:
    """Measure one backend, and print a JSON line for each program.

    A line has the program's name, and the seconds by size or the error that was raised.
    """
    place = PLACES[name]
    if place.backend == "c":
        sys.path.insert(0, str(ROOT / "examples" / "backend_c" / "src"))
        import tilewright_c.plugin

        from tilewright.plugins.registry import registry

        registry().register(tilewright_c.plugin, "c")
    for program, counts in sizes.items():
        kernel = PROGRAMS[program][0]
        found: dict[int, float] = {}
        failure = ""
        try:
            compilation(kernel, place, 20)()
            for count in counts:
                found[count] = seconds_of(compilation(kernel, place, count))
        except Exception as error:
            failure = f"{type(error).__name__}: {str(error).partition(chr(10))[0]:.160}"
        print(json.dumps([program, found, failure]), flush=True)


def line(program: str, name: str, found: dict[int, float], failure: str) -> str:
    """Format one line of the table."""
    cells = " ".join(f"{count:>5}:{taken:7.3f}" for count, taken in found.items())
    if failure:
        return f"{program:<12} {name:<10} {cells}  {failure}"
    first, *_, last = found.items()
    growth = last[1] / first[1] * first[0] / last[0]
    return (
        f"{program:<12} {name:<10} {cells}  growth "
        f"{growth:.2f}{'' if growth <= LINEAR else ', MORE than linear'}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").partition("\n\n")[0],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--backend",
        action="append",
        choices=PLACES,
        help="measure this backend; may be given several times; all of them without it",
    )
    parser.add_argument(
        "--program",
        action="append",
        choices=PROGRAMS,
        help="measure this program; may be given several times; all of them without it",
    )
    parser.add_argument(
        "--sizes", help="how often the statement is repeated, N,N,...; a program's own without it"
    )
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    given = [int(size) for size in options.sizes.split(",")] if options.sizes else None
    sizes = {
        program: given or list(PROGRAMS[program][1]) for program in options.program or PROGRAMS
    }
    if options.child:
        child(options.child, sizes)
        return
    print("seconds of CPU time by repetitions")
    for name in options.backend or PLACES:
        arguments = [
            *(word for program in sizes for word in ("--program", program)),
            *(("--sizes", options.sizes) if options.sizes else ()),
        ]
        with tempfile.TemporaryDirectory(prefix="tilewright-bench-") as cache:
            environment = {**os.environ, "TILEWRIGHT_CACHE_DIR": cache}
            if PLACES[name].backend == "reference":
                environment["TILEWRIGHT_BACKEND"] = "reference"
            command = [sys.executable, __file__, "--child", name, *arguments]
            with subprocess.Popen(
                command, stdout=subprocess.PIPE, env=environment, text=True
            ) as measured:
                assert measured.stdout is not None
                for text in measured.stdout:
                    program, found, failure = json.loads(text)
                    print(
                        line(
                            program,
                            name,
                            {int(count): taken for count, taken in found.items()},
                            failure,
                        ),
                        flush=True,
                    )
                if measured.wait():
                    print(f"{name}: the process ended with status {measured.returncode}")


if __name__ == "__main__":
    main()
