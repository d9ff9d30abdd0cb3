"""The vendor's list: what a file must look like, and how strict it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilewright_conformance.suite.case import Outcome, Status
from tilewright_conformance.suite.catalogue import catalogue
from tilewright_conformance.suite.expectations import (
    ExpectationError,
    Expectations,
    Verdict,
    read_expectations,
)

ENTRY = {
    "case": "elementwise/add/i8/scalar",
    "kind": "notyet",
    "reason": "rounds up",
    "exception": "MismatchError",
    "issue": "https://example.com/1",
}


def read(tmp_path: Path, *entries: dict[str, str], head: str = "") -> Expectations:
    path = tmp_path / "expectations.toml"
    tables = [
        "[[expect]]\n" + "\n".join(f'{name} = "{value}"' for name, value in entry.items())
        for entry in entries
    ]
    path.write_text(head + "\n\n".join(tables))
    return read_expectations(path, catalogue())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"case": "elementwise/nothing/*"},
            "no case of the suite matches 'elementwise/nothing/\\*'",
        ),
        ({"case": "elementwise/add/i8/scalar2"}, "no case of the suite matches"),
        ({"kind": "perhaps"}, "entry 1: kind must be one of notimpl, notyet, never, not 'perhaps'"),
        ({"reason": " "}, "entry 1: reason must be a text that is not empty"),
        ({"issue": "later"}, "entry 1: issue must be a URL, not 'later'"),
        (
            {"kind": "never"},
            "entry 1: what is never is refused with one of .*, not with MismatchError",
        ),
        ({"note": "x"}, "entry 1 must have exactly case, kind, reason, exception, issue"),
    ],
)
def test_files_that_break_a_rule(tmp_path: Path, changes: dict[str, str], message: str) -> None:
    with pytest.raises(ExpectationError, match=f"expectations.toml: {message}"):
        read(tmp_path, {**ENTRY, **changes})


def test_two_entries_for_one_case_and_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(
        ExpectationError,
        match=(
            r"both 'elementwise/add/i8/\*' and 'elementwise/add/\*' match the case "
            r"elementwise/add/i8/scalar"
        ),
    ):
        read(
            tmp_path,
            {**ENTRY, "case": "elementwise/add/i8/*"},
            {**ENTRY, "case": "elementwise/add/*"},
        )
    with pytest.raises(ExpectationError, match=r"holds tables .* alone, not extra"):
        read(tmp_path, ENTRY, head="extra = 1\n")
    with pytest.raises(ExpectationError, match="Invalid initial character"):
        read(tmp_path, head="[[")


def outcome(status: Status, exception: str = "", case: str = ENTRY["case"]) -> Outcome:
    return Outcome(case, status, "text", exception)


@pytest.mark.parametrize(
    ("status", "exception", "kind", "verdict"),
    [
        (Status.FAILED, "MismatchError", "notyet", Verdict.EXPECTED),
        (Status.FAILED, "OutOfBoundsWriteError", "notyet", Verdict.BAD),
        (Status.PASSED, "", "notyet", Verdict.UNEXPECTED_PASS),
        (Status.NOT_SUPPORTED, "LoweringError", "notyet", Verdict.BAD),
        (Status.NOT_SUPPORTED, "LoweringError", "never", Verdict.EXPECTED),
        (Status.ERROR, "LoweringError", "notimpl", Verdict.EXPECTED),
        (Status.ERROR, "OutOfResources", "notimpl", Verdict.BAD),
        (Status.FAILED, "LoweringError", "never", Verdict.BAD),
        (Status.SKIPPED, "", "never", Verdict.NOT_RUN),
    ],
)
def test_the_list_is_strict(
    tmp_path: Path, status: Status, exception: str, kind: str, verdict: Verdict
) -> None:
    named = "MismatchError" if kind == "notyet" else "LoweringError"
    found = read(tmp_path, {**ENTRY, "kind": kind, "exception": named})
    assert found.verdict(outcome(status, exception)) == verdict


def test_cases_that_are_not_listed_have_to_pass_or_be_refused() -> None:
    verdicts = {status: Expectations().verdict(outcome(status)) for status in Status}
    assert {status for status, verdict in verdicts.items() if verdict is Verdict.GOOD} == {
        Status.PASSED,
        Status.NOT_SUPPORTED,
    }
    assert {status for status, verdict in verdicts.items() if verdict is Verdict.NOT_RUN} == {
        Status.SKIPPED
    }
