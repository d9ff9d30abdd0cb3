"""Waivers: their effect on a case, and their mention in a claim."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from tilewright_conformance.suite import profiles
from tilewright_conformance.suite.case import Outcome, Status
from tilewright_conformance.suite.catalogue import catalogue
from tilewright_conformance.suite.expectations import Expectations
from tilewright_conformance.suite.profiles.waivers import (
    Waiver,
    WaiverError,
    read_waivers,
    waived_cases,
    waivers,
)
from tilewright_conformance.suite.report.document import Document
from tilewright_conformance.suite.session import Subject

ROW = """[[waiver]]
case = "elementwise/sqrt/*"
backend = "cpu"
device = "*"
suite = "0.1.0"
reason = "rounded twice"
issue = "https://example.com/issues/1"
expires = 2027-06-30
"""


def read(tmp_path: Path, text: str) -> tuple[Waiver, ...]:
    (tmp_path / "waivers.toml").write_text(text)
    return read_waivers(tmp_path / "waivers.toml")


def test_the_suites_own_rows_are_good() -> None:
    assert all(catalogue().matching(row.case) for row in waivers())


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"https://example.com/issues/1"', '"later"', "waiver 1: issue must be a URL, not 'later'"),
        ("2027-06-30", '"never"', "waiver 1: expires must be a day, as 2027-06-30, not 'never'"),
        ('"rounded twice"', '" "', "waiver 1: reason must be a text that is not empty"),
        ("device", "machine", "waiver 1 must have exactly backend, case, device"),
    ],
)
def test_rows_that_break_a_rule(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(WaiverError, match=message):
        read(tmp_path, ROW.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"cpu"', '"gpu"'),
        ('"*"', '"another device"'),
        ('"0.1.0"', '"0.2.0"'),
        ("2027-06-30", "2020-01-01"),
        ("sqrt", "cbrt"),
    ],
)
def test_a_waiver_is_for_one_backend_device_suite_and_time(
    report: Document, tmp_path: Path, old: str, new: str
) -> None:
    report["suite"]["version"] = "0.1.0"
    report["run"]["started"] = "2027-06-30T23:59:59+00:00"
    assert (
        waived_cases(report, read(tmp_path, ROW))
        == {result["case"] for result in report["results"] if result["subject"] == "sqrt"}
        != set()
    )
    assert waived_cases(report, read(tmp_path, ROW.replace(old, new))) == set()


def test_the_day_of_expiry_is_the_last() -> None:
    row = Waiver("a/b", "b", "d", "1", "r", "https://x", datetime.date(2027, 6, 30))
    assert row.holds("b", "d", "1", datetime.date(2027, 6, 30)) and not row.holds(
        "b", "d", "1", datetime.date(2027, 7, 1)
    )


def claim(
    waived: set[str], statuses: dict[str, Status], unknown: tuple[str, ...] = ()
) -> profiles.Claim:
    listed = ("elementwise/add/f32/scalar", "elementwise/sub/f32/scalar")
    found = {case: Outcome(case, status) for case, status in statuses.items()}
    capabilities = Subject("cpu").capabilities
    profiles_of = dict.fromkeys(found, "core")
    return profiles.claim(
        "core",
        listed,
        found,
        profiles_of,
        capabilities,
        Expectations(),
        quick=False,
        waived=waived,
        unknown=unknown,
    )


def test_a_waived_case_does_not_stop_a_claim_which_names_it() -> None:
    add, sub, further = (
        "elementwise/add/f32/scalar",
        "elementwise/sub/f32/scalar",
        "elementwise/add/f64/scalar",
    )
    statuses = {add: Status.PASSED, sub: Status.FAILED, further: Status.CRASHED}
    assert not claim(set(), statuses).holds
    assert not claim({sub}, statuses).holds
    found = claim({add, sub, further}, statuses)
    assert found.holds and found.waived == (sub, further)
    assert not claim({sub}, {add: Status.PASSED}).holds, "a waived case has to be run all the same"


def test_a_claim_needs_wheels() -> None:
    statuses = {
        "elementwise/add/f32/scalar": Status.PASSED,
        "elementwise/sub/f32/scalar": Status.PASSED,
    }
    assert claim(set(), statuses).holds
    (reason,) = claim(set(), statuses, ("tilewright",)).reasons
    assert reason.startswith("tilewright: not installed from a wheel whose hash is known")
    assert "imported from a folder of PYTHONPATH has no hash" in reason


def test_a_report_names_what_is_no_wheel(report: Document) -> None:
    from tilewright_conformance.suite.report import document

    def reasons() -> list[str]:
        return [
            text
            for text in document._claims(report, Expectations(), catalogue())[0]["reasons"]
            if "wheel" in text
        ]

    for facts in report["distributions"]:
        facts.update(editable=False, wheel="ab" * 32)
    assert reasons() == []
    report["distributions"][1]["wheel"] = ""
    report["distributions"][2]["editable"] = True
    assert reasons()[0].startswith("tilewright, tilewright-cpu: not installed from a wheel")
    report["backend"]["distribution"] = "loaded from my_plugin"
    assert reasons()[0].startswith("tilewright, tilewright-cpu, cpu: not installed")
