"""Tuning records that come with a library: found beside its kernels and on a path, merged, one file
a kind of device; and executors by name."""

import concurrent.futures
import dataclasses
import importlib.util
import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from tuning_support import Bench, grid, tuned

from tilewright.runtime import executors, shipped_records, tuning_records
from tilewright.runtime.arguments.array_protocols import ArrayView
from tilewright.runtime.storage.tuning_record import Record


def record(**changes):
    facts = {
        "kernel": "k",
        "source": "s",
        "key": "int:1",
        "device": "Big GPU (80 GB)",
        "target": "t",
        "space": "c",
        "best": "A=int:1",
    }
    return Record(**{**facts, "timings": {"A=int:1": [2.0, 1.0, 3.0]}, **changes})


# ---- looking up


@pytest.fixture
def shipped(recorder, tmp_path):
    """A file with a record for the tests' kernel and an array of 64 elements, of which this machine
    has none."""
    tuned(Bench(recorder))[grid](np.zeros(64, np.float32), 64)
    path = tmp_path / "library" / "sheet.json"
    assert tuning_records.export(path) == 1
    assert tuning_records.clear() == 1
    return path


def launched(recorder, **options):
    """(measurements, block) of a launch."""
    bench = Bench(recorder)
    kernel = tuned(bench, **options)
    kernel[grid](np.zeros(64, np.float32), 64)
    return bench.calls, kernel.best_config.kwargs["BLOCK"]


def test_records_on_the_path_are_found(recorder, shipped, monkeypatch, tmp_path):
    assert launched(recorder, mode="memory") == (4, 16)
    for place in (
        shipped,
        shipped.parent,
        f"{tmp_path / 'nothing'}{':' if ':' != ';' else ';'}{shipped}",
    ):
        monkeypatch.setenv("TILEWRIGHT_TUNING_PATH", str(place))
        assert launched(recorder) == (0, 16)
        assert launched(recorder, mode="deterministic") == (0, 16)
        assert launched(recorder, mode="refresh") == (4, 16)
        tuning_records.clear()


def test_records_beside_the_kernels_file_are_found(recorder, shipped, monkeypatch):
    beside = shipped.parent / "tilewright_tuning"
    beside.mkdir()
    shipped.rename(beside / shipped.name)
    monkeypatch.setattr(
        "tilewright.runtime.tuning.autotune.Autotuner._source_file",
        lambda tuner: str(shipped.parent / "kernels.py"),
    )
    assert launched(recorder) == (0, 16)


def test_a_kernel_knows_the_file_that_defines_it(recorder):
    assert Path(tuned(Bench(recorder))._source_file()).name == "tuning_support.py"


