"""The engine records the faults of a misbehaving backend for the running case, and continues."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tilewright_conformance.suite import run as running
from tilewright_conformance.suite.case import Case, Outcome, Status
from tilewright_conformance.suite.catalogue import catalogue
from tilewright_conformance.suite.engine.journal import Journal, JournalError
from tilewright_conformance.suite.engine.pool import run_cases
from tilewright_conformance.suite.engine.process import WorkerProcess, WorkerRefusedError
from tilewright_conformance.suite.engine.setup import Setup

IDS = [f"elementwise/{name}/i32/scalar" for name in ("add", "sub", "mul", "xor")]
CASES = [catalogue()[id_] for id_ in IDS]


#: Seconds after which a test that waits for what does not come fails.
GUARD = 900


def misbehaving_at(monkeypatch: pytest.MonkeyPatch, how: str, at: str) -> None:
    """Let the backend of this folder misbehave, in the processes that are started from now on."""
    monkeypatch.setenv(
        "PYTHONPATH",
        os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]),
    )
    monkeypatch.setenv("MISBEHAVE_HOW", how)
    monkeypatch.setenv("MISBEHAVE_AT", at)


def misbehave(
    monkeypatch: pytest.MonkeyPatch,
    how: str,
    at: str = "sub",
    cases: list[Case] = CASES,
    **setup: object,
) -> dict[str, Outcome]:
    misbehaving_at(monkeypatch, how, at)
    outcomes = run_cases(
        cases, Setup("misbehaving", load=("misbehaving",), start_limit=GUARD, **setup), workers=1
    )  # type: ignore[arg-type]
    return {outcome.case: outcome for outcome in outcomes}


@pytest.mark.parametrize(
    ("how", "status", "exception", "words"),
    [
        ("crash", Status.CRASHED, "SIGSEGV", "assertion failed in the driver"),
        (
            "hang",
            Status.TIMED_OUT,
            "TimeLimit",
            "no result within 3 seconds (--time-scale allows a slow machine more)",
        ),
        ("leak", Status.CRASHED, "MemoryLimit", "one case may take 100 MiB"),
        ("garbage", Status.FAILED, "MismatchError", "expected"),
        (
            "overrun",
            Status.FAILED,
            "OutOfBoundsWriteError",
            "1 bytes after the end of an array of 4 bytes, the nearest with 0 bytes between",
        ),
        ("exit", Status.ERROR, "BackendError", "SystemExit: 3"),
        ("chatter", Status.PASSED, "", ""),
        ("lose", Status.ERROR, "KernelError", "the device answers no more"),
    ],
)
def test_a_misdeed_is_recorded_against_its_case_alone(
    monkeypatch: pytest.MonkeyPatch, how: str, status: Status, exception: str, words: str
) -> None:
    # of the cases, only the one that hangs has little time: how fast the others run is not what is
    # asked
    hurried = [
        dataclasses.replace(case, time_limit=3.0 if how == "hang" and case.id == IDS[1] else GUARD)
        for case in CASES
    ]
    found = misbehave(monkeypatch, how, cases=hurried, memory=100 << 20)
    bad = found.pop(IDS[1])
    assert (bad.status, bad.exception) == (status, exception)
    assert words in bad.message
    assert {outcome.status for outcome in found.values()} == {Status.PASSED}


F64 = [catalogue()[f"elementwise/{name}/f64/scalar"] for name in ("add", "sub")]


@pytest.mark.parametrize(
    ("how", "status", "words"),
    [
        (
            "undeclared",
            Status.FAILED,
            "the backend does not declare dtype f64, and accepted it silently",
        ),
        ("undeclared and refused", Status.NOT_SUPPORTED, "this target has no f64"),
        ("undeclared and broken", Status.ERROR, "which is no diagnostic"),
        ("undeclared and held to it", Status.NOT_SUPPORTED, "does not declare element type f64"),
    ],
)
def test_what_is_not_declared_must_be_refused(
    monkeypatch: pytest.MonkeyPatch, how: str, status: Status, words: str
) -> None:
    for outcome in misbehave(monkeypatch, how, cases=F64).values():
        assert outcome.status == status
        assert words in outcome.message


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("repeat", "found"),
    [
        (1, ""),
        (4, ""),
        (5, "run 5 of 5, after 4 that passed: "),
        (7, "run 5 of 7, after 4 that passed: "),
    ],
)
def test_a_case_that_is_repeated_fails_by_its_first_failure(
    monkeypatch: pytest.MonkeyPatch, repeat: int, found: str
) -> None:
    outcomes = misbehave(monkeypatch, "fifth", repeat=repeat)
    assert [outcome.status for id_, outcome in outcomes.items() if id_ != IDS[1]] == [
        Status.PASSED
    ] * 3
    outcome = outcomes[IDS[1]]
    assert outcome.status is (
        Status.FAILED if found else Status.PASSED
    ) and outcome.message.startswith(found)
    assert not found or "expected" in outcome.message


def test_a_case_that_takes_the_device_along_is_repeated_in_new_processes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[object] = []
    monkeypatch.setattr(
        WorkerProcess,
        "_start",
        lambda worker, start=WorkerProcess._start: (started.append(worker), start(worker)),
    )
    outcomes = misbehave(monkeypatch, "spend", repeat=3)
    assert [(outcome.status, outcome.message) for outcome in outcomes.values()] == [
        (Status.PASSED, "")
    ] * len(CASES)
    assert len(started) == 4, (
        "one until the case's first run, one for its second, one for its third, one for the "
        "cases after it"
    )


def test_a_backend_that_cannot_be_loaded_ends_the_run_with_its_own_error() -> None:
    with pytest.raises(WorkerRefusedError, match="no backend named 'nosuch' is installed"):
        run_cases(CASES, Setup("nosuch"), workers=2)


#: The command line, in a process that heeds interrupts though its parent may ignore them, as one in
#: the background of a shell's script does.
_INTERRUPTIBLE = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from tilewright_conformance.suite.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_an_interrupt_ends_what_hangs_and_keeps_what_is_done(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sign, report = tmp_path / "it hangs", tmp_path / "report"
    journal = report / "journal.jsonl"
    monkeypatch.setenv("MISBEHAVE_SIGN", str(sign))
    misbehaving_at(monkeypatch, "hang", "sub")
    options = [
        "--backend",
        "misbehaving",
        "--load",
        "misbehaving",
        "-j",
        "1",
        "--time-scale",
        "100",
        "--report",
        str(report),
    ]
    command = [
        sys.executable,
        "-c",
        _INTERRUPTIBLE,
        "run",
        *options,
        *(f"--case={id_}" for id_ in IDS),
    ]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        until = time.monotonic() + GUARD
        while not (
            sign.exists() and IDS[0] in journal.read_text()
        ):  # the first case is kept, and the second hangs
            assert process.poll() is None and time.monotonic() < until
            time.sleep(0.02)
        workers = [
            int(path.parent.name)
            for path in Path("/proc").glob("[0-9]*/stat")
            if _parent(path) == process.pid
        ]
        assert workers
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=GUARD)
    finally:
        process.kill()
    assert process.returncode == 130 and "go on with --resume" in errors
    assert IDS[1] not in journal.read_text()
    assert not any(Path(f"/proc/{worker}").exists() for worker in workers)


def _parent(stat: Path) -> int:
    try:
        return int(stat.read_text().rpartition(")")[2].split()[1])
    except OSError:  # it has ended
        return 0


def test_outcomes_do_not_depend_on_workers_or_order() -> None:
    some = catalogue().select(patterns=["elementwise/sqrt/*", "elementwise/fma/*"])
    one, two = (
        run_cases(some, Setup("cpu", seed=3), workers=1),
        run_cases(some[::-1], Setup("cpu", seed=3), workers=2),
    )
    assert [(outcome.case, outcome.status, outcome.numbers) for outcome in one] == [
        (o.case, o.status, o.numbers) for o in reversed(two)
    ]
    assert max(outcome.numbers["compared"] for outcome in one) == 128


def test_a_journal_goes_on_where_the_run_was_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    outcome = Outcome(IDS[0], Status.FAILED, "wrong", "MismatchError", {"ulp": 3.0}, 0.5)
    with Journal(path, {"seed": 1, "tuple": (1, 2)}, resume=False) as journal:
        journal.add(outcome)
    with path.open("a") as file:
        file.write('{"case": "cut o' + 500 * "f")
    with Journal(path, {"seed": 1, "tuple": (1, 2)}, resume=True) as journal:
        assert journal.done == {IDS[0]: outcome}
        journal.add(Outcome(IDS[1], Status.PASSED))
    with Journal(path, {"seed": 1, "tuple": (1, 2)}, resume=True) as journal:
        assert list(journal.done) == IDS[:2]
    with pytest.raises(JournalError, match="seed was 1 and is 2"):
        Journal(path, {"seed": 2, "tuple": (1, 2)}, resume=True)
    with Journal(path, {"seed": 2}, resume=False) as journal:
        assert not journal.done


def test_cases_that_measure_time_run_after_the_others_and_one_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[list[str], int]] = []

    def note(
        cases: list[Case], setup: Setup, *, workers: int, on_outcome: Callable[[Outcome], None]
    ) -> None:
        asked.append(([case.id for case in cases], workers))
        for case in cases:
            on_outcome(Outcome(case.id, Status.PASSED))

    monkeypatch.setattr(running, "run_cases", note)
    chosen = ("perf/timer/*", "elementwise/neg/f32/scalar")
    running.run(running.Options(Setup("reference"), patterns=chosen, workers=7, folder=tmp_path))
    measuring = [case.id for case in catalogue().matching("perf/timer/*")]
    assert measuring and asked == [(["elementwise/neg/f32/scalar"], 7), (measuring, 1)]
