"""Speed of a backend: figures for the report, and loose demands.

Demands hold on a busy machine and fail where something is wrong. Everything is timed by the wall
clock around launches and a synchronization; results are checked too. A demand gets several tries,
and the figures of the last one are kept.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

import tilewright as tw
from tilewright.runtime.devices.timing import do_bench, timer_of
from tilewright_conformance.kernels import matrices, tiles
from tilewright_conformance.kernels import speed as kernels
from tilewright_conformance.oracles import matrix
from tilewright_conformance.oracles import rowwise as oracles
from tilewright_conformance.suite.case import Case, Needs
from tilewright_conformance.suite.session import Session

Array = np.ndarray[Any, Any]
Launch = Callable[[], Any]
#: Figures of one try, and what is wrong with them ("" where nothing is).
Verdict = tuple[Mapping[str, float], str]

#: Seconds of work that a figure is taken from, at least; the launch costs nothing beside it.
_MINIMUM_TIME = 2e-3
_ROUNDS, _TRIES = 5, 6
#: Seconds of one launch after which no larger size is tried, and of all tries of a demand after
#: which there is no other.
_PATIENCE, _ENOUGH = 0.1, 20.0
#: Bytes of the largest array: a fast machine takes some ten times a launch's own cost for it.
#: Slower ones stop before.
_MAXIMUM_SIZE = 1 << 28


def cases() -> Iterator[Case]:
    for name in ("copy", "add", "softmax", "transpose"):
        yield _case(
            f"bandwidth/{name}",
            functools.partial(_bandwidth, name),
            quick=name in ("copy", "softmax"),
        )
    yield _case("bandwidth/contiguous_and_strided", _strided, quick=True)
    yield _case("scaling/twice_the_work", _twice, quick=True)
    yield _case("scaling/programs_side_by_side", _programs)
    for type_ in ("f16", "f32"):
        yield _case(
            f"matmul/{type_}",
            functools.partial(_matmul, type_),
            f"f32 {type_}",
            {(type_, "f32")},
            quick=type_ == "f16",
        )
    yield _case("matmul/dot_and_sum", _dot_and_sum, "f32", {("f32", "f32")}, quick=True)
    yield _case("launch/arguments", _launches, quick=True)
    yield _case("launch/cold_disk_and_warm", _first_launch, quick=True)
    yield _case("timer/repetitions_and_work", _timer, quick=True)
    yield _case("timer/do_bench", _bench)
    yield _case("autotune/finds_the_faster", _tuning, quick=True)


def _case(
    id_: str,
    body: Callable[[Session], None],
    dtypes: str = "f32",
    dot: Any = (),
    *,
    quick: bool = False,
) -> Case:
    needs = Needs(
        frozenset(dtypes.split()),
        frozenset(dot),
        dot_shape=(64, 64, 32) if dot else None,
        tile_elements=1 << 15,
    )
    return Case(
        f"perf/{id_}",
        "perf",
        id_.partition("/")[0],
        body,
        needs,
        time_limit=120.0,
        quick=quick,
        alone=True,
        source="the wall clock",
    )


# ---- measuring


def seconds(session: Session, launch: Launch) -> float:
    """Time of one launch: the minimum over rounds of launches that each take a while.

    Other work of the machine only adds to it.
    """
    return in_turns(session, launch)[0]


def in_turns(session: Session, *launches: Launch) -> list[float]:
    """:func:`seconds` of several launches, measured in alternating rounds."""
    counts = []
    for launch in launches:
        launch()  # which compiles
        session.synchronize()
        once = max(_timed(session, launch, 1), 1e-7)
        counts.append(min(1000, max(1, math.ceil(_MINIMUM_TIME / once))))
    rounds = [
        [
            _timed(session, launch, count) / count
            for launch, count in zip(launches, counts, strict=True)
        ]
        for _ in range(_ROUNDS)
    ]
    return [min(each) for each in zip(*rounds, strict=True)]


def _timed(session: Session, launch: Launch, count: int) -> float:
    started = time.perf_counter()
    for _ in range(count):
        launch()
    session.synchronize()
    return time.perf_counter() - started


def demand(session: Session, attempt: Callable[[], Verdict]) -> None:
    """Try until nothing is wrong; keep the figures, and demand that a try went well."""
    started, tries, wrong = time.perf_counter(), 0, "nothing was tried"
    while wrong and tries < _TRIES and (tries < 2 or time.perf_counter() - started < _ENOUGH):
        tries += 1
        figures, wrong = attempt()
        session.note(**figures)
    session.require(not wrong, f"{wrong}, in each of {tries} tries")


def _sized(session: Session, make: Callable[[int], Launch], size: int, maximum: int) -> int:
    """Return the first of ``size``, twice that and so on whose launch takes long enough to measure.

    If there is no time to try further sizes, it is the maximum tried.
    """
    compiled = False
    while True:
        launch = make(size)
        # a backend that skips what it has run before is slow the first time alone; the very first
        # launch compiles
        first = _timed(session, launch, 1)
        if (
            min(_timed(session, launch, 1) for _ in range(2)) > _MINIMUM_TIME
            or size >= maximum
            or (compiled and first > _PATIENCE)
        ):
            return size
        size, compiled = 2 * size, True


# ---- memory


def _bandwidth(name: str, session: Session) -> None:
    """Bytes moved in a second.

    Twice the rows take at least 1.2 times as long, and not much more than leaving a cache explains.
    """
    with session.use():
        columns = 1024

        def make(rows: int) -> Callable[[], tuple[Launch, Callable[[], None]]]:
            return functools.partial(_MEMORY[name], session, rows, columns)

        small = _sized(session, lambda rows: make(rows)()[0], 64, _MAXIMUM_SIZE // (4 * columns))
        small = max(small // 2, 32)
        (launch, check), (twice, check_twice) = make(small)(), make(2 * small)()

        def attempt() -> Verdict:
            one, two = in_turns(session, launch, twice)
            moved = _ARRAYS[name] * 4 * 2 * small * columns
            return {"gigabytes_per_second": moved / two / 1e9, "ratio": two / one}, _twice_as_long(
                one, two, _MOST[name]
            )

        demand(session, attempt)
        check()
        check_twice()


def _twice_as_long(one: float, two: float, most: float = 4) -> str:
    return (
        ""
        if 1.2 <= two / one <= most
        else (
            f"twice the work took {two / one:.2f} times as long ({one * 1e6:.1f} and "
            f"{two * 1e6:.1f} microseconds)"
        )
    )


#: How many times as long twice the rows may take: the smaller array may lie in a cache that the
#: larger one does not fit. Columns of a matrix meet in few lines of a cache besides.
_MOST = {"copy": 12, "add": 12, "softmax": 6, "transpose": 40}
#: arrays that are read or written once, by subject
_ARRAYS = {"copy": 2, "add": 3, "softmax": 2, "transpose": 2}
Made = tuple[Launch, Callable[[], None]]


def _copying(session: Session, rows: int, columns: int, stride: int = 1) -> Made:
    n = rows * columns
    x, y = session.rng.random(n, dtype=np.float32), np.zeros(n, np.float32)
    place = session.placement()
    px, py = place(x), place(y)
    return lambda: kernels.copy[(n // 1024,)](px, py, n, stride, BLOCK=1024), _equal(
        session, place, y, lambda: x
    )


def _adding(session: Session, rows: int, columns: int) -> Made:
    n = rows * columns
    x, y, out = (
        session.rng.random(n, dtype=np.float32),
        session.rng.random(n, dtype=np.float32),
        np.zeros(n, np.float32),
    )
    place = session.placement()
    px, py, pout = place(x), place(y), place(out)
    return lambda: tiles.add[(n // 1024,)](px, py, pout, n, BLOCK=1024), _equal(
        session, place, out, lambda: x + y
    )


def _normalising(session: Session, rows: int, columns: int) -> Made:
    x, out = (
        session.rng.random((rows, columns), dtype=np.float32),
        np.zeros((rows, columns), np.float32),
    )
    place = session.placement()
    px, pout = place(x), place(out)

    def check() -> None:
        place.fetch()
        chosen = session.rng.integers(0, rows, 64)
        session.check(out[chosen], oracles.softmax(x[chosen]), rtol=2e-5)
        session.require(bool((abs(out.sum(1) - 1) < 1e-4).all()), "rows do not add up to one")

    return lambda: tiles.softmax[(rows,)](px, pout, columns, columns, columns, BLOCK=columns), check


def _transposing(session: Session, rows: int, columns: int) -> Made:
    rows, columns = (
        rows + 32,
        columns + 32,
    )  # no powers of two, for which the elements of a column share a place in caches
    x, out = (
        session.rng.random((rows, columns), dtype=np.float32),
        np.zeros((columns, rows), np.float32),
    )
    place = session.placement()
    px, pout = place(x), place(out)
    grid = (rows // 32, columns // 32)
    return lambda: tiles.transpose[grid](px, pout, rows, columns, BLOCK=32), _equal(
        session, place, out, lambda: x.T
    )


def _equal(
    session: Session, place: Any, found: Array, expected: Callable[[], Array]
) -> Callable[[], None]:
    """A check of an array that is too large to be compared in float64."""

    def check() -> None:
        place.fetch()
        session.require(
            np.array_equal(found, expected()), "the array is not what it should be, bit by bit"
        )

    return check


def _checked(
    session: Session, place: Any, found: Array, expected: Callable[[], tuple[Array, float]]
) -> Callable[[], None]:
    def check() -> None:
        place.fetch()
        wanted, rtol = expected()
        session.check(found, wanted, rtol=rtol)

    return check


_MEMORY: dict[str, Callable[..., Made]] = {
    "copy": _copying,
    "add": _adding,
    "softmax": _normalising,
    "transpose": _transposing,
}


def _strided(session: Session) -> None:
    """Demand that a contiguous copy is no slower than a strided one, or near the memory's speed.

    The strides are 64 bytes or more; near is a tenth of the speed of the memory's own copy.
    """
    with session.use():
        rows = _sized(
            session, lambda count: _copying(session, count, 1024)[0], 64, _MAXIMUM_SIZE // 4 // 4096
        )
        contiguous, check = _copying(session, rows, 1024)
        strided, check_strided = _copying(session, rows, 1024, 32)
        host = np.zeros(rows * 4096, np.uint8)
        buffer = session.subject.memory.allocate(host.nbytes, 256)

        def own_copy() -> None:
            session.subject.memory.copy_to_device(buffer, memoryview(host.data))

        def attempt() -> Verdict:
            near, far, own = in_turns(session, contiguous, strided, own_copy)
            figures = {
                "gigabytes_per_second": 2 * host.nbytes / near / 1e9,
                "strided_to_contiguous": far / near,
                "share_of_memory_copy": own / near,
            }
            if near <= far or own / near >= 0.1:
                return figures, ""
            return (
                figures,
                (
                    f"a contiguous copy took {near / far:.2f} times as long as a strided one and "
                    f"{near / own:.1f} times as long as the memory's own"
                ),
            )

        demand(session, attempt)
        check()
        check_strided()


# ---- arithmetic


def _working(session: Session, turns: int, programs: int = 16) -> Made:
    x, y = (
        session.rng.uniform(0, 4, programs * 256).astype(np.float32),
        np.zeros(programs * 256, np.float32),
    )
    place = session.placement()
    px, py = place(x), place(y)
    wanted = 2 + (x.astype(np.float64) - 2) * 0.5 ** min(turns, 1000)
    return lambda: kernels.work[(programs,)](px, py, turns, BLOCK=256), _checked(
        session, place, y, lambda: (wanted, 1e-6)
    )


def _turns(session: Session) -> int:
    """Turns whose launch takes at least a fixed multiple of a launch's own cost."""
    return _sized(session, lambda turns: _working(session, turns)[0], 64, 1 << 26)


