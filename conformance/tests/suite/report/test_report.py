"""The report: its schema, its checksum, what verify refuses, and the views that are made of it."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tilewright_conformance.suite.catalogue import catalogue
from tilewright_conformance.suite.report import (
    badge,
    differences,
    document,
    junit,
    plain_text,
    scoreboard,
)
from tilewright_conformance.suite.report.document import Document, ReportError
from tilewright_conformance.suite.report.schema import schema, violations

CASES = [
    case.id for case in catalogue().select(patterns=["elementwise/sqrt/*", "elementwise/fma/*"])
]


def summed(report: Document) -> Document:
    """The report with its checksum made anew: what someone does who edits it."""
    return {**report, "checksum": document.checksum(report)}


def test_a_fresh_report_is_good_and_says_what_was_tested(report: Document) -> None:
    document.verify(report, catalogue())
    assert [result["case"] for result in report["results"]] == CASES
    assert {result["verdict"] for result in report["results"]} == {"good"}
    assert report["run"]["seed"] == 5
    assert [facts["name"] for facts in report["distributions"]] == [
        "tilewright-conformance",
        "tilewright",
        "tilewright-cpu",
    ]
    assert all(len(facts["content"]) == 64 for facts in report["distributions"])
    assert report["backend"]["capabilities"]["dtypes"]
    assert (
        report["claims"][0]["profile"] == "core" and not report["claims"][0]["holds"]
    )  # most of the profile's cases were not run


def test_the_checksum_does_not_depend_on_the_form_of_the_file(
    report: Document, tmp_path: Path
) -> None:
    path = tmp_path / "compact.json"
    path.write_text(json.dumps(report, separators=(",", ":")))
    assert document.checksum(document.read(path)) == report["checksum"]


EDITS: dict[str, Callable[[Document], object]] = {
    "a result": lambda report: report["results"][3].update(status="failed"),
    "a number": lambda report: report["results"][0]["numbers"].update(ulp=0.25),
    "a message": lambda report: report["results"][0].update(message=" "),
    "the device": lambda report: report["device"].update(name="another"),
    "the seed": lambda report: report["run"].update(seed=6),
    "the order": lambda report: report["results"].reverse(),
    "one result less": lambda report: report["results"].pop(),
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_report_is_refused(report: Document, edit: str) -> None:
    EDITS[edit](report)
    with pytest.raises(ReportError, match="the checksum is another"):
        document.verify(report, catalogue())


SUMMED: dict[str, tuple[Callable[[Document], object], str]] = {
    "a failure": (
        lambda report: report["results"][3].update(status="failed"),
        f"{CASES[3]}: the verdict of its result is bad, not good",
    ),
    "a whole failure": (
        lambda report: report["results"][3].update(status="failed", verdict="bad"),
        "the summary does not follow",
    ),
    "a claim": (
        lambda report: report["claims"][0].update(holds=True, reasons=[]),
        "the claims do not follow",
    ),
    "a result left out": (
        lambda report: report["results"].pop(),
        f"not of the cases that such a run selects: {CASES[-1]}",
    ),
    "a result twice": (
        lambda report: report["results"].append(report["results"][0]),
        f"two results for {CASES[0]}",
    ),
    "another order": (lambda report: report["results"].reverse(), "their order differs"),
    "a refusal": (
        lambda report: report["results"][0].update(status="not-supported"),
        "not-supported, though the backend declares all it needs",
    ),
    "a capability less": (
        lambda report: report["backend"]["capabilities"]["dtypes"].remove("f64"),
        "is passed, though the backend does not declare dtype f64",
    ),
    "a reason": (
        lambda report: report["results"][0]["lacks"].append("feature print"),
        f"{CASES[0]}: what the backend lacks for it is nothing",
    ),
    "another catalogue": (
        lambda report: report["suite"].update(catalogue="0" * 64),
        "other cases than suite .* has",
    ),
    "another suite": (
        lambda report: report["suite"].update(version="0.0.9"),
        r"pip install tilewright-conformance==0\.0\.9",
    ),
    "a patched suite": (
        lambda report: report["distributions"][0].update(modified=["x.py"]),
        "files had been changed: tilewright-conformance: x.py",
    ),
    "an expectation": (
        lambda report: report["expectations"].append(
            {
                "case": "no/such",
                "kind": "never",
                "reason": "r",
                "exception": "LoweringError",
                "issue": "https://x",
            }
        ),
        "no case of the suite matches 'no/such'",
    ),
}


@pytest.mark.parametrize("edit", SUMMED)
def test_an_edited_report_with_its_own_checksum_still_has_to_be_consistent(
    report: Document, edit: str
) -> None:
    change, message = SUMMED[edit]
    change(report)
    with pytest.raises(ReportError, match=message):
        document.verify(summed(report), catalogue())


def test_what_is_no_report_is_refused(tmp_path: Path, report: Document) -> None:
    path = tmp_path / "report.json"
    for text, message in (
        ("{", "is not JSON"),
        ("[]", "report must be of type object"),
        ("{}", "report lacks format; report lacks format_version"),
    ):
        path.write_text(text)
        with pytest.raises(ReportError, match=message):
            document.read(path)
    report["results"][0]["status"] = "great"
    report["more"] = 1
    path.write_text(json.dumps(report))
    with pytest.raises(
        ReportError,
        match=(
            r"report.results\[0\].status must be one of passed, .*report has 'more', which is "
            r"none of its fields"
        ),
    ):
        document.read(path)


@pytest.mark.parametrize(
    ("instead", "says"),
    [
        ('"format_version": 2, "backend": {"name": "ours"}', "'backend' is there twice"),
        ('"format_version": NaN', "NaN is no number"),
        ('"format_version": -Infinity', "-Infinity is no number"),
        ('"format_version": 1e999', "1e999 is no number"),
        ('"format_version": 1' + "0" * 4000, "10* is no number"),
        ('"format_version": ' + "[" * 100_000, "is not JSON"),
    ],
)
def test_what_readers_take_for_different_things_is_refused(
    tmp_path: Path, report: Document, instead: str, says: str
) -> None:
    path = tmp_path / "report.json"
    path.write_text(json.dumps(report).replace('"format_version": 2', instead))
    with pytest.raises(ReportError, match=says):
        document.read(path)


def test_a_report_is_written_through_no_link(tmp_path: Path, report: Document) -> None:
    path, theirs = tmp_path / "report.json", tmp_path / "theirs"
    theirs.write_text("theirs")
    path.symlink_to(theirs)
    document.write(report, path)
    assert theirs.read_text() == "theirs" and document.read(path) == report


def texts_of(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of all texts in a value; of the items of a list those of the first alone."""
    if isinstance(value, str):
        yield place
    for name, item in (
        value.items()
        if isinstance(value, dict)
        else enumerate(value[:1])
        if isinstance(value, list)
        else ()
    ):
        yield from texts_of(item, (*place, name))


