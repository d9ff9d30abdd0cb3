"""The cases of the suite as tests; ``pytest_plugin`` makes one of each."""

from __future__ import annotations

from typing import Any

from tilewright_conformance.pytest_plugin import run_as_test
from tilewright_conformance.suite.case import Case
from tilewright_conformance.suite.engine.pool import Lane
from tilewright_conformance.suite.expectations import Expectations


def test_conformance(
    conformance_case: Case,
    conformance_lane: Lane,
    conformance_expectations: Expectations,
    record_property: Any,
) -> None:
    """A case of the suite."""
    run_as_test(conformance_case, conformance_lane, conformance_expectations, record_property)
