"""The one command for people with hardware."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tilewright.tools import cli
from tilewright_conformance.suite.catalogue import catalogue
from tilewright_conformance.suite.report import document
from tilewright_conformance.suite.selftest import summary


def test_it_leaves_a_report_that_checks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        cli.main(
            ["selftest", "--backend", "cpu", "--report", str(tmp_path), "--sample", "3", "-j", "1"]
        )
        == 0
    )
    printed = capsys.readouterr().out
    assert printed.startswith("cpu ") and "3 cases" in printed and "report.json" in printed
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["run"]["quick"] and len(report["results"]) == 3
    document.verify(report, catalogue())
    assert report["checksum"] == document.checksum(report)


def test_what_is_wrong_and_how_fast_it_was_are_told(tmp_path: Path) -> None:
    rows = [
        {
            "case": "perf/copy",
            "profile": "perf",
            "verdict": "good",
            "status": "passed",
            "message": "",
            "numbers": {"gigabytes_per_second": 812.04, "ratio": 2.0},
        },
        {
            "case": "math/exp",
            "profile": "math",
            "subject": "exp",
            "exception": "MismatchError",
            "verdict": "bad",
            "status": "failed",
            "message": "3 elements are wrong\nmore",
            "numbers": {},
        },
    ]
    report = {
        "device": {"name": "a GPU", "target": "gfx942"},
        "summary": {"total": {"cases": 2, "bad": 1}}, "run": {"seconds": 3.0}, "results": rows,
        "backend": {"name": "amd", "version": "1"},
    }  # fmt: skip
    text = summary(report)
    assert "amd 1 on a GPU (gfx942)" in text and "bad: math/exp: 3 elements are wrong\n" in text
    assert "perf/copy: gigabytes per second 812, ratio 2" in text
    assert "nothing of this was run on hardware" in summary(
        {**report, "run": {"seconds": 3.0, "emulate": "gfx942"}}
    )


def test_a_backend_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["selftest", "--backend", "nowhere"]) != 0
    assert "nowhere" in capsys.readouterr().err
