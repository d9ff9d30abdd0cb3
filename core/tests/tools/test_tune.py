"""``tilewright tune`` and ``tilewright records``: what is measured, on this machine and on workers,
and what is kept of it."""

import concurrent.futures
import hashlib
import importlib.util
import json
import math
import re
import stat
import sys
from pathlib import Path

import numpy as np
import pytest

from tilewright.errors import AutotunerError
from tilewright.plugins.registry import registry
from tilewright.runtime import shipped_records
from tilewright.runtime.compiler.config import Config, config_text
from tilewright.runtime.devices import device_registry
from tilewright.tools import tune_fleet, tune_job
from tilewright.tools.cli import main
from tilewright.tools.launch_arguments import on_device, parsed
from tilewright.tools.tune import given_configs, outcome_text
from tilewright.tools.tune_fleet import measure_on
from tilewright.tools.tune_job import Job, Outcome
from tilewright.tools.usage import UsageError

KERNELS = """
import tilewright as tw
import tilewright.language as tl


@tw.jit
def plain(x, out, n, scale, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.load(x + offsets, offsets < n) * scale, offsets < n)


@tw.heuristics({"TWICE": lambda given: 2 * given["n"]})
@tw.autotune(configs=[tw.Config({"BLOCK": 16}), tw.Config({"BLOCK": 64}), tw.Config({"BLOCK": 128})], key=["n"])
@tw.jit
def tuned(x, n, TWICE, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.static_assert(BLOCK < 128, "too large")
    tl.store(x + offsets, tl.load(x + offsets, offsets < n) + 1, offsets < n)

"""

ARGUMENTS = ("--arguments", "x=fp32[n], n=1000", "--grid", "cdiv(n, BLOCK)")


pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "kernels_to_tune.py"
    path.write_text(KERNELS)
    return path


# ---- arguments


