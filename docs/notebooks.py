"""Notebooks of the tutorials: their prose and code as cells, without the outputs shown on pages."""

from __future__ import annotations

import json
import re
from typing import Any

_BLOCK = re.compile(r"^```(python|output)\n(.*?)^```\n?", re.M | re.S)
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((?!https?:)[^)]*\)")
_PICTURE = re.compile(r"!\[[^\]]*\]\([^)]*\)\n?")


def notebook(page: str) -> str:
    """Return a notebook of a page's Markdown, in format 4.5.

    Links to other pages of the site become their text, and pictures are omitted, since neither is
    beside a notebook.
    """
    cells: list[dict[str, Any]] = []

    def add(kind: str, source: str) -> None:
        if source.strip():
            cell = {"id": f"cell{len(cells)}", "cell_type": kind, "metadata": {}}
            cell["source"] = source.strip().splitlines(keepends=True)
            if kind == "code":
                cell |= {"outputs": [], "execution_count": None}
            cells.append(cell)

    end = 0
    for block in _BLOCK.finditer(page):
        add("markdown", _PICTURE.sub("", _LINK.sub(r"\1", page[end : block.start()])))
        if block[1] == "python":
            add("code", block[2])
        end = block.end()
    add("markdown", _PICTURE.sub("", _LINK.sub(r"\1", page[end:])))
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    contents = {
        "cells": cells,
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(contents, indent=1) + "\n"