def test_what_this_machine_measured_comes_before_what_was_shipped(recorder, shipped, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_TUNING_PATH", str(shipped))
    data = json.loads(shipped.read_text())
    data["records"][0]["best"] = "BLOCK=int:8,num_ctas=int:1,num_stages=int:3,num_warps=int:4"
    shipped.write_text(json.dumps(data))
    assert launched(recorder) == (0, 8)
    assert launched(recorder, mode="refresh") == (4, 16)
    assert launched(recorder) == (0, 16)
    assert launched(recorder, mode="deterministic") == (0, 8)


@pytest.mark.parametrize(
    "damage", ["", "[]", '{"version": 1, "records": [3]}', '{"version": 99, "records": []}']
)
def test_a_damaged_file_is_left_out_with_a_warning(recorder, shipped, monkeypatch, damage):
    monkeypatch.setenv("TILEWRIGHT_TUNING_PATH", str(shipped))
    shipped.write_text(damage)
    with pytest.warns(RuntimeWarning, match=r"the tuning records of .*sheet.json are skipped"):
        assert launched(recorder)[0] == 4


def test_a_record_is_the_same_for_arrays_of_all_libraries_and_ways_to_pass_them(recorder):
    x = np.zeros(64, np.float32)
    view = ArrayView(x, x.ctypes.data, "fp32", (64,), (1,), ("cpu", 0))
    for number, launch in enumerate(
        (lambda k: k[grid](x, 64), lambda k: k[grid](n=64, x=x), lambda k: k[grid](view, 64))
    ):
        bench = Bench(recorder)
        launch(tuned(bench))
        assert bench.calls == (4 if number == 0 else 0)
    bench = Bench(recorder)
    tuned(bench)[grid](x.view(np.int32), 64)
    assert bench.calls == 4


# ---- files


def test_merging_keeps_the_shortest_times_and_the_best_of_all():
    one = record(
        timings={"A=int:1": [2.0, 1.0, 3.0], "A=int:2": [1.5, 1.0, 2.0]},
        best="A=int:2",
        complete=False,
    )
    other = record(timings={"A=int:1": [1.0, 1.0, 1.0], "A=int:3": [9.0, 9.0, 9.0]}, complete=True)
    apart = record(device="Small GPU")
    merged = shipped_records.merge([one, apart, other])
    assert merged[1] == apart
    assert merged[0].timings == {
        "A=int:1": [1.0, 1.0, 1.0],
        "A=int:2": [1.5, 1.0, 2.0],
        "A=int:3": [9.0, 9.0, 9.0],
    }
    assert (merged[0].best, merged[0].complete, len(merged)) == ("A=int:1", True, 2)
    assert (
        shipped_records.merge(
            [record(timings={}, best="x", complete=False), record(timings={}, best="y")]
        )[0].best
        == "y"
    )


def test_there_is_a_file_for_each_kind_of_device_that_more_can_be_added_to(tmp_path):
    small = record(device="Small/GPU")
    paths = shipped_records.write_by_device(tmp_path, [record(), small, record(key="int:2")])
    assert [path.name for path in paths] == ["big-gpu-80-gb.json", "small-gpu.json"]
    assert len(shipped_records.read(paths[0])) == 2 and shipped_records.read(paths[1]) == [small]
    faster = dataclasses.replace(small, timings={"A=int:1": [0.5, 0.5, 0.5]})
    shipped_records.write_by_device(tmp_path, [faster])
    assert shipped_records.read(paths[1]) == [faster]
    before = paths[0].read_bytes()
    shipped_records.write(paths[0], reversed(shipped_records.read(paths[0])))
    assert paths[0].read_bytes() == before


# ---- executors by name


def test_executors_are_opened_by_name_and_shut_down(monkeypatch):
    with executors.opened("threads:2") as pool:
        assert pool.submit(sum, [1, 2]).result() == 3 and pool._max_workers == 2
    with pytest.raises(RuntimeError, match="shutdown"):
        pool.submit(sum, [])
    with executors.opened("processes:1") as pool:
        assert isinstance(pool, concurrent.futures.ProcessPoolExecutor) and pool._max_workers == 1
    monkeypatch.setattr(
        executors, "mine", lambda: concurrent.futures.ThreadPoolExecutor(1), raising=False
    )
    with executors.opened("tilewright.runtime.executors:mine") as pool:
        assert pool.submit(sum, [4]).result() == 4


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("cluster", "an executor is processes"),
        ("processes:0", "number of workers above 0"),
        ("threads:many", "number of workers above 0"),
        ("no_such_module:x", "there is no executor"),
        ("math:pi", "is a float, and no"),
    ],
)
def test_what_names_no_executor_is_refused(text, says):
    before = dict(os.environ)
    with pytest.raises(executors.ExecutorError, match=says), executors.opened(text):
        pass
    assert dict(os.environ) == before


def test_modules_of_the_current_folder_name_executors(tmp_path, monkeypatch):
    (tmp_path / "my_fleet.py").write_text(
        "import concurrent.futures\n\ndef fleet():\n"
        "    return concurrent.futures.ThreadPoolExecutor(1)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        sys, "path", [entry for entry in sys.path if entry not in ("", str(tmp_path))]
    )
    before = list(sys.path)
    with executors.opened("my_fleet:fleet") as pool:
        assert pool.submit(pow, 2, 5).result() == 32
    assert sys.path == before
    monkeypatch.delitem(sys.modules, "my_fleet")


@pytest.mark.skipif(importlib.util.find_spec("ray") is not None, reason="ray is installed")
def test_ray_needs_its_extra():
    with (
        pytest.raises(executors.ExecutorError, match=r"which the extra tilewright\[ray\] brings"),
        executors.opened("ray://local"),
    ):
        pass


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed")
@pytest.mark.parametrize("text", ["ray://", "ray://local?cpus=1", "ray://local?gpus=some"])
def test_what_names_no_ray_cluster_is_refused(text):
    with pytest.raises(executors.ExecutorError, match="Ray cluster"), executors.opened(text):
        pass


@pytest.mark.skipif(
    importlib.util.find_spec("distributed") is not None, reason="distributed is installed"
)
def test_dask_needs_its_extra():
    with (
        pytest.raises(executors.ExecutorError, match=r"which the extra tilewright\[dask\] brings"),
        executors.opened("dask://localhost:1"),
    ):
        pass
