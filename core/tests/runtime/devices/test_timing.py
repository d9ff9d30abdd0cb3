"""Timing, comparison and reports."""

import importlib.machinery
import sys
import types

import ml_dtypes
import numpy as np
import pytest
from optional_torch import torch

import tilewright as tw
import tilewright.language as tl
from tilewright.errors import BenchmarkError
from tilewright.plugins.hooks import hookimpl
from tilewright.plugins.registry import registry
from tilewright.runtime.devices import timing
from tilewright.testing import Benchmark, assert_close, do_bench, perf_report


class Clock:
    """A timer that takes its times from a list, and counts."""

    def __init__(self, times):
        self.times, self.flushes, self.calls = list(times), 0, 0

    def measure(self, call, repetitions):
        found = []
        for _ in range(repetitions):
            call()
            self.calls += 1
            found.append(self.times[(self.calls - 1) % len(self.times)])
        return found

    def flush_cache(self):
        self.flushes += 1


@pytest.fixture
def clock(recorder):
    """A recorder with a timer, in place of the plain one."""

    def install(times):
        found = Clock(times)

        class Timed(type(recorder)):
            @hookimpl
            def tilewright_timer(self, device):
                return found

        registry().register(Timed(), "recorder")
        return found

    return install


@tw.jit
def store(x):
    tl.store(x, 1)


def test_the_backends_timer_is_used_with_caches_flushed(clock):
    found = clock([2.0])
    x = np.zeros(1, np.float32)
    assert do_bench(lambda: store[(1,)](x), warmup=4, rep=20) == 2.0
    assert found.flushes == found.calls >= 10


def test_repetitions_follow_from_the_time_of_one(clock):
    found = clock([10.0])
    assert do_bench(lambda: None, warmup=20, rep=100, return_mode="all") == [10.0] * 10
    assert found.calls <= 20
    found = clock([1000.0])
    assert do_bench(lambda: None, warmup=20, rep=100, return_mode="all") == [1000.0]
    assert found.calls == 1


@pytest.mark.parametrize(
    ("mode", "expected"), [("mean", 2.5), ("median", 2.5), ("min", 1.0), ("max", 4.0)]
)
def test_return_modes(mode, expected):
    assert timing.summarize([4.0, 1.0, 3.0, 2.0], return_mode=mode) == expected


def test_quantiles_are_numpys():
    times = list(np.random.default_rng(0).random(17))
    wanted = [0.0, 0.2, 0.5, 0.77, 1.0]
    assert np.allclose(timing.summarize(times, wanted), np.quantile(times, wanted))
    assert timing.summarize(times, [0.5]) == pytest.approx(np.median(times))
    with pytest.raises(BenchmarkError, match="between 0 and 1"):
        timing.summarize(times, [1.5])


def test_an_unknown_return_mode():
    with pytest.raises(BenchmarkError, match="return_mode must be one of mean, median") as raised:
        do_bench(lambda: None, return_mode="best")
    assert isinstance(raised.value, ValueError)


def test_a_quantile_that_is_none_is_refused_before_anything_runs():
    calls = []
    with pytest.raises(BenchmarkError, match="a quantile lies between 0 and 1, not at 50"):
        do_bench(lambda: calls.append(1), quantiles=[0.5, 50])
    assert not calls


def test_gradients_are_dropped_before_each_run(clock):
    clock([50.0])
    tensor = torch.zeros(1, requires_grad=True)
    seen = []

    def run():
        seen.append(tensor.grad)
        tensor.grad = torch.ones(1)

    do_bench(run, warmup=1, rep=100, grad_to_none=[tensor])
    assert len(seen) > 2
    assert seen[1:] == [None] * (len(seen) - 1)


def test_a_time_limit_stops_the_repetitions(recorder):
    import time

    count = []
    do_bench(lambda: count.append(time.sleep(0.05)), warmup=1000, rep=10000, time_limit=0.2)
    assert len(count) < 12


def test_without_a_timer_it_is_wall_time(recorder):
    import time

    for backend in (None, "reference"):
        started = time.perf_counter()
        times = do_bench(
            lambda: time.sleep(0.006), warmup=1, rep=20, backend=backend, return_mode="all"
        )
        assert min(times) >= 6
        assert sum(times) <= 1e3 * (time.perf_counter() - started)


def test_the_watch_is_taken_off_again(clock):
    from tilewright.runtime.hooks import hooks

    clock([1.0])

    def fail():
        raise KeyError("x")

    with pytest.raises(KeyError):
        do_bench(fail)
    assert not hooks.launch_enter


# ---- assert_close


@pytest.mark.parametrize("make", [np.asarray, torch.tensor, list])
def test_assert_close_accepts_and_refuses(make):
    x = [1.0, 2.0, float("nan")]
    assert_close(make(x), make([1.005, 2.0, float("nan")]))
    with pytest.raises(AssertionError, match="here"):
        assert_close(make(x), make([1.02, 2.0, float("nan")]), err_msg="here")
    assert_close(make(x), make([1.02, 2.0, float("nan")]), rtol=0.05)
    with pytest.raises(AssertionError):
        assert_close(make(x), make([1.0, 2.0, 3.0]))


def test_assert_close_of_narrow_types_scalars_and_shapes():
    assert_close(torch.ones(4, dtype=torch.bfloat16), np.ones(4, ml_dtypes.bfloat16))
    assert_close(np.ones(4, ml_dtypes.float8_e5m2), torch.ones(4).to(torch.float8_e5m2))
    assert_close(1.0, 1.009)
    assert_close(torch.tensor(1.0, requires_grad=True), 1)
    with pytest.raises(AssertionError, match="not close"):
        assert_close(1.0, 1.02)
    with pytest.raises(AssertionError):
        assert_close(np.ones(4), np.ones(5))


