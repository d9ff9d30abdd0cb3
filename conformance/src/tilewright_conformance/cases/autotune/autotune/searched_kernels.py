"""A kernel to tune, its configurations, and a clock with fixed times; the kernel really runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import tilewright as tw
import tilewright.language as tl
from tilewright_conformance.suite.session import Session


@tw.jit
def add_block(x, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + offsets, tl.load(x + offsets, mask=offsets < n) + BLOCK, mask=offsets < n)


#: milliseconds of each BLOCK
TIMES = {8: 3.0, 16: 1.0, 32: 2.0, 64: 4.0}
CONFIGS = tuple(tw.Config({"BLOCK": block}) for block in TIMES)


class Bench:
    """A mock clock, which runs the call once and takes the time from a table.

    The key is the BLOCK that was launched last, which ``grid`` has seen.
    """

    def __init__(self, times: Mapping[int, float] = TIMES) -> None:
        self.times, self.calls, self.launched = dict(times), 0, list[int]()

    def grid(self, meta: Mapping[str, Any]) -> tuple[int]:
        self.launched.append(meta["BLOCK"])
        return (tw.cdiv(meta["n"], meta["BLOCK"]),)

    def __call__(self, call: Any, quantiles: Sequence[float]) -> list[float]:
        self.calls += 1
        call()
        return [self.times[self.launched[-1]]] * len(quantiles)

    @property
    def measured(self) -> set[int]:
        """The blocks that were launched since it was last asked."""
        found = set(self.launched)
        self.launched.clear()
        return found


def tuned(
    bench: Bench,
    kernel: Any = add_block,
    configs: Sequence[Any] = CONFIGS,
    key: Sequence[str] = ("n",),
    **options: Any,
) -> Any:
    """A tuner of its own, which keeps nothing on disk."""
    return tw.autotune(
        configs=list(configs), key=list(key), do_bench=bench, **{"cache_results": False, **options}
    )(tw.jit(kernel.fn))


def run(session: Session, kernel: Any, bench: Bench, n: int = 64, dtype: Any = np.int32) -> Any:
    """Launch once, and demand that every element has the launch's addition alone.

    Trials of configurations must leave nothing behind.
    """
    x = np.zeros(n, dtype)
    found = session.launch(kernel, bench.grid, x, n)
    session.check(
        x, np.full(n, bench.launched[-1]).astype(dtype), name="what the chosen configuration adds"
    )
    return found
