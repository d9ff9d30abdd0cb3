"""The report document: JSON with the tested software and device, each outcome, and a checksum.

The checksum is a SHA-256 over the canonical form of everything but a signature. It shows that a
file is undamaged, and no more: whoever edits a report can recompute it. A signature
(:mod:`tilewright_conformance.suite.report.signature`) shows who vouches for a report; running cases
again (:mod:`tilewright_conformance.suite.rerun`) shows whether it is true. :func:`verify` derives
verdicts, summary and claims again from the results and the cases of this installation, so an edited
report must be consistent.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tilewright.runtime.storage.files import write_whole
from tilewright_conformance.suite.case import PROFILES, Case, Outcome, Status
from tilewright_conformance.suite.catalogue import Catalogue, drawn
from tilewright_conformance.suite.expectations import (
    ExpectationError,
    Expectations,
    Verdict,
    entries_from,
)
from tilewright_conformance.suite.profiles import (
    ProfileError,
    changed_families,
    claim,
    required_cases,
)
from tilewright_conformance.suite.profiles.waivers import waived_cases, waivers
from tilewright_conformance.suite.provenance import (
    capabilities_from_json,
    normal_name,
    suite_version,
    wheel_name,
)
from tilewright_conformance.suite.report.plain_text import objections, plain
from tilewright_conformance.suite.report.schema import schema, violations

FORMAT = "tilewright-conformance-report"
#: Verdicts that end a run with exit code 1.
BAD = frozenset({Verdict.BAD, Verdict.UNEXPECTED_PASS})

Document = dict[str, Any]


class ReportError(ValueError):
    """A report is not what the suite wrote; the message says what is wrong with it."""


def build(
    cases: Sequence[Case],
    outcomes: Mapping[str, Outcome],
    about: Mapping[str, Any],
    run: Mapping[str, Any],
    expectations: Expectations,
    catalogue: Catalogue,
) -> Document:
    """The document of a run, with its checksum.

    Args:
        cases: that were selected, in order; one without an outcome is skipped.
        about: of :func:`~tilewright_conformance.suite.provenance.provenance`.
        run: how it was run: ``seed``, ``quick``, ``profiles``, ``patterns``, ``sample``,
            ``time_scale``, ``emulate``, ``workers``, ``started``, ``seconds``; ``executor``: where
            its workers were, if not on one machine; ``repeat``: how often each case ran in a row,
            if more than once.
    """
    capabilities = capabilities_from_json(about["backend"]["capabilities"])
    results = []
    for case in cases:
        outcome = outcomes.get(case.id) or Outcome(
            case.id, Status.SKIPPED, "the run ended before it"
        )
        results.append(
            {
                **outcome.as_json(),
                "profile": case.profile,
                "subject": case.subject,
                "lacks": list(case.needs.missing(capabilities)),
                "verdict": expectations.verdict(outcome).value,
            }
        )
    document: Document = {
        "format": FORMAT,
        "format_version": 2,
        "suite": {
            "version": suite_version(),
            "catalogue": catalogue.digest(),
            "cases": sum(1 for _ in catalogue),
        },
        **plain(about),
        "run": plain(run),
        "expectations": plain(expectations.as_json()),
        "results": plain(results),
    }
    document["summary"] = _summary(results)
    document["claims"] = _claims(document, expectations, catalogue)
    document["checksum"] = checksum(document)
    problems = _problems(document)
    if problems:
        raise ReportError("; ".join(problems[:5]))
    return document


def _problems(document: Any) -> list[str]:
    return violations(document, schema()) or objections(document)


def checksum(document: Mapping[str, Any]) -> str:
    """The digest over the canonical form of a document without its checksum and signature.

    Raises:
        ReportError: it holds what JSON does not have, such as NaN.
    """
    content = {
        name: value for name, value in document.items() if name not in ("checksum", "signature")
    }
    try:
        text = json.dumps(
            content, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
        )
    except ValueError as error:
        raise ReportError(f"a report holds plain JSON: {error}") from None
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def write(document: Document, path: Path) -> None:
    """Write a document as a file."""
    write_whole(
        path, (json.dumps(document, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()
    )


def read(path: Path) -> Document:
    """Read a document without checking more than its shape; see :func:`verify`.

    Raises:
        ReportError: it is no report.
        OSError: it cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8")
        document = json.loads(
            text,
            object_pairs_hook=_object,
            parse_int=_number,
            parse_float=_number,
            parse_constant=_number,
        )
    except (ValueError, RecursionError) as error:
        raise ReportError(f"{path} is not JSON: {error}") from None
    problems = _problems(document)
    if problems:
        raise ReportError(f"{path} is no report of this format: {'; '.join(problems[:5])}")
    return dict(document)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build a JSON object; a name that is there twice is an error.

    Readers take either field of the two, and the checksum sees one of them.
    """
    found = dict(pairs)
    if len(found) != len(pairs):
        counts = Counter(name for name, _ in pairs)
        repeated = next(name for name, count in counts.items() if count > 1)
        raise ValueError(f"{repeated!a:.80} is there twice in one object")
    return found


def _number(text: str) -> int | float:
    """Parse a number that every reader of JSON reads alike: finite, and within 64 bits."""
    number = float(text)
    if not math.isfinite(number) or (text.lstrip("-").isdecimal() and abs(number) >= 2**64):
        raise ValueError(f"{text:.40} is no number of a report")
    return int(text) if text.lstrip("-").isdecimal() else number


def outcomes_of(document: Document) -> dict[str, Outcome]:
    """The outcomes by case."""
    fields = ("case", "status", "message", "exception", "numbers", "seconds")
    return {
        result["case"]: Outcome(**{name: result[name] for name in fields})
        for result in document["results"]
    }


def verify(document: Document, catalogue: Catalogue) -> None:
    """Check a document, offline: its checksum, and all that follows from its results.

    Args:
        catalogue: of this installation, which must be of the report's version of the suite.

    Raises:
        ReportError: names the first thing that is wrong.
    """
    problems = _problems(document)
    if problems:
        raise ReportError("; ".join(problems[:5]))
    found = checksum(document)
    if found != document["checksum"]:
        raise ReportError(
            "the checksum is another: the report was damaged or edited after it was written (it "
            f"says {document['checksum']}, its content has {found})"
        )
    suite = document["suite"]
    if suite["version"] != suite_version():
        raise ReportError(
            f"the report is of suite {suite['version']}, and this is {suite_version()}: verify it "
            f"with pip install tilewright-conformance=={suite['version']}"
        )
    if suite["catalogue"] != catalogue.digest():
        raise ReportError(
            f"the report was made with other cases than suite {suite['version']} has: its "
            "catalogue was changed"
        )
    changed = [
        f"{facts['name']}: {', '.join(facts['modified'][:3])}"
        for facts in document["distributions"]
        if facts["modified"]
    ]
    if changed:
        raise ReportError(
            "the report was made with an installation whose files had been changed: "
            f"{'; '.join(changed)}"
        )
    _verify_results(document, catalogue)


def check_wheels(document: Document, wheels: Iterable[Path]) -> None:
    """Check that a report is of certain wheels.

    Raises:
        ReportError: it is of another wheel of the same distribution, or that took no part in it.
        WheelError: a file is not named like a wheel.
        OSError: one cannot be read.
    """
    stated = {normal_name(facts["name"]): facts["wheel"] for facts in document["distributions"]}
    for path in wheels:
        name = wheel_name(path)
        if name not in stated:
            raise ReportError(f"nothing of {path.name} took part in it, but {', '.join(stated)}")
        found = hashlib.sha256(path.read_bytes()).hexdigest()
        if found != stated[name]:
            raise ReportError(
                f"it is not of {path.name}, which has the hash {found}: its {name} is of "
                f"{stated[name] or 'no wheel that is known'}"
            )


def _verify_results(document: Document, catalogue: Catalogue) -> None:
    """Check that results are of the suite's own cases, each once, and imply the report's verdicts.

    The summary and the claims must follow from them, too.
    """
    try:
        expectations = Expectations(entries_from(document["expectations"]), catalogue)
    except ExpectationError as error:
        raise ReportError(f"the expectations break a rule: {error}") from None
    outcomes = outcomes_of(document)
    if len(outcomes) != len(document["results"]):
        twice = [
            case
            for case, count in Counter(result["case"] for result in document["results"]).items()
            if count > 1
        ]
        raise ReportError(f"the report has two results for {twice[0]}")
    run = document["run"]
    selected = catalogue.select(
        profiles=run["profiles"], patterns=run["patterns"], quick=run["quick"]
    )
    if run["sample"]:
        selected = drawn(selected, run["sample"], run["seed"])
    if [case.id for case in selected] != list(outcomes):
        unlike = sorted({case.id for case in selected} ^ set(outcomes))
        raise ReportError(
            "the results are not of the cases that such a run selects: "
            f"{', '.join(unlike[:3]) or 'their order differs'}"
        )
    capabilities = capabilities_from_json(document["backend"]["capabilities"])
    for case, result in zip(selected, document["results"], strict=True):
        if (result["profile"], result["subject"]) != (case.profile, case.subject):
            raise ReportError(
                f"{case.id}: profile and subject are {case.profile} and {case.subject}, not "
                f"{result['profile']} and {result['subject']}"
            )
        outcome = outcomes[case.id]
        if outcome.status is Status.NOT_SUPPORTED and not case.needs.missing(capabilities):
            raise ReportError(
                f"{case.id} is not-supported, though the backend declares all it needs"
            )
        if outcome.status is Status.PASSED and case.needs.missing(capabilities):
            raise ReportError(
                f"{case.id} is passed, though the backend does not declare "
                f"{', '.join(case.needs.missing(capabilities))}"
            )
        if result["lacks"] != list(case.needs.missing(capabilities)):
            raise ReportError(
                f"{case.id}: what the backend lacks for it is "
                f"{', '.join(case.needs.missing(capabilities)) or 'nothing'}"
            )
        if any(not math.isfinite(number) for number in outcome.numbers.values()):
            raise ReportError(f"{case.id}: its numbers are not finite")
        verdict = expectations.verdict(outcome)
        if result["verdict"] != verdict:
            raise ReportError(
                f"{case.id}: the verdict of its result is {verdict}, not {result['verdict']}"
            )
    if document["summary"] != _summary(document["results"]):
        raise ReportError("the summary does not follow from the results")
    try:
        claims = _claims(document, expectations, catalogue)
    except ProfileError as error:
        raise ReportError(str(error)) from None
    if document["claims"] != claims:
        raise ReportError("the claims do not follow from the results")


def _summary(results: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """Profile -> status or verdict that is no status -> count; ``total`` over all profiles too."""
    found: dict[str, Counter[str]] = {"total": Counter()}
    for result in results:
        for name in ("total", result["profile"]):
            counts = found.setdefault(name, Counter())
            counts["cases"] += 1
            counts[result["status"]] += 1
            if result["verdict"] in (Verdict.EXPECTED, Verdict.UNEXPECTED_PASS, Verdict.BAD):
                counts[result["verdict"]] += 1
    return {name: dict(sorted(counts.items())) for name, counts in found.items()}


def _claims(
    document: Document, expectations: Expectations, catalogue: Catalogue
) -> list[dict[str, Any]]:
    required = required_cases(catalogue)
    changed = changed_families(catalogue, document["suite"]["version"])
    outcomes = outcomes_of(document)
    profiles_of = {result["case"]: result["profile"] for result in document["results"]}
    capabilities = capabilities_from_json(document["backend"]["capabilities"])
    ran = [profile for profile in PROFILES if profile in profiles_of.values()]
    waived = waived_cases(document, waivers())
    unknown = _without_wheel(document)
    claims = []
    for profile in ran:
        found = claim(
            profile,
            required.get(profile, ()),
            outcomes,
            profiles_of,
            capabilities,
            expectations,
            quick=document["run"]["quick"],
            waived=waived,
            unknown=unknown,
            changed=changed.get(profile, ()),
        )
        claims.append(
            {
                "profile": profile,
                "holds": found.holds,
                "reasons": list(found.reasons),
                "waived": list(found.waived),
            }
        )
    return claims


def _without_wheel(document: Document) -> list[str]:
    """Names of software in the run that is no wheel with a known hash, and so not reproducible."""
    found = [
        facts["name"]
        for facts in document["distributions"]
        if facts["editable"] or not facts["wheel"]
    ]
    backend = document["backend"]
    if " from " in backend["distribution"]:  # loaded from a module, which no distribution brought
        found.append(backend["name"])
    return found
