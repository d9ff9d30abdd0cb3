"""Mapping of each line of a stage to its source line.

Before a kernel is lowered, each of its operations gets one place: the innermost line of the user's
own in its chain of calls. So whatever comes after says lines of the user's: Tile IR by
``loc(...)``, LLVM IR by ``!dbg``, assembly by ``.loc``.
"""

from __future__ import annotations

import ast
import linecache
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tilewright.ir.core import Function, Location, Module
from tilewright.plugins.registry import registry


class SourceLine(NamedTuple):
    """A line of a file, counted from 1."""

    file: str
    line: int


class Line(NamedTuple):
    """A line of a stage, and where it comes from; None where that is not said."""

    text: str
    place: SourceLine | None


@dataclass(frozen=True)
class Section:
    """A function's source: its lines from ``first`` on."""

    file: str
    first: int
    lines: tuple[str, ...]


# ---- one place for each operation


def flatten(module: Module) -> None:
    """Reduce each operation's location to the innermost one outside of libraries.

    Libraries are the language's own, and backends'.
    """
    libraries = library_folders()
    for function in module.functions.values():
        for operation in function.walk():
            if operation.location is not None:
                operation.location = own_place(operation.location, libraries)


def own_place(location: Location, libraries: Sequence[str]) -> Location:
    """Return the innermost frame of a chain that is in none of the folders.

    Where all are, it is the outermost.
    """
    chain = location.chain()
    found = next(
        (frame for frame in chain if not frame.file.startswith(tuple(libraries))), chain[-1]
    )
    return Location(found.file, found.line, found.column, found.function)


def library_folders() -> list[str]:
    """Return the folders of the language and of the installed backends, each ending in a slash."""
    folders = [Path(__file__).parents[2]]
    for backend in registry().backends():
        module = sys.modules.get(backend.source.package)
        if module is not None and getattr(module, "__file__", None):
            folders.append(Path(str(module.__file__)).parent)
    return [f"{folder}/" for folder in folders]


def places_of(function: Function) -> list[SourceLine]:
    """The places of a kernel and its operations, in order."""
    locations = (function.location, *(operation.location for operation in function.walk()))
    return list(
        dict.fromkeys(
            SourceLine(location.file, location.line)
            for location in locations
            if location is not None
        )
    )


# ---- the source


def sections(places: Iterable[SourceLine]) -> list[Section]:
    """Return the functions that the places are in, whole, in the order of first places.

    Files that cannot be read have none.
    """
    found: dict[tuple[str, int], Section] = {}
    trees: dict[str, ast.Module | None] = {}
    for place in places:
        if any(
            section.file == place.file
            and section.first <= place.line < section.first + len(section.lines)
            for section in found.values()
        ):
            continue
        lines = linecache.getlines(place.file)
        if place.file not in trees:
            trees[place.file] = _tree(lines)
        first, last = _function_around(trees[place.file], place.line)
        if first <= len(lines):
            found[place.file, first] = Section(
                place.file, first, tuple(line.rstrip() for line in lines[first - 1 : last])
            )
    return list(found.values())


def _tree(lines: Sequence[str]) -> ast.Module | None:
    try:
        return ast.parse("".join(lines))
    except SyntaxError:  # a cell of a notebook with commands of its own
        return None


def _function_around(tree: ast.Module | None, line: int) -> tuple[int, int]:
    """Return the first and last line of the innermost function around a line.

    Decorators are included; without a function it is the line alone.
    """
    found = (line, line)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None:
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            if first <= line <= node.end_lineno and (found[0] == found[1] or first >= found[0]):
                found = (first, node.end_lineno)
    return found


# ---- stages


