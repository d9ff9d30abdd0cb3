"""The reference: a page for each function, and tables for what is better read together."""

from __future__ import annotations

import builtins
import inspect
import re
from pathlib import Path
from typing import Any

from reference_pages import docstrings, tables
from reference_pages.examples import program
from tilewright.language.binding import is_builtin
from tilewright.language.definitions.callable import ConstexprFunction, JitCallable
from tilewright_conformance.api_coverage.probes import Probe, all_probes
from tilewright_conformance.api_coverage.public_names import Name, names, resolve

#: Markdown of examples, named as the pages of tables.
TABLE_EXAMPLES = Path(__file__).parent / "table_examples"
_ROLE = re.compile(r":(?:func|class|meth|mod|attr|data):`~?([\w.]+)`")
#: Refers to a page below ``reference/``, as :doc:`tuning`.
_DOC = re.compile(r":doc:`([\w/]+)`")


def pages() -> dict[str, str]:
    """Path below ``reference/`` -> Markdown."""
    found = {
        f"{name.page}.md": page(name)
        for name in names().values()
        if has_own_page(name) and exists(name)
    }
    for path, make in tables.PAGES.items():
        found[path] = make() + table_example(path)
    return {path: link(text, path) for path, text in found.items()}


def table_example(path: str) -> str:
    """Return the section with the example of a page of tables; empty where it has none."""
    file = TABLE_EXAMPLES / path.rpartition("/")[2]
    return f"\n## Example\n\n{file.read_text()}" if file.exists() else ""


def has_own_page(name: Name) -> bool:
    """Whether a name is described on a page of its own, not in a table."""
    return (
        not name.alias
        and name.page.rpartition("/")[2] == name.last
        and f"{name.page}.md" not in tables.PAGES
    )


def exists(name: Name) -> bool:
    """Whether a name stands for something; one that does not is what ``tilewright surface``
    complains of, and has no page.
    """
    try:
        resolve(name)
    except LookupError:
        return False
    return True


def page(name: Name) -> str:
    """The page of one function or type."""
    found = resolve(name)
    doc = docstrings.parse(found)
    lines = [
        f"# {spelled(name)}",
        "",
        doc.summary,
        "",
        "```text",
        signature(name, found),
        "```",
        "",
    ]
    if doc.description:
        lines += [doc.description, ""]
    if doc.parameters:
        lines += [
            "| parameter | meaning |",
            "|---|---|",
            *(f"| {each} | {cell(text)} |" for each, text in docstrings.rows(doc.parameters)),
            "",
        ]
    if doc.returns:
        lines += ["## Result", "", doc.returns, ""]
    if doc.raises:
        errors = raised(name, found, doc)
        lines += [
            "## Errors",
            "",
            "| error | when |",
            "|---|---|",
            *(f"| `{error}` | {cell(text)} |" for error, text in errors),
            "",
        ]
    if doc.example:
        lines += ["## Use", "", "```py", doc.example, "```", ""]
    example = example_of(name)
    if example is not None:
        lines += [
            "## Example",
            "",
            "The following program is complete, and the tests of Tilewright run it.",
            "",
            "```python",
            program(example).rstrip(),
            "```",
            "",
        ]
    lines += [tables.since_text(name), ""]
    return "\n".join(lines)


def raised(name: Name, found: Any, doc: docstrings.Docstring) -> list[tuple[str, str]]:
    """(error, when) of a function, as who calls it meets them.

    What a function of the language raises while a kernel is compiled reaches the kernel's author as
    a CompilationError at the call, with the exception that the docstring names as its cause. Errors
    of this package, and those of functions that the host calls, are met as they are.
    """
    if not is_compiled(name, found):
        return list(doc.raises.items())
    return [
        ("CompilationError" if isinstance(getattr(builtins, error, None), type) else error, text)
        for error, text in doc.raises.items()
    ]


def is_compiled(name: Name, found: Any) -> bool:
    """Return whether a name is a function of the language, which kernels call."""
    return name.kind == "function" and (
        is_builtin(found)
        or (isinstance(found, JitCallable) and not isinstance(found, ConstexprFunction))
    )


def spelled(name: Name) -> str:
    """The name as programs spell it, Tilewright's package by its usual short name."""
    return re.sub(r"^tilewright\.", "tw.", name.full)


def example_of(name: Name) -> Probe | None:
    """The probe that a page shows: the first one that is a function of its own and names it first,
    else the first that names it.
    """
    candidates = [
        probe
        for probe in all_probes().values()
        if name.full in probe.names and "<lambda>" not in probe.body.__qualname__
    ]
    candidates = [probe for probe in candidates if "<locals>" not in probe.body.__qualname__]
    return next(
        (probe for probe in candidates if probe.names[0] == name.full), next(iter(candidates), None)
    )


def parameters(found: Any) -> list[str]:
    """The parameters of a function as they are written, those of the compiler left out."""
    if isinstance(found, JitCallable) and not isinstance(found, ConstexprFunction):
        written = []
        for parameter in found.params:
            default = f"={_default(parameter.default)}" if parameter.has_default else ""
            written.append(("*" if parameter.variadic else "") + parameter.name + default)
        return written
    target = getattr(found, "fn", found) if not isinstance(found, type) else found
    try:
        described = inspect.signature(target)
    except (TypeError, ValueError):
        return []
    written = []
    for parameter in described.parameters.values():
        if parameter.name in ("_semantic", "_generator", "self"):
            continue
        stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}.get(
            parameter.kind, ""
        )
        written.append(
            stars
            + parameter.name
            + (
                ""
                if parameter.default is inspect.Parameter.empty
                else f"={_default(parameter.default)}"
            )
        )
    return written


def _default(value: Any) -> str:
    value = getattr(value, "value", value) if type(value).__name__ == "constexpr" else value
    if type(value).__name__ == "PropagateNan":
        return f"tl.{value}"
    return (
        repr(value).replace("tilewright.language.", "tl.")
        if not callable(value)
        else getattr(value, "__name__", repr(value))
    )


def signature(name: Name, found: Any) -> str:
    """How it is called."""
    text = f"{spelled(name)}({', '.join(parameters(found))})"
    if len(text) <= 100:
        return text
    return (
        f"{spelled(name)}(\n"
        + "".join(f"    {parameter},\n" for parameter in parameters(found))
        + ")"
    )


def cell(text: str) -> str:
    """Text for a cell of a table."""
    return text.replace("|", "\\|").replace("\n", " ")


def link(text: str, path: str) -> str:
    """Docstring markup as Markdown: double backticks become single ones, and references links to
    the pages they mean.
    """
    text = _DOC.sub(rf"[\1]({'../' * path.count('/')}\1.md)", text)
    known = {
        name.last: name
        for name in names().values()
        if has_own_page(name) and name.full.startswith(("tl.", "tilewright."))
    }
    depth = path.count("/")

    def refer(match: re.Match[str]) -> str:
        last = match[1].rpartition(".")[2]
        return f"[`{last}`]({'../' * depth}{known[last].page}.md)" if last in known else f"`{last}`"

    parts = re.split(r"(^```.*?^```$)", text, flags=re.M | re.S)
    return "".join(
        part if part.startswith("```") else re.sub(r"``(.+?)``", r"`\1`", _ROLE.sub(refer, part))
        for part in parts
    )
