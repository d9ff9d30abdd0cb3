"""The table of many reports: a row a backend and device, a column a profile.

It comes as text, as a page, and as a static site with all the reports.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from importlib.resources import files as files_of_package
from itertools import zip_longest
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tilewright_conformance.suite.case import PROFILES
from tilewright_conformance.suite.report import badge, html
from tilewright_conformance.suite.report.document import BAD, Document, write
from tilewright_conformance.suite.report.plain_text import markdown_of

_HEAD = ("backend", "device", "driver", "suite", "tilewright")


def rows(documents: Sequence[Document], links: Sequence[str] = ()) -> list[dict[str, Any]]:
    """One row a report, those with the most claims first.

    A row has ``about`` texts by column, ``profiles``: profile -> (claimed, passed, cases),
    ``wrong`` cases, ``checksum``, the ``signer``'s public key where the report is signed, the
    ``link`` where it has one.
    """
    found = []
    for document, link in zip_longest(documents, links, fillvalue=""):
        assert not isinstance(document, str)
        held = {claim["profile"] for claim in document["claims"] if claim["holds"]}
        profiles = {
            name: (name in held, counts.get("passed", 0), counts["cases"])
            for name, counts in document["summary"].items()
            if name != "total"
        }
        about = {
            "backend": f"{document['backend']['name']} {document['backend']['version']}",
            "device": document["device"]["name"],
            "driver": document["device"]["driver"],
            "suite": document["suite"]["version"]
            + (" (quick)" if document["run"]["quick"] else ""),
            "tilewright": document["core"]["version"],
        }
        wrong = sum(result["verdict"] in BAD for result in document["results"])
        key = document.get("signature", {}).get("key", "")
        found.append(
            {
                "about": about,
                "profiles": profiles,
                "wrong": wrong,
                "checksum": document["checksum"],
                "signer": key,
                "link": link,
            }
        )
    return sorted(
        found,
        key=lambda row: (
            -sum(claimed for claimed, _, _ in row["profiles"].values()),
            row["wrong"],
            row["about"]["backend"],
        ),
    )


def markdown(documents: Sequence[Document]) -> str:
    """The table as Markdown; ``yes`` stands for a claimed profile, counts for an unclaimed one."""
    table = rows(documents)
    columns = _columns(table)
    lines = [
        f"| {' | '.join((*_HEAD, *columns, 'wrong'))} |",
        f"|{'---|' * (len(_HEAD) + len(columns) + 1)}",
    ]
    for row in table:
        cells = [markdown_of(row["about"][name]) for name in _HEAD]
        cells += [_cell(row, name) for name in columns]
        lines.append(f"| {' | '.join((*cells, str(row['wrong'])))} |")
    return "\n".join(lines) + "\n"


def page(documents: Sequence[Document], links: Sequence[str] = ()) -> str:
    """The table as a self-contained HTML page.

    Args:
        links: for each document the folder, beside the page, that holds it; none where there are no
            such folders.
    """
    table = rows(documents, links)
    columns = _columns(table)
    head = "".join(f"<th>{escape(name)}</th>" for name in (*_HEAD, *columns, "wrong", "signed"))
    body = []
    for row in table:
        cells = [f"<td>{escape(row['about'][name])}</td>" for name in _HEAD]
        if row["link"]:
            link = escape(quote(row["link"]))
            files = "".join(
                f' <a href="{link}/{file}">{name}</a>'
                for name, file in (("JSON", "report.json"), ("badge", "badge.svg"))
            )
            name = escape(row["about"]["backend"])
            cells[0] = f'<td><a href="{link}/report.html">{name}</a><br><small>{files}</small></td>'
        for name in columns:
            claimed = row["profiles"].get(name, (False, 0, 0))[0]
            cells.append(
                f'<td class="{"yes" if claimed else "no"}">{escape(_cell(row, name))}</td>'
            )
        signed = f'<td title="{escape(row["signer"])}">{escape(row["signer"][:8]) or "no"}</td>'
        cells += [f"<td>{row['wrong']}</td>", signed]
        body.append(f'<tr title="{escape(row["checksum"])}">{"".join(cells)}</tr>')
    return (
        files_of_package(__package__)
        .joinpath("scoreboard.html")
        .read_text(encoding="utf-8")
        .replace("{{head}}", head)
        .replace("{{body}}", "\n".join(body))
    )


def write_site(documents: Sequence[Document], folder: Path) -> None:
    """Write the page as ``index.html``, and each report as a folder beside it.

    The folder has ``report.json``, ``report.html`` and ``badge.svg``.

    Raises:
        OSError: a file cannot be written.
    """
    links = []
    for document in documents:
        words = (
            document["backend"]["name"],
            document["backend"]["version"],
            document["device"]["name"],
            document["checksum"].partition(":")[2][:12],
        )
        links.append(
            "-".join(re.sub(r"[^a-z0-9.]+", "-", word.lower()).strip("-.") for word in words)
        )
    folder.mkdir(parents=True, exist_ok=True)
    for document, link in zip(documents, links, strict=True):
        own = folder / link
        own.mkdir(exist_ok=True)
        write(document, own / "report.json")
        (own / "report.html").write_text(html.page(document), encoding="utf-8")
        (own / "badge.svg").write_text(badge.badge(document), encoding="utf-8")
    (folder / "index.html").write_text(page(documents, links), encoding="utf-8")


def _columns(table: Sequence[dict[str, Any]]) -> list[str]:
    return [profile for profile in PROFILES if any(profile in row["profiles"] for row in table)]


def _cell(row: dict[str, Any], profile: str) -> str:
    if profile not in row["profiles"]:
        return "–"
    claimed, passed, cases = row["profiles"][profile]
    return "yes" if claimed else f"{passed}/{cases}"
