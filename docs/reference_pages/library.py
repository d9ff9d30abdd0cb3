"""Descriptions of the kernel library's functions, for the pages of ``reference/library``.

A page names a function in a comment, ``<!-- function: softmax -->``, in whose place the site shows
its signature and docstring. The examples are on the page itself.
"""

from __future__ import annotations

import inspect
import re
from typing import Any

import tilewright_kernels
from reference_pages import docstrings

_MARK = re.compile(r"^<!-- function: (\w+) -->$", re.M)
_ROLE = re.compile(r":(?:func|class|meth):`[~.]?([\w.]+)`")


def filled(markdown: str) -> str:
    """Return a page with functions' descriptions in the place of the comments that name them."""
    return _MARK.sub(lambda mark: description(mark[1]) + "\n", markdown)


def named(markdown: str) -> list[str]:
    """Return the functions that a page describes."""
    return _MARK.findall(markdown)


def description(name: str) -> str:
    """Return the Markdown of a function: heading, signature, parameters, result and errors."""
    found = getattr(tilewright_kernels, name)
    doc = docstrings.parse(found)
    lines = [f"### tk.{name}", "", doc.summary, "", "```text", _signature(name, found), "```", ""]
    if doc.description:
        lines += [doc.description, ""]
    if doc.parameters:
        lines += ["| parameter | meaning |", "|---|---|"]
        lines += [f"| `{each}` | {_cell(text)} |" for each, text in doc.parameters.items()]
        lines.append("")
    if doc.returns:
        lines += [f"Returns: {doc.returns}", ""]
    if doc.raises:
        errors = (f"`{error}`: {text}" for error, text in doc.raises.items())
        lines += [f"Raises: {' '.join(errors)}", ""]
    return _ROLE.sub(lambda role: f"`tk.{role[1].rpartition('.')[2]}`", "\n".join(lines)).rstrip()


def _signature(name: str, found: Any) -> str:
    """Return a call with each parameter on a line, and its default where it has one."""
    try:
        parameters = inspect.signature(found).parameters.values()
    except (TypeError, ValueError):
        return f"tk.{name}"
    parts, is_keyword = [], False
    for parameter in parameters:
        if parameter.kind is parameter.KEYWORD_ONLY and not is_keyword:
            is_keyword = True
            parts.append("*")
        text = str(parameter.replace(annotation=parameter.empty))
        parts.append("*" + text.lstrip("*") if parameter.kind is parameter.VAR_POSITIONAL else text)
        is_keyword |= parameter.kind is parameter.VAR_POSITIONAL
    line = f"tk.{name}({', '.join(parts)})"
    if len(line) <= 80:
        return line
    return f"tk.{name}(\n    " + ",\n    ".join(parts) + ",\n)"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
