"""A report as one HTML page that needs nothing else: a table with filters, and plots of the greatest errors in units in the last place.

The page's frame is ``page.html`` beside this file; the report itself is put into it as JSON.
"""

from __future__ import annotations

import json
from html import escape
from importlib.resources import files

from tilewright_conformance.report.document import Document


def page(document: Document) -> str:
    """The page."""
    frame = files(__package__).joinpath("page.html").read_text(encoding="utf-8")
    # In a script element, only the beginning of a tag could end the text early.
    data = json.dumps(document, separators=(",", ":"), sort_keys=True, allow_nan=False).replace("<", "\\u003c")
    title = f"{document['backend']['name']} {document['backend']['version']} on {document['device']['name']}"
    return frame.replace("{{title}}", escape(title)).replace("{{data}}", data)
