"""Source sites of inline assembly, to which the assembler's errors are attributed.

Each call is marked by ``!srcloc !{i64 n}``, where the n-th operand of the module's
``!tilewright.assembly`` lists its location and those of the calls that it was inlined at. LLVM
tells the mark for what it finds wrong with constraints; for what its assembler rejects it tells a
line of the assembly alone, and :func:`numbered` makes them distinct.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from typing import Final

from tilewright.errors import LoweringError, noted
from tilewright.ir.core import Location
from tilewright.llvm.emission.writer import ModuleWriter

_TABLE: Final = "!tilewright.assembly"
#: A call of assembly that is marked: its text, and the node of the mark.
_CALL: Final = re.compile(
    r' asm (?:sideeffect )?"(?P<text>[^"]*)", "[^"]*".*?, !srcloc !(?P<node>\d+)'
)
#: Assembly that an assembler reads. Backends write empty assembly without a source mark: a mark
#: that memory is not accessed across, and values that pass through unchanged.
ASSEMBLY: Final = re.compile(
    r' asm (?!sideeffect "", "~\{memory\}"\(\)|(?:sideeffect )?"", '
    r'"=([vs])(?:,=\1)*(?:,\d+)+"\([^()]*\)(?!.*!srcloc))'
)
#: What LLVM says of assembly, and of constraints.
_REJECTED: Final = re.compile(
    r"<inline asm>:(?P<line>\d+):(?P<column>\d+): (?:error: )?(?P<rest>.*)", re.S
)
_MISFIT: Final = re.compile(r"(?:error: )?(?P<reason>.*) at line (?P<site>\d+)")


def site(module: ModuleWriter, location: Location | None) -> str:
    """Return the metadata suffix of an inline assembly call; "" without a known location."""
    if location is None:
        return ""
    places = ", ".join(f'!"{_quoted(str(place))}"' for place in location.chain())
    node = module.metadata(f"!{{{places}}}")
    number = module.number_in(_TABLE, node)
    return f", !srcloc {module.metadata(f'!{{i64 {number}}}')}"


def blamed(places: Sequence[str], reason: str) -> LoweringError:
    """The error of inline assembly at a location, which the calls that it was inlined at follow."""
    error = LoweringError(f"inline assembly at {places[0]}: {reason}")
    return (
        noted(error, "\n".join(f"called at {place}" for place in places[1:]))
        if len(places) > 1
        else error
    )


def blamed_at(location: Location | None, reason: str) -> LoweringError:
    """:func:`blamed` for a location."""
    return (
        blamed([str(place) for place in location.chain()], reason)
        if location is not None
        else LoweringError(f"inline assembly: {reason}")
    )


class Sites:
    """The marked calls of a module's text, and whom an error of theirs blames."""

    def __init__(self, ir_text: str) -> None:
        self._text = ir_text
        nodes = dict(re.findall(r"^(!\d+) = !\{(.*)\}$", ir_text, re.M))
        #: places of each site, by its number from 1 on
        self._places: list[list[str]] = [
            [_unquoted(place) for place in re.findall(r'!"([^"]*)"', nodes.get(node, ""))]
            for listed in re.findall(rf"^{re.escape(_TABLE)} = !\{{(.*)\}}$", ir_text, re.M)
            for node in listed.split(", ")
        ]
        self._numbers = {
            node[1:]: int(text.removeprefix("i64 "))
            for node, text in nodes.items()
            if re.fullmatch(r"i64 \d+", text)
        }
        #: whether there are calls that nothing is known of
        self._unmarked = len(ASSEMBLY.findall(ir_text)) > len(_CALL.findall(ir_text))
        #: assembly texts, with the number of their sites
        self._texts: list[tuple[str, int]] = sorted(
            {
                (_unquoted(match["text"]), self._numbers[match["node"]])
                for match in _CALL.finditer(ir_text)
            },
            key=lambda each: (each[1], each[0]),
        )

    @property
    def several(self) -> bool:
        """Return whether a line number within the assembly does not identify the call."""
        return len(self._texts) > 1

    def numbered(self) -> str:
        """Return the module's text with unique line numbers in the assembly of all calls.

        The assembly of each call is moved down so far that no two have a line of the same number.
        """
        first = self._first_lines()

        def moved(match: re.Match[str]) -> str:
            lines = first[_unquoted(match["text"]), self._numbers[match["node"]]] - 1
            start = match.start("text") - match.start()
            return match[0][:start] + "\\0A" * lines + match[0][start:]

        return _CALL.sub(moved, self._text)

    def _first_lines(self) -> dict[tuple[str, int], int]:
        found, line = {}, 1
        for text, number in self._texts:
            found[text, number] = line
            line += text.count("\n") + 1
        return found

    def error(self, said: str, *, numbered: bool = False) -> LoweringError | None:
        """Attribute LLVM's message to a source line; None where it does not name the place.

        Args:
            numbered: LLVM was given the text of :meth:`numbered`.
        """
        if match := _MISFIT.search(said):
            number = int(match["site"])
            return (
                blamed(self._places[number - 1], match["reason"].strip())
                if 0 < number <= len(self._places)
                else None
            )
        match = _REJECTED.search(said)
        if match is None or not self._texts or self._unmarked or (self.several and not numbered):
            return None
        firsts, line = self._first_lines(), int(match["line"])
        text, number = (
            max((key for key, first in firsts.items() if first <= line), key=firsts.__getitem__)
            if numbered
            else self._texts[0]
        )
        own = line - firsts[text, number] + 1
        where = f" (line {own} of it)" if "\n" in text else ""
        reason, *quoted = match["rest"].partition("<inline asm>")[0].rstrip().split("\n")
        shown = textwrap.indent(
            textwrap.dedent("\n".join(line.expandtabs() for line in quoted)), "    "
        )
        return blamed(self._places[number - 1], f"{reason}{where}\n{shown}".rstrip())

    def unknown(self, said: str) -> LoweringError:
        """The error where LLVM does not say which assembly it means."""
        places = list(dict.fromkeys(self._places[number - 1][0] for _, number in self._texts))
        where = f" (at {' or '.join(places)})" if places else ""
        return LoweringError(
            f"the target's assembler rejects the inline assembly of this kernel{where}:\n{said}"
        )

    def rejected_call(self, line: int, reason: str) -> LoweringError | None:
        """Return the error for a module line that LLVM rejects as IR.

        None unless it is a call of assembly whose constraints do not fit.
        """
        lines = self._text.splitlines()
        match = _CALL.search(lines[line - 1]) if 0 < line <= len(lines) else None
        if match is None:
            return None
        constraints = re.search(r'", "([^"]*)"', match[0])
        assert constraints is not None
        text = (
            f"the constraints {_unquoted(constraints[1])!r} do not fit the results and "
            f"inputs: {reason}"
        )
        return blamed(self._places[self._numbers[match["node"]] - 1], text)


def _quoted(text: str) -> str:
    return "".join(
        chr(byte) if 32 <= byte < 127 and byte not in (34, 92) else f"\\{byte:02X}"
        for byte in text.encode()
    )


def _unquoted(text: str) -> str:
    return re.sub(
        r"(?:\\[0-9A-Fa-f]{2})+",
        lambda match: bytes.fromhex(match[0].replace("\\", "")).decode(errors="replace"),
        text,
    )
