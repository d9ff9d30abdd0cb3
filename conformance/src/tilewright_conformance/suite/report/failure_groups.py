"""Failed and unsupported cases grouped by cause: what to do next, and what users do without.

The causes are derived from the results of a report: messages of refusals name operations and
capabilities, other messages are alike but for names and numbers.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tilewright_conformance.suite.report.document import BAD, Document

_OPERATION = r"[a-z_][a-z0-9_]*(?:\.[a-z0-9_]+)*"
#: how refusals name an operation that has no lowering
_LOWERS = tuple(
    map(
        re.compile,
        (
            rf"does not lower ({_OPERATION})",
            rf"operation ({_OPERATION}) at .* has no lowering",
            rf"\b({_OPERATION}) has no lowering",
        ),
    )
)
#: and the kernel's further ones
_ALSO = re.compile(rf"this kernel also needs ((?:{_OPERATION})(?:, {_OPERATION})*)")
_DECLARES = re.compile(r"does not declare ([^;]*?)(?:;|, and (?:accepted|met) it|$)", re.M)
_ATOMIC = re.compile(r"atomic \w+ on (\w+)")
#: what differs between messages of one cause: places, quoted text, numbers
_PARTICULAR = re.compile(
    r"\S+\.(?:py|toml|cc?|cu|so)(?::\d+)*|(?<!\w)['\"`][^'\"`]*['\"`]|"
    r"0x[0-9a-fA-F]+|(?<![\w.])[-+]?\d[\d.,]*(?:e[-+]?\d+)?(?!\w)"
)
_LONGEST = 160


@dataclass(frozen=True)
class Cause:
    """The common cause of several cases.

    Attributes:
        text: what to do, or what is wrong.
        cases: their ids, in the report's order.
        unblocks: how many of them wait for nothing else, given the causes before it in the list.
    """

    text: str
    cases: tuple[str, ...]
    unblocks: int

    def __str__(self) -> str:
        count = f"{self.unblocks} case{'s' * (self.unblocks != 1)}"
        if not self.text.startswith("lower "):
            return f"{self.text}: {count}"
        return (
            f"{self.text}: unblocks {count}"
            if self.unblocks
            else f"{self.text}: {len(self.cases)} cases need it and more"
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "text": self.text,
            "line": str(self),
            "cases": list(self.cases),
            "unblocks": self.unblocks,
        }


def failures(document: Document) -> list[Cause]:
    """The causes of the cases that went wrong.

    Operations to lower come in the order in which each unblocks most cases, the other causes by
    their number of cases.
    """
    waiting: dict[str, frozenset[str]] = {}
    others: dict[str, list[str]] = {}
    for result in document["results"]:
        if result["verdict"] not in BAD:
            continue
        operations = missing_operations(result["message"])
        if operations:
            waiting[result["case"]] = operations
        else:
            others.setdefault(_failure(result), []).append(result["case"])
    causes = [
        *_to_lower(waiting),
        *(Cause(text, tuple(cases), len(cases)) for text, cases in others.items()),
    ]
    lowered = [cause for cause in causes if cause.text.startswith("lower ")]
    rest = sorted(
        (cause for cause in causes if not cause.text.startswith("lower ")),
        key=lambda cause: -cause.unblocks,
    )
    return [*lowered, *rest]


#: Causes that are printed at the end of a run; reports have all.
_PRINTED = 8


def lines(document: Document) -> list[str]:
    """The first causes of a report, for people, below a heading; empty where nothing went wrong."""
    found = failures(document)
    if not found:
        return []
    rest = sum(cause.unblocks for cause in found[_PRINTED:])
    return [
        "why, and what to do next:",
        *(f"  {cause}" for cause in found[:_PRINTED]),
        *([f"  … and {len(found) - _PRINTED} more causes, {rest} cases"] if rest else []),
    ]


def unsupported(document: Document) -> list[Cause]:
    """The undeclared capabilities, each with the cases that need it, the most first.

    A case may need several.
    """
    found: dict[str, list[str]] = {}
    for result in document["results"]:
        if result["status"] == "not-supported" and result["verdict"] not in BAD:
            for reason in dict.fromkeys(
                _ATOMIC.sub(r"atomic updates of \1", lacking) for lacking in result["lacks"]
            ):
                found.setdefault(reason, []).append(result["case"])
    causes = [Cause(reason, tuple(cases), len(cases)) for reason, cases in found.items()]
    return sorted(causes, key=lambda cause: (-cause.unblocks, cause.text))


def missing_operations(message: str) -> frozenset[str]:
    """The operations that a refusal says have no lowering; empty for other messages."""
    for pattern in _LOWERS:
        named = pattern.search(message)
        if named:
            also = _ALSO.search(message)
            return frozenset((named[1], *(also[1].split(", ") if also else ())))
    return frozenset()


def operations_to_lower(messages: Mapping[str, str]) -> list[Cause]:
    """Return the operations to lower, most useful first.

    Args:
        messages: case -> its error. Errors that name no operation are ignored.
    """
    return list(_to_lower({case: missing_operations(text) for case, text in messages.items()}))


def _to_lower(waiting: Mapping[str, frozenset[str]]) -> Iterable[Cause]:
    """Sort operations in the order in which to lower them.

    Next is always the one that most cases wait for, where a case counts a quarter for each further
    one.
    """
    left = {case: set(operations) for case, operations in waiting.items()}
    while any(left.values()):
        weight: dict[str, float] = {}
        last = Counter[str]()
        for operations in left.values():
            for name in operations:
                weight[name] = weight.get(name, 0.0) + 4.0 ** (1 - len(operations))
            if len(operations) == 1:
                last.update(operations)
        best = max(weight, key=lambda name: (weight[name], name))
        cases = tuple(case for case, operations in waiting.items() if best in operations)
        yield Cause(f"lower `{best}`", cases, last[best])
        for operations in left.values():
            operations.discard(best)


def _failure(result: Mapping[str, Any]) -> str:
    """Describe a case's failure, in words that are the same for cases that fail alike."""
    status, subject = result["status"], result["subject"]
    if result["verdict"] == "unexpected-pass":
        return "the vendor's list says that they do not pass, and they do: take them out"
    if status == "timed-out":
        return f"time limits of `{subject}` (give a slow machine more by --time-scale)"
    if status == "crashed":
        return f"the process ended ({result['exception']}) on `{subject}`"
    undeclared = _DECLARES.search(result["message"])
    if undeclared:
        return f"declare or refuse {undeclared[1]}"
    if result["exception"] == "MismatchError":
        return f"wrong results of `{subject}`"
    named = result["exception"] or status
    return f"{named}: {general(result['message'].removeprefix(f'{named}: '))}"


def general(message: str) -> str:
    """The first line of a message without what is of one case."""
    first = message.strip().partition("\n")[0]
    return re.sub(r"…(?:[ ,]*…)+", "…", _PARTICULAR.sub("…", first))[:_LONGEST]