@pytest.mark.parametrize("character", ["\n", "\r", "\x1b[2K", "\x85", "\u2028", "\u202e", "\ud800"])
def test_no_text_of_a_report_begins_a_line_or_moves_the_cursor(
    report: Document, tmp_path: Path, character: str
) -> None:
    places = list(texts_of(report))
    assert {
        ("device", "name"),
        ("backend", "version"),
        ("results", 0, "message"),
        ("checksum",),
        ("host", "system"),
    } <= set(places)
    for place in places:
        if character == "\n" and place[-1] == "message":
            continue  # what an exception says has lines
        edited = copy.deepcopy(report)
        inside: Any = edited
        for step in place[:-1]:
            inside = inside[step]
        inside[place[-1]] += f"{character}signed by us"
        edited = edited if place == ("checksum",) else summed(edited)
        with pytest.raises(
            ReportError, match=r"which no text of a report may|must (be one of|match)|has a name"
        ):
            document.verify(edited, catalogue())
        (tmp_path / "edited.json").write_text(json.dumps(edited))
        with pytest.raises(ReportError, match="is no report of this format"):
            document.read(tmp_path / "edited.json")
    named = copy.deepcopy(report)
    named["device"]["properties"] = {f"a{character}": 1}
    with pytest.raises(ReportError, match=r"a name in report\.device\.properties holds"):
        document.verify(summed(named), catalogue())


def test_what_the_suite_writes_is_plain() -> None:
    """Devices and exceptions say what they like."""
    given = {
        "name": "GPU\x00 one\ntwo",
        "message": "first\n\tsecond\x1b[31m",
        "list": ["\u202e"],
        "number": 1,
    }
    found = plain_text.plain(given)
    assert found == {
        "name": "GPU\\x00 one two",
        "message": "first\n\tsecond\\x1b[31m",
        "list": ["\\u202e"],
        "number": 1,
    }
    assert plain_text.objections(found) == []


def test_markdown_shows_texts_as_they_are(report: Document) -> None:
    name = "<b>GPU</b> [x](http://y) `z` *w* v|u ![i](j) www.k.org \\ a@b"
    line = scoreboard.markdown(
        [summed({**report, "device": {**report["device"], "name": name}})]
    ).splitlines()[2]
    told = re.split(r"(?<!\\) \| ", line)[1]
    assert re.sub(r"\\(.)", r"\1", told) == name
    assert not re.search(r"(?<!\\)(?:\\\\)*[<>\[\]()`*|!@:]", told) and "www\\." in told


def test_the_schema_has_no_rule_that_the_checker_ignores() -> None:
    with pytest.raises(ValueError, match="does not know minimum"):
        violations(1, {"type": "integer", "minimum": 2})
    assert violations(True, {"type": "integer"}) == ["report must be of type integer, not True"]
    assert violations({"a": ["x", 1]}, {"additionalProperties": {"items": {"type": "string"}}}) == [
        "report.a[1] must be of type string, not 1"
    ]
    assert schema()["title"] == "Tilewright conformance report"


