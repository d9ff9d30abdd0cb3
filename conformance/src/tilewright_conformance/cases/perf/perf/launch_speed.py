"""Time of launches, first launches, timers and tuning."""

from __future__ import annotations

import contextlib
import os
import statistics
import tempfile
import time
from collections.abc import Iterator

import numpy as np

import tilewright as tw
from tilewright.runtime.devices.timing import do_bench, timer_of
from tilewright_conformance.cases.perf.perf.compute_speed import enough_turns, working_launch
from tilewright_conformance.cases.perf.perf.measuring import Launch, Verdict, demand, seconds
from tilewright_conformance.cases.perf.perf.memory_speed import twice_as_long
from tilewright_conformance.kernels import speed as kernels
from tilewright_conformance.suite.session import Session


def launch_times(session: Session) -> None:
    """Microseconds of a launch with 0, 10 and 32 arguments; more cost more, within reason."""
    with session.use():
        arrays = [np.zeros(8, np.int32) for _ in range(8)]
        place = session.placement()
        given = [place(array) for array in arrays]
        integers, floats = tuple(range(7, 25)), (0.5, 1.5, 2.5, 3.5, 4.5, 5.5)
        launches: dict[str, Launch] = {
            "0": lambda: kernels.nothing[(1,)](),
            "10": lambda: kernels.ten[(1,)](*given[:5], *integers[:5]),
            "32": lambda: kernels.many[(1,)](*given, *integers, *floats),
        }

        def attempt() -> Verdict:
            taken = {count: seconds(session, launch) * 1e6 for count, launch in launches.items()}
            figures = {f"microseconds_{count}_arguments": value for count, value in taken.items()}
            far = taken["32"] > 30 * taken["0"] + 200
            return (
                figures,
                f"32 arguments take {taken['32']:.1f} microseconds, and none {taken['0']:.1f}"
                if far
                else "",
            )

        demand(session, attempt)
        place.fetch()
        session.check(arrays[0][:1], np.array([sum(integers[:5])], np.int32))
        wanted = (
            integers[0] + integers[9] + integers[10] + integers[17] + int(floats[0] + floats[5])
        )
        session.check(arrays[7][:1], np.array([wanted], np.int32))


@contextlib.contextmanager
def _empty_cache() -> Iterator[None]:
    """A disk cache of its own for the block."""
    name = "TILEWRIGHT_CACHE_DIR"
    before = os.environ.get(name)
    with tempfile.TemporaryDirectory() as folder:
        os.environ[name] = folder
        try:
            yield
        finally:
            if before is None:
                del os.environ[name]
            else:
                os.environ[name] = before


def first_launch(session: Session) -> None:
    """Compile, load the code from disk, launch again: each is cheaper, the last 20 times."""
    x, y = session.rng.standard_normal(64, dtype=np.float32), np.zeros(64, np.float32)
    place = session.placement()
    px, py = place(x), place(y)
    with session.use(), _empty_cache():
        mark = 2.0

        def launch() -> float:
            started = time.perf_counter()
            kernels.long_to_compile[(1,)](px, py, 0, MARK=mark, BLOCK=64)
            session.synchronize()
            return time.perf_counter() - started

        def attempt() -> Verdict:
            nonlocal mark
            mark += 1.0
            kernels.long_to_compile.clear_cache()
            cold = launch()
            kernels.long_to_compile.clear_cache()
            disk = launch()
            warm = statistics.median(launch() for _ in range(20))
            figures = {
                "cold_milliseconds": cold * 1e3,
                "disk_milliseconds": disk * 1e3,
                "warm_microseconds": warm * 1e6,
            }
            if warm * 20 > cold:
                return (
                    figures,
                    (
                        f"a second launch took {warm * 1e3:.2f} ms where the first, which "
                        f"compiles, took {cold * 1e3:.2f} ms"
                    ),
                )
            return (
                figures,
                ""
                if disk < cold
                else (
                    f"a launch with the code on disk took {disk * 1e3:.1f} ms, and compiling "
                    f"{cold * 1e3:.1f} ms"
                ),
            )

        demand(session, attempt)
    place.fetch()
    session.check(y, x)


# ---- the timer, and what is chosen by it


