"""A report as JUnit XML, for the pages of CI systems."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from tilewright_conformance.suite.expectations import Verdict
from tilewright_conformance.suite.report.document import Document

#: What XML 1.0 cannot hold.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(document: Document) -> str:
    """A JUnit document with a test suite for each profile.

    Bad verdicts are failures (errors, where a process died or an exception was no result), expected
    ones are skipped.
    """
    root = ElementTree.Element(
        "testsuites", name=f"tilewright conformance, backend {document['backend']['name']}"
    )
    suites: dict[str, ElementTree.Element] = {}
    counts: dict[str, dict[str, float]] = {}
    for result in document["results"]:
        profile = result["profile"]
        if profile not in suites:
            suites[profile] = ElementTree.SubElement(
                root, "testsuite", name=profile, timestamp=document["run"]["started"]
            )
            counts[profile] = dict.fromkeys(("tests", "failures", "errors", "skipped", "time"), 0)
        family, _, name = result["case"].partition("/")
        element = ElementTree.SubElement(
            suites[profile],
            "testcase",
            classname=f"{profile}.{family}",
            name=name,
            time=f"{result['seconds']:.3f}",
        )
        counts[profile]["tests"] += 1
        counts[profile]["time"] += result["seconds"]
        kind = _kind(result["status"], result["verdict"])
        if kind:
            text = _FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", result["message"])
            first = text.splitlines()[0] if text.strip() else result["status"]
            ElementTree.SubElement(
                element, kind, message=first, type=result["exception"] or result["status"]
            ).text = text
            counts[profile][
                {"failure": "failures", "error": "errors", "skipped": "skipped"}[kind]
            ] += 1
    for profile, suite in suites.items():
        for name, count in counts[profile].items():
            suite.set(name, f"{count:.3f}" if name == "time" else str(int(count)))
    ElementTree.indent(root)
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n'
        + ElementTree.tostring(root, encoding="unicode")
        + "\n"
    )


def _kind(status: str, verdict: str) -> str:
    if verdict == Verdict.UNEXPECTED_PASS:
        return "failure"
    if verdict == Verdict.BAD:
        return "failure" if status == "failed" else "error"
    return "" if status == "passed" else "skipped"
