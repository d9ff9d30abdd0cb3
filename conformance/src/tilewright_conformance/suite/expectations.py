"""The vendor's own list of what the backend does not do: cases that must not pass, each with why.

    [[expect]]
    case = "math/erf/f64/*"        # an id, or a pattern of the shell
    kind = "notyet"
    reason = "the f64 polynomial is that of f32"
    exception = "MismatchError"
    issue = "https://example.com/issues/12"

The list is strict. A case of it that passes, or fails in another way than the list says, is bad
news; an entry that names no case is an error.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from tilewright_conformance.suite.case import Outcome, Status
from tilewright_conformance.suite.catalogue import Catalogue

#: kind -> (what it means, statuses that are in accord with it)
KINDS: dict[str, tuple[str, frozenset[Status]]] = {
    "notimpl": (
        "the backend could do it, has not learnt it, and says so",
        frozenset({Status.ERROR, Status.NOT_SUPPORTED}),
    ),
    "notyet": (
        "the backend does it wrongly, which is known",
        frozenset({Status.FAILED, Status.ERROR, Status.CRASHED, Status.TIMED_OUT}),
    ),
    "never": (
        "the hardware cannot do it, and the backend says so",
        frozenset({Status.ERROR, Status.NOT_SUPPORTED}),
    ),
}
#: Exceptions by which a backend says that it does not do something.
REFUSALS = frozenset(
    {
        "CompilationError",
        "UnsupportedLanguageConstruct",
        "CompileTimeAssertionFailure",
        "BackendError",
        "LoweringError",
        "OutOfResources",
    }
)

_FIELDS = ("case", "kind", "reason", "exception", "issue")


class ExpectationError(ValueError):
    """An expectations file breaks a rule; the message names file, entry and rule."""


@dataclass(frozen=True)
class Expectation:
    """One entry of the file; all fields are texts that are not empty.

    Attributes:
        case: an id or a pattern.
        kind: one of :data:`KINDS`.
        reason: why, for the readers of reports.
        exception: name of the type of the exception that the case ends with, as outcomes have it:
            ``MismatchError`` for a wrong result, ``LoweringError``, the name of a signal
            (``SIGSEGV``), ``TimeLimit``, ``MemoryLimit``.
        issue: the URL where it is tracked.
    """

    case: str
    kind: str
    reason: str
    exception: str
    issue: str

    def __post_init__(self) -> None:
        for name in _FIELDS:
            value = getattr(self, name)
            if not isinstance(value, str) or not value.strip():
                raise ExpectationError(f"{name} must be a text that is not empty, not {value!r}")
        if self.kind not in KINDS:
            raise ExpectationError(f"kind must be one of {', '.join(KINDS)}, not {self.kind!r}")
        if not self.issue.startswith(("https://", "http://")):
            raise ExpectationError(f"issue must be a URL, not {self.issue!r}")
        if self.kind in ("notimpl", "never") and self.exception not in REFUSALS:
            raise ExpectationError(
                f"what is {self.kind} is refused with one of {', '.join(sorted(REFUSALS))}, not "
                f"with {self.exception}"
            )

    def agrees(self, outcome: Outcome) -> bool:
        """Return whether a case's outcome is the one that the entry expects."""
        return outcome.status in KINDS[self.kind][1] and outcome.exception == self.exception


class Verdict(StrEnum):
    """An outcome in the light of the expectations."""

    GOOD = "good"  #: passed, or refused for want of a capability that is not declared
    EXPECTED = "expected"  #: not passed, just as the vendor's list says
    BAD = "bad"  #: anything else
    UNEXPECTED_PASS = "unexpected-pass"  #: passed, and the vendor's list says it does not
    NOT_RUN = "not-run"


class Expectations:
    """The entries by case.

    Args:
        entries: of the file.
        catalogue: what the patterns are looked up in.

    Raises:
        ExpectationError: an entry names no case, or two name the same one.
    """

    def __init__(
        self, entries: Sequence[Expectation] = (), catalogue: Catalogue | None = None
    ) -> None:
        self.entries = tuple(entries)
        self._by_case: dict[str, Expectation] = {}
        for entry in self.entries:
            assert catalogue is not None
            matched = catalogue.matching(entry.case)
            if not matched:
                raise ExpectationError(f"no case of the suite matches {entry.case!r}")
            for case in matched:
                other = self._by_case.setdefault(case.id, entry)
                if other is not entry:
                    raise ExpectationError(
                        f"both {other.case!r} and {entry.case!r} match the case {case.id}"
                    )

    def of(self, case: str) -> Expectation | None:
        """The entry of a case, where there is one."""
        return self._by_case.get(case)

    def verdict(self, outcome: Outcome) -> Verdict:
        """Judge an outcome by the expectations."""
        if outcome.status is Status.SKIPPED:
            return Verdict.NOT_RUN
        entry = self.of(outcome.case)
        if entry is None:
            return (
                Verdict.GOOD
                if outcome.status in (Status.PASSED, Status.NOT_SUPPORTED)
                else Verdict.BAD
            )
        if outcome.status is Status.PASSED:
            return Verdict.UNEXPECTED_PASS
        return Verdict.EXPECTED if entry.agrees(outcome) else Verdict.BAD

    def as_json(self) -> list[dict[str, str]]:
        """The entries as JSON-able data."""
        return [asdict(entry) for entry in self.entries]


def read_expectations(path: Path, catalogue: Catalogue) -> Expectations:
    """Read an expectations file.

    Raises:
        ExpectationError: it is no TOML, or breaks a rule.
        OSError: it cannot be read.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ExpectationError(f"{path}: {error}") from None
    unknown = sorted(set(data) - {"expect"})
    if unknown:
        raise ExpectationError(
            f"{path}: a file of expectations holds tables [[expect]] alone, not "
            f"{', '.join(unknown)}"
        )
    try:
        return Expectations(entries_from(data.get("expect", [])), catalogue)
    except ExpectationError as error:
        raise ExpectationError(f"{path}: {error}") from None


def entries_from(tables: Iterable[Mapping[str, Any]]) -> list[Expectation]:
    """Entries from the tables of a file or report.

    Raises:
        ExpectationError: one breaks a rule; the message has its number, from 1.
    """
    found = []
    for number, table in enumerate(tables, 1):
        if not isinstance(table, Mapping) or set(table) != set(_FIELDS):
            raise ExpectationError(
                f"entry {number} must have exactly {', '.join(_FIELDS)}, not {table!r:.200}"
            )
        try:
            found.append(Expectation(**table))
        except ExpectationError as error:
            raise ExpectationError(f"entry {number}: {error}") from None
    return found
