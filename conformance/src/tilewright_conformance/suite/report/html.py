"""A report as one self-contained HTML page.

It shows the software and device under test, the capabilities, the failures and unsupported cases by
cause, then all cases with filters, and plots of the maximum errors in units in the last place. The
page's frame is ``page.html`` beside this file; the report itself is put into it as JSON.
"""

from __future__ import annotations

import json
from html import escape
from importlib.resources import files
from typing import Any

from tilewright_conformance.suite.report import failure_groups
from tilewright_conformance.suite.report.badge import badge
from tilewright_conformance.suite.report.document import Document


def page(document: Document) -> str:
    """The page."""
    frame = files(__package__).joinpath("page.html").read_text(encoding="utf-8")
    title = (
        f"{document['backend']['name']} {document['backend']['version']} on "
        f"{document['device']['name']}"
    )
    found = {
        name: [cause.as_json() for cause in of(document)]
        for name, of in (
            ("failures", failure_groups.failures),
            ("unsupported", failure_groups.unsupported),
        )
    }
    parts = {
        "title": escape(title),
        "badge": badge(document),
        "causes": _script(found),
        "data": _script(document),
    }
    # The frame alone is looked through: texts of a report may have braces, too.
    head, *rest = frame.split("{{")
    return head + "".join(
        parts[name] + after for name, _, after in (piece.partition("}}") for piece in rest)
    )


def _script(data: Any) -> str:
    # In a script element, only the beginning of a tag could end the text early.
    return json.dumps(data, separators=(",", ":"), sort_keys=True, allow_nan=False).replace(
        "<", "\\u003c"
    )