# ---- reports


class FakeFrame:
    """As much of a pandas table as a report needs."""

    def __init__(self, rows, columns):
        self.rows, self.columns = rows, columns


def sweep(**changes):
    facts = {
        "x_names": ["M", "N"],
        "x_vals": [1, (2, 3)],
        "line_arg": "way",
        "line_vals": ["a", "b"],
        "line_names": ["A", "B"],
        "plot_name": "plot",
        "args": {"k": 10},
    }
    return Benchmark(**{**facts, "ylabel": "GB/s", **changes})


def test_a_report_measures_each_point(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "pandas", type(sys)("pandas"))
    sys.modules["pandas"].DataFrame = FakeFrame
    mark = perf_report(sweep())(
        lambda M, N, way, k, extra=0: (M + N + k + extra + (way == "b"), 0, 0)
    )
    table = mark.run(print_data=True, return_df=True, extra=100)
    assert table.columns == ["M", "N", "A (GB/s)", "B (GB/s)"]
    assert table.rows == [[1, 1, 112, 113], [2, 3, 115, 116]]
    assert capsys.readouterr().out.startswith("plot:\n")
    several = perf_report([sweep(), sweep(plot_name="other")])(lambda **_: 1.0)
    assert len(several.run(return_df=True)) == 2
    assert several.run() is None
    with pytest.raises(BenchmarkError, match="3 entries for 2 names"):
        perf_report(sweep(x_vals=[(1, 2, 3)]))(lambda **_: 1.0).run()


def measure(M, N, way, k):
    return (M + N + k + 0.5 * (way == "b"), 1.0, 20.0)


@pytest.fixture
def bare(monkeypatch):
    """No pandas and no matplotlib."""
    for name in ("pandas", "matplotlib", "matplotlib.pyplot"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)


def test_a_report_needs_nothing_to_print_and_save_a_table(bare, capsys, tmp_path):
    perf_report(sweep(plot_name="a<b"))(measure).run(print_data=True, save_path=str(tmp_path))
    assert capsys.readouterr().out.splitlines() == [
        "a<b:",
        "M  N   A (GB/s)   B (GB/s)",
        "1  1  12.000000  12.500000",
        "2  3  15.000000  15.500000",
    ]
    assert (
        tmp_path / "a<b.csv"
    ).read_text() == "M,N,A (GB/s),B (GB/s)\n1,1,12.0000,12.5000\n2,3,15.0000,15.5000\n"
    page = (tmp_path / "results.html").read_text()
    assert "<h2>a&lt;b</h2>" in page and "<td>15.500000</td>" in page and "<img" not in page


def test_a_report_says_what_is_missing_before_it_measures(bare):
    mark = perf_report(sweep())(lambda **_: pytest.fail("measured"))
    with pytest.raises(
        ImportError, match="return_df=True makes tables of pandas, which cannot be imported here"
    ):
        mark.run(return_df=True)
    with pytest.raises(
        ImportError, match="plots are drawn by matplotlib, which cannot be imported here"
    ):
        mark.run(show_plots=True)


class FakePlots:
    """As much of matplotlib as a report needs: notes what is called."""

    def __init__(self):
        self.calls = []

    def __getattr__(self, name):
        def note(*arguments, **keywords):
            self.calls.append((name, *arguments, keywords))
            return (self, self) if name == "subplots" else None

        return note


def test_a_report_plots_each_line_with_its_bounds(monkeypatch, tmp_path):
    plots = FakePlots()
    monkeypatch.setitem(sys.modules, "matplotlib", types.ModuleType("matplotlib"))
    sys.modules["matplotlib"].__spec__ = importlib.machinery.ModuleSpec("matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", plots)
    perf_report(sweep(styles=[("red", "-"), ("blue", "--")], x_log=True))(measure).run(
        save_path=str(tmp_path)
    )
    calls = {
        name: [call[1:] for call in plots.calls if call[0] == name] for name, *_ in plots.calls
    }
    assert calls["plot"] == [
        ([1, 2], [12.0, 15.0], {"label": "A (GB/s)", "color": "red", "ls": "-"}),
        ([1, 2], [12.5, 15.5], {"label": "B (GB/s)", "color": "blue", "ls": "--"}),
    ]
    assert calls["fill_between"][0] == (
        [1, 2],
        [1.0, 1.0],
        [20.0, 20.0],
        {"alpha": 0.15, "color": "red"},
    )
    assert calls["set_xscale"] == [("log", {})] and calls["set_yscale"] == [("linear", {})]
    assert calls["savefig"] == [(str(tmp_path / "plot.png"), {})] and "show" not in calls
    assert '<img src="plot.png"' in (tmp_path / "results.html").read_text()
    plots.calls.clear()
    perf_report(sweep())(lambda **_: 1.0).run(show_plots=True)
    assert ("show", {}) in plots.calls and not any(
        name in ("fill_between", "savefig") for name, *_ in plots.calls
    )


def test_a_number_of_repetitions_takes_the_place_of_times():
    calls = []
    times = do_bench(
        lambda: calls.append(1), warmup=1e9, rep=1e9, n_warmup=3, n_repeat=7, return_mode="all"
    )
    assert len(times) == 7
    assert len(calls) == 1 + 3 + 7  # one finds the timer