_IR_PLACE = re.compile(r' loc\("((?:[^"\\]|\\.)*)":(\d+):\d+.*\)$')
_DEBUG = re.compile(r",? !dbg !(\d+)")
_NODE = re.compile(
    r"^!(\d+) = (?:distinct )?!(DILocation|DISubprogram|DILexicalBlockFile|DIFile)\((.*)\)$"
)
_FIELD = re.compile(r'(\w+): (?:!(\d+)|"((?:[^"\\]|\\.)*)"|(-?\d+))')
_ASM_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"((?:[^"\\]|\\.)*)"(?:\s+"((?:[^"\\]|\\.)*)")?')
_ASM_PLACE = re.compile(r"^\s*\.loc\s+(\d+)\s+(\d+)")
#: Lines of assembly that say nothing of the code: debug information, its labels, and how frames of
#: the stack are unwound.
_ASM_NOISE = re.compile(
    r"^\s*(\.(loc|file|cfi_\w+|addrsig\w*|ident)\b|(\$L__|\.L)(tmp|func_begin|func_end)\w*:|"
    r"//\s*((begin|end) inline asm)?\s*$|$)"
)
_ASM_DEBUG_SECTION = re.compile(r"^\s*\.section\s+[\"']?\.(debug_|note|[A-Z]\w*\.|llvm)")
_ASM_SECTION = re.compile(r"^\s*\.(section\s+[\"']?\.(text|rodata)|text\b|data\b)")


def lines_of(text: str) -> list[Line]:
    """The lines of a stage's text for people, each with its place, by what kind of text it is."""
    if text.startswith("tilewright.ir "):
        return _of_ir(text)
    if re.search(r"^define ", text, re.M):
        return _of_llvm(text)
    return _of_assembly(text)


def _of_ir(text: str) -> list[Line]:
    """Return the lines of IR; an operation with regions has its place in its first line, too.

    The text has it behind the last region.
    """
    found: list[Line] = []
    opened: dict[int, int] = {}  # indentation -> the line that last opened a region there
    for line in text.splitlines():
        said = _IR_PLACE.search(line)
        place = SourceLine(_unquoted(said[1]), int(said[2])) if said else None
        indent = len(line) - len(line.lstrip())
        if line.endswith("{") and not line.lstrip().startswith("}"):
            opened[indent] = len(found)
        elif place is not None and line.lstrip().startswith("}") and indent in opened:
            found[opened[indent]] = found[opened[indent]]._replace(place=place)
        found.append(Line(_IR_PLACE.sub("", line), place))
    return found


def _of_llvm(text: str) -> list[Line]:
    nodes: dict[str, tuple[str, dict[str, str]]] = {}
    for line in text.splitlines():
        node = _NODE.match(line)
        if node:
            nodes[node[1]] = (
                node[2],
                {
                    name: number or quoted or plain
                    for name, number, quoted, plain in _FIELD.findall(node[3])
                },
            )

    def place(number: str) -> SourceLine | None:
        _, fields = nodes.get(number, ("", {}))
        if "line" not in fields or "scope" not in fields:
            return None
        _, scope = nodes.get(fields["scope"], ("", {}))
        _, file = nodes.get(scope.get("file", ""), ("", {}))
        folder, name = file.get("directory", ""), file.get("filename", "")
        line = int(fields["line"])  # 0 is of what the compiler adds of its own
        return SourceLine(_escaped(f"{folder}/{name}" if folder else name), line) if line else None

    found = []
    for line in text.splitlines():
        if re.match(r"^(!|attributes |declare )", line):
            continue
        marked = _DEBUG.search(line) if not line.startswith("define") else None
        found.append(Line(_DEBUG.sub("", line), place(marked[1]) if marked else None))
    return found


def _of_assembly(text: str) -> list[Line]:
    files: dict[str, str] = {}
    for line in text.splitlines():
        file = _ASM_FILE.match(line)
        if file:
            files[file[1]] = _escaped(f"{file[2]}/{file[3]}" if file[3] else file[2])
    found: list[Line] = []
    place: SourceLine | None = None
    hidden = False
    for line in text.splitlines():
        if _ASM_DEBUG_SECTION.match(line):
            hidden = True
        elif _ASM_SECTION.match(line):
            hidden = False
        marked = _ASM_PLACE.match(line)
        if marked:
            place = SourceLine(files.get(marked[1], ""), int(marked[2])) if int(marked[2]) else None
        if hidden or _ASM_NOISE.match(line):
            continue
        # the kernel's own first line is where its frame is set up
        found.append(Line(line.expandtabs(8), place if is_instruction(line) else None))
    return found


def is_instruction(line: str) -> bool:
    """Return whether a line of assembly is an instruction, and no label, directive or comment."""
    body = line.strip()
    return (
        bool(body)
        and line[:1].isspace()
        and not body.startswith((".", "//", "#", ";", "{", "}", ")", "("))
        and not body.endswith(":")
    )


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)


def _escaped(text: str) -> str:
    """Decode a text with bytes written ``\\5C``, as LLVM does, or ``\\134``, as assemblers do."""
    data = re.sub(rb"\\([0-7]{3})", lambda found: bytes([int(found[1], 8)]), text.encode())
    data = re.sub(rb"\\([0-9A-Fa-f]{2})", lambda found: bytes([int(found[1], 16)]), data)
    return data.replace(b"\\\\", b"\\").replace(b'\\"', b'"').decode(errors="replace")