def _twice(session: Session) -> None:
    with session.use():
        turns = _turns(session)
        (launch, check), (twice, check_twice), (fourfold, check_fourfold) = (
            _working(session, turns * factor) for factor in (1, 2, 4)
        )

        def attempt() -> Verdict:
            one, two, four = in_turns(session, launch, twice, fourfold)
            figures = {
                "turns": turns,
                "microseconds": one * 1e6,
                "ratio": two / one,
                "ratio_of_four": four / one,
            }
            return figures, _twice_as_long(one, two) or _twice_as_long(two, four)

        demand(session, attempt)
        check()
        check_twice()
        check_fourfold()


def _programs(session: Session) -> None:
    """Demand that 64 times the programs take at most 128 times as long.

    The ratio shows how many run in parallel.
    """
    with session.use():
        turns = max(_turns(session) // 8, 64)
        (few, check), (many, check_many) = (
            _working(session, turns, 16),
            _working(session, turns, 1024),
        )

        def attempt() -> Verdict:
            one, all_ = in_turns(session, few, many)
            figures = {"ratio_of_64": all_ / one}
            return (
                figures,
                ""
                if all_ / one <= 128
                else f"64 times the programs took {all_ / one:.1f} times as long",
            )

        demand(session, attempt)
        check()
        check_many()


def _multiplying(session: Session, type_: str, size: int, depth: int) -> Made:
    a, b = (
        matrix.spread(session.rng, type_, size, depth),
        matrix.spread(session.rng, type_, depth, size),
    )
    c = np.zeros((size, size), np.float32)
    place = session.placement()
    pa, pb, pc = place(a.given), place(b.given), place(c)
    options = {"PROGRAMS": 0, "GROUP": 4, "ACTIVATION": None, "BM": 64, "BN": 64, "BK": 32}
    grid = ((size // 64) ** 2,)

    def check() -> None:
        place.fetch()
        session.check(c, a.values @ b.values, atol=matrix.bound(a.values, b.values, 0.0, "f32"))

    return lambda: matrices.blocked_matmul[grid](pa, pb, pc, size, size, depth, **options), check


def _matmul(type_: str, session: Session) -> None:
    """Operations in a second; twice the depth takes 1.2 to 4 times as long."""
    with session.use():
        size = 1024
        depth = _sized(session, lambda own: _multiplying(session, type_, size, own)[0], 64, 8192)
        (launch, check), (twice, check_twice) = (
            _multiplying(session, type_, size, depth),
            _multiplying(session, type_, size, 2 * depth),
        )

        def attempt() -> Verdict:
            one, two = in_turns(session, launch, twice)
            return {
                "gigaflops": 2 * size**2 * 2 * depth / two / 1e9,
                "ratio": two / one,
            }, _twice_as_long(one, two)

        demand(session, attempt)
        check()
        check_twice()


def _dot_and_sum(session: Session) -> None:
    """``tl.dot`` is no slower than multiplying and adding up."""
    with session.use():
        size, depth, block = 128, 128, 32
        a, b = (
            matrix.spread(session.rng, "f32", size, depth),
            matrix.spread(session.rng, "f32", depth, size),
        )
        place = session.placement()
        pa, pb = place(a.given), place(b.given)
        results = [np.zeros((size, size), np.float32) for _ in range(2)]
        placed = [place(result) for result in results]
        grid = (size // block, size // block)
        dot, added = (
            functools.partial(
                kernels.matmul[grid], pa, pb, target, size, depth, DOT=kind, BLOCK=block
            )
            for kind, target in zip((True, False), placed, strict=True)
        )

        def attempt() -> Verdict:
            by_dot, by_sum = in_turns(session, dot, added)
            figures = {"sum_to_dot": by_sum / by_dot}
            return (
                figures,
                ""
                if by_dot <= 1.1 * by_sum
                else (
                    f"tl.dot took {by_dot / by_sum:.2f} times as long as multiplying and adding up"
                ),
            )

        demand(session, attempt)
        place.fetch()
        for result in results:
            session.check(
                result, a.values @ b.values, atol=matrix.bound(a.values, b.values, 0.0, "f32")
            )


# ---- launching


def _launches(session: Session) -> None:
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


def _first_launch(session: Session) -> None:
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


def _timer(session: Session) -> None:
    """Demand that the backend's timer calls as often as asked and returns a time for each.

    It must see twice the work as twice, near the time of the wall clock.
    """
    timer = timer_of(session.subject.backend, session.subject.device)
    with session.use():
        turns = _turns(session)
        (launch, check), (twice, check_twice) = (
            _working(session, turns),
            _working(session, 2 * turns),
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
            return figures, _twice_as_long(one, two)

        demand(session, attempt)
        check()
        check_twice()


def _bench(session: Session) -> None:
    """``do_bench`` tells eight times the work from once."""
    with session.use():
        turns = _turns(session)
        (launch, check), (longer, check_longer) = (
            _working(session, turns),
            _working(session, 8 * turns),
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


def _tuning(session: Session) -> None:
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
        slow = max(_turns(session), 100)

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
