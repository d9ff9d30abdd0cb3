"""Running a part of a report again, to check its results on this machine."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from tilewright_conformance.suite.case import Outcome, Status
from tilewright_conformance.suite.catalogue import catalogue
from tilewright_conformance.suite.engine.pool import run_cases
from tilewright_conformance.suite.engine.setup import Setup, load_plugins
from tilewright_conformance.suite.provenance import provenance
from tilewright_conformance.suite.releases import SEEDS
from tilewright_conformance.suite.report.document import Document, outcomes_of
from tilewright_conformance.suite.report.plain_text import plain
from tilewright_conformance.suite.session import Subject

#: Measurements of a case that are exactly repeatable on the same device with the same software.
_REPEATABLE = ("ulp", "ulp_allowed", "compared")


@dataclasses.dataclass(frozen=True)
class Rerun:
    """The result of running a report's cases again.

    Attributes:
        cases: how many were run.
        others: software and device that are not the report's; where it is empty, errors had to come
            out equal to the last digit, not statuses alone.
        differences: deviations from the report, in words.
        seed: with which they were run the second time.
    """

    cases: int
    others: tuple[str, ...]
    differences: tuple[str, ...]
    seed: int


def rerun(
    document: Document, count: int, *, seed: int | None = None, load: tuple[str, ...] = ()
) -> Rerun:
    """Run ``count`` cases of a report again, with the report's own seed and with another.

    With the report's seed results and errors have to come out as it says, with the other results
    alone. The report's checksum and that other seed draw the cases, so that whoever checks the
    report gets the same.

    Args:
        seed: the other one; that of the release of the suite where it is None. An author who wants
            to deceive can know that one, and no seed of one's own.

    Raises:
        BackendError, WorkerRefusedError: the backend is not here.
    """
    other = SEEDS[document["suite"]["version"]] if seed is None else seed
    run = document["run"]
    setup = Setup(
        document["backend"]["name"],
        seed=run["seed"],
        quick=run["quick"],
        load=load,
        time_scale=run["time_scale"],
        emulate=run.get("emulate", ""),
        repeat=run.get("repeat", 1),
    )
    load_plugins(setup)
    about = provenance(Subject(setup.backend))
    others = _others(document, about)
    stated = outcomes_of(document)
    ran = sorted(case for case, outcome in stated.items() if outcome.status is not Status.SKIPPED)
    chosen = np.random.default_rng(
        [int(document["checksum"].removeprefix("sha256:"), 16), other]
    ).permutation(ran)[:count]
    cases = [catalogue()[str(id_)] for id_ in chosen]
    found = run_cases(cases, setup)
    differences = [
        text
        for outcome in found
        for text in _differences(stated[outcome.case], outcome, same_machine=not others)
    ]
    for outcome in run_cases(cases, dataclasses.replace(setup, seed=other)):
        differences += [
            f"with seed {other}: {text}"
            for text in _differences(stated[outcome.case], outcome, same_machine=False)
        ]
    return Rerun(len(found), others, tuple(differences), other)


def _others(document: Document, about: Mapping[str, Any]) -> tuple[str, ...]:
    """Name the software and device of a report that differ here."""
    here = {facts["name"]: facts for facts in about["distributions"]}
    found = [
        facts["name"]
        for facts in document["distributions"]
        if facts != plain(here.get(facts["name"]))
    ]
    return *found, *(
        name for name in ("core", "backend", "device") if plain(about[name]) != document[name]
    )


def _differences(stated: Outcome, found: Outcome, same_machine: bool) -> list[str]:
    if stated.status is not found.status:
        return [
            (
                f"{stated.case}: the report says {stated.status}, and here it is "
                f"{found.status}{': ' + found.message if found.message else ''}"
            )
        ]
    if not same_machine:
        return []
    return [
        (
            f"{stated.case}: the report says {name} = {stated.numbers.get(name)}, and here it is "
            f"{found.numbers.get(name)}"
        )
        for name in _REPEATABLE
        if stated.numbers.get(name) != found.numbers.get(name)
    ]
