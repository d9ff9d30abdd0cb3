"""Comparison of two reports: cases with other results, less exact or slower ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright_conformance.suite.report.document import Document

#: A maximum error that grows by more than this factor, and by more than this many units in the last
#: place, is worth a line.
_FACTOR, _UNITS = 1.25, 0.25


@dataclass(frozen=True)
class Difference:
    """One case that differs between two reports; a report without a result for it says ``absent``.

    Attributes:
        kind: ``worse`` (good before and not after), ``better``, ``other`` (neither is good, or
            neither is bad), ``less exact`` or ``more exact``.
        before, after: statuses, or errors in units in the last place.
    """

    case: str
    kind: str
    before: str
    after: str


def differences(first: Document, second: Document) -> list[Difference]:
    """List the differences of two reports, the worst first."""
    before, after = (
        {result["case"]: result for result in document["results"]} for document in (first, second)
    )
    found = []
    for case in dict.fromkeys((*before, *after)):
        a, b = before.get(case), after.get(case)
        if a is None or b is None or a["status"] != b["status"]:
            found.append(Difference(case, _kind(a, b), _status(a), _status(b)))
            continue
        old, new = a["numbers"].get("ulp", 0.0), b["numbers"].get("ulp", 0.0)
        if max(old, new) > _FACTOR * min(old, new) and abs(old - new) > _UNITS:
            found.append(
                Difference(
                    case,
                    "less exact" if new > old else "more exact",
                    f"{old:.3g} ULP",
                    f"{new:.3g} ULP",
                )
            )
    order = ("worse", "other", "less exact", "more exact", "better")
    return sorted(found, key=lambda difference: (order.index(difference.kind), difference.case))


def comparison(first: Document, second: Document) -> str:
    """The differences as text, below a table of what the reports are of."""
    found = differences(first, second)
    lines = [f"{'':14}  {'first':40}  second"]
    for name, values in _about(first, second):
        lines.append(f"{name:14}  {values[0]:40}  {values[1]}")
    lines.append("")
    width = max((len(difference.case) for difference in found), default=0)
    lines += [f"{one.kind:10}  {one.case:{width}}  {one.before} -> {one.after}" for one in found]
    counts = ", ".join(
        f"{sum(one.kind == kind for one in found)} {kind}"
        for kind in dict.fromkeys(one.kind for one in found)
    )
    lines.append(f"{len(found)} differences: {counts}" if found else "no differences")
    return "\n".join(lines)


def _about(*documents: Document) -> list[tuple[str, list[str]]]:
    def row(name: str, *path: str) -> tuple[str, list[str]]:
        values = []
        for document in documents:
            value: Any = document
            for step in path:
                value = value[step]
            values.append(str(value))
        return name, values

    return [
        row("backend", "backend", "name"),
        row("version", "backend", "version"),
        row("device", "device", "name"),
        row("driver", "device", "driver"),
        row("suite", "suite", "version"),
        row("core", "core", "version"),
        row("seed", "run", "seed"),
        (
            "claims",
            [
                ", ".join(claim["profile"] for claim in document["claims"] if claim["holds"])
                or "none"
                for document in documents
            ],
        ),
        (
            "passed",
            [
                f"{document['summary']['total'].get('passed', 0)} of {len(document['results'])}"
                for document in documents
            ],
        ),
    ]


def _status(result: dict[str, Any] | None) -> str:
    return "absent" if result is None else str(result["status"])


def _kind(before: dict[str, Any] | None, after: dict[str, Any] | None) -> str:
    if before is None or after is None:
        return "other"
    good = [result["status"] == "passed" for result in (before, after)]
    return "worse" if good[0] and not good[1] else "better" if good[1] and not good[0] else "other"
