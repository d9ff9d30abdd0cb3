"""Drawing programs, stopping at a failure, shrinking it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from hypothesis import HealthCheck, Phase, assume, given, seed, settings
from hypothesis.errors import HypothesisException, Unsatisfiable

from tilewright_conformance.fuzz.differential import AGREES, Differential, Verdict
from tilewright_conformance.fuzz.minimise import minimise
from tilewright_conformance.programs import Program, programs

#: Programs of one batch. A batch has a seed of its own, so that a failure does not change the programs after it.
BATCH = 100


@dataclass(frozen=True)
class Found:
    """A program on which the backend fails, made small.

    Attributes:
        program, verdict: the small program and what is wrong with it.
        seed: of the batch that had it.
        drawn, shrunk: operations of the program as it was drawn, and as it is now.
    """

    program: Program
    verdict: Verdict
    seed: int
    drawn: int
    shrunk: int


@dataclass
class Tally:
    """How many programs had which verdict; ``rejected`` were thrown out (undefined, or needing what is not declared)."""

    kinds: Counter[str] = field(default_factory=Counter)

    @property
    def judged(self) -> int:
        """Programs that say something about the backend."""
        return sum(count for kind, count in self.kinds.items() if kind not in ("undefined", "undeclared"))

    @property
    def rejected(self) -> int:
        return self.kinds.total() - self.judged


class _FailureError(Exception):
    """The program at hand fails."""


class _Enough(KeyboardInterrupt):
    """No more shrinking, or no more drawing where all is thrown out. Hypothesis lets an interrupt through at once; after other exceptions it goes on."""


class Search:
    """Runs random programs on a backend.

    Args:
        differential: what judges them.
        shrink: how many smaller programs are tried once one fails, by each of the two ways of making it small.
        before: called with each program and its expected values before the backend runs it: a backend may end the process.
    """

    def __init__(self, differential: Differential, *, shrink: int = 500, before: Callable[[Program, Verdict], None] = lambda program, known: None) -> None:
        self.differential, self.shrink, self.before = differential, shrink, before
        self.tally = Tally()

    def run(self, count: int, first_seed: int) -> Iterator[Found | None]:
        """Judge ``count`` programs, in batches; gives what each batch found, None for nothing. A batch ends at its first failure."""
        batch, empty = 0, False
        while self.tally.judged < count and not empty:  # a batch without a program: the backend declares too little
            before = self.tally.judged
            yield self._batch(min(BATCH, count - self.tally.judged), first_seed * 1_000_003 + batch)
            batch += 1
            empty = self.tally.judged == before

    def _batch(self, count: int, batch_seed: int) -> Found | None:
        smallest: list[tuple[int, Program, Verdict]] = []
        drawn, left = 0, self.shrink
        judged, rejected = self.tally.judged, self.tally.rejected

        @seed(batch_seed)
        @settings(
            max_examples=count,
            deadline=None,
            database=None,
            report_multiple_bugs=False,
            phases=[Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
        )
        @given(programs())
        def attempt(program: Program) -> None:
            nonlocal drawn, left
            if smallest:
                left -= 1
                if left < 0:
                    raise _Enough
            known = self.differential.expected(program)
            if known.kind == AGREES:
                self.before(program, known)
            verdict = self.differential.judge(program, known)
            if not smallest:
                self.tally.kinds[verdict.kind] += 1
                if self.tally.judged == judged and self.tally.rejected >= rejected + 2 * BATCH:
                    raise _Enough
            assume(verdict.fails or verdict.kind == AGREES)
            if verdict.fails:
                size = _size(program)
                if not smallest:
                    drawn = size
                if not smallest or (size, len(program.inputs)) < (smallest[0][0], len(smallest[0][1].inputs)):
                    smallest[:] = [(size, program, verdict)]
                raise _FailureError

        try:
            attempt()
        except Unsatisfiable:  # every program of the batch was thrown out
            return None
        except _Enough:
            pass
        except (_FailureError, HypothesisException, ExceptionGroup):  # a program that fails now and then is "flaky" to hypothesis; here it fails
            if not smallest:
                raise
        if not smallest:
            return None
        _, program, verdict = smallest[0]
        kind = verdict.kind
        program = minimise(program, lambda smaller: self.differential.judge(smaller).kind == kind, self.shrink)
        return Found(program, self.differential.judge(program), batch_seed, drawn, _size(program))


def _size(program: Program) -> int:
    return sum(1 for _ in program.module.walk())
