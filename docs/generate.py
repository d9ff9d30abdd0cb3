"""Pages of the site that are made from the code.

An mkdocs hook: ``reference/ir.md`` and ``reference/simt.md`` are the op tables, and
``reference/derivatives.md`` is the table of derivatives; see ``reference_pages`` for other pages,
``drawings`` for pictures, and ``gallery_pages`` for the gallery. ``results_pages`` show
measurements. Pages of ``reference/library`` have the kernel library's docstrings. Tutorials are
notebooks, too, and have charts of ``tutorial_pages``. Moved pages leave redirects (``redirects``),
``source_pages`` show examples, and ``search_words`` are what readers search for."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tilewright.ir import IR_VERSION, TABLE, Effect, Kind, OpSpec, Trait

FAMILIES = {
    "arithmetic": "Elementwise arithmetic",
    "shape": "Shape",
    "memory": "Memory",
    "linear": "Matmuls",
    "control": "Control flow and regions",
    "debug": "Debugging, hints, target-specific code",
}

INTRODUCTION = """# Tile IR

Tile IR {major}.{minor} is the intermediate representation of kernels: the frontend translates a
kernel to Tile IR, and a backend lowers Tile IR to code. Tile IR is in SSA form with structured
control flow: instead of jumps, there are operations that contain regions, such as `if` and `for`. A
region is a sequence of operations. This page lists all {count} operations. In Python, the table
`tilewright.ir.TABLE` contains the same operations.

A value is a number (`i1`, `i8` … `i64`, `u8` … `u64`, `f16`, `bf16`, `f32`, `f64`, and the fp8
formats), a pointer (`ptr<f32>`), a tile of numbers or pointers (`tile<128x64xf32>`) or a tensor
descriptor (`desc<64x64xf16>`). The integer type states whether an integer is signed: `i32` is
signed, and `u32` is unsigned. The description of an operation refers to operands and attributes by
the names in the table below the description. `tilewright ops NAME` prints the types that an
operation accepts, the types of its results, and an example.

"""

SIMT_INTRODUCTION = """# SIMT IR

SIMT IR is the intermediate representation of the [GPU toolkit](../developers/toolkit/index.md),
which all GPU backends share. It consists of the operations of [Tile IR](ir.md) and of the {count}
operations on this page. The page is generated from the table of these operations
(`tilewright.simt.dialect.ops.OPS`). The page [SIMT IR and layouts](../developers/toolkit/ir.md)
describes the types and layouts of SIMT IR. Together with the pages [Copies and
barriers](../developers/toolkit/copies.md) and [Matmuls and
partitions](../developers/toolkit/matmuls.md), it shows an example of each operation.

In the descriptions on this page, a *slot* is a part of shared memory that holds one tile. An
operation is *in flight* if it has been started but is not complete. An *mbarrier* is an object in
shared memory at which threads wait for arrivals of other threads and for TMA copies.

"""


DERIVATIVES_INTRODUCTION = """# Derivatives of operations

The compiler derives [gradients](gradients.md) with the rules on this page. In the rules, `y` is the
result of an operation, and `x`, `a`, `b` and `c` are the operands of the operation. In the table of
elementwise operations, `dx` is the tangent of the operand `x`. In the table of other operations,
`dy` is the cotangent of the result, and `a'` is the transposed matrix `a`. If an operation is not
on this page, the operation has no derivative, for example because the result of the operation is an
integer, an address or a constant.

