"""The suite shared among the workers of an executor: one report, the same as without, and workers
that are not like the others are refused."""

from __future__ import annotations

import concurrent.futures
import importlib.util
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tilewright_conformance.suite import cli
from tilewright_conformance.suite.case import Outcome, Status
from tilewright_conformance.suite.catalogue import catalogue
from tilewright_conformance.suite.engine import shards
from tilewright_conformance.suite.engine.process import WorkerRefusedError
from tilewright_conformance.suite.engine.setup import Setup
from tilewright_conformance.suite.report import document
from tilewright_conformance.suite.run import Options, run

PATTERNS = ("elementwise/sqrt/*", "elementwise/fma/*")


def told(report: document.Document) -> dict[str, tuple[str, str]]:
    return {result["case"]: (result["status"], result["message"]) for result in report["results"]}


def test_processes_share_a_run_whose_report_is_the_same_as_without(
    report: document.Document, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_here(cases: Sequence[Any], *arguments: object, **options: object) -> None:
        assert not cases

    monkeypatch.setattr("tilewright_conformance.suite.run.run_cases", run_here)
    shared = run(
        Options(Setup("cpu", seed=5), patterns=PATTERNS, folder=tmp_path, executor="processes:1")
    )
    assert told(shared) == told(report) and len(told(shared)) > shards.PART
    assert shared["summary"] == report["summary"] and shared["device"] == report["device"]
    assert (shared["run"]["executor"], shared["run"]["workers"]) == ("processes:1", 1)
    assert document.read(tmp_path / "report.json") == shared
    again = run(
        Options(
            Setup("cpu", seed=5),
            patterns=PATTERNS,
            folder=tmp_path,
            executor="threads:1",
            resume=True,
        )
    )
    assert told(again) == told(report)  # of the journal: a run may go on elsewhere


class Here(concurrent.futures.Executor):
    """Does each job at once, and notes it."""

    def __init__(self) -> None:
        self.jobs: list[tuple[list[str], int]] = []

    def submit(
        self,
        function: Callable[..., Any],
        /,
        setup: Setup,
        ids: Sequence[str],
        identity: Any,
        workers: int,
    ) -> Any:  # type: ignore[override]
        self.jobs.append((list(ids), workers))
        future: concurrent.futures.Future[Any] = concurrent.futures.Future()
        try:
            future.set_result(function(setup, ids, identity, workers))
        except Exception as error:
            future.set_exception(error)
        return future


def test_cases_that_run_alone_come_last_and_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        shards,
        "run_part",
        lambda setup, ids, identity, workers: [
            Outcome(id_, Status.PASSED).as_json() for id_ in ids
        ],
    )
    alone = catalogue().matching("perf/timer/*")
    others = catalogue().matching("elementwise/sqrt/*")[:5]
    executor = Here()
    seen: list[str] = []
    outcomes = shards.run_shards(
        executor,
        [*alone, *others],
        Setup("cpu"),
        {},
        workers=3,
        part=2,
        on_outcome=lambda outcome: seen.append(outcome.case),
    )
    assert alone and [outcome.case for outcome in outcomes] == [
        case.id for case in (*alone, *others)
    ]
    ids = [case.id for case in others]
    assert sorted(executor.jobs[:3]) == sorted([(ids[:2], 3), (ids[2:4], 3), (ids[4:], 3)])
    assert executor.jobs[3:] == [([case.id], 1) for case in alone]
    assert sorted(seen) == sorted(outcome.case for outcome in outcomes)


def test_a_worker_with_another_device_ends_the_run() -> None:
    cases = catalogue().matching("elementwise/sqrt/*")[:1]
    with pytest.raises(
        WorkerRefusedError,
        match=r"is not like the others: device is .*, and that of the run 'another'",
    ):
        shards.run_shards(Here(), cases, Setup("cpu"), {"backend": "cpu", "device": "another"})


def test_an_executor_that_is_none_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        cli.main(
            [
                "run",
                "--backend",
                "cpu",
                "--case",
                PATTERNS[0],
                "--executor",
                "cluster",
                "--report",
                str(tmp_path),
            ]
        )
        == cli.USAGE
    )
    assert "an executor is processes[:N]" in capsys.readouterr().err


@pytest.mark.skipif(
    importlib.util.find_spec("distributed") is None, reason="distributed is not installed"
)
def test_a_dask_cluster_shares_a_run(report: document.Document, tmp_path: Path) -> None:
    import distributed

    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, dashboard_address=None
    ) as cluster:
        where = cluster.scheduler_address.replace("tcp://", "dask://")
        code = cli.main(
            [
                "run",
                "--backend",
                "cpu",
                "--seed",
                "5",
                *(f"--case={one}" for one in PATTERNS),
                "--executor",
                where,
                "--report",
                str(tmp_path),
            ]
        )
    assert code == cli.GOOD
    assert told(json.loads((tmp_path / "report.json").read_text())) == told(report)
