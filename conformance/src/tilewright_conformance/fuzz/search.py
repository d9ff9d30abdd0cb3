"""Drawing programs, judging them, making those that fail small."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tilewright.ir.types import FloatType, IntType, element_type
from tilewright_conformance.fuzz.differential import (
    AGREES,
    ERROR,
    MISMATCH,
    Differential,
    Verdict,
)
from tilewright_conformance.fuzz.minimise import minimise
from tilewright_conformance.random_programs import Program, random_program

#: What numbers of programs of different seeds are apart by: no two seeds draw the same programs.
_APART = 1_000_003
#: So many programs in a row that are thrown out end a run: the backend declares too little.
_HOPELESS = 200


@dataclass(frozen=True)
class Found:
    """A program on which the backend fails, made small.

    Attributes:
        program, verdict: the small program and what is wrong with it.
        seed: the number of the program that was drawn
            (:func:`~tilewright_conformance.random_programs.random_program`).
        drawn, shrunk: operations of the program as it was drawn, and as it is now.
    """

    program: Program
    verdict: Verdict
    seed: int
    drawn: int
    shrunk: int


@dataclass
class Tally:
    """Counts of the programs' outcomes, and of the operations and types of those that were judged.

    Attributes:
        kinds: how many programs had which verdict.
        reasons: why programs were thrown out: undefined, needing an undeclared feature, or beyond
            exact mode.
        operations: how many of the programs that were judged have each operation.
        elements: how many of them compute with each element type.
    """

    kinds: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    operations: Counter[str] = field(default_factory=Counter)
    elements: Counter[str] = field(default_factory=Counter)

    @property
    def judged(self) -> int:
        """Programs that say something about the backend."""
        return sum(self.kinds[kind] for kind in (AGREES, MISMATCH, ERROR))

    @property
    def rejected(self) -> int:
        return self.kinds.total() - self.judged

    def rejections(self) -> str:
        """Return the number of programs that were thrown out, and of each kind among them."""
        kinds = [
            f"{count} {kind}"
            for kind, count in self.kinds.most_common()
            if kind not in (AGREES, MISMATCH, ERROR)
        ]
        return f"{self.rejected} thrown out" + (f" ({', '.join(kinds)})" if kinds else "")

    def count(self, program: Program, verdict: Verdict) -> None:
        """Take in the verdict on a program."""
        self.kinds[verdict.kind] += 1
        if not verdict.fails and verdict.kind != AGREES:
            self.reasons[f"{verdict.kind}: {verdict.message.splitlines()[-1].strip()}"] += 1
            return
        operations = list(program.module.walk())
        self.operations.update({operation.name for operation in operations})
        types = {
            element_type(value.type) for operation in operations for value in operation.results
        }
        self.elements.update(
            str(type_) for type_ in types if isinstance(type_, IntType | FloatType)
        )

    def coverage(self) -> str:
        """A table: in how many programs each operation and each element type was."""
        lines = []
        for title, counter in (("operation", self.operations), ("element type", self.elements)):
            rows = [
                f"{name} {count}"
                for name, count in sorted(counter.items(), key=lambda row: (-row[1], row[0]))
            ]
            lines.append(f"programs with each {title}:")
            lines += [
                "  " + "".join(f"{cell:<26}" for cell in rows[start : start + 6]).rstrip()
                for start in range(0, len(rows), 6)
            ]
        return "\n".join(lines)


class Search:
    """Runs random programs on a backend.

    Args:
        differential: what judges them.
        shrink: how many smaller programs are tried once one fails.
        before: called with each program and its expected values before the backend runs it: a
            backend may end the process.
    """

    def __init__(
        self,
        differential: Differential,
        *,
        shrink: int = 500,
        before: Callable[[Program, Verdict], None] = lambda program, known: None,
    ) -> None:
        self.differential, self.shrink, self.before = differential, shrink, before
        self.tally = Tally()

    def run(self, count: int, first_seed: int) -> Iterator[Found]:
        """Judge ``count`` programs and yield, minimized, those on which the backend fails."""
        number, idle = first_seed * _APART, 0
        while self.tally.judged < count and idle < _HOPELESS:
            program = random_program(number, self.differential.capabilities)
            known = self.differential.expected(program)
            if known.kind == AGREES:
                self.before(program, known)
            verdict = self.differential.judge(program, known)
            self.tally.count(program, verdict)
            idle = 0 if verdict.fails or verdict.kind == AGREES else idle + 1
            if verdict.fails:
                yield self._small(program, verdict, number)
            number += 1

    def _small(self, program: Program, verdict: Verdict, number: int) -> Found:
        def fails(smaller: Program) -> bool:
            return self.differential.judge(smaller).kind == verdict.kind

        small = minimise(program, fails, self.shrink)
        # a backend that fails now and then may agree on the last run
        again = self.differential.judge(small)
        return Found(small, again if again.fails else verdict, number, _size(program), _size(small))


def _size(program: Program) -> int:
    return sum(1 for _ in program.module.walk())