def timer_speed(session: Session) -> None:
    """Demand that the backend's timer calls as often as asked and returns a time for each.

    It must see twice the work as twice, near the time of the wall clock.
    """
    timer = timer_of(session.subject.backend, session.subject.device)
    with session.use():
        turns = enough_turns(session)
        (launch, check), (twice, check_twice) = (
            working_launch(session, turns),
            working_launch(session, 2 * turns),
        )
        calls = 0

        def counted() -> None:
            nonlocal calls
            calls += 1
            launch()

        found = timer.measure(counted, 7)
        session.require(
            calls == 7 and len(found) == 7,
            f"7 repetitions were asked of the timer: it called {calls} times and gave "
            f"{len(found)} times",
        )
        timer.flush_cache()

        def attempt() -> Verdict:
            one, two = (statistics.median(timer.measure(own, 9)) * 1e-3 for own in (launch, twice))
            wall = seconds(session, launch)
            figures = {
                "timer_milliseconds": one * 1e3,
                "ratio": two / one if one else 0.0,
                "timer_to_wall": one / wall,
            }
            if not one > 0:
                return figures, f"the timer gave {one} s for a launch of {wall * 1e3:.2f} ms"
            if not 0.2 <= one / wall <= 5:
                return (
                    figures,
                    (
                        f"the timer gave {one * 1e3:.3f} ms for a launch that takes "
                        f"{wall * 1e3:.3f} ms by the wall clock"
                    ),
                )
            return figures, twice_as_long(one, two)

        demand(session, attempt)
        check()
        check_twice()


def bench_speed(session: Session) -> None:
    """``do_bench`` tells eight times the work from once."""
    with session.use():
        turns = enough_turns(session)
        (launch, check), (longer, check_longer) = (
            working_launch(session, turns),
            working_launch(session, 8 * turns),
        )

        def attempt() -> Verdict:
            short, long = (
                do_bench(
                    own,
                    warmup=5,
                    rep=30,
                    return_mode="median",
                    backend=session.backend,
                    time_limit=2,
                )
                for own in (launch, longer)
            )
            return (
                {
                    "milliseconds": short,
                    "ratio_of_eight": long / short,
                },
                ""
                if long > 2 * short
                else f"eight times the work took {long / short:.2f} times as long",
            )

        demand(session, attempt)
        check()
        check_longer()


def tuning_speed(session: Session) -> None:
    """Demand that tuning chooses the configuration with a hundredth of the work, though it is last.

    Later launches cost no more than the kernel's own.
    """
    programs = 16
    x, y = (
        session.rng.standard_normal(programs * 256, dtype=np.float32),
        np.zeros(programs * 256, np.float32),
    )
    place = session.placement()
    px, py = place(x), place(y)
    with session.use(), _empty_cache():
        slow = max(enough_turns(session), 100)

        def attempt() -> Verdict:
            configs = [tw.Config({"TURNS": turns}) for turns in (slow, slow // 100)]
            tuned = tw.autotune(configs=configs, key=[], cache_results=False)(kernels.worked)
            started = time.perf_counter()
            tuned[(programs,)](px, py, BLOCK=256)
            session.synchronize()
            first = time.perf_counter() - started
            later = seconds(session, lambda: tuned[(programs,)](px, py, BLOCK=256))
            plain = seconds(
                session, lambda: kernels.worked[(programs,)](px, py, TURNS=slow // 100, BLOCK=256)
            )
            figures = {
                "tuning_milliseconds": first * 1e3,
                "later_microseconds": later * 1e6,
                "plain_microseconds": plain * 1e6,
            }
            best = tuned.best_config
            chosen = best.kwargs["TURNS"] if best is not None else None
            if chosen != slow // 100:
                return figures, f"the tuner chose {chosen} turns over {slow // 100}"
            if later > 10 * plain + 2e-4:
                return (
                    figures,
                    (
                        f"a launch through the tuner takes {later * 1e6:.0f} microseconds, and one "
                        f"without it {plain * 1e6:.0f}"
                    ),
                )
            return (
                figures,
                ""
                if first > 2 * later
                else (
                    f"tuning took {first * 1e3:.2f} ms, and a launch after it {later * 1e3:.2f} ms"
                ),
            )

        demand(session, attempt)
    place.fetch()
    session.check(y, x + np.float32(1))
