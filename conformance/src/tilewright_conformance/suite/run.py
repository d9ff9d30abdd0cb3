"""One run of the suite, from the choice of cases to the report on disk."""

from __future__ import annotations

import concurrent.futures
import contextlib
import datetime
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tilewright.runtime.executors import opened
from tilewright.runtime.storage.files import write_whole
from tilewright_conformance.suite.case import Case, Outcome
from tilewright_conformance.suite.catalogue import catalogue, drawn
from tilewright_conformance.suite.engine.journal import Journal
from tilewright_conformance.suite.engine.pool import default_workers, run_cases
from tilewright_conformance.suite.engine.setup import Setup, identity_of, load_plugins
from tilewright_conformance.suite.engine.shards import described, run_shards
from tilewright_conformance.suite.expectations import Expectations, Verdict, read_expectations
from tilewright_conformance.suite.provenance import provenance
from tilewright_conformance.suite.report import badge, document, html, junit
from tilewright_conformance.suite.session import Subject

#: Called before the first case, and after each: (cases in all, cases that are done, the outcome and
#: its verdict or None).
Progress = Callable[[int, int, Outcome | None, Verdict | None], None]


@dataclass(frozen=True)
class Options:
    """The options of a run.

    Attributes:
        setup: the configuration with which cases run.
        profiles, patterns: which cases; all where neither is given.
        workers: processes at once; 0 for as many as there are processors.
        folder: where the journal and the reports go; made where it is missing.
        resume: go on with the journal in the folder.
        expectations: the vendor's file.
        sample: run so many of the chosen cases, drawn by the seed; 0 for all.
        wheels: files that the distributions under test were installed from; where there is an
            executor, at the same place on its workers.
        executor: where cases are run, as :mod:`tilewright.runtime.executors` names it, each of its
            workers running ``workers`` processes, or one for 0; empty: on this machine.
    """

    setup: Setup
    profiles: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    workers: int = 0
    folder: Path = Path("conformance-report")
    resume: bool = False
    expectations: Path | None = None
    sample: int = 0
    wheels: tuple[Path, ...] = ()
    executor: str = ""


def run(
    options: Options, progress: Progress = lambda total, done, outcome, verdict: None
) -> document.Document:
    """Run the suite, write the report to the folder, and return it.

    The files are ``report.json``, ``junit.xml``, ``report.html`` and ``badge.svg``.

    Raises:
        CatalogueError, ExpectationError, JournalError: a wrong question.
        BackendError, WorkerRefusedError: the backend cannot be tested.
        WheelError: a wheel is not the installed one.
        ExecutorError: there is no such executor.
    """
    with opened(options.executor) if options.executor else contextlib.nullcontext() as executor:
        return _run(options, progress, executor)


def _run(
    options: Options, progress: Progress, executor: concurrent.futures.Executor | None
) -> document.Document:
    setup = options.setup
    cases = catalogue(setup.packages)
    selected = cases.select(profiles=options.profiles, patterns=options.patterns, quick=setup.quick)
    if options.sample:
        selected = drawn(selected, options.sample, setup.seed)
    expectations = (
        Expectations()
        if options.expectations is None
        else read_expectations(options.expectations, cases)
    )
    if executor is None:
        load_plugins(setup)
        about = provenance(Subject(setup.backend), options.wheels)
    else:
        about = executor.submit(described, setup, options.wheels).result()
    identity = identity_of(setup, about, cases)
    options.folder.mkdir(parents=True, exist_ok=True)
    started = datetime.datetime.now(datetime.UTC)
    clock = time.monotonic()
    with Journal(options.folder / "journal.jsonl", identity, resume=options.resume) as journal:
        done = {case.id: journal.done[case.id] for case in selected if case.id in journal.done}
        progress(len(selected), len(done), None, None)

        def keep(outcome: Outcome) -> None:
            journal.add(outcome)
            done[outcome.case] = outcome
            progress(len(selected), len(done), outcome, expectations.verdict(outcome))

        waiting = [case for case in _slow_first(selected) if case.id not in done]
        if executor is not None:
            run_shards(
                executor, waiting, setup, identity, workers=options.workers or 1, on_outcome=keep
            )
            waiting = []
        for chosen, workers in (
            ([case for case in waiting if not case.alone], options.workers),
            ([case for case in waiting if case.alone], 1),
        ):
            run_cases(chosen, setup, workers=workers, on_outcome=keep)
    facts = {
        "seed": setup.seed,
        "quick": setup.quick,
        "profiles": list(options.profiles),
        "patterns": list(options.patterns),
        "sample": options.sample,
        "time_scale": setup.time_scale,
        "emulate": setup.emulate,
        **({"repeat": setup.repeat} if setup.repeat > 1 else {}),
        "workers": options.workers or (default_workers() if executor is None else 1),
        **({"executor": options.executor} if options.executor else {}),
        "started": started.isoformat(timespec="seconds"),
        "seconds": round(time.monotonic() - clock, 3),
    }
    report = document.build(selected, done, about, facts, expectations, cases)
    write_all(report, options.folder)
    return report


def write_all(report: document.Document, folder: Path) -> None:
    """Write a report in all its forms."""
    document.write(report, folder / "report.json")
    for name, text in (
        ("junit.xml", junit.junit(report)),
        ("report.html", html.page(report)),
        ("badge.svg", badge.badge(report)),
    ):
        write_whole(folder / name, text.encode())


def _slow_first(cases: Sequence[Case]) -> list[Case]:
    """Sort cases that may take long to the front, so that none runs alone at the end.

    Else the order stays.
    """
    return sorted(cases, key=lambda case: -case.time_limit)
