"""The page of ratios on a GPU, and the comparison of what tensors hold, without one."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from corpus.compilation import place
from corpus.device import measure as device
from corpus.device import process as device_process
from corpus.device.process import DeviceProcess
from corpus.launches import Argument, Launch

LAUNCH = Launch("p", "1", "m", "k", "c", (Argument("out", "*fp32", shape=(4,), strides=(1,)),))
THEIRS = np.array([1, 2, 3, 4], "f4")


@pytest.mark.parametrize(
    ("ours", "right", "note"),
    [
        ({"out": THEIRS * np.float32(1.0001)}, True, ""),
        ({"out": THEIRS[::-1].copy()}, False, "out differs by 0.75"),
        ({}, False, "changed: [], Triton ['out']"),
    ],
)
def test_tensors_are_compared(
    tmp_path: Path, ours: dict[str, np.ndarray], right: bool, note: str
) -> None:
    for compiler, tensors in (("triton", {"out": THEIRS}), ("tilewright", ours)):
        folder = tmp_path / "tensors" / compiler
        folder.mkdir(parents=True)
        raw = {name: each.view(np.uint8) for name, each in tensors.items()}
        np.savez(folder / f"{place(LAUNCH)}.npz", **raw)
    measured = device.Measured(LAUNCH.id)
    device._compare(measured, LAUNCH, tmp_path, lambda which: None)
    assert (measured.right, measured.note) == (right, note)


def test_the_least_time_of_the_rounds_counts() -> None:
    measured = device.Measured("k")
    device._take(measured, {"first": 900.0}, "triton")
    device._take(measured, {"device": 10.0, "host": 5.0}, "triton")
    device._take(measured, {"device": 8.0, "host": 6.0}, "triton")
    device._take(measured, {"first": 450.0}, "tilewright")
    device._take(measured, {"device": 4.0, "host": 5.0}, "tilewright")
    assert measured.theirs == {"device": 8.0, "host": 5.0, "first": 900.0}
    assert [measured.speed(what) for what in ("device", "host", "first")] == [2.0, 1.0, 2.0]
    device._take(measured, {"error": "it died"}, "tilewright")
    assert measured.note == "tilewright: it died"


def test_the_page_has_the_slowest_first() -> None:
    def one(kernel: str, ours: float) -> device.Measured:
        return device.Measured(kernel, {"device": ours, "host": 5.0}, {"device": 10.0}, right=True)

    text = device.page(
        [one("fast", 5.0), one("slow", 20.0), device.Measured("bad", note="x|y")], "H100"
    )
    assert "- device: geometric mean 1.00 of 2, worst 0.50, 1 below 0.90" in text
    assert "- first: not measured" in text
    assert "| slow | 0.50 |  |  | 20.0 | 5.0 | right |" in text
    assert text.index("| slow |") < text.index("| fast |") < text.index("| bad |")
    assert "x\\|y" in text
    assert "| right: the order |" in device.page(
        [device.Measured("k", right=True, note="the order")], "H100"
    )


def test_witnesses_are_asked_once_and_leave_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "tensors" / "triton"
    folder.mkdir(parents=True)
    asked: list[tuple[str, str]] = []

    class Triton:
        def ask(self, action: str, number: str, record: object, limit: float) -> dict[str, object]:
            asked.append((action, number.rpartition(".")[2]))
            if action == "exact":
                return {"error": "it needs more shared memory"}
            np.savez(folder / f"{number}.npz", out=THEIRS.view(np.uint8))
            return {"first": 1.0}

    witness = device._witness(LAUNCH, Triton(), tmp_path, 1)  # type: ignore[arg-type]
    for _ in range(2):
        assert (witness("again") or {})["out"].view("f4").tolist() == THEIRS.tolist()
        assert witness("exact") is None
    assert asked == [("run", "again"), ("exact", "exact")]
    assert not list(folder.iterdir())


WORKER = """
import json, os, sys, time

