"""The table of many reports: a row a backend and device, a column a profile."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from tilewright_conformance.case import PROFILES
from tilewright_conformance.report.document import BAD, Document

_HEAD = ("backend", "device", "driver", "suite", "core")


def rows(documents: Sequence[Document]) -> list[dict[str, Any]]:
    """One row a report, those with the most claims first: ``about`` texts by column, and ``profiles``: profile -> (claimed, passed, cases)."""
    found = []
    for document in documents:
        held = {claim["profile"] for claim in document["claims"] if claim["holds"]}
        profiles = {name: (name in held, counts.get("passed", 0), counts["cases"]) for name, counts in document["summary"].items() if name != "total"}
        about = {
            "backend": f"{document['backend']['name']} {document['backend']['version']}",
            "device": document["device"]["name"],
            "driver": document["device"]["driver"],
            "suite": document["suite"]["version"] + (" (quick)" if document["run"]["quick"] else ""),
            "core": document["core"]["version"],
        }
        wrong = sum(result["verdict"] in BAD for result in document["results"])
        found.append({"about": about, "profiles": profiles, "wrong": wrong, "seal": document["seal"]})
    return sorted(found, key=lambda row: (-sum(claimed for claimed, _, _ in row["profiles"].values()), row["wrong"], row["about"]["backend"]))


def markdown(documents: Sequence[Document]) -> str:
    """The table as Markdown. ``yes`` stands for a claimed profile, counts for one that was run and is not claimed."""
    table = rows(documents)
    columns = _columns(table)
    lines = [f"| {' | '.join((*_HEAD, *columns, 'wrong'))} |", f"|{'---|' * (len(_HEAD) + len(columns) + 1)}"]
    for row in table:
        cells = [row["about"][name].replace("|", "\\|") for name in _HEAD]
        cells += [_cell(row, name) for name in columns]
        lines.append(f"| {' | '.join((*cells, str(row['wrong'])))} |")
    return "\n".join(lines) + "\n"


def page(documents: Sequence[Document]) -> str:
    """The table as a self-contained HTML page."""
    table = rows(documents)
    columns = _columns(table)
    head = "".join(f"<th>{escape(name)}</th>" for name in (*_HEAD, *columns, "wrong"))
    body = []
    for row in table:
        cells = [f"<td>{escape(row['about'][name])}</td>" for name in _HEAD]
        for name in columns:
            claimed = row["profiles"].get(name, (False, 0, 0))[0]
            cells.append(f'<td class="{"yes" if claimed else "no"}">{escape(_cell(row, name))}</td>')
        body.append(f'<tr title="{escape(row["seal"])}">{"".join(cells)}<td>{row["wrong"]}</td></tr>')
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Tilewright conformance</title><style>'
        "body{font:14px system-ui,sans-serif;margin:2rem}table{border-collapse:collapse}"
        "td,th{padding:.35rem .7rem;border-bottom:1px solid #ddd;text-align:left}"
        ".yes{background:#e2f2e0}.no{color:#777}</style>"
        f"<h1>Tilewright conformance</h1><table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table></html>\n"
    )


def _columns(table: Sequence[dict[str, Any]]) -> list[str]:
    return [profile for profile in PROFILES if any(profile in row["profiles"] for row in table)]


def _cell(row: dict[str, Any], profile: str) -> str:
    if profile not in row["profiles"]:
        return "–"
    claimed, passed, cases = row["profiles"][profile]
    return "yes" if claimed else f"{passed}/{cases}"
