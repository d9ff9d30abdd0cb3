"""Figures that a change of the compiler is held against, and what became better or worse."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from corpus.compilation import Outcome, Outcomes
from corpus.figures import Figures
from corpus.verdict import judge

FILE = Path(__file__).with_name("baseline.json")
#: Fewer points than this are no change: an instruction more in a loop of 30.
_CHANGE = 0.05


@dataclass
class Baseline:
    """What was accepted last.

    Attributes:
        versions: of the tools by whose work the figures are.
        kernels: by the launch's id, the target's name and the compiler's: figures as JSON has them,
            or ``{"error": first line}``.
    """

    versions: dict[str, str] = field(default_factory=dict)
    kernels: dict[str, dict[str, dict[str, dict[str, Any]]]] = field(default_factory=dict)

    @staticmethod
    def read(file: Path = FILE) -> Baseline:
        """The committed one; an empty one where there is none."""
        return Baseline(**json.loads(file.read_text())) if file.exists() else Baseline()

    def write(self, file: Path = FILE) -> None:
        """Keep it, a kernel and target a line."""
        lines = []
        for kernel, targets in sorted(self.kernels.items()):
            rows = [f"  {json.dumps(name)}: {_compact(each)}" for name, each in targets.items()]
            lines.append(f"{json.dumps(kernel)}: {{\n" + ",\n".join(rows) + "}")
        head = f'{{"versions": {json.dumps(self.versions)},\n"kernels": {{\n'
        file.write_text(head + ",\n".join(lines) + "\n}}\n")

    def outcomes(self, compiler: str) -> Outcomes:
        """A compiler's outcomes as they were accepted."""
        return {
            kernel: {
                target: _outcome(each[compiler])
                for target, each in targets.items()
                if compiler in each
            }
            for kernel, targets in self.kernels.items()
        }

    def accept(self, outcomes: Outcomes, compiler: str) -> None:
        """Take a compiler's outcomes in."""
        for kernel, targets in outcomes.items():
            for target, outcome in targets.items():
                known = self.kernels.setdefault(kernel, {}).setdefault(target, {})
                known[compiler] = _facts(outcome)


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _facts(outcome: Outcome) -> dict[str, Any]:
    if outcome.error:
        return {"error": outcome.error[:120]}
    return outcome.figures.record() if outcome.figures else {}


def _outcome(facts: dict[str, Any]) -> Outcome:
    if "error" in facts:
        return Outcome(error=facts["error"])
    return Outcome(figures=Figures.of(facts) if facts else None)


@dataclass
class Change:
    """A kernel that a target's code changed of.

    Attributes:
        score: points; positive where it is worse than before.
        reasons: in words.
    """

    kernel: str
    target: str
    score: float
    reasons: list[str]

    def __str__(self) -> str:
        word = "worse" if self.score > 0 else "better"
        return f"{word}: {self.kernel} for {self.target}: {'; '.join(self.reasons)}"


@dataclass
class Changes:
    """What became of the kernels that the baseline has, by kernel and target."""

    compared: int
    better: list[Change]
    worse: list[Change]

    def __str__(self) -> str:
        same = self.compared - len(self.better) - len(self.worse)
        head = (
            f"unchanged on {same} of {self.compared}, better on {len(self.better)}, worse on "
            f"{len(self.worse)}"
        )
        return "\n".join([head, *map(str, [*self.worse, *self.better])])


def changes(baseline: Baseline, outcomes: Outcomes) -> Changes:
    """Ours against the baseline's."""
    found = Changes(0, [], [])
    for kernel, target, outcome in _each(outcomes):
        before = baseline.kernels.get(kernel, {}).get(target, {}).get("tilewright")
        if before is None:
            continue
        found.compared += 1
        change = _change(kernel, target, before, outcome)
        if change is not None and abs(change.score) >= _CHANGE:
            (found.worse if change.score > 0 else found.better).append(change)
    return found


def _each(outcomes: Outcomes) -> Iterable[tuple[str, str, Outcome]]:
    for kernel, targets in outcomes.items():
        for target, outcome in targets.items():
            yield kernel, target, outcome


def _change(kernel: str, target: str, before: dict[str, Any], now: Outcome) -> Change | None:
    if "error" in before or now.error:
        if "error" in before and now.error:
            return None
        reason = f"fails: {now.error}" if now.error else "compiles now"
        return Change(kernel, target, 100.0 if now.error else -100.0, [reason])
    if now.figures is None:
        return None
    verdict = judge(now.figures, Figures.of(before), "before")
    return Change(kernel, target, verdict.score, verdict.reasons)
