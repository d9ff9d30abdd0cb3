"""Both compilers' outcomes side by side, kernel by kernel and target by target."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from corpus.compilation import Outcome, Outcomes
from corpus.verdict import Verdict, judge


@dataclass
class Row:
    """A kernel for a target.

    Attributes:
        kernel: the launch's id.
        target: the target's name.
        ours, theirs: what became of it; ``theirs`` is None for targets that Triton does not have.
        verdict: how ours stands; None where one of them did not compile.
    """

    kernel: str
    target: str
    ours: Outcome
    theirs: Outcome | None
    verdict: Verdict | None

    @property
    def word(self) -> str:
        """``behind``, ``level``, ``ahead``; ``fails``, ``only ours``, ``neither`` by who compiles
        it.

        ``compiles`` for a target that Triton does not have.
        """
        if self.verdict is not None:
            return self.verdict.word
        if self.theirs is None:
            return "neither" if self.ours.error else "compiles"
        if self.ours.error:
            return "neither" if self.theirs.error else "fails"
        return "only ours"

    @property
    def score(self) -> float:
        """Points behind, for sorting: a kernel that only Triton compiles is the furthest behind."""
        if self.verdict is not None:
            return self.verdict.score
        return {"fails": 100.0, "neither": -99.0, "only ours": -50.0}.get(self.word, 0.0)

    def record(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "kernel": self.kernel,
            "verdict": self.word,
            "score": self.score if self.verdict else None,
            "reasons": self.verdict.reasons if self.verdict else [],
            "tilewright": self.ours.record(),
            "triton": None if self.theirs is None else self.theirs.record(),
        }


def rows(ours: Outcomes, theirs: Outcomes) -> list[Row]:
    """All pairs of outcomes, the one furthest behind first."""
    found = []
    for kernel, outcomes in ours.items():
        for target, one in outcomes.items():
            other = theirs.get(kernel, {}).get(target)
            verdict = None
            if other and not one.error and not other.error and one.figures and other.figures:
                verdict = judge(one.figures, other.figures)
            found.append(Row(kernel, target, one, other, verdict))
    return sorted(found, key=lambda row: (-row.score, row.kernel, row.target))


def tally(of: list[Row], target: str) -> Counter[str]:
    """How many kernels of a target there are by verdict."""
    return Counter(row.word for row in of if row.target == target)
