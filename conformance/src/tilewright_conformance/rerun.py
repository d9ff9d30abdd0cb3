"""Running a part of a report again, to see whether this machine gives what the report says."""

from __future__ import annotations

import dataclasses

import numpy as np

from tilewright_conformance.case import Outcome
from tilewright_conformance.catalogue import catalogue
from tilewright_conformance.engine.pool import run_cases
from tilewright_conformance.engine.setup import Setup, load_plugins
from tilewright_conformance.provenance import provenance
from tilewright_conformance.report.document import Document, outcomes_of
from tilewright_conformance.session import Subject

#: Measurements that a case gives again exactly on the same device with the same software.
_REPEATABLE = ("ulp", "ulp_allowed", "compared")


@dataclasses.dataclass(frozen=True)
class Rerun:
    """What became of it.

    Attributes:
        cases: how many were run.
        same_machine: whether software, device and driver are those of the report, so that errors had to come out equal to the last digit, not statuses alone.
        differences: what did not come out as the report says, in words.
    """

    cases: int
    same_machine: bool
    differences: tuple[str, ...]


def rerun(document: Document, count: int, *, load: tuple[str, ...] = (), workers: int = 0) -> Rerun:
    """Run ``count`` cases of a report again, chosen by its seal: its author cannot know which before the report is done, and whoever checks it gets the same.

    Raises:
        BackendError, WorkerRefusedError: the backend is not here.
    """
    run = document["run"]
    setup = Setup(document["backend"]["name"], seed=run["seed"], quick=run["quick"], load=load, time_scale=run["time_scale"], emulate=run.get("emulate", ""))
    load_plugins(setup)
    about = provenance(Subject(setup.backend))
    same = all(about[name] == document[name] for name in ("core", "backend", "distributions", "device"))
    told = outcomes_of(document)
    chosen = np.random.default_rng(int(document["seal"].removeprefix("sha256:"), 16)).permutation(sorted(told))[:count]
    found = run_cases([catalogue()[str(id_)] for id_ in chosen], setup, workers=workers)
    differences = [text for outcome in found for text in _differences(told[outcome.case], outcome, same)]
    return Rerun(len(found), same, tuple(differences))


def _differences(told: Outcome, found: Outcome, same_machine: bool) -> list[str]:
    if told.status is not found.status:
        return [f"{told.case}: the report says {told.status}, and here it is {found.status}{': ' + found.message if found.message else ''}"]
    if not same_machine:
        return []
    return [
        f"{told.case}: the report says {name} = {told.numbers.get(name)}, and here it is {found.numbers.get(name)}"
        for name in _REPEATABLE
        if told.numbers.get(name) != found.numbers.get(name)
    ]
