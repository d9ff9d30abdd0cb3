"""Measuring configurations against each other, with a clock of the tests' own; budgets, estimates,
progress."""

import concurrent.futures
import io
import math
import time
from types import SimpleNamespace

import numpy as np
import pytest
from tuning_support import add_one

import tilewright as tw
import tilewright.language as tl
from tilewright.errors import AutotunerError, OutOfResources
from tilewright.plugins.hooks import hookimpl
from tilewright.plugins.manifest import Device
from tilewright.plugins.registry import registry
from tilewright.runtime import tuning_records
from tilewright.runtime.compiler import parallel_compile
from tilewright.runtime.tuning import progress, tuning_keys
from tilewright.runtime.tuning import successive_elimination as race_module
from tilewright.runtime.tuning.successive_elimination import race

BLOCKS = (8, 16, 32, 64)
CONFIGS = [tw.Config({"BLOCK": block}) for block in BLOCKS]


class Clock:
    """A timer that takes times from a list, over and over, and counts."""

    def __init__(self, *times):
        self.times, self.taken, self.flushed = times, 0, 0

    def measure(self, call, repetitions):
        found = []
        for _ in range(repetitions):
            call()
            found.append(self.times[self.taken % len(self.times)])
            self.taken += 1
        return found

    def flush_cache(self):
        self.flushed += 1


def test_the_first_is_measured_in_full():
    clock, calls = Clock(1.0, 2.0, 3.0), []
    assert race(clock, lambda: calls.append(1), None, warmup=6, rep=60) == pytest.approx(
        [2.0, 1.0, 3.0]
    )
    assert clock.taken == clock.flushed == 3 + 30 and len(calls) == clock.taken + 1


def test_what_is_hopeless_ends_after_three_times():
    clock = Clock(2.5, 9.0, 2.1)
    assert race(clock, lambda: None, [1.0, 0.9, 1.1])[0] == 2.5
    assert clock.taken == 3


def test_what_is_slower_beyond_doubt_ends_after_a_round():
    clock = Clock(1.2, 1.3)
    race(clock, lambda: None, [1.0, 0.9, 1.1], warmup=5, rep=1000)
    assert clock.taken == 10


@pytest.mark.parametrize("times", [(1.05, 1.3), (0.9,)])
def test_what_may_be_faster_is_measured_in_full(times):
    clock = Clock(*times)
    race(clock, lambda: None, [1.0, 0.9, 1.2], warmup=5, rep=200)
    assert sum(times) / len(times) * clock.taken >= 200


def test_times_of_nothing_end():
    clock = Clock(0.0)
    assert race(clock, lambda: None, None, warmup=1, rep=1) == [0.0, 0.0, 0.0]


class Simulated:
    """A timer on a machine where time passes as the tests say: so many milliseconds for a run of
    the kernel, and for a flush."""

    def __init__(self, monkeypatch, kernel, flush):
        self.kernel, self.flush, self.now, self.taken = kernel, flush, 0.0, 0
        monkeypatch.setattr(race_module.time, "perf_counter", lambda: self.now * 1e-3)

    def measure(self, call, repetitions):
        call()
        self.taken += 1
        return [self.kernel]

    def call(self):
        self.now += self.kernel

    def flush_cache(self):
        self.now += self.flush


@pytest.mark.each_value
@pytest.mark.parametrize("around", [0.0, 3.0])
@pytest.mark.parametrize("flush", [0.0, 0.2, 6.0, 12.0])
@pytest.mark.parametrize("kernel", [0.001, 0.07, 1.0, 4.0, 30.0, 700.0])
def test_a_trial_costs_little_more_than_its_kernel(monkeypatch, kernel, flush, around):
    """Its first run and what is done around it are of it."""
    timer = Simulated(monkeypatch, kernel, flush)
    began, timer.now = 0.0, around
    assert race(timer, timer.call, None, began=began, after=around)[0] == kernel
    assert timer.now + around <= 20 * kernel + 50
    assert timer.taken >= (3 if kernel < 50 else 1)
    if kernel <= 4 and flush == 0.2:
        assert timer.taken >= 13  # and what there is time for is used


