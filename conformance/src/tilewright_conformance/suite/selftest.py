"""One command for people with hardware: cases and speed measurements, and a report to send."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from tilewright_conformance.suite.case import PROFILES
from tilewright_conformance.suite.engine.setup import Setup
from tilewright_conformance.suite.progress import Printer
from tilewright_conformance.suite.report import failure_groups
from tilewright_conformance.suite.report.document import BAD
from tilewright_conformance.suite.run import Options, run

#: The profile of measurements: on emulated hardware they say nothing.
_SPEED = "perf"


def selftest(
    backend: str,
    folder: Path,
    *,
    whole: bool = False,
    emulate: str = "",
    sample: int = 0,
    workers: int = 0,
) -> int:
    """Test a backend on this machine and return the exit code: 1 where something is wrong.

    It prints a summary and leaves ``report.json`` in a folder.

    Args:
        whole: all cases, and not only the quick ones: valid for a claim.
        emulate, sample, workers: as of ``tilewright_conformance run``.

    Raises:
        BackendError, WorkerRefusedError: the backend cannot be tested.
    """
    profiles = tuple(profile for profile in PROFILES if not emulate or profile != _SPEED)
    setup = Setup(backend, quick=not whole, emulate=emulate)
    printer = Printer(sys.stderr)
    try:
        report = run(
            Options(setup, profiles, workers=workers, folder=folder, sample=sample), printer
        )
    finally:
        printer.end()
    print(summary(report))
    print(
        f"the report is {folder / 'report.json'}; it checks with: python -m tilewright_conformance "
        f"verify {folder / 'report.json'}"
    )
    return 1 if any(result["verdict"] in BAD for result in report["results"]) else 0


def summary(report: dict[str, Any]) -> str:
    """Summarize a report for people: the device, counts, failures, figures of speed."""
    device, total = report["device"], report["summary"]["total"]
    emulated = report["run"].get("emulate", "")
    remark = ", emulated: nothing of this was run on hardware" if emulated else ""
    where = f"{device['name']} ({device['target']}{remark})"
    lines = [f"{report['backend']['name']} {report['backend']['version']} on {where}"]
    lines.append(
        ", ".join(f"{count} {what}" for what, count in total.items())
        + f", in {report['run']['seconds']:.0f} s"
    )
    lines += failure_groups.lines(report)
    lines += [
        f"{result['verdict']}: {result['case']}: {result['message'].splitlines()[0]}"
        for result in report["results"]
        if result["verdict"] in BAD
    ]
    for result in report["results"]:
        if result["profile"] == _SPEED:
            figures = ", ".join(
                f"{name.replace('_', ' ')} {number:.4g}"
                for name, number in sorted(result["numbers"].items())
            )
            lines.append(f"{result['case']}: {figures or result['status']}")
    return "\n".join(lines)
