"""Splitting of long basic blocks, for code that is compiled to run once.

Without optimisation LLVM selects most instructions one by one, but from the first that this cannot
do the rest of its block goes through a graph, and the time that takes grows with the square of the
block: a kernel of 5,000 lines in one block took 25 s, and takes 0.15 s in blocks of 200.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

#: Lines of a block, where nothing else is asked for.
LONGEST: Final = 200

_LABEL: Final = re.compile(r"([\w.$-]+):(?:\s|$)")
_INCOMING: Final = re.compile(r"%([\w.$-]+) \]")


def cut_blocks(text: str, longest: int = LONGEST) -> str:
    """LLVM IR as :mod:`tilewright.llvm.emission.writer` writes it, an instruction a line, in blocks
    of at most ``longest`` lines beside phis and allocations."""
    lines: list[str] = []
    first, label, length = 0, "", 0
    #: label of a block -> that of its last piece, in this function
    pieces: dict[str, str] = {}
    count = 0
    for line in text.split("\n"):
        if line.startswith("define"):
            first, label, pieces = len(lines), "", {}
        elif line == "}":
            if pieces:
                lines[first:] = [
                    _renamed(one, pieces) if " = phi " in one else one for one in lines[first:]
                ]
            label = ""
        elif not line.startswith(" "):
            if found := _LABEL.match(line):
                label, length = found[1], 0
        elif label and " = phi " not in line and " = alloca " not in line:
            if length == longest:
                count += 1
                pieces[label] = f"cut.{count}"
                lines += [f"  br label %cut.{count}", f"cut.{count}:"]
                length = 0
            length += 1
        lines.append(line)
    return "\n".join(lines)


def _renamed(phi: str, pieces: Mapping[str, str]) -> str:
    """A phi whose values come from the last pieces of their blocks."""
    return _INCOMING.sub(lambda found: f"%{pieces.get(found[1], found[1])} ]", phi)
