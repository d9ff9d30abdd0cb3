"""Running cases of a report again."""

from __future__ import annotations

import pytest

from tilewright_conformance.suite import rerun
from tilewright_conformance.suite.case import Case, Outcome, Status
from tilewright_conformance.suite.engine.setup import Setup
from tilewright_conformance.suite.provenance import suite_version
from tilewright_conformance.suite.releases import SEEDS
from tilewright_conformance.suite.report import document
from tilewright_conformance.suite.report.document import Document


def test_a_rerun_has_a_seed_that_the_author_did_not_choose(
    report: Document, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backend that knows the report's inputs by heart does not pass."""
    told, seen = document.outcomes_of(report), []

    def by_heart(cases: list[Case], setup: Setup) -> list[Outcome]:
        seen.append((setup.seed, [case.id for case in cases]))
        return [
            told[case.id]
            if setup.seed == report["run"]["seed"]
            else Outcome(case.id, Status.FAILED, "another input")
            for case in cases
        ]

    monkeypatch.setattr(rerun, "run_cases", by_heart)
    published, own = rerun.rerun(report, 3), rerun.rerun(report, 3, seed=77)
    assert [seed for seed, _ in seen] == [5, SEEDS[suite_version()], 5, 77]
    assert seen[0][1] == seen[1][1] and seen[2][1] == seen[3][1] != seen[0][1]
    assert len(published.differences) == 3 and all(
        text.startswith("with seed 77: ") for text in own.differences
    )
