"""The backend's part in tuning: its timer, pruning, estimates and proposals."""

from __future__ import annotations

import functools
import math
import statistics
from typing import Any

import numpy as np

import tilewright as tw
import tilewright.language as tl
from tilewright.runtime.compiler.compile import build_module
from tilewright.testing import do_bench
from tilewright_conformance.cases.autotune.autotune.searched_kernels import (
    CONFIGS,
    TIMES,
    Bench,
    run,
    tuned,
)
from tilewright_conformance.suite.session import Session
from tilewright_conformance.testlib.case_table import Table, elements

CASES = Table("autotune", "autotune", "Python and NumPy")


@tw.jit
def spin(out, LOOPS: tl.constexpr, BLOCK: tl.constexpr):
    state = tl.arange(0, BLOCK).to(tl.uint32)
    for _ in range(LOOPS):
        state = (state * 1664525 + 1013904223) ^ (state >> 13)
    tl.store(out + tl.arange(0, BLOCK), state)


def _spun(loops: int, block: int) -> np.ndarray[Any, Any]:
    state = np.arange(block, dtype=np.uint32)
    for _ in range(loops):
        state = (state * np.uint32(1664525) + np.uint32(1013904223)) ^ (state >> np.uint32(13))
    return state


#: Iterations whose times are not to be confused, not even by a poor clock on a busy machine, and
#: the elements of their tile.
_LONG, _SHORT = 4000, 4
_SPUN = 4096


@CASES("timer", "tilewright_timer", needs=elements("u32", tile=_SPUN), quick=True)
def the_timer_measures_every_repetition(session: Session) -> None:
    backend, device = session.subject.backend, session.subject.device
    out, place = np.zeros(_SPUN, np.uint32), session.placement()
    placed, times = place(out), dict[int, float]()
    for loops in (_LONG, _SHORT):
        calls: list[int] = []

        def call(loops: int = loops, calls: list[int] = calls) -> None:
            calls.append(loops)
            with session.use():
                spin[(1,)](placed, LOOPS=loops, BLOCK=_SPUN)

        call()
        calls.clear()
        if backend.implements("tilewright_timer"):
            timer = backend.call("tilewright_timer", device=device)
            found = list(timer.measure(call, 5))
            timer.flush_cache()
            session.require(
                len(calls) == len(found) == 5,
                f"5 repetitions were asked for; {len(calls)} calls were made and "
                f"{len(found)} times given",
            )
            session.require(
                all(math.isfinite(time) and time >= 0 for time in found),
                f"times are finite numbers of milliseconds, not {found}",
            )
        else:
            with session.use():
                found = do_bench(
                    call, n_warmup=1, n_repeat=5, return_mode="all", backend=session.backend
                )
        times[loops] = statistics.median(found)
    place.fetch()
    session.check(out, _spun(_SHORT, _SPUN))
    session.require(
        times[_LONG] > times[_SHORT],
        f"{_LONG} iterations took {times[_LONG]} ms, and {_SHORT} took {times[_SHORT]} ms",
    )


@CASES("timer/choice", "autotune", needs=elements("u32", tile=_SPUN), quick=True)
def the_clock_tells_the_fast_from_the_slow(session: Session) -> None:
    """By the backend's own timer, the slow configuration first."""
    configs = [tw.Config({"LOOPS": loops}) for loops in (_LONG, _SHORT)]
    kernel = tw.autotune(
        configs,
        ["BLOCK"],
        do_bench=functools.partial(do_bench, n_warmup=1, n_repeat=7),
        cache_results=False,
    )(tw.jit(spin.fn))
    out = np.zeros(_SPUN, np.uint32)
    session.launch(kernel, (1,), out, BLOCK=_SPUN)
    session.check(out, _spun(_SHORT, _SPUN))
    session.require(
        kernel.best_config is configs[1],
        f"the best is {kernel.best_config}, by {kernel.configs_timings}",
    )


@CASES("backend/prune", "tilewright_prune", needs=elements(tile=64), quick=True)
def the_backend_rules_out_what_cannot_fit(session: Session) -> None:
    """Of what it is offered some is left, in its own words, and small configurations always fit."""
    backend = session.subject.backend
    offered = [config.all_kwargs() for config in CONFIGS]
    if backend.implements("tilewright_prune"):
        works = [None] * len(offered)
        kept = backend.call(
            "tilewright_prune",
            configurations=offered,
            target=session.subject.target,
            arguments={"n": 64},
            works=works,
        )
        session.require(
            kept is None or (len(kept) > 0 and all(dict(one) in offered for one in kept)),
            f"of {offered} the backend keeps {kept}",
        )
    bench = Bench()
    run(session, tuned(bench), bench)
    session.require(bench.measured == set(TIMES), "blocks of a few elements fit every target")


@CASES("backend/cost", "tilewright_cost", needs=elements(tile=64), quick=True)
def the_backend_estimates_costs(session: Session) -> None:
    """Each configuration has a finite cost, the same in each call; or the backend has no costs."""
    backend = session.subject.backend
    for config in (
        *CONFIGS,
        tw.Config({"BLOCK_M": 64, "BLOCK_N": 128, "BLOCK_K": 32}, num_warps=8),
    ):
        for _ in range(2 if backend.implements("tilewright_cost") else 0):
            cost = backend.call(
                "tilewright_cost",
                configuration=config.all_kwargs(),
                target=session.subject.target,
                arguments={"n": 64},
                work=None,
            )
            session.require(
                cost is None or math.isfinite(cost), f"the cost of [{config}] is {cost}"
            )
    bench = Bench()
    kernel = tuned(bench)
    run(session, kernel, bench)
    session.require(
        kernel.best_config is CONFIGS[1], "an estimate orders the trials, and does not choose"
    )


@tw.jit
def sum_row(x, out, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    tl.store(out + row, tl.sum(tl.load(x + row * n + offsets, mask=offsets < n, other=0.0), axis=0))


@CASES("backend/space", "tilewright_tuning_space", needs=elements("f32", tile=64), quick=True)
def the_backend_proposes_configurations(session: Session) -> None:
    """Run each configuration that the backend proposes for a kernel without any."""
    x, out = session.rng.integers(-8, 9, (5, 50)).astype(np.float32), np.zeros(5, np.float32)
    times = iter(range(1000))
    kernel = tw.autotune(
        do_bench=lambda call, quantiles: [call() or float(next(times))] * 3, cache_results=False
    )(tw.jit(sum_row.fn))
    for _ in range(2):
        session.launch(kernel, (5,), x, out, 50, BLOCK=64)
        session.check(out, x.sum(1), zero_sign=False)
    backend = session.subject.backend
    if not backend.implements("tilewright_tuning_space"):
        return
    compiled = session.launch(sum_row, (5,), x, out, 50, BLOCK=64)
    module = build_module(compiled.src, backend, session.subject.target)
    for options in (
        backend.call("tilewright_tuning_space", module=module, target=session.subject.target) or ()
    ):
        out[:] = 99
        session.launch(sum_row, (5,), x, out, 50, BLOCK=64, **options)
        session.check(out, x.sum(1), name=f"with {dict(options)}", zero_sign=False)