def test_a_report_says_how_often_cases_ran_in_a_row(report: Document) -> None:
    assert not violations({**report, "run": {**report["run"], "repeat": 20}}, schema())
    told = ["report.run.repeat must be of type integer, not '20'"]
    assert violations({**report, "run": {**report["run"], "repeat": "20"}}, schema()) == told


def worsened(report: Document) -> Document:
    report = copy.deepcopy(report)
    report["results"][0].update(
        status="failed", verdict="bad", message="wrong\x00\nsecond line", exception="MismatchError"
    )
    report["results"][1].update(
        status="crashed", verdict="bad", message="died", exception="SIGSEGV"
    )
    report["results"][2].update(status="not-supported", message="no")
    report["results"][3]["numbers"].update(ulp=1.5)
    return report


def test_junit(report: Document) -> None:
    root = ElementTree.fromstring(junit.junit(worsened(report)))
    (suite,) = root.iter("testsuite")
    assert {
        name: suite.get(name) for name in ("name", "tests", "failures", "errors", "skipped")
    } == {
        "name": "core",
        "tests": str(len(CASES)),
        "failures": "1",
        "errors": "1",
        "skipped": "1",
    }
    (failure,) = root.iter("failure")
    assert failure.get("type") == "MismatchError" and (failure.text or "").endswith("second line")
    assert [f"elementwise/{case.get('name')}" for case in root.iter("testcase")] == CASES


def test_badges(report: Document) -> None:
    def text(changed: Document) -> list[str]:
        return [
            element.text or ""
            for element in ElementTree.fromstring(badge.badge(changed)).iter(
                "{http://www.w3.org/2000/svg}text"
            )
        ]

    assert text(report)[1] == "no profile"
    assert text(worsened(report))[1] == f"2 of {len(CASES)} wrong"
    report["claims"] = [
        {"profile": "core", "holds": True, "reasons": []},
        {"profile": "math", "holds": True, "reasons": []},
    ]
    report["device"]["name"] = "Vega 20"
    assert text(report) == [
        f"tilewright · cpu {report['backend']['version']} · Vega 20",
        "core, math",
    ]
    report["device"]["name"] = "A" * 40
    assert text(report)[0].endswith("· " + "A" * 31 + "…") and "A" * 40 in badge.badge(report)
    report["run"]["quick"] = True
    assert text(report)[1] == "quick run"


def test_comparing_two_reports(report: Document) -> None:
    other = worsened(report)
    other["results"].pop()
    found = {
        difference.case: (difference.kind, difference.before, difference.after)
        for difference in differences.differences(report, other)
    }
    assert found == {
        CASES[0]: ("worse", "passed", "failed"),
        CASES[1]: ("worse", "passed", "crashed"),
        CASES[2]: ("worse", "passed", "not-supported"),
        CASES[3]: ("less exact", "0 ULP", "1.5 ULP"),
        CASES[-1]: ("other", "passed", "absent"),
    }
    assert {difference.kind for difference in differences.differences(other, report)} == {
        "better",
        "more exact",
        "other",
    }
    assert differences.comparison(report, report).endswith("no differences")
    assert "5 differences: 3 worse, 1 other, 1 less exact" in differences.comparison(report, other)


def test_the_scoreboard(report: Document) -> None:
    best, other = copy.deepcopy(report), worsened(report)
    best["claims"][0].update(holds=True, reasons=[])
    best["backend"]["name"] = "best|<one>"
    lines = scoreboard.markdown([other, best]).splitlines()
    assert lines[0].split(" | ")[-2:] == ["core", "wrong |"]
    assert lines[2].startswith("| best\\|\\<one\\> ") and lines[2].endswith("| yes | 0 |")
    assert lines[3].endswith(f"| {len(CASES)}/{len(CASES)} | 2 |")
    page = scoreboard.page([other, best])
    assert "best|&lt;one&gt;" in page and 'class="yes"' in page


def test_the_site_has_the_table_and_every_report(report: Document, tmp_path: Path) -> None:
    other = summed({**copy.deepcopy(report), "device": {**report["device"], "name": "GPU <2> / x"}})
    scoreboard.write_site([report, other], tmp_path / "site")
    index = (tmp_path / "site" / "index.html").read_text()
    linked = re.findall(r'href="([^"]+)"', index)
    assert len(linked) == 6 and all((tmp_path / "site" / link).is_file() for link in linked)
    assert any("gpu-2-x" in link for link in linked) and "GPU &lt;2&gt; / x" in index
    stored = [document.read(path) for path in sorted((tmp_path / "site").glob("*/report.json"))]
    assert {one["checksum"] for one in stored} == {report["checksum"], other["checksum"]}
    assert "{{" not in index and '<td title="">no</td>' in index
