"""Measure the overhead of tuning trials on a CPU, against a bound of 20 kernel times and 50 ms.

    python benchmarks/cpu/tuning.py
    python benchmarks/cpu/tuning.py --kernel matmul
    python benchmarks/cpu/tuning.py --processor-time        on a machine with other load

Twenty kernels, which take from a microsecond to tens of milliseconds, are each tuned over several
configurations. Each trial prints a line: the kernel's time, the number of its runs, the time from
the first run of the trial to the first run of the next one (with flushes, restored values and the
tuner's own work), the bound, and the ratio of both. A kernel's first line also has the time before
it, which is the compilation of all configurations. The exit code is 1 if the trials of a kernel
took more than 1.1 times their bounds.

With ``--processor-time``, kernels run on one thread, and every clock, including the tuner's own,
measures the processor time of this process.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import starmap
from pathlib import Path
from typing import Any

import numpy as np

import tilewright as tw
import tilewright.language as tl
from tilewright_conformance.kernels.exact_kernels import matmul_tiled
from tilewright_conformance.kernels.invariant_kernels import softmax

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))
from kernels.vector_add import add_kernel

#: Bound of a trial: a multiple of the kernel's time, and milliseconds.
TIMES, MILLISECONDS = 20, 50.0
#: Tolerance for all trials of a kernel, for instance for garbage collection.
TOLERANCE = 1.1


@tw.jit
def scale(x, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(x + offsets, tl.load(x + offsets, mask=mask) * 0.5, mask=mask)


@tw.jit
def row_sums(x, out, columns, BLOCK: tl.constexpr):
    row, total = tl.program_id(0), tl.zeros([BLOCK], tl.float32)
    for start in range(0, columns, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        total += tl.load(x + row * columns + offsets, mask=offsets < columns, other=0.0)
    tl.store(out + row, tl.sum(total, axis=0))


@dataclass
class Case:
    """A kernel at one size.

    Attributes:
        arguments: the arguments of a launch.
        key: the parameters whose values select the configuration.
        settings: the settings of each configuration.
    """

    name: str
    kernel: Any
    arguments: Callable[[], tuple[Any, ...]]
    key: list[str]
    grid: Callable[[dict[str, Any]], tuple[int, ...]]
    settings: list[dict[str, int]]


def floats(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape, np.float32)


BLOCKS = [{"BLOCK": block} for block in (256, 1024, 4096)]
TILES = [
    {"BM": m, "BN": n, "BK": k}
    for m, n, k in ((16, 64, 32), (32, 32, 64), (64, 64, 64), (64, 128, 128))
]


def blocks_of_n(given: dict[str, Any]) -> tuple[int, ...]:
    return (tw.cdiv(given["n"], given["BLOCK"]),)


def addition(n: int) -> Case:
    return Case(
        f"add {n}",
        add_kernel,
        lambda: (floats(n), floats(n), floats(n), n),
        ["n"],
        blocks_of_n,
        BLOCKS,
    )


def scaling(n: int) -> Case:
    return Case(f"scale in place {n}", scale, lambda: (floats(n), n), ["n"], blocks_of_n, BLOCKS)


def softmax_of(rows: int, columns: int) -> Case:
    widths = [{"ROWS": count, "BLOCK": 1 << (columns - 1).bit_length()} for count in (1, 4, 16)]
    arguments = lambda: (floats(rows, columns), floats(rows, columns), rows, columns)  # noqa: E731
    return Case(
        f"softmax {rows} x {columns}",
        softmax,
        arguments,
        ["N"],
        lambda given: (tw.cdiv(rows, given["ROWS"]),),
        widths,
    )


def sums(rows: int, columns: int) -> Case:
    return Case(
        f"sums of {rows} x {columns}",
        row_sums,
        lambda: (floats(rows, columns), floats(rows), columns),
        ["columns"],
        lambda given: (rows,),
        BLOCKS,
    )


def product(n: int) -> Case:
    arguments = lambda: (floats(n, n), floats(n, n), floats(n, n), n, n, n)  # noqa: E731
    return Case(
        f"matmul {n}",
        matmul_tiled,
        arguments,
        ["M"],
        lambda given: (tw.cdiv(n, given["BM"]) * tw.cdiv(n, given["BN"]),),
        TILES,
    )


def cases() -> list[Case]:
    return [
        *map(addition, (64, 1 << 12, 1 << 16, 1 << 20, 1 << 24)),
        *map(scaling, (1 << 10, 1 << 18, 1 << 22, 1 << 25)),
        *starmap(softmax_of, ((16, 64), (256, 1000), (8192, 2048))),
        *starmap(sums, ((1, 4096), (1024, 4096), (8192, 8192))),
        *map(product, (32, 100, 256, 500, 1024)),
    ]


@dataclass
class Runs:
    """Start times of the runs of each configuration, in the order of the trials."""

    began: list[tuple[int, float]] = field(default_factory=list)

    def hook(self, number: int) -> Callable[[dict[str, Any]], None]:
        return lambda given: self.began.append((number, time.perf_counter()))

    def trials(self) -> list[tuple[int, int, float]]:
        """Return (configuration, runs, milliseconds until the next trial) of each trial.

        The very last run is the launch itself.
        """
        found: list[tuple[int, int, float]] = []
        *tried, (_, end) = self.began
        starts = [
            place
            for place, (number, _) in enumerate(tried)
            if place == 0 or tried[place - 1][0] != number
        ]
        for place, after in zip(starts, [*starts[1:], len(tried)], strict=True):
            until = tried[after][1] if after < len(tried) else end
            found.append((tried[place][0], after - place, (until - tried[place][1]) * 1e3))
        return found


def measure(case: Case) -> float:
    """Print the trials of a kernel, and return their time relative to their bounds."""
    runs = Runs()
    configs = [
        tw.Config(setting, pre_hook=runs.hook(number))
        for number, setting in enumerate(case.settings)
    ]
    kernel = tw.autotune(configs, case.key, mode="memory")(tw.jit(case.kernel.fn))
    arguments = case.arguments()
    started = time.perf_counter()
    kernel[case.grid](*arguments)
    before = f"{(runs.began[0][1] - started) * 1e3:10.0f}"
    total = bounds = 0.0
    for number, count, taken in runs.trials():
        milliseconds = kernel.configs_timings[configs[number]][0]
        bound = TIMES * milliseconds + MILLISECONDS
        total, bounds = total + taken, bounds + bound
        settings = " ".join(f"{name}={value}" for name, value in case.settings[number].items())
        print(
            f"{case.name:22} {settings:20} {milliseconds:10.4f} {count:6} {taken:10.1f} "
            f"{bound:10.1f} {taken / bound:7.2f} {before}",
            flush=True,
        )
        before = ""
    return total / bounds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--kernel", default="", help="those whose name has this in it")
    parser.add_argument(
        "--processor-time",
        action="store_true",
        help="measure the time that processors gave this process",
    )
    given = parser.parse_args()
    if given.processor_time:
        os.environ["TILEWRIGHT_NUM_THREADS"] = "1"
        time.perf_counter, time.perf_counter_ns = time.process_time, time.process_time_ns
    with contextlib.redirect_stdout(io.StringIO()):
        measure(addition(100))  # a warm-up of the process
    print(
        f"{'kernel':22} {'configuration':20} {'kernel ms':>10} {'runs':>6} {'trial ms':>10} "
        f"{'bound ms':>10} {'ratio':>7} {'before ms':>10}"
    )
    ratios = [measure(case) for case in cases() if given.kernel in case.name]
    print(
        f"the greatest ratio of all trials of a kernel, of {len(ratios)} kernels: "
        f"{max(ratios, default=0.0):.2f}"
    )
    return 1 if any(ratio > TOLERANCE for ratio in ratios) else 0


if __name__ == "__main__":
    sys.exit(main())