def test_what_loading_a_kernel_takes_leaves_its_trial_as_long(monkeypatch):
    timer = Simulated(monkeypatch, 1.0, 1.0)
    calls = iter([400.0])

    def call():
        timer.now += next(calls, timer.kernel)

    race(timer, call, None)
    assert timer.now > 450


class RunsAhead:
    """A device whose kernel and flush take so many milliseconds, and a host that takes ``host()``
    of them to prepare a call."""

    def __init__(self, monkeypatch, kernel, flush, host):
        self.kernel, self.flush, self.host = kernel, flush, host
        self.now = self.busy_until = 0.0
        monkeypatch.setattr(race_module.time, "perf_counter", lambda: self.now * 1e-3)

    def call(self):
        self.now += self.host()
        self.busy_until = max(self.busy_until, self.now) + self.kernel

    def flush_cache(self):
        self.busy_until = max(self.busy_until, self.now) + self.flush

    def measure(self, call, repetitions):
        found = []
        for _ in range(repetitions):
            started = max(self.busy_until, self.now)
            call()
            found.append(self.busy_until - started)
            self.now = self.busy_until
        return found


@pytest.mark.parametrize("host", [0.01, 0.09, 0.3, 1.2])
def test_what_the_host_takes_to_prepare_a_call_is_not_counted(monkeypatch, host):
    device = RunsAhead(monkeypatch, 0.03, 0.1, lambda: host)
    assert race(device, device.call, None, runs_ahead=True) == pytest.approx([0.03] * 3)


def test_calls_that_were_held_up_do_not_lose_a_race(monkeypatch):
    delays = [0.05] * 2 + [5.0] * 8 + [0.05] * 10000
    device = RunsAhead(monkeypatch, 0.03, 0.1, lambda: delays.pop(0))
    assert race(device, device.call, [0.09, 0.085, 0.095], runs_ahead=True) == pytest.approx(
        [0.03] * 3
    )


def test_a_host_that_is_always_late_ends(monkeypatch):
    device = RunsAhead(monkeypatch, 0.03, 0.1, lambda: 50.0)
    assert race(device, device.call, None, runs_ahead=True)[0] > 40


def test_three_times_are_taken_however_long_a_flush_is(monkeypatch):
    timer = Simulated(monkeypatch, 0.07, 300.0)
    race(timer, timer.call, None)
    assert timer.taken == 3


def test_a_length_that_was_chosen_is_kept_to(monkeypatch):
    timer = Simulated(monkeypatch, 1.0, 0.5)
    race(timer, timer.call, None, rep=300)
    assert timer.taken == 25 + 300


def test_a_deadline_leaves_one_time():
    clock = Clock(4.0)
    assert race(clock, lambda: None, None, deadline=time.perf_counter() - 1) == [4.0, 4.0, 4.0]
    assert clock.taken == 1


# ---- tuning by a backend's timer


