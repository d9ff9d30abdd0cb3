"""The points that differences between two codes give, and the baseline's comparison."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from corpus.baseline import Baseline, changes
from corpus.comparison import rows
from corpus.compilation import Outcome
from corpus.figures import Figures
from corpus.page import page, page_of
from corpus.verdict import judge

from tilewright.gpu_host.code_counts import Counts

PAGE = Path(__file__).resolve().parents[2] / "docs" / "performance" / "corpus.md"
LOOP = Counts(instructions=100, loads={"16": 4}, mma={"HMMA.16816": 8}, barriers=1, work=8 * 2048)
CODE = replace(LOOP, instructions=300, stores={"16": 4})
FIGURES = Figures(64, 0, 0, 4096, 128, 8, "registers", CODE, LOOP)


def loop(**changed: object) -> Figures:
    """The figures with another loop."""
    return replace(FIGURES, loop=replace(LOOP, **changed))  # type: ignore[arg-type]


def code(**changed: object) -> Figures:
    """The figures with other code around the loop."""
    return replace(FIGURES, code=replace(CODE, **changed))  # type: ignore[arg-type]


def test_the_same_code_is_level() -> None:
    assert (judge(FIGURES, FIGURES).score, judge(FIGURES, FIGURES).word) == (0, "level")


@pytest.mark.parametrize(
    ("ours", "score", "reason"),
    [
        (loop(loads={"4": 16}), 2.0, "loads 16×4 bytes wide, Triton 4×16"),
        (code(stores={"4": 16}), 1.0, "stores 16×4 bytes wide, Triton 4×16"),
        (code(mma={}), 2.0, "matrix instructions: none, Triton HMMA.16816"),
        (code(mma={"HGMMA.64x128x16": 2}), -2.0, "matrix instructions: HGMMA"),
        (code(copies={"cp.async:16": 4}), -1.0, "asynchronous copies: cp.async:16, Triton none"),
        (replace(FIGURES, spilled=192), 1.0, "192 bytes spilled, Triton 0"),
        (replace(FIGURES, ctas=4), 0.5, "4 CTAs fit by registers"),
        (loop(instructions=200), 1.0, "200 instructions in the loop, Triton 100"),
        (loop(barriers=3), 0.5, "3 barriers in the loop, Triton 1"),
    ],
)
def test_a_difference_gives_points(ours: Figures, score: float, reason: str) -> None:
    found = judge(ours, FIGURES)
    assert found.score == pytest.approx(score, abs=0.01)
    assert found.reasons[0].startswith(reason)
    assert judge(FIGURES, ours).score == pytest.approx(-score, abs=0.01)


def test_a_loop_that_does_twice_the_work_may_have_twice_the_instructions() -> None:
    twice = loop(instructions=200, work=2 * LOOP.work, loads={"16": 8}, barriers=2)
    assert judge(twice, FIGURES).word == "level"


def test_without_loops_the_whole_code_counts() -> None:
    one, other = replace(code(instructions=600), loop=None), replace(FIGURES, loop=None)
    assert judge(one, other).score == pytest.approx(1.0)
    assert judge(one, FIGURES).score == 0  # one of them is unrolled: nothing to compare


def test_figures_survive_json() -> None:
    for each in (FIGURES, replace(FIGURES, loop=None), replace(FIGURES, loop=Counts())):
        assert Figures.of(each.record()) == each


def outcomes(**kernels: Figures | str) -> dict[str, dict[str, Outcome]]:
    """Outcomes for sm_90a: figures, or an error."""
    return {
        name: {"sm_90a": Outcome(error=each) if isinstance(each, str) else Outcome(figures=each)}
        for name, each in kernels.items()
    }


def test_changes_are_told_against_the_baseline(tmp_path: Path) -> None:
    before = outcomes(same=FIGURES, slower=FIGURES, faster=FIGURES, broken=FIGURES, mended="E: x")
    baseline = Baseline({"ptxas": "13"})
    baseline.accept(before, "tilewright")
    baseline.write(tmp_path / "baseline.json")
    baseline = Baseline.read(tmp_path / "baseline.json")
    assert baseline.versions == {"ptxas": "13"}
    now = outcomes(
        same=FIGURES, slower=loop(instructions=120), faster=loop(instructions=80),
        broken="ValueError: no", mended=FIGURES, new=FIGURES,
    )  # fmt: skip
    found = changes(baseline, now)
    assert found.compared == 5
    assert {each.kernel for each in found.worse} == {"slower", "broken"}
    assert {each.kernel for each in found.better} == {"faster", "mended"}
    assert str(found).startswith("unchanged on 1 of 5, better on 2, worse on 2\n")
    assert "120 instructions in the loop, before 100" in str(found)


def test_the_committed_page_is_what_the_baseline_gives() -> None:
    assert PAGE.read_text() == page_of(Baseline.read())


def test_the_page_sorts_by_how_far_behind() -> None:
    ours = outcomes(
        level=FIGURES, behind=loop(instructions=200), fails="ValueError: a|b", ours=FIGURES
    )
    theirs = outcomes(level=FIGURES, behind=FIGURES, fails=FIGURES, ours="E: x")
    found = rows(ours, theirs)
    assert [row.word for row in found] == ["fails", "behind", "level", "only ours"]
    text = page(found, {"triton": "3.7.1"})
    assert "| sm_90a | 4 | 1 | 1 | 1 |  | 1 |  |  |" in text
    assert (
        text.index("| fails | ✗ |")
        < text.index("| behind | **+1.0** |")
        < text.index("| level | +0.0 |")
    )
    assert "- fails (sm_90a): fails: ValueError: a\\|b" in text


def test_the_page_sums_up_each_package() -> None:
    names = {f"{package}/{kernel}": FIGURES for package in ("one", "two") for kernel in ("a", "b")}
    ours = outcomes(**{**names, "two/b": loop(instructions=200), "two/c": "ValueError: no"})
    text = page(rows(ours, outcomes(**names, **{"two/c": FIGURES})), {})
    assert "\n| one | 0, 0, 2, 0, +0.00 |\n| two | 1, 1, 1, 0, +0.50 |\n" in text


def test_the_page_explains_no_more_than_a_hundred_kernels() -> None:
    names = [f"package/{number}" for number in range(103)]
    text = page(
        rows(
            outcomes(**dict.fromkeys(names, loop(instructions=200))),
            outcomes(**dict.fromkeys(names, FIGURES)),
        ),
        {},
    )
    assert text.count("\n- package/") == 100
    assert "\n3 more are omitted" in text
