"""Debug locations: line tables by which the machine's tools show a kernel's Python."""

from __future__ import annotations

import os

from tilewright.ir.core import Location
from tilewright.llvm.emission.writer import FunctionWriter

_PRODUCER = "tilewright"


class LineTable:
    """The places of one function's instructions.

    Instructions get the place of the operation that they are written for; what was inlined has the
    place of its call as well. Nothing of the code depends on it.
    """

    def __init__(self, writer: FunctionWriter, start: Location) -> None:
        """Args:
        start: the first line of the kernel, whose file is the unit's.
        """
        self._module, self._start = writer.module, start
        self._type = self._module.metadata("!DISubroutineType(types: !{})")
        text = (
            "distinct !DICompileUnit(language: DW_LANG_Python, file: "
            f'{self._file(start.file)}, producer: "{_PRODUCER}", emissionKind: '
            "DebugDirectivesOnly)"
        )
        self._unit = self._module.metadata(text)
        version = self._module.metadata('!{i32 2, !"Debug Info Version", i32 3}')
        self._module.add_global(f"!llvm.dbg.cu = !{{{self._unit}}}")
        self._module.add_global(f"!llvm.module.flags = !{{{version}}}")
        self._kernel = self._subprogram(writer.name, start)
        writer.attach(f"!dbg {self._kernel}")
        self._known: dict[tuple[Location | None, bool], str] = {}

    def mark(self, location: Location | None) -> str:
        """Return an instruction's metadata suffix for a place; "" without a place."""
        return f", !dbg {self._place(location, False)}" if location is not None else ""

    @property
    def generated(self) -> str:
        """Return the metadata suffix of instructions without a line: line 0 of the kernel."""
        return f", !dbg {self._module.metadata(f'!DILocation(line: 0, scope: {self._kernel})')}"

    def _place(self, location: Location, inlined: bool) -> str:
        found = self._known.get((location, inlined))
        if found is None:
            scope, at = self._kernel, ""
            if location.caller is not None:
                scope = self._subprogram(location.function, Location(location.file, location.line))
                at = f", inlinedAt: {self._place(location.caller, True)}"
            elif location.file != self._start.file:
                scope = self._module.metadata(
                    f"!DILexicalBlockFile(scope: {scope}, file: {self._file(location.file)}, "
                    "discriminator: 0)"
                )
            kind = "distinct !DILocation" if inlined else "!DILocation"
            found = self._module.metadata(
                f"{kind}(line: {location.line}, column: {location.column}, scope: {scope}{at})"
            )
            self._known[location, inlined] = found
        return found

    def _subprogram(self, name: str, start: Location) -> str:
        file = self._file(start.file)
        line = f"line: {start.line}, scopeLine: {start.line}"
        given = (
            f'name: "{_plain(name)}", scope: {file}, file: {file}, {line}, type: {self._type}, '
            f"unit: {self._unit}"
        )
        return self._module.metadata(
            f"distinct !DISubprogram({given}, spFlags: DISPFlagDefinition)"
        )

    def _file(self, path: str) -> str:
        folder, name = os.path.split(path)
        return self._module.metadata(
            f'!DIFile(filename: "{_plain(name)}", directory: "{_plain(folder)}")'
        )


def _plain(text: str) -> str:
    """A text within quotes of LLVM's."""
    return "".join(
        chr(byte) if 32 <= byte < 127 and byte not in (34, 92) else f"\\{byte:02X}"
        for byte in text.encode()
    )
