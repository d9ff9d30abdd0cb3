"""Mistakes that exact mode sees, of which tolerances miss a third: 17 of 17, on each backend."""

from __future__ import annotations

import pytest

from tilewright_conformance.exact.__main__ import main
from tilewright_conformance.exact.injected_bugs import BUGS, with_bug
from tilewright_conformance.exact.launches import verdict_on
from tilewright_conformance.suite.session import Session, Subject


def test_there_are_17_mistakes() -> None:
    assert len(BUGS) == 17


@pytest.mark.each_value
@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize(("launch", "bug"), BUGS, ids=[f"{f.__name__}: {bug}" for f, bug in BUGS])
def test_a_mistake_is_another_algebra(launch, bug, backend) -> None:
    right = launch()
    found = verdict_on(Session(Subject(backend), "exact"), right, with_bug(right, bug))
    assert found.status == "different", found
    if bug == "twice":
        (difference,) = found.differences
        assert difference.index == (3, 5) and difference.count == 1


def test_the_kernels_agree_with_themselves() -> None:
    for launch in dict(BUGS):
        right = launch()
        found = verdict_on(Session(Subject("cpu"), "exact"), right, right)
        assert found.status == "equal", (launch.__name__, found)


def test_the_command_counts_right_verdicts(capsys, monkeypatch) -> None:
    chosen = ["--backend", "reference", "--only", "prefix*", "--repeat", "2"]
    assert main(chosen) == 0
    assert "pairs equal 2/2, bugs caught 1/1; 2 times each" in capsys.readouterr().out
    monkeypatch.setattr("tilewright_conformance.exact.__main__.with_bug", lambda right, bug: right)
    assert main(chosen) == 1
    assert "pairs equal 2/2, bugs caught 0/1" in capsys.readouterr().out
    assert main(["--backend", "reference", "--only", "nothing"]) == 2
