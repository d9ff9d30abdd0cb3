"""What an AMDGPU assembly text tells of its kernel: registers, LDS, spills, and what its hot loop
is made of.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

#: multiplications and additions of a matrix instruction, by its name: rows, columns and depth
_EXTENTS = re.compile(r"^v_(?:s?mfma|s?wmma)_\w+?_(\d+)x(\d+)x(\d+)")
_LABEL = re.compile(r"^([.\w$]+):")
_LOADED = {
    **dict.fromkeys(("ubyte", "sbyte", "u8", "i8"), 1),
    **dict.fromkeys(("ushort", "sshort", "short", "b16", "u16"), 2),
    **dict.fromkeys(("dword", "b32"), 4),
    **dict.fromkeys(("dwordx2", "b64"), 8),
    **dict.fromkeys(("dwordx3", "b96"), 12),
    **dict.fromkeys(("dwordx4", "b128"), 16),
}


@dataclass(frozen=True)
class Figures:
    """Of one kernel.

    Attributes:
        vector, scalar, accumulators: registers of a thread (those for sums are part of ``vector``),
        and of a wave. lds: bytes of a program.
        spilled: vector and scalar registers that did not fit.
        loop: instructions of the hot loop; of the whole kernel where there is none.
        matrix: matrix instructions among them.
        work: what an iteration does: multiplications of its matrix instructions, or else the bytes
        that its loads bring a thread; 1 where neither is.
    """

    vector: int
    scalar: int
    accumulators: int
    lds: int
    spilled: int
    loop: int
    matrix: int
    work: int

    @property
    def share(self) -> float:
        """The part of the hot loop that is matrix instructions."""
        return self.matrix / self.loop


def figures(listing: str, dynamic_lds: int = 0) -> Figures:
    """The figures of the one kernel of a text; ``dynamic_lds`` bytes are added by the launch."""

    def number(name: str) -> int:
        found = re.search(rf"^\s+(?:- )?\.{name}:\s+(\d+)$", listing, re.M)
        return int(found[1]) if found else 0

    loop = hot_loop(instructions(listing))
    matrix = [name for name in loop if _EXTENTS.match(name)]
    return Figures(
        number("vgpr_count"),
        number("sgpr_count"),
        number("agpr_count"),
        number("group_segment_fixed_size") + dynamic_lds,
        number("vgpr_spill_count") + number("sgpr_spill_count"),
        len(loop),
        len(matrix),
        sum(_multiplications(name) for name in matrix) or sum(_bytes(name) for name in loop) or 1,
    )


def instructions(listing: str) -> list[tuple[str, str]]:
    """(mnemonic, operands) of the kernel, in order; a label is ("", its name)."""
    found: list[tuple[str, str]] = []
    for line in listing.splitlines():
        text = line.split(";", 1)[0].strip()
        if text.startswith((".section\t.rodata", ".section .rodata")) and found:
            break
        label = _LABEL.match(text)
        if label:
            found.append(("", label[1]))
        elif text and text[0] in "svbgdf":
            name, _, operands = text.replace("\t", " ").partition(" ")
            # two instructions in one
            found += (
                [(part.split()[0], part) for part in text.split("::")]
                if "::" in text
                else [(name, operands.strip())]
            )
    return found


def hot_loop(code: list[tuple[str, str]]) -> list[str]:
    """The mnemonics of the innermost loop with most matrix instructions; where none has any those
    of all innermost loops; of the whole kernel without loops.
    """
    after, before = _ways(code)
    # of a way back, all that is run between; code that is seldom run may stand behind the end, and
    # is part of no loop
    back = [(place, first) for place, ways in enumerate(after) for first in ways if first <= place]
    loops = [
        ahead & _reached(before, first)
        for place, first in back
        if place in (ahead := _reached(after, first))
    ]
    # ways back to one place, or that meet, are of one loop
    whole: list[set[int]] = []
    for loop in sorted(loops, key=len):
        if not any(other & loop for other in whole):
            whole.append(loop)
    bodies = [[code[place][0] for place in sorted(loop) if code[place][0]] for loop in whole]
    hottest = max(
        bodies,
        key=lambda body: (sum(1 for name in body if _EXTENTS.match(name)), len(body)),
        default=[],
    )
    if any(_EXTENTS.match(name) for name in hottest):
        return hottest
    return [name for body in bodies for name in body] or [name for name, _ in code if name]


def _ways(code: list[tuple[str, str]]) -> tuple[list[list[int]], list[list[int]]]:
    """The places that may be executed right after each, and right before each."""
    places = {operands: place for place, (name, operands) in enumerate(code) if not name}
    after: list[list[int]] = [[] for _ in code]
    before: list[list[int]] = [[] for _ in code]
    for place, (name, operands) in enumerate(code):
        if name not in ("s_endpgm", "s_branch", "s_setpc_b64") and place + 1 < len(code):
            after[place].append(place + 1)
        if name.startswith(("s_cbranch", "s_branch")) and operands.strip() in places:
            after[place].append(places[operands.strip()])
        for following in after[place]:
            before[following].append(place)
    return after, before


def _reached(ways: list[list[int]], start: int) -> set[int]:
    """Places that are reached from one."""
    found = {start}
    waiting = [start]
    while waiting:
        place = waiting.pop()
        fresh = [way for way in ways[place] if way not in found]
        found.update(fresh)
        waiting += fresh
    return found


def _multiplications(name: str) -> int:
    found = _EXTENTS.match(name)
    assert found is not None
    m, n, k = map(int, found.groups())
    return m * n * k


def _bytes(name: str) -> int:
    found = re.match(r"^(?:global|buffer|flat)_load_(?:d16_)?(?:hi_)?(\w+?)(?:_d16.*)?$", name)
    return _LOADED.get(found[1], 0) if found else 0