def test_arguments_are_read_from_text():
    assert parsed(
        "x=fp16[n, 2*m], n=m*4, out=i64[], m=8, half=0.5, flag=True, none=None, y=u1[cdiv(n, 3),]"
    ) == {
        "x": ("fp16", (32, 16)),
        "n": 32,
        "out": ("i64", ()),
        "m": 8,
        "half": 0.5,
        "flag": True,
        "none": None,
        "y": ("u1", (11,)),
    }


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x", "expected NAME=VALUE or NAME"),
        ("x=fp33[4]", "no element type 'fp33'; there are .*fp32"),
        ("x=fp32[n]", "'\\(n,\\)' has no value"),
        ("x=fp32[-1]", "integers from 0 on"),
        ("n=m, m=n", "n, m name each other"),
        ("n=__import__('os')", "has no value"),
        ("n=(1, 2)", "'n' is one number"),
        ("n=(-1) ** 0.5", "a power that is no real number"),
        ("n=1, x=fp32[n], n=2", "'n' is given twice"),
        ("x=fp32[2**61]", "no memory has room for 'x'"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(text, says):
    with pytest.raises(UsageError, match=says):
        parsed(text)


def test_arrays_that_no_memory_has_room_for_are_refused():
    backend = registry().get("cpu")
    with pytest.raises(UsageError, match="no room for the values of 'x'"):
        on_device({"x": ("u8", (2**60,))}, backend, device_registry.find(backend, None))


def test_arrays_are_made_on_the_device():
    backend = registry().get("cpu")
    made = on_device(
        {"x": ("fp32", (3, 5)), "y": ("bf16", (7,)), "i": ("i32", (4,)), "n": 3},
        backend,
        device_registry.find(backend, None),
    )
    memory = backend.call("tilewright_memory", device=device_registry.find(backend, None))
    x, y, i = np.empty((3, 5), np.float32), np.empty(7, np.uint16), np.ones(4, np.int32)
    for array, name in ((x, "x"), (y, "y"), (i, "i")):
        memory.copy_to_host(made[name], memoryview(array.reshape(-1).view(np.uint8)))
    values = np.random.default_rng(0).standard_normal(22)
    np.testing.assert_array_equal(x.reshape(-1), values[:15].astype(np.float32))
    np.testing.assert_allclose(
        (y.astype(np.uint32) << 16).view(np.float32), values[15:], rtol=2**-8
    )
    assert not i.any() and made["n"] == 3 and made["x"].strides == (5, 1)


def test_configurations_are_read_from_text():
    found = given_configs(["BLOCK=64,num_warps=8", "BLOCK=8"], ["BLOCK=16|32", "num_stages=1|2"])
    assert found[:2] == [Config({"BLOCK": 64}, num_warps=8), Config({"BLOCK": 8})]
    assert found[2:] == [
        Config({"BLOCK": block}, num_stages=stages) for block in (16, 32) for stages in (1, 2)
    ]
    assert given_configs([], []) is None
    with pytest.raises(UsageError, match=r"expected NAME=VALUE\|VALUE"):
        given_configs([], ["BLOCK=|"])


# ---- on this machine


def test_the_table_has_every_configuration_the_fastest_first(run, file, tmp_path):
    code, out, err = run("tune", f"{file}:tuned", *ARGUMENTS, "--records", tmp_path / "records")
    assert code == 0, err
    lines = out.splitlines()
    assert lines[0].startswith("tuned on ") and ", 2 configurations in " in lines[0]
    assert lines[2].split() == [
        "median,",
        "ms",
        "20",
        "%,",
        "ms",
        "80",
        "%,",
        "ms",
        "slower",
        "configuration",
    ]
    rows = [line.split() for line in lines[3:5]]
    assert {row[4].partition(",")[0] for row in rows} == {"BLOCK=16", "BLOCK=64"}
    assert float(rows[0][0]) <= float(rows[1][0]) and rows[0][3] == "1.00x"
    assert lines[6] == f"best: {rows[0][4]}"
    assert re.match(r"failed: BLOCK=128[,:]", lines[7]) and "too large" in out
    (path,) = (tmp_path / "records").iterdir()
    (record,) = shipped_records.read(path)
    assert f"written to {path}" in lines[8:10] and (record.kernel, record.key) == (
        "tuned",
        "int:1000;x:fp32",
    )


def test_the_table_leaves_out_options_that_the_backend_ignores():
    texts = ["BLOCK=int:16,num_stages=int:2,num_warps=int:4", "num_warps=int:8"]
    timings = {text: [2.0, 1.0, 3.0] for text in texts}
    pytest.importorskip("tilewright_cpu")
    lines = outcome_text("k", Outcome("a device", "cpu|rest", timings, best=texts[0])).splitlines()
    assert [line.partition("x  ")[2] for line in lines[3:5]] == ["BLOCK=16", "no meta-parameters"]
    assert lines[6:] == [
        "best: BLOCK=16",
        "omitted, because backend cpu ignores them: num_stages, num_warps",
    ]
    lines = outcome_text(
        "k", Outcome("a device", "elsewhere|rest", timings, best=texts[0])
    ).splitlines()
    assert lines[6:] == ["best: BLOCK=16,num_stages=2,num_warps=4"]


def test_launches_find_what_the_command_measured(run, file, monkeypatch):
    assert run("tune", f"{file}:tuned", *ARGUMENTS)[0] == 0
    from tilewright.tools.tune_job import find_decorated

    kernel = find_decorated(f"{file}:tuned")[2]
    x = np.zeros(1000, np.float32)
    kernel[lambda meta: (-(-1000 // meta["BLOCK"]),)](x, 1000)
    assert (x == 1).all() and kernel.fn.bench_time == 0.0 and len(kernel.fn.configs_timings) == 2


def test_a_kernel_without_configurations_takes_those_of_the_command_line(run, file):
    arguments = (
        "--arguments",
        "x=fp16[n], out=fp16[n], n=100, scale=2.0",
        "--grid",
        "cdiv(n, BLOCK)",
    )
    code, out, err = run("tune", f"{file}:plain", *arguments, "--space", "BLOCK=32|64", "--json")
    assert code == 0, err
    (outcome,) = json.loads(out)
    assert outcome["kernel"] == "plain" and outcome["best"] in outcome["timings"]
    assert set(outcome["timings"]) == {config_text(Config({"BLOCK": block})) for block in (32, 64)}
    code, out, _ = run("tune", f"{file}:plain", *arguments, "--config", "BLOCK=32")
    assert code == 0 and ", 1 configurations in" in out and "has no @autotune" in out


def test_a_derivative_is_tuned_as_a_whole(run, file):
    file.write_text(
        KERNELS
        + """
adjoint = tw.autotune([tw.Config({"BLOCK": 16}), tw.Config({"BLOCK": 64})], key=["n"])(
    tw.vjp(plain, outputs="out", wrt=("x", "scale"))
)
"""
    )
    arrays = ", ".join(f"{name}=fp32[n]" for name in ("x", "out", "d_out", "d_x"))
    arguments = f"{arrays}, d_scale=fp32[1], n=1000, scale=0.5"
    code, out, err = run(
        "tune",
        f"{file}:adjoint",
        "--arguments",
        arguments,
        "--grid",
        "cdiv(n, BLOCK)",
        "--json",
    )
    assert code == 0, err
    (outcome,) = json.loads(out)
    assert set(outcome["timings"]) == {config_text(Config({"BLOCK": block})) for block in (16, 64)}
    adjoint = tune_job.find_decorated(f"{file}:adjoint")[2]
    x, dx, d_scale = np.arange(1000, dtype="f4"), np.empty(1000, "f4"), np.empty(1, "f4")
    cotangents = {"d_out": np.ones_like(x), "d_x": dx, "d_scale": d_scale}
    adjoint[lambda meta: (-(-1000 // meta["BLOCK"]),)](x, dx.copy(), 1000, 0.5, **cotangents)
    assert (dx == 0.5).all() and d_scale[0] == 499500
    assert adjoint.bench_time == 0.0 and len(adjoint.configs_timings) == 2


def test_configurations_with_other_bits_are_left_out(run, file):
    file.write_text(
        KERNELS
        + """
@tw.jit
def sums(x, out, n, BLOCK: tl.constexpr):
    total = 0.0
    for start in range(0, n, BLOCK):
        total += tl.sum(tl.load(x + start + tl.arange(0, BLOCK)))
    tl.store(out, total)
"""
    )
    arguments = "--arguments", "x=fp32[n], out=fp32[1], n=1024", "--grid", "1", "--invariant"
    code, out, err = run("tune", f"{file}:sums", *arguments, "--space", "BLOCK=32|64|128")
    assert code == 0, err
    assert out.count("it computes other bits than [BLOCK: ") == 2
    assert ", 3 configurations" not in out
    assert re.search(r"bits of all but the failed ones, for every batch size: [0-9a-f]{16}\n", out)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--arguments", "x=fp32[8], wrong=3", "--grid", "1"), "tuned has no parameter wrong"),
        (
            ("--arguments", "x=fp32[8], n=8", "--grid", "cdiv(n, BLOK)"),
            "--grid: '\\(cdiv\\(n, BLOK\\),\\)' has no value",
        ),
        ((*ARGUMENTS, "--budget", "-1"), "--budget must be a number of seconds above 0"),
        ((*ARGUMENTS, "--executor", "cluster"), "--executor: an executor is"),
        ((*ARGUMENTS, "--config", "BLOCK"), "expected NAME=VALUE"),
        ((*ARGUMENTS, "--invariant", "--executor", "processes:1"), "--invariant compares bits on"),
    ],
)
def test_what_makes_no_sense_is_refused(run, file, arguments, says):
    code, _, err = run("tune", f"{file}:tuned", *arguments)
    assert code == 2
    assert re.search(says, err), err


def test_a_plot_needs_matplotlib_and_says_so_first(run, file, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    code, out, err = run("tune", f"{file}:tuned", *ARGUMENTS, "--plot", "times.png")
    assert (code, out) == (2, "") and "--plot is drawn by matplotlib" in err


def test_records_are_listed_merged_and_exported(run, file, tmp_path):
    assert run("tune", f"{file}:tuned", *ARGUMENTS)[0] == 0
    assert (
        run(
            "tune",
            f"{file}:tuned",
            "--arguments",
            "x=fp64[n], n=500",
            "--grid",
            "cdiv(n, BLOCK)",
            "--records",
            tmp_path / "one",
        )[0]
        == 0
    )
    code, out, _ = run("records", "export", "--output", tmp_path / "all.json")
    assert (code, out) == (0, f"2 records in {tmp_path / 'all.json'}\n")
    (one,) = (tmp_path / "one").iterdir()
    code, out, _ = run(
        "records", "merge", one, tmp_path / "all.json", "--output", tmp_path / "merged"
    )
    (merged,) = (tmp_path / "merged").iterdir()
    assert code == 0 and out == f"2 records in {merged}\n" and merged.name == one.name
    code, out, _ = run("records", "list", merged)
    assert code == 0 and len(out.splitlines()) == 2 and "key 500;x:fp64: BLOCK=" in out
    assert run("records", "list", merged, "--kernel", "other")[1] == ""
    code, _, err = run("records", "list", file)
    assert code == 2 and "is no file of tuning records" in err
    code, _, err = run("records", "merge", one)
    assert code == 2 and "needs --output" in err


# ---- on workers

CONFIGS = [Config({"BLOCK": 2**power}) for power in range(3, 10)]


class Fleet(concurrent.futures.Executor):
    """Several kinds of workers that take jobs concurrently."""

    def __init__(self, *kinds):
        self.kinds, self.jobs = kinds, []

    def submit(self, function, job, configs, only):
        assert function is tune_fleet.measure
        kind = self.kinds[len(self.jobs) % len(self.kinds)]
        self.jobs.append((kind, configs, only))
        found = Outcome(kind, "target")
        if only is not None and only != found.kind:
            found.refused = True
        for config in configs if not found.refused else ():
            block = config.kwargs["BLOCK"]
            if block == 8:
                found.failures[config_text(config)] = "too small"
            else:
                found.timings[config_text(config)] = [
                    abs(block - (64 if kind == "big" else 16)) + 1.0
                ] * 3
        future = concurrent.futures.Future()
        future.set_result(found)
        return future


@pytest.mark.parametrize("part", [1, 2, 3, 10])
@pytest.mark.parametrize(
    "kinds",
    [("big",), ("big", "small"), ("big", "big", "small"), ("small", "big", "big", "big", "big")],
)
def test_every_configuration_is_measured_on_every_kind_of_device(kinds, part):
    fleet = Fleet(*kinds)
    seen = []
    outcomes = measure_on(fleet, Job("f", "k", "", "", ""), CONFIGS, part=part, on_step=seen.append)
    met = {kind for kind, _, only in fleet.jobs if only is None}
    assert {outcome.device for outcome in outcomes} == met
    for outcome in outcomes:
        assert len(outcome.timings) == len(CONFIGS) - 1 and len(outcome.failures) == 1
        assert outcome.best == config_text(Config({"BLOCK": 64 if outcome.device == "big" else 16}))
    measured = [(outcome.device, text) for outcome in seen for text in outcome.timings]
    assert len(measured) == len(set(measured))  # nothing twice


def test_a_kind_that_is_not_met_again_stays_incomplete():
    class Leaving(Fleet):
        def submit(self, *arguments):
            if self.jobs:
                self.kinds = ("big",)
            return super().submit(*arguments)

    fleet = Leaving("small")
    outcomes = {
        outcome.device: outcome
        for outcome in measure_on(fleet, Job("f", "k", "", "", ""), CONFIGS, part=2)
    }
    assert len(outcomes["big"].timings) == len(CONFIGS) - 1
    assert len(outcomes["small"].timings) == 1
    assert len(fleet.jobs) < 50


def test_a_fleet_on_which_nothing_works_says_why():
    with pytest.raises(
        AutotunerError, match=r"no configuration of k was measured on any worker.*too small"
    ):
        measure_on(Fleet("big"), Job("f", "k", "", "", ""), CONFIGS[:1])


def test_processes_measure_and_one_record_is_made(run, file, tmp_path):
    code, out, err = run(
        "tune",
        f"{file}:tuned",
        *ARGUMENTS,
        "--executor",
        "processes:1",
        "--records",
        tmp_path / "records",
    )
    assert code == 0, err
    (path,) = (tmp_path / "records").iterdir()
    (record,) = shipped_records.read(path)
    assert record.complete and len(record.timings) == 2 and "failed: BLOCK=128" in out
    assert run("tune", f"{file}:tuned", *ARGUMENTS, "--records", tmp_path / "own")[0] == 0
    (own,) = (tmp_path / "own").iterdir()
    assert shipped_records.read(own)[0].identity == record.identity
    assert math.isfinite(record.timings[record.best][0])


def test_a_worker_without_the_file_imports_what_it_was_sent(file, tmp_path, monkeypatch):
    job = Job.of(f"{file}:plain", "", "")
    file.unlink()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    tune_job._folder.cache_clear()
    assert job.kernel().__name__ == "plain"


def test_what_others_left_in_the_temporary_directory_is_not_imported(file, tmp_path, monkeypatch):
    """The folder of a file that was sent has a name that nobody can guess, and is this user's
    alone: it is first on the path while the file is imported."""
    text = (
        "import contextlib\nwith contextlib.suppress(ImportError):\n    import left_by_others\n"
        f"{file.read_text()}"
    )
    job = Job(str(tmp_path / "gone" / "kernels.py"), "plain", text, "", "")
    guessed = tmp_path / f"tilewright-tune-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    guessed.mkdir()
    (guessed / "left_by_others.py").write_text("raise SystemExit('the code of another user ran')\n")
    (tmp_path / "target").write_text("of somebody")
    (guessed / "kernels.py").symlink_to(tmp_path / "target")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    tune_job._folder.cache_clear()
    path = Path(job.kernel().fn.__code__.co_filename)
    assert path.read_text() == text and (tmp_path / "target").read_text() == "of somebody"
    assert path.parent != guessed and {
        stat.S_IMODE(folder.stat().st_mode) for folder in (path.parent, path.parent.parent)
    } == {0o700}
    assert Path(job.kernel().fn.__code__.co_filename) == path  # one folder a process


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed")
def test_workers_of_a_ray_cluster_measure(run, file, tmp_path):
    code, out, err = run(
        "tune",
        f"{file}:tuned",
        *ARGUMENTS,
        "--executor",
        "ray://local",
        "--records",
        tmp_path / "records",
    )
    assert code == 0, err
    assert "best: " in out and len(list((tmp_path / "records").glob("*.json"))) == 1


@pytest.mark.skipif(
    importlib.util.find_spec("distributed") is None, reason="distributed is not installed"
)
def test_workers_of_a_dask_cluster_measure(run, file, tmp_path):
    import distributed

    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, dashboard_address=None
    ) as cluster:
        where = cluster.scheduler_address.replace("tcp://", "dask://")
        code, out, err = run(
            "tune",
            f"{file}:tuned",
            *ARGUMENTS,
            "--executor",
            where,
            "--records",
            tmp_path / "records",
        )
    assert code == 0, err
    (path,) = (tmp_path / "records").iterdir()
    assert shipped_records.read(path)[0].complete and "best: BLOCK=" in out


def test_a_package_measures_its_block_sizes(tmp_path, monkeypatch, capsys):
    package = tmp_path / "package_to_tune"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "tuning.py").write_text(
        "def tune_package(rules, *, backend, folder, budget):\n"
        "    if 'none' in rules:\n"
        "        raise ValueError('no rule is named none')\n"
        "    print(rules, backend, folder.name, budget)\n"
        "    return 3\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    options = ("--backend", "cpu", "--records", "records", "--budget", "5")
    assert main(["tune", "package_to_tune:matmul,attention", *options]) == 3
    assert capsys.readouterr().out == "['matmul', 'attention'] cpu records 5.0\n"
    for arguments, message in (
        (["package_to_tune:none"], "no rule is named none"),
        (["package_to_tune", "--grid", "3"], "--grid is for a kernel"),
        (["json"], "no package that has tune_package"),
        (["kernels.py:double"], "give --arguments and --grid"),
    ):
        assert main(["tune", *arguments]) == 2
        assert message in capsys.readouterr().err
