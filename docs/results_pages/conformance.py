"""The conformance scoreboard: which cases of the suite each backend passed, by profile.

    python docs/results_pages/conformance.py conformance-report/report.json NAME

writes what the page shows of a report to ``docs/performance/conformance/NAME.json``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

#: What this script wrote.
FOLDER = Path(__file__).resolve().parents[1] / "performance" / "conformance"
#: Outcomes of cases that are no faults: a case that needs a capability that the backend does not
#: declare is not run.
_FINE = ("passed", "not-supported")
INTRODUCTION = """## Conformance of backends

The [conformance suite](vendors/conformance.md) compares the results of kernels with references in
float64 or with exact results. Its test cases belong to *profiles*, which are sets of features that
a backend can support. Each cell of the following table shows how many test cases of a profile
passed, and how many were counted. If a case needs a capability that the backend does not declare,
and the backend refuses the kernel, the case is not counted. A `quick` run contains only a part of
the cases.

The mark `*` means that the report of the run claims that the backend has the profile: all mandatory
cases of the profile passed in a complete run, and all packages were installed from wheels whose
hashes the report contains.

"""


def summary_of(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the page shows of a report: its machine, its date, and counts by profile."""
    run, device = report["run"], report["device"]
    return {
        "backend": report["backend"]["name"],
        "version": report["backend"]["version"],
        "machine": run["emulate"] + " (emulated)" if run["emulate"] else device["name"],
        "date": run["started"][:10],
        "quick": run["quick"],
        "repeat": run.get("repeat", 1),
        "claims": [claim["profile"] for claim in report["claims"] if claim["holds"]],
        "profiles": {name: counts for name, counts in report["summary"].items() if name != "total"},
    }


def wrong_in(counts: Mapping[str, int]) -> int:
    """Return how many cases failed, or stopped with an error."""
    return counts["cases"] - sum(counts.get(status, 0) for status in _FINE)


def table(summaries: Iterable[Mapping[str, Any]]) -> str:
    """Return the scoreboard: a row for each profile, a column for each report."""
    summaries = list(summaries)
    head, dates, kinds = ["profile"], ["date"], ["run"]
    for each in summaries:
        head.append(f"{each['backend']}: {each['machine']}")
        dates.append(each["date"])
        kinds.append("quick" if each["quick"] else f"complete, each {each['repeat']} times")
    rows = [dates, [text.replace(", each 1 times", "") for text in kinds]]
    for profile in dict.fromkeys(name for each in summaries for name in each["profiles"]):
        row = [profile]
        for each in summaries:
            counts = each["profiles"].get(profile)
            if counts is None:
                row.append("")
                continue
            ran = counts["cases"] - counts.get("not-supported", 0)
            claimed = "*" if profile in each["claims"] else ""
            row.append(f"{counts.get('passed', 0)} of {ran}{claimed}" if ran else "none ran")
        rows.append(row)
    wrong = [str(sum(map(wrong_in, each["profiles"].values()))) for each in summaries]
    rows.append(["failed", *wrong])
    lines = [head, ["---", *["---:"] * len(summaries)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def section() -> str:
    """Return the Markdown of the section."""
    summaries = [json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))]
    ours = ("reference", "cpu", "nvidia", "amd")
    order = {name: index for index, name in enumerate(ours)}
    summaries.sort(key=lambda each: order.get(each["backend"], len(order)))
    text = INTRODUCTION + table(each for each in summaries if each["backend"] in ours)
    examples = [each for each in summaries if each["backend"] not in ours]
    if examples:
        text += (
            "\nThe next table shows the example backends of the repository (`examples/backend_c`,"
            " `backend_lyra` and `backend_opencl`), for the profiles that they implement:\n\n"
        ) + table(examples)
    return text


if __name__ == "__main__":
    source, name = sys.argv[1:]
    summary = summary_of(json.loads(Path(source).read_text()))
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{name}.json").write_text(json.dumps(summary, indent=1) + "\n")
