"""Running cases on the workers of an executor, a part of the cases a job.

Each case has a process of its own on the worker's machine, as in a run without an executor. A
report is of one device and one installation. Each job reports where it runs, and a worker where
anything differs that outcomes depend on ends the run.
"""

from __future__ import annotations

import concurrent.futures
import functools
import platform
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tilewright_conformance.suite.case import Case, Outcome
from tilewright_conformance.suite.catalogue import catalogue
from tilewright_conformance.suite.engine.pool import run_cases
from tilewright_conformance.suite.engine.process import WorkerRefusedError
from tilewright_conformance.suite.engine.setup import Setup, identity_of, load_plugins

#: Cases in a job.
PART = 16


def described(setup: Setup, wheels: Sequence[Path]) -> dict[str, Any]:
    """A worker's provenance: see :func:`~tilewright_conformance.suite.provenance.provenance`."""
    return dict(_described(setup.as_text(), tuple(wheels)))


@functools.cache
def _described(setup: str, wheels: tuple[Path, ...]) -> dict[str, Any]:
    from tilewright_conformance.suite.provenance import provenance
    from tilewright_conformance.suite.session import Subject

    given = Setup.from_text(setup)
    load_plugins(given)  # once a process
    return provenance(Subject(given.backend), wheels)


def run_part(
    setup: Setup, ids: Sequence[str], identity: Mapping[str, Any], workers: int
) -> list[dict[str, Any]]:
    """Run some cases on a worker and return their outcomes as JSON-able data.

    Raises:
        WorkerRefusedError: this place is not the one of ``identity``, or its backend cannot be
            loaded.
    """

    cases = catalogue(setup.packages)
    here = identity_of(setup, described(setup, ()), cases)
    differing = [
        f"{name} is {here.get(name)!r}, and that of the run {identity.get(name)!r}"
        for name in identity
        if here.get(name) != identity[name]
    ]
    if differing:
        raise WorkerRefusedError(
            f"the worker on {platform.node()} is not like the others: {'; '.join(differing)}"
        )
    return [
        outcome.as_json()
        for outcome in run_cases([cases[id_] for id_ in ids], setup, workers=workers)
    ]


def run_shards(
    executor: concurrent.futures.Executor,
    cases: Sequence[Case],
    setup: Setup,
    identity: Mapping[str, Any],
    *,
    workers: int = 1,
    part: int = PART,
    on_outcome: Callable[[Outcome], None] = lambda outcome: None,
) -> list[Outcome]:
    """Run cases on an executor's workers and return the outcomes in the order of ``cases``.

    Cases that must run alone come last, one job at a time.

    Args:
        identity: everything outcomes depend on, as JSON-able data; see
            :func:`~tilewright_conformance.suite.engine.setup.identity_of`.
        workers: processes that each worker runs at once.
        on_outcome: called, on the thread of the caller, for each outcome as its job ends.

    Raises:
        WorkerRefusedError: a worker cannot load the backend, or has another device or installation.
            ``on_outcome`` has received the outcomes until then.
    """
    found: dict[str, Outcome] = {}

    def take(future: concurrent.futures.Future[list[dict[str, Any]]]) -> None:
        for data in future.result():
            outcome = Outcome.from_json(data)
            found[outcome.case] = outcome
            on_outcome(outcome)

    together = [case.id for case in cases if not case.alone]
    size = max(1, min(part, len(together)))
    waiting = {
        executor.submit(run_part, setup, together[at : at + size], identity, workers)
        for at in range(0, len(together), size)
    }
    try:
        while waiting:
            done, waiting = concurrent.futures.wait(
                waiting, return_when=concurrent.futures.FIRST_COMPLETED
            )
            for future in done:
                take(future)
        for case in cases:
            if case.alone:
                take(executor.submit(run_part, setup, [case.id], identity, 1))
    finally:
        for future in waiting:
            future.cancel()
    return [found[case.id] for case in cases]
