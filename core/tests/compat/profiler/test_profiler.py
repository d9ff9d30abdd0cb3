"""``triton.profiler``: scopes, launches by device and time, what is written, and what is
refused."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tilewright.testing.threads import side_by_side

pytest.importorskip("torch")
pytest.importorskip("tilewright_cpu")

import torch

import tilewright.language as tl
from tilewright.compat import triton
from tilewright.compat.triton import profiler as proton
from tilewright.compat.triton.outside import OutsideError
from tilewright.compat.triton.profiler import language as pl
from tilewright.compat.triton.profiler import mode, session, specs, viewer
from tilewright.runtime.hooks import hooks


def said(grid, metadata, args):
    return {
        "name": f"scale_{args['n']}",
        "flops32": args["n"],
        "bytes": 8 * args["n"],
        "unknown": 1,
    }


@triton.jit(launch_metadata=said)
def scale(x, n, BLOCK: tl.constexpr):
    pl.enter_scope("all")
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + offsets, tl.load(x + offsets, mask=offsets < n) * 2, mask=offsets < n)
    pl.exit_scope("all")


def launch(n=100, turns=1):
    x = torch.ones(n)
    for _ in range(turns):
        scale[(triton.cdiv(n, 64),)](x, n, BLOCK=64)
    assert torch.equal(x, torch.full((n,), 2.0**turns))


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    proton.finalize()
    assert not hooks.launch_enter.calls and not hooks.launch_exit.calls


def tree(node):
    """name -> (metrics, tree of what is below)."""
    return {child["frame"]["name"]: (child["metrics"], tree(child)) for child in node["children"]}


def read(name="proton"):
    root, devices = json.loads(Path(f"{name}.hatchet").read_text())
    assert root["frame"] == {"name": "ROOT", "type": "function"}
    return tree(root), devices


def test_launches_are_counted_and_timed_by_scope():
    launch()
    proton.start()
    launch(turns=3)
    with proton.scope("outer", {"steps": 2}):
        launch()
        with proton.scope("inner"):
            launch(turns=2)
    with proton.scope("outer", {"steps": 5}):
        pass
    proton.finalize()
    launch()
    found, devices = read()
    assert set(found) == {"scale", "outer"}
    assert found["scale"][0]["count"] == 3 and found["scale"][0]["time (ns)"] > 0
    assert (found["scale"][0]["device_type"], found["scale"][0]["device_id"]) == (
        "CPU",
        "0",
    ) and set(devices) == {"CPU"}
    metrics, below = found["outer"]
    assert (
        metrics == {"steps": 7}
        and below["scale"][0]["count"] == 1
        and below["inner"][1]["scale"][0]["count"] == 2
    )


def test_the_hook_asks_launches_what_they_do():
    proton.start("with", hook="triton")
    launch(100)
    launch(50)
    launch(50)
    proton.finalize()
    found, _ = read("with")
    assert set(found) == {"scale_100", "scale_50"}
    assert (found["scale_50"][0]["flops32"], found["scale_50"][0]["bytes"]) == (
        100,
        800,
    ) and "unknown" not in found["scale_50"][0]


def test_sessions_are_activated_and_finalized_by_number():
    first, second = proton.start("first"), proton.start("second")
    assert first != second and proton.start("first") == first
    launch()
    proton.deactivate(first)
    launch()
    proton.deactivate()
    launch()
    assert not hooks.launch_enter.calls  # nothing is watched
    proton.activate(second)
    launch()
    assert proton.data(second)[0]["children"][0]["metrics"]["count"] == 3
    proton.finalize(first)
    assert not Path("second.hatchet").exists() and read("first")[0]["scale"][0]["count"] == 1
    proton.finalize(second)
    assert read("second")[0]["scale"][0]["count"] == 3
    with pytest.raises(ValueError, match="there is no session 999; there are none"):
        proton.activate(999)


def test_scopes_are_of_their_thread_and_end_in_order():
    proton.start()
    ready = threading.Barrier(2)

    def work(number):
        with proton.scope("ab"[number]):
            ready.wait()
            launch()

    side_by_side(2, work)
    proton.enter_scope("c")
    with pytest.raises(ValueError, match="innermost scope ends first"):
        proton.exit_scope("d")
    assert proton.exit_scope() == 0
    with pytest.raises(ValueError, match="no scope was entered"):
        proton.exit_scope()
    proton.finalize()
    assert {name: below["scale"][0]["count"] for name, (_, below) in read()[0].items()} == {
        "a": 1,
        "b": 1,
    }


def test_scopes_are_decorators_and_states_are_innermost():
    @proton.scope("whole")
    def whole():
        with proton.state("autotune"), proton.scope("part"):
            launch()

    @proton.profile(name="called")
    def called():
        whole()
        whole()

    called()
    found, _ = read("called")
    assert found["whole"][1]["part"][1]["autotune"][1]["scale"][0]["count"] == 2


def test_scopes_with_a_clock():
    proton.start()
    with proton.cpu_timed_scope("timed", {"steps": 1}):
        launch()
    with pytest.raises(ValueError, match="records cpu_time itself"):
        proton.cpu_timed_scope("timed", {"cpu_time (ns)": 1})
    proton.finalize()
    metrics, below = read()[0]["timed"]
    assert metrics["steps"] == 1 and metrics["cpu_time (ns)"] >= below["scale"][0]["time (ns)"] > 0


def test_frames_of_python_are_a_context():
    proton.start(context="python")
    launch()
    proton.finalize()
    here, names = read()[0], []
    while here:
        name, (_, here) = next(iter(here.items()))
        names.append(name)
    assert names[-1] == "scale" and names[-2].startswith(__file__) and names[-2].endswith("@launch")
    assert names[-3].endswith("@test_frames_of_python_are_a_context")


def test_time_lines():
    proton.start("line", data="trace")
    with proton.scope("a"):
        launch(turns=2)
    with pytest.raises(ValueError, match="written as 'chrome_trace', not as 'hatchet'"):
        proton.finalize(output_format="hatchet")
    proton.finalize(output_format="chrome_trace")
    first, second = json.loads(Path("line.chrome_trace").read_text())["traceEvents"]
    assert (
        first["ts"] == 0
        and second["ts"] >= first["dur"] > 0
        and first["args"]["call_stack"] == ["ROOT", "a"]
        and first["name"] == "scale"
    )


class Moments:
    """A timer on which every moment is a millisecond after the one before."""

    def __init__(self):
        self.alive, self.now = {}, 0

    def measure(self, call, repetitions):
        raise NotImplementedError

    def flush_cache(self):
        raise NotImplementedError

    def mark(self, stream=None):
        self.now += 1
        moment = object()
        self.alive[moment] = self.now
        return moment

    def milliseconds_between(self, start, end):
        return self.alive[end] - self.alive[start]

    def forget(self, *moments):
        for moment in moments:
            del self.alive[moment]


def test_devices_with_moments_are_timed_by_them(monkeypatch):
    timer = Moments()
    monkeypatch.setattr(session, "_timer_of", lambda backend, device: timer)
    proton.start("one")
    proton.start("two", data="trace")
    launch(turns=2)
    assert len(timer.alive) == 4
    assert proton.data(proton.start("one"))[0]["children"][0]["metrics"]["time (ns)"] == 2e6
    assert len(timer.alive) == 1  # what the time line counts from
    launch()
    proton.finalize()
    assert not timer.alive
    events = json.loads(Path("two.chrome_trace").read_text())["traceEvents"]
    assert [(event["ts"], event["dur"]) for event in events] == [
        (0, 1000),
        (2000, 1000),
        (4000, 1000),
    ]


def test_the_viewer_prints_trees(capsys):
    proton.start("run", hook="triton")
    with proton.scope("step"):
        launch(100, turns=2)
    launch(50)
    proton.finalize()
    viewer.main(["-m", "count", "run.hatchet"])
    assert capsys.readouterr().out.splitlines() == [
        "3.000 ROOT",
        "  2.000 step",
        "    2.000 scale_100",
        "  1.000 scale_50",
    ]
    viewer.main(["-m", "flops32", "-i", "scale_50", "run.hatchet"])
    assert capsys.readouterr().out.splitlines() == ["250.000 ROOT", "  50.000 scale_50"]
    viewer.main(["--list", "run.hatchet"])
    assert capsys.readouterr().out.split("\n")[:4] == ["bytes", "count", "flops32", "time (ns)"]
    times = [
        float(line.split()[0])
        for metric in ("time/ns", "time/us", "avg_time/us")
        for line in [viewer.tree_text("run.hatchet", metric).splitlines()[0]]
    ]
    assert (
        times[0] > 0
        and times[1] == pytest.approx(times[0] / 1e3, rel=1e-3)
        and times[2] == pytest.approx(times[1] / 3, rel=1e-2, abs=1e-3)
    )
    rate = float(viewer.tree_text("run.hatchet", "gbyte/s").split()[0])
    assert rate == pytest.approx(2000 / times[0], rel=0.1, abs=1e-3)
    with pytest.raises(ValueError, match="not in 'h'"):
        viewer.tree_text("run.hatchet", "time/h")


def test_hatchet_reads_what_is_written():
    pytest.importorskip("hatchet")
    proton.start("run", hook="triton")
    with proton.scope("step"):
        launch(100)
    proton.finalize()
    frame, inclusive, exclusive, devices = viewer.read("run.hatchet")
    assert "flops32 (inc)" in [*inclusive, *exclusive] or "flops32" in [*inclusive, *exclusive]
    assert "CPU" in devices and len(frame.dataframe) == 3


def test_without_hatchet_the_viewer_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "hatchet", None)
    with pytest.raises(ImportError, match="pip install llnl-hatchet"):
        viewer.read("run.hatchet")


def test_a_switch_turns_everything_off(monkeypatch):
    monkeypatch.setattr(triton.knobs.proton, "disable", True)
    assert proton.start() is None and not hooks.launch_enter.calls
    launch()
    proton.deactivate(0)
    proton.finalize()
    assert set(os.listdir()) <= {"cache"}  # of kernels


def test_ways_that_are_not_there_are_refused():
    for given in (
        {"backend": "instrumentation"},
        {"mode": "pcsampling"},
        {"mode": mode.BaseMode("mma")},
    ):
        with pytest.raises(OutsideError, match="outside what"):
            proton.start(**given)
    with pytest.raises(OutsideError, match="samples or instruments"):
        mode.PCSampling
    with pytest.raises(ValueError, match="hook must be one of None, 'triton', not 'x'"):
        proton.start(hook="x")
    assert proton.start("fine", backend="cupti", mode=mode.Default()) is not None


def test_scopes_are_ranges_where_something_draws_them(monkeypatch):
    seen = []
    package = type(sys)("nvtx")
    package.push_range, package.pop_range = seen.append, lambda: seen.append("end")
    monkeypatch.setitem(sys.modules, "nvtx", package)
    with proton.scope("a"), proton.scope("b"):
        pass
    monkeypatch.setattr(triton.knobs.proton, "enable_nvtx", False)
    with proton.scope("c"):
        pass
    assert seen == ["a", "b", "end", "end"]


def test_what_devices_can_do():
    assert specs.max_flops("CUDA", "90", 16, 132, 1830000) == pytest.approx(989e12, rel=0.01)
    assert specs.max_bps("CUDA", "90", 5120, 2619000) == pytest.approx(3.35e12, rel=0.01)
    with pytest.raises(ValueError, match="nothing is known"):
        specs.max_flops("CPU", "x", 16, 1, 1)


def test_programs_are_profiled_from_the_command_line(tmp_path):
    (tmp_path / "program.py").write_text(
        "import sys\nimport triton.profiler as proton\n"
        "with proton.scope(sys.argv[1], {'n': 3}):\n    pass\n"
    )
    environment = {
        **os.environ,
        "TILEWRIGHT_TRITON": "1",
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    code = (
        "import tilewright.compat.triton, runpy, sys; sys.argv[0] = 'proton'; "
        "runpy.run_module('triton.profiler.proton', run_name='__main__')"
    )
    line = [sys.executable, "-c", code]
    subprocess.run(
        [*line, "-n", "out", "program.py", "here"],
        env=environment,
        cwd=tmp_path,
        check=True,
        timeout=120,
    )
    assert read("out")[0] == {"here": ({"n": 3}, {})}
