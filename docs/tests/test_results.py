"""The page of results: rates and ratios of the files that benchmarks wrote."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
try:
    from results_pages import results
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


def test_all_files_are_on_the_page() -> None:
    found = results.files()
    for path in results.FOLDER.glob("*.json"):
        for row in json.loads(path.read_text())["results"]:
            assert f"| {row['case']} |" in found["results.md"], (path, row["case"])
        assert f"results/{path.stem}.svg" in found