out = open(int(sys.argv[1]), "w")
print("it begins")
for line in sys.stdin:
    action, number, record = json.loads(line)
    if number == "dies":
        os._exit(3)
    if number == "hangs":
        time.sleep(60)
    answer = {"pid": os.getpid(), "first": 1.0, "device": 2.0, "host": 3.0}
    out.write(json.dumps(answer | ({"last": True} if number == "faults" else {})) + "\\n")
    out.flush()
"""


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DeviceProcess:
    (tmp_path / "stand_in.py").write_text(WORKER)
    monkeypatch.setattr(device_process, "_START", 20.0)
    return DeviceProcess(
        tmp_path, tmp_path / "log", {**os.environ, "PYTHONPATH": str(tmp_path)}, "stand_in"
    )


def test_a_process_answers_until_it_dies_and_another_takes_its_place(
    worker: DeviceProcess, tmp_path: Path
) -> None:
    first, again = (worker.ask("run", "n", {}, 20)["pid"] for _ in range(2))
    assert first == again
    assert worker.ask("run", "dies", {}, 20) == {"error": "the process ended with 3"}
    second = worker.ask("run", "n", {}, 20)["pid"]
    assert worker.ask("run", "hangs", {}, 0.5) == {"error": "it took longer than 0.5 s"}
    third = worker.ask("run", "faults", {}, 20)["pid"]
    fourth = worker.ask("run", "n", {}, 20)["pid"]
    assert len({first, second, third, fourth}) == 4
    worker.end()
    assert "it begins" in (tmp_path / "log").read_text()


def test_all_launches_are_run_then_timed_until_the_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "stand_in.py").write_text(WORKER)
    variables = {**os.environ, "PYTHONPATH": str(tmp_path)}
    monkeypatch.setattr(
        device,
        "DeviceProcess",
        lambda tensors, log, _: DeviceProcess(tensors, log, variables, "stand_in"),
    )
    launches = [Launch("p", "1", f"m{number}", "k", f"c{number}", ()) for number in range(5)]
    found = device.measure(launches, tmp_path, 2, 20, jobs=2)
    assert [each.kernel for each in found] == [each.id for each in launches]
    assert all(
        each.ours == each.theirs == {"first": 1.0, "device": 2.0, "host": 3.0} for each in found
    )
    assert json.loads((tmp_path / "device.json").read_text())[4]["kernel"] == launches[4].id
    late = device.measure(launches, tmp_path, 2, 20, jobs=2, deadline=0)
    assert {each.note for each in late} == {"not reached before the deadline"}


def test_a_package_that_cannot_be_imported_is_skipped(tmp_path: Path) -> None:
    class Absent:
        asked = 0

        def ask(self, *request: object) -> dict[str, object]:
            Absent.asked += 1
            return {"error": "ImportError", "absent": True}

        def end(self) -> None: ...

    launches = [Launch("p", "1", "m", "k", f"c{number}", ()) for number in range(6)]
    found = {launch.id: device.Measured(launch.id) for launch in launches}
    device._first_calls(launches, found, lambda compiler: Absent(), tmp_path, 1, float("inf"))
    assert Absent.asked == 3
    assert [each.note for each in found.values()] == ["triton: ImportError"] * 3 + [
        "skipped: p cannot be imported"
    ] * 3
    Absent.asked = 0
    device._import(Absent(), launches, 1, float("inf"))  # type: ignore[arg-type]
    assert Absent.asked == 3
    device._import(Absent(), launches, 1, 0.0)  # type: ignore[arg-type]
    assert Absent.asked == 3, "there is no time left"


def test_a_witness_has_the_same_numbers_in_more_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    from corpus.device import worker

    monkeypatch.setattr(torch.Tensor, "cuda", lambda tensor: tensor)
    argument = Argument("x", "*bf16", shape=(3, 5), strides=(5, 1))
    narrow, wide = (worker._value(LAUNCH, argument, {}, exact) for exact in (False, True))
    assert (narrow.dtype, wide.dtype) == (torch.bfloat16, torch.float32)
    assert torch.equal(narrow.float(), wide)
    assert worker._value(LAUNCH, Argument("n", "i32", 7), {}, True) == 7
