"""Charts and tables of the tutorials: rates of measurements, machines and dates, legibility."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
try:
    from drawings.line_chart import line_chart, short, ticks
    from tutorial_pages import figures, losses
finally:
    sys.path.pop(0)

TUTORIALS = Path(__file__).resolve().parents[1] / "site" / "tutorials"
MARK = re.compile(r"<!-- (figure|table): (\w+) -->")


def test_ticks_are_round_and_reach_the_largest_value() -> None:
    assert ticks(4.8) == [0, 1, 2, 3, 4, 5]
    assert ticks(989.0)[-1] == 1000 and len(ticks(989.0)) <= 7
    assert ticks(0.03)[-1] == pytest.approx(0.03)


def test_sizes_are_short() -> None:
    assert [short(size) for size in (512, 8192, 16384, 1 << 27)] == ["512", "8192", "16K", "128M"]


def test_a_chart_has_a_point_for_each_size_and_says_what_it_shows() -> None:
    series = {"ours": {1: 1.0, 2: 2.0, 4: 4.0}, "theirs": {1: 1.0, 4: 3.0}}
    picture = ElementTree.fromstring(str(line_chart(series, "A title", "sizes", "TB/s", 4.8)))
    words = [each.text for each in picture.iter() if each.tag.endswith(("text", "title"))]
    assert {"A title", "sizes", "TB/s", "ours", "theirs", "data sheet"} <= set(words)
    points = [each for each in picture.iter() if each.get("width") == "6"]
    assert len(points) == 5
    heights = sorted({float(each.get("y", 0)) for each in points})
    assert len(heights) == 4  # of 1, 2, 3 and 4
    assert heights[1] - heights[0] == pytest.approx(heights[3] - heights[2], abs=0.01)


def test_rates_are_amounts_by_seconds_of_the_kernel_and_of_rivals() -> None:
    row = {"case": "4 warps: 256", "seconds": 2e-6, "bytes_moved": 4_000_000}
    figure = figures.Figure(
        "A title", "columns", "bytes_moved", (("4 warps", "", "a"), ("4 warps", "torch", "b"))
    )
    found = figures.series_of(figure, [{**row, "rivals": {"torch": 4e-6}}])
    assert found == {"a": {256: pytest.approx(2.0)}, "b": {256: pytest.approx(1.0)}}


@pytest.mark.parametrize("page", sorted(TUTORIALS.glob("*.md")), ids=lambda page: page.stem)
def test_comments_of_a_page_become_figures_with_machine_and_date(page: Path) -> None:
    text = page.read_text()
    filled = figures.filled(text)
    assert not MARK.search(filled)
    for kind, name in MARK.findall(text):
        assert name == page.stem
        caption = next(line for line in filled.splitlines() if re.match(r"\*.*NVIDIA H200", line))
        assert re.search(r"\d{4}-\d\d-\d\d, PyTorch \d", caption)
        if kind == "figure":
            assert f"{name}_h200.svg" in filled and f"tutorials/{name}_h200.svg" in figures.files()


def test_charts_are_on_their_pages() -> None:
    for name in figures.FIGURES:
        assert f"<!-- figure: {name} -->" in (TUTORIALS / f"{name}.md").read_text()


def test_the_losses_of_the_tutorial_fall() -> None:
    found = losses.losses()
    assert len(found) == 200 and found[-1] < 0.2 * found[0]


def test_each_tutorial_says_how_long_it_runs_on_a_cpu() -> None:
    for page in TUTORIALS.glob("*.md"):
        assert re.match(
            r"The code of this page runs in \d+\.\d s of processor time.* \(.+, 20",
            figures.seconds(page.stem),
        )


def test_the_ladder_has_the_fastest_configuration_of_each_step() -> None:
    lines = figures.table("matmul").splitlines()
    rows = json.loads(figures.LADDER.read_text())["results"]
    for step, title in figures.STEPS.items():
        fastest = min(row["seconds"] for row in rows if row["family"] == f"{step} 4096")
        line = next(line for line in lines if line.startswith(f"| {title} |"))
        assert f"| {fastest * 1e6:,.0f} |" in line
    assert all(row["error"] < 2e-3 and row["has_same_bits"] for row in rows)
