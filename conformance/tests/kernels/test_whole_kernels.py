"""The suite's whole kernels on the reference: what the backends are held to is what float64 gives.
The suite itself runs them on the backends."""

from __future__ import annotations

import pytest

from tilewright_conformance.suite.case import Case, Status
from tilewright_conformance.suite.catalogue import catalogue
from tilewright_conformance.suite.engine.judge import execute
from tilewright_conformance.suite.session import Session, Subject


@pytest.mark.sampled(30)
@pytest.mark.parametrize("case", catalogue().family("kernels").values(), ids=lambda case: case.id)
def test_the_reference_passes(case: Case) -> None:
    outcome = execute(case, Session(Subject("reference"), case.id))
    assert outcome.status is Status.PASSED, outcome.message
