"""Alternate between a kernel and a PyTorch operation, to detect whether they slow each other down.

Both use two threads of the same OpenMP runtime if PyTorch is loaded, so that idle threads of one do
not spin on the processors of the other. For each pair of a kernel and an operation, there are
rounds of the kernel alone, of the operation alone, and of both in alternation. The output is the
median time of each in microseconds, and the time of the alternation divided by the sum of both
alone. Every launch increments counters in memory, and every result of the operation must equal the
first one: a lost launch, or a launch that wrote into a running operation's result, ends the program
with an error.

    alternation.py                          100 000 alternations of each pair
    alternation.py --turns 10000 --threads 2
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import tilewright as tw
import tilewright.language as tl

#: Alternations per round: long enough for the clock, and short enough that the three contenders run
#: under the same conditions.
_ROUND = 200

#: Maximum time of the alternation, relative to the sum of both alone.
LIMIT = 1.2


@tw.jit
def count_kernel(x_ptr, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < n
    tl.store(x_ptr + places, tl.load(x_ptr + places, mask=inside) + 1, mask=inside)


class Counter:
    """A kernel that counts its launches in an array."""

    def __init__(self, elements: int, block: int = 1024) -> None:
        self.counts, self.launches, self._grid, self._block = (
            np.zeros(elements, np.int32),
            0,
            (tw.cdiv(elements, block),),
            block,
        )

    def __call__(self) -> None:
        count_kernel[self._grid](self.counts, self.counts.size, BLOCK=self._block)
        self.launches += 1

    def check(self) -> None:
        if not (self.counts == self.launches).all():
            raise SystemExit(
                f"{(self.counts != self.launches).sum()} elements do not hold {self.launches}, "
                "the launches"
            )


class Rival:
    """A PyTorch operation into its own memory, whose result never changes."""

    def __init__(self, torch: Any, call: Callable[[Any], object], out: Any) -> None:
        self._torch, self._call, self._out = torch, call, out
        self()
        self._first = out.clone()

    def __call__(self) -> None:
        self._call(self._out)

    def check(self) -> None:
        if not self._torch.equal(self._out, self._first):
            raise SystemExit("an operation of PyTorch's has another result than at first")
        self._out.zero_()


def rivals(torch: Any) -> dict[str, Rival]:
    def product(n: int, kind: Any) -> Rival:
        a, b = (torch.randn(n, n).to(kind) for _ in range(2))
        return Rival(torch, lambda out: torch.mm(a, b, out=out), torch.empty(n, n, dtype=kind))

    x, y = torch.randn(2, 1 << 16)
    rows = torch.randn(256, 256)
    return {
        "add of 65536 f32": Rival(
            torch, lambda out: torch.add(x, y, out=out), torch.empty(1 << 16)
        ),
        "softmax of 256 x 256": Rival(
            torch, lambda out: torch.softmax(rows, 1, out=out), torch.empty(256, 256)
        ),
        "bf16 product of 64 cubed": product(64, torch.bfloat16),
        "bf16 product of 256 cubed": product(256, torch.bfloat16),
        "f32 product of 128 cubed": product(128, torch.float32),
    }


def seconds(repetitions: int, *calls: Callable[[], object]) -> float:
    """Return the seconds that one call of each function takes."""
    began = time.perf_counter()
    for _ in range(repetitions):
        for call in calls:
            call()
    return (time.perf_counter() - began) / repetitions


def measure(kernel: Counter, rival: Rival, turns: int) -> tuple[float, float, float]:
    """Return the median seconds of the kernel, of the operation, and of both in alternation.

    Results are checked after every round.
    """
    found: list[tuple[float, float, float]] = []
    for _ in range(max(1, turns // _ROUND)):
        found.append(
            (seconds(_ROUND, kernel), seconds(_ROUND, rival), seconds(_ROUND, kernel, rival))
        )
        kernel.check()
        rival.check()
    alone, other, both = (statistics.median(column) for column in zip(*found, strict=True))
    return alone, other, both


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--turns", type=int, default=100_000, help="turns of each pair")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    for name in ("TILEWRIGHT_NUM_THREADS", "OMP_NUM_THREADS"):
        os.environ[name] = str(options.threads)
    try:
        import torch
    except ImportError:
        raise SystemExit("this needs PyTorch") from None
    torch.set_num_threads(options.threads)
    worst = 0.0
    for elements in (1024, 1 << 16):
        for name, rival in rivals(torch).items():
            alone, other, both = measure(Counter(elements), rival, options.turns)
            ratio = both / (alone + other)
            worst = max(worst, ratio)
            parts = (
                f"kernel of {elements:5d} {alone * 1e6:7.2f} us, {name:26s} {other * 1e6:7.2f} us"
            )
            print(f"{parts}, in turns {both * 1e6:7.2f} us: {ratio:.2f} of the sum", flush=True)
    print(f"worst: {worst:.2f} of the sum, {'within' if worst <= LIMIT else 'beyond'} {LIMIT}")


if __name__ == "__main__":
    main()