"""

#: Kind of entry -> what it is, in the table of derivatives.
DERIVATIVE_KINDS = {
    "partials": "Elementwise operations: the tangent of the result",
    "rule": "Other operations: the cotangents of the operands",
    "refused": "Operations without a derivative",
}


_SEARCH_DIALOG = 'data-md-component="search" role="dialog" aria-label="Search"'


def derivatives_page() -> str:
    """The Markdown of ``reference/derivatives.md``."""
    from tilewright.derivatives.operation_table import derivatives

    text = DERIVATIVES_INTRODUCTION
    for kind, title in DERIVATIVE_KINDS.items():
        text += f"## {title}\n\n| operation | derivative |\n|---|---|\n"
        text += "".join(
            f"| [`{name}`](ir.md#{name}) | {_cell(entry.law)} |\n"
            for name, entry in derivatives().items()
            if entry.kind == kind
        )
        text += "\n"
    return text


def ir_page() -> str:
    """The Markdown of ``reference/ir.md``."""
    text = INTRODUCTION.format(major=IR_VERSION[0], minor=IR_VERSION[1], count=len(TABLE))
    for family, title in FAMILIES.items():
        text += f"## {title}\n\n"
        text += "".join(_operation(spec) for spec in TABLE if family_of(spec) == family)
    return text


def simt_page() -> str:
    """The Markdown of ``reference/simt.md``."""
    from tilewright.simt.dialect.ops import OPS

    return SIMT_INTRODUCTION.format(count=len(OPS)) + "".join(
        _operation(spec).replace("###", "##", 1) for spec in OPS
    )


def family_of(spec: OpSpec) -> str:
    """The file of ``tilewright.ir.ops`` an operation is declared in."""
    from tilewright.ir import ops

    return next(name for name in FAMILIES if spec in getattr(ops, name).OPS)


def _operation(spec: OpSpec) -> str:
    lines = [f"### {spec.name}\n", f"{_sentence(spec)}.\n"]
    if spec.operands or spec.attributes:
        lines.append("| name | kind | meaning |\n|---|---|---|")
        for operand in spec.operands:
            kind = {
                Kind.SINGLE: "operand",
                Kind.OPTIONAL: "optional operand",
                Kind.VARIADIC: "operands",
            }[operand.kind]
            lines.append(f"| `{operand.name}` | {kind} | {_cell(operand.meaning)} |")
        for attribute in spec.attributes:
            kind = " ".join(f"`{choice!r}`" for choice in attribute.choices) or attribute.kind
            default = "" if attribute.required else f" = `{attribute.default!r}`"
            lines.append(f"| `{attribute.name}` | {kind}{default} | {_cell(attribute.meaning)} |")
        lines.append("")
    notes = []
    if spec.regions:
        names = " and ".join(f"`{name}`" for name in spec.regions)
        notes.append(
            f"This operation has the region{'s' if len(spec.regions) > 1 else ''} {names}."
        )
    if any(attribute.name == "pure" for attribute in spec.attributes):
        notes.append(
            "If `pure` is false, this operation may read and write memory, and the compiler does "
            "not move it across memory accesses, prints, or other operations that have effects."
        )
    else:
        notes += _effect_notes(spec)
    if spec.terminator:
        notes.append("This operation is a terminator: a region ends with such an operation.")
    if notes:
        lines.append(" ".join(notes) + "\n")
    return "\n".join(lines) + "\n"


def _effect_notes(spec: OpSpec) -> list[str]:
    """Return sentences on the effects that an operation always has."""
    notes = []
    accesses = [
        verb
        for flag, verb in ((Effect.READ, "reads"), (Effect.WRITE, "writes"))
        if flag in spec.effects
    ]
    if accesses:
        notes.append(f"This operation {' and '.join(accesses)} memory.")
    if Effect.ORDER in spec.effects:
        if Trait.NO_MEMORY in spec.traits:
            notes.append(
                "The compiler may move this operation across memory accesses, but not across "
                "barriers, prints, or other operations that have effects."
            )
        else:
            notes.append(
                "The compiler does not move this operation across memory accesses, prints, or "
                "other operations that have effects."
            )
    return notes


def _sentence(spec: OpSpec) -> str:
    """Return the summary of an operation as a sentence: a value is what the operation returns."""
    parts = spec.summary.split("`")  # an asterisk outside of code is no emphasis
    parts[::2] = [part.replace("*", "\\*") for part in parts[::2]]
    text = "`".join(parts)
    first = re.match(r"-?(\w+)", text)
    nouns = {"the", "a", "an", "two", "elements", "1", "2", *(each.name for each in spec.operands)}
    if first and first[1] in nouns:
        return f"Return {text}"
    return f"{text[0].upper()}{text[1:]}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


@contextlib.contextmanager
def _modules_beside_this() -> Iterator[None]:
    """Import from this folder within the block."""
    sys.path.insert(0, str(Path(__file__).parent))
    try:
        yield
    finally:
        sys.path.pop(0)


def on_files(files: Any, config: Any) -> Any:
    """Add the generated pages to the site."""
    from mkdocs.structure.files import File

    with _modules_beside_this():
        from drawings.pictures import pictures
        from gallery_pages import gallery
        from notebooks import notebook
        from redirects import files as redirect_files
        from reference_pages.pages import pages
        from results_pages import results, summary
        from source_pages import files as source_files
        from tutorial_pages import figures
    files.append(File.generated(config, "reference/ir.md", content=ir_page()))
    files.append(File.generated(config, "reference/simt.md", content=simt_page()))
    files.append(File.generated(config, "reference/derivatives.md", content=derivatives_page()))
    for path, text in pages().items():
        files.append(File.generated(config, f"reference/{path}", content=text))
    contents: dict[str, str | bytes] = {**pictures(), **gallery.files(), **results.files()}
    contents |= figures.files()
    contents |= redirect_files()
    contents |= source_files()
    contents[summary.PATH] = str(summary.chart())
    contents["licence.md"] = f"# Licence\n\n{(Path(__file__).parents[1] / 'LICENSE').read_text()}"
    contents["changelog.md"] = (Path(__file__).parents[1] / "CHANGELOG.md").read_text()
    for file in list(files):
        if _is_tutorial(file):
            contents[_notebook_of(file)] = notebook(
                figures.filled(Path(file.abs_src_path).read_text())
            )
    for path, content in contents.items():
        files.append(File.generated(config, path, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Add tags for searches, what comments name, and a tutorial's link to its notebook."""
    with _modules_beside_this():
        from reference_pages import library
        from results_pages import summary
        from search_words import add_tags
        from tutorial_pages import figures
    add_tags(page)
    if page.file.src_uri == "index.md":
        return markdown.replace(summary.PLACE, summary.figure())
    if page.file.src_uri.startswith("reference/library/"):
        return library.filled(markdown)
    if not _is_tutorial(page.file):
        return markdown
    title, _, rest = figures.filled(markdown).partition("\n")
    name = _notebook_of(page.file).rpartition("/")[2]
    seconds = figures.seconds(name.removesuffix(".ipynb"))
    link = f"[Download as a notebook]({name}){{ .notebook download }}"
    return f"{title}\n\n{link}. {seconds}\n{rest}"


def on_post_page(output: str, **_: Any) -> str:
    """Give the search dialog of the theme a name, by which screen readers announce it."""
    return output.replace('data-md-component="search" role="dialog"', _SEARCH_DIALOG, 1)


def _is_tutorial(file: Any) -> bool:
    return file.src_uri.startswith("tutorials/") and file.src_uri.endswith(".md")


def _notebook_of(file: Any) -> str:
    return str(file.src_uri).removesuffix(".md") + ".ipynb"