def grid(meta):
    return (meta["n"] // meta["BLOCK"],)


def tuned(configs=CONFIGS, **options):
    return tw.autotune(configs, ["n"], **options)(tw.jit(add_one))


def launch(kernel):
    return kernel[grid](np.zeros(64, np.float32), 64)


class BlockClock(Clock):
    """Takes the time from a table by the BLOCK that was launched last."""

    def __init__(self, recorder, times):
        super().__init__(*times)
        self.recorder, self.table, self.of_block = (
            recorder,
            dict(zip(BLOCKS, times, strict=True)),
            dict.fromkeys(BLOCKS, 0),
        )

    def measure(self, call, repetitions):
        call()
        block = 64 // self.recorder.launches[-1][0][0]
        self.of_block[block] += 1
        return [self.table[block]]


@pytest.fixture
def timed(recorder):
    """A recorder with a clock: 16 is the fastest."""
    clock = BlockClock(recorder, (30.0, 10.0, 11.0, 9.0e9))
    timer = type(
        "Timed",
        (type(recorder),),
        {"tilewright_timer": hookimpl(_named(lambda self, device: clock, "tilewright_timer"))},
    )
    recorder.__class__ = timer
    registry().register(recorder, "recorder")
    return clock


def _named(function, name):
    function.__name__ = name
    return function


def test_a_tuning_measures_losers_briefly(timed):
    kernel = tuned()
    launch(kernel)
    assert kernel.best_config.kwargs == {"BLOCK": 16}
    assert timed.of_block == {
        8: 1 + 4,
        16: 3 + 10,
        32: 10,
        64: 1,
    }  # for 25 ms and 100 ms; a round; no more than that
    assert [times[0] for times in kernel.configs_timings.values()] == [30.0, 10.0, 11.0, 9.0e9]


def test_what_a_tuner_does_around_a_trial_is_of_the_trial(timed, monkeypatch):
    """And what the timer makes for its flushes is of none."""
    told = []

    def recorded(timer, call, best, **settings):
        told.append((timed.flushed, settings["began"], settings["after"], time.perf_counter()))
        return race(timer, call, best, **settings)

    monkeypatch.setattr("tilewright.runtime.tuning.measurement.race", recorded)
    kernel = tuned()
    kernel[grid](np.zeros(1 << 20, np.float32), 64)
    assert told[0][0] == 1 and [after > 0 for _, _, after, _ in told] == [False, True, True, True]
    assert all(
        earlier[-1] < began < now
        for earlier, (_, began, _, now) in zip([(0.0,), *told], told, strict=False)
    )


def test_a_budget_takes_the_best_so_far_and_is_tuned_again_without(timed, recorder):
    slow = lambda grid, values: time.sleep(0.02)  # noqa: E731
    recorder.on_launch = slow
    kernel = tuned(budget=1e-3)
    launch(kernel)
    assert set(kernel.configs_timings) == {kernel.best_config}  # whichever was compiled first
    (record,) = tuning_records.own_records()
    assert not record.complete
    recorder.on_launch = lambda *_: None
    taken = sum(timed.of_block.values())
    again = tuned(budget=5.0)
    launch(again)
    assert again.best_config == kernel.best_config and sum(timed.of_block.values()) == taken
    whole = tuned()
    launch(whole)
    assert whole.best_config.kwargs == {"BLOCK": 16}
    (record,) = tuning_records.own_records()
    assert record.complete


def test_a_budget_of_the_environment(timed, recorder, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_AUTOTUNE_BUDGET", "0.001")
    recorder.on_launch = lambda *_: time.sleep(0.02)
    kernel = tuned()
    launch(kernel)
    assert set(kernel.configs_timings) == {kernel.best_config}
    monkeypatch.setenv("TILEWRIGHT_AUTOTUNE_BUDGET", "soon")
    with pytest.raises(
        ValueError,
        match="TILEWRIGHT_AUTOTUNE_BUDGET must be a number of seconds above 0, not 'soon'",
    ):
        launch(tuned())


def test_a_budget_still_finds_one_that_works(timed, recorder):
    def refuse(module, options):
        if "end = 64" not in str(module):
            raise OutOfResources(2, 1, "registers")

    recorder.on_lower = refuse
    kernel = tuned(budget=1e-6)
    launch(kernel)
    assert kernel.best_config.kwargs == {"BLOCK": 64}
    assert all(math.isinf(kernel.configs_timings[config][0]) for config, _ in kernel.failures)


@pytest.mark.parametrize(
    ("name", "value"), [("budget", 0), ("budget", "long"), ("budget", True), ("mode", "sometimes")]
)
def test_what_is_no_budget_and_no_mode(name, value):
    with pytest.raises(ValueError, match=f"{name} of autotune must be"):
        tuned(**{name: value})


# ---- estimates


def estimating(recorder, **answers):
    """The recorder, with hooks that estimate by the work."""
    members = {name: hookimpl(_named(function, name)) for name, function in answers.items()}
    recorder.__class__ = type("Estimating", (type(recorder),), members)
    registry().register(recorder, "recorder")
    return recorder


def test_the_model_chooses_without_measuring(recorder):
    seen = []

    def cost(self, configuration, target, arguments, work):
        seen.append(
            (
                configuration["BLOCK"],
                arguments["n"],
                work.max_tile_elements,
                work.options["num_warps"],
            )
        )
        return abs(configuration["BLOCK"] - 32)

    estimating(recorder, tilewright_cost=cost)
    kernel = tuned(mode="model")
    launch(kernel)
    assert kernel.best_config.kwargs == {"BLOCK": 32} and kernel.configs_timings == {}
    assert seen == [(block, 64, block, 4) for block in BLOCKS]
    assert len(recorder.lowered) == 1 and list(tuning_records.own_records()) == []


def test_the_environment_asks_for_the_model_and_a_kernel_may_insist_on_measuring(
    recorder, monkeypatch
):
    estimating(
        recorder, tilewright_cost=lambda self, configuration, work: abs(configuration["BLOCK"] - 32)
    )
    monkeypatch.setenv("TILEWRIGHT_AUTOTUNE", "model")
    bench = lambda call, quantiles: [call() or 1.0] * 3  # noqa: E731
    kernel = tuned(do_bench=bench)
    launch(kernel)
    assert kernel.best_config.kwargs == {"BLOCK": 32} and kernel.configs_timings == {}
    insisting = tuned(do_bench=bench, mode="on")
    launch(insisting)
    assert len(insisting.configs_timings) == 4
    recorded = tuned(do_bench=bench)
    launch(recorded)
    assert recorded.best_config.kwargs == {
        "BLOCK": 32
    }  # no record is looked at: all took the same time, and the first would be the best


def test_configurations_that_break_a_rule_are_no_candidates_of_the_model(recorder):
    @tw.jit
    def picky(x, n, BLOCK: tl.constexpr):
        tl.static_assert(BLOCK != 32)
        tl.store(x + tl.arange(0, BLOCK), n)

    estimating(
        recorder, tilewright_cost=lambda self, configuration, work: abs(configuration["BLOCK"] - 32)
    )
    kernel = tw.autotune(CONFIGS, ["n"], mode="model")(picky)
    kernel[(1,)](np.zeros(64, np.float32), 64)
    assert kernel.best_config.kwargs == {"BLOCK": 16}
    none = tw.autotune(
        [tw.Config({"BLOCK": 32}), tw.Config({"BLOCK": 32}, num_warps=8)], ["n"], mode="model"
    )(picky)
    with pytest.raises(
        AutotunerError, match=r"no configuration of picky works: \[BLOCK: 32.*static"
    ):
        none[(1,)](np.zeros(64, np.float32), 64)


def test_pruning_knows_the_work(recorder):
    def prune(self, configurations, works):
        return [
            configuration
            for configuration, work in zip(configurations, works, strict=True)
            if work.max_tile_elements >= 32
        ]

    estimating(recorder, tilewright_prune=prune)
    kernel = tuned(do_bench=lambda call, quantiles: [call() or 1.0] * 3)
    launch(kernel)
    assert {config.kwargs["BLOCK"] for config in kernel.configs_timings} == {32, 64}


# ---- beside the compiler


class Elsewhere(concurrent.futures.Executor):
    """A compiler mock that compiles on request."""

    def __init__(self):
        self.jobs = []

    def submit(self, function, /, *args, **kwargs):
        future = concurrent.futures.Future()
        self.jobs.append((future, function))
        return future

    def do(self, number):
        future, function = self.jobs[number]
        future.set_result(function())


def found(recorder, executor, **options):
    kernel = tw.jit(add_one)
    x, errors = np.zeros(64, np.float32), []
    made = parallel_compile.trials_of(
        CONFIGS,
        lambda config: kernel.run(x, 64, grid=(1,), warmup=True, **config.all_kwargs()),
        lambda *error: errors.append(error),
    )
    return parallel_compile.compile_trials(
        made, executor=executor, on_error=lambda *error: errors.append(error), **options
    )


def test_what_is_ready_is_given_while_others_are_compiled(recorder):
    executor = Elsewhere()
    ready = found(recorder, executor, beside=True)
    thread = concurrent.futures.ThreadPoolExecutor(1)
    first = thread.submit(next, ready)
    while len(executor.jobs) < 4:
        time.sleep(0.001)
    executor.do(2)
    assert first.result(900) == CONFIGS[2]
    executor.do(3)
    executor.do(0)
    assert next(ready) == CONFIGS[0]  # of several the first in order
    executor.do(1)
    assert list(ready) == [CONFIGS[1], CONFIGS[3]]
    thread.shutdown()


def test_nothing_is_given_before_all_are_compiled_where_they_share_the_processor(recorder):
    executor = Elsewhere()
    ready = found(recorder, executor)
    thread = concurrent.futures.ThreadPoolExecutor(1)
    first = thread.submit(next, ready)
    while len(executor.jobs) < 4:
        time.sleep(0.001)
    for number in (3, 2, 1):
        executor.do(number)
    assert not concurrent.futures.wait([first], 0.2).done
    executor.do(0)
    assert first.result(900) == CONFIGS[0] and list(ready) == CONFIGS[1:]
    thread.shutdown()


def test_a_deadline_gives_up_what_is_not_compiled(recorder):
    executor = Elsewhere()
    ready = found(recorder, executor, beside=True, deadline=time.perf_counter())
    thread = concurrent.futures.ThreadPoolExecutor(1)
    first = thread.submit(next, ready)
    while len(executor.jobs) < 4:
        time.sleep(0.001)
    executor.do(3)
    assert first.result(900) == CONFIGS[3] and list(ready) == []
    thread.shutdown()


def test_what_took_too_long_and_ends_after_all_is_in_nobodys_way(recorder):
    executor = Elsewhere()
    ready = found(recorder, executor, time_limit=0.01)
    thread = concurrent.futures.ThreadPoolExecutor(1)
    first = thread.submit(next, ready)
    while len(executor.jobs) < 4:
        time.sleep(0.001)
    executor.jobs[0][0].set_running_or_notify_cancel()
    for number in (1, 2, 3):
        executor.do(number)
    assert first.result(900) == CONFIGS[1]
    executor.do(0)
    assert thread.submit(list, ready).result(60) == CONFIGS[2:]
    thread.shutdown()


def test_kernels_of_other_devices_are_measured_beside_the_compiler(recorder, monkeypatch):
    asked = []
    real, place_of = parallel_compile.compile_trials, tuning_keys.place_of
    monkeypatch.setattr(
        parallel_compile,
        "compile_trials",
        lambda *args, beside, **options: asked.append(beside) or real(*args, **options),
    )
    for kind in ("cpu", "paper"):
        kernel = tuned(do_bench=lambda call, quantiles: [call() or 1.0] * 3, cache_results=False)
        device = Device("recorder", kind, 0, "sheet")
        monkeypatch.setattr(
            tuning_keys,
            "place_of",
            lambda *launched, device=device: place_of(*launched)._replace(device=device),
        )
        launch(kernel)
    assert asked == [False, True]


# ---- progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_on_a_terminal(recorder, monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr(progress, "_FIRST", 0.0)
    monkeypatch.setattr(progress, "_AGAIN", 0.0)
    monkeypatch.setattr(
        progress, "time", SimpleNamespace(perf_counter=lambda: 0.0)
    )  # however long the machine takes
    monkeypatch.setenv("COLUMNS", "200")
    launch(tuned(do_bench=lambda call, quantiles: [call() or 1.0] * 3, cache_results=False))
    drawn = terminal.getvalue()
    assert (
        "tuning add_one [#####...............] 1/4, 0 s left, best 1 ms [BLOCK: 8" in drawn
        and "4/4" in drawn
        and drawn.endswith("\r\x1b[K")
    )


def test_progress_says_how_long_the_rest_may_take(monkeypatch):
    terminal, now = Terminal(), [0.0]
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr(progress.time, "perf_counter", lambda: now[0])
    monkeypatch.setenv("COLUMNS", "200")
    shown = progress.Progress("k", 10)
    for seconds, left in ((8.0, "1 min 12 s"), (10.0, "40 s"), (30.0, "1 min 10 s")):
        now[0] = seconds
        shown.step("")
        assert terminal.getvalue().endswith(f"/10, {left} left")


@pytest.mark.parametrize("how", ["no terminal", "switched off", "quick"])
def test_no_progress(recorder, monkeypatch, how):
    terminal = io.StringIO() if how == "no terminal" else Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    if how != "quick":
        monkeypatch.setattr(progress, "_FIRST", 0.0)
    else:
        monkeypatch.setattr(progress, "_FIRST", 3600.0)
    if how == "switched off":
        monkeypatch.setenv("TILEWRIGHT_PROGRESS", "0")
    launch(tuned(do_bench=lambda call, quantiles: [call() or 1.0] * 3, cache_results=False))
    assert terminal.getvalue() == ""
