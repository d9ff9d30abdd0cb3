"""The page of results: rates and ratios of the files that benchmarks wrote."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
try:
    from results_pages import conformance, results, summary
finally:
    sys.path.pop(0)

ROW = {
    "family": "rows",
    "case": "softmax",
    "seconds": 2e-6,
    "bytes_moved": 4_800_000,
    "operations": None,
    "rivals": {"torch": 5e-6, "Liger": 3e-6, "deterministic": 1e-6},
}


def test_a_row_has_its_rate_its_share_of_the_roof_and_ratios() -> None:
    line = results.table([ROW], "NVIDIA H200").splitlines()[2]
    assert line == "| softmax | 2.0 | 2.4 TB/s | 50% | 2.50 | 1.50 | 0.50 |"
    assert results.ratios_of([ROW]) == {"softmax": pytest.approx(1.5)}


def test_matmuls_are_rated_by_operations() -> None:
    row = {**ROW, "operations": 989e6, "rivals": {}}
    assert "494.5 TFLOP/s | 50%" in results.table([row], "NVIDIA H200")
    assert results.ratios_of([row]) == {}
    assert "494.5 TFLOP/s | 25%" in results.table(
        [{**row, "bytes_moved": None, "speed": 2.0}], "NVIDIA H200"
    )


def test_all_files_are_on_the_page() -> None:
    found = results.files()
    for path in results.FOLDER.glob("*.json"):
        for row in json.loads(path.read_text())["results"]:
            assert f"| {row['case']} |" in found["results.md"], (path, row["case"])
        assert f"results/{path.stem}.svg" in found


REPORT = {
    "backend": {"name": "vega", "version": "1.0"},
    "device": {"name": "Vega 2"},
    "run": {"emulate": "", "started": "2026-11-28T23:21:20+00:00", "quick": False, "repeat": 20},
    "claims": [{"profile": "core", "holds": True}, {"profile": "math", "holds": False}],
    "summary": {
        "core": {"cases": 12, "passed": 10, "not-supported": 2},
        "math": {"cases": 5, "passed": 3, "failed": 2},
        "fp8": {"cases": 4, "not-supported": 4},
        "total": {"cases": 21, "passed": 13, "not-supported": 6, "failed": 2},
    },
}


def test_a_scoreboard_counts_cases_claims_and_failures() -> None:
    emulated = {**REPORT, "run": {**REPORT["run"], "emulate": "v2", "quick": True, "repeat": 1}}
    found = conformance.table([conformance.summary_of(each) for each in (REPORT, emulated)])
    assert found.splitlines() == [
        "| profile | vega: Vega 2 | vega: v2 (emulated) |",
        "| --- | ---: | ---: |",
        "| date | 2026-11-28 | 2026-11-28 |",
        "| run | complete, each 20 times | quick |",
        "| core | 10 of 10* | 10 of 10* |",
        "| math | 3 of 5 | 3 of 5 |",
        "| fp8 | none ran | none ran |",
        "| failed | 2 | 2 |",
    ]


def test_the_page_has_the_corpus_and_every_report() -> None:
    page = results.files()["results.md"]
    assert "| flash-attn |" in page and "geometric mean" in page
    for path in conformance.FOLDER.glob("*.json"):
        summary = json.loads(path.read_text())
        assert f"| {summary['backend']}: {summary['machine']}" in page


def test_the_home_page_has_figures_with_machine_and_date(site: Path) -> None:
    ratios, machines, dates = summary.means()
    assert len(ratios) >= 4 and machines and dates
    page = (site / "index.html").read_text()
    assert summary.PLACE not in page and (site / summary.PATH).exists()
    for text in (*machines, *dates, *(f"{name}: {ratio:.2f}" for name, ratio in ratios.items())):
        assert text in page
    assert (site / "licence" / "index.html").exists()
