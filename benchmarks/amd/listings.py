"""Statistics of AMDGPU assembly: registers, LDS, spills, and the mix of the hot loop."""

from __future__ import annotations

import re
from dataclasses import dataclass

#: multiply-adds of a matrix instruction, from its name: rows, columns and depth
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
    """Statistics of one kernel.

    Attributes:
        vector, scalar, accumulators: registers of a thread, or of a wave for ``scalar``;
            accumulator registers are part of ``vector``.
        lds: bytes of LDS per program.
        spilled: vector and scalar registers that are spilled.
        loop: instructions of the hot loop, or of the whole kernel if it has no loop.
        matrix: matrix instructions among them.
        work: work of one iteration: multiply-adds of its matrix instructions, else the bytes that a
            thread loads; 1 if there are neither.
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
        """Return the share of matrix instructions in the hot loop."""
        return self.matrix / self.loop


def figures(listing: str, dynamic_lds: int = 0) -> Figures:
    """Return the statistics of the only kernel of an assembly text.

    ``dynamic_lds`` is the LDS in bytes that the launch adds.
    """

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
    """Return the (mnemonic, operands) pairs of the kernel in order; a label is ("", its name)."""
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
    """Return the mnemonics of the hot loop: the innermost loop with the most matrix instructions.

    If no loop has matrix instructions, return those of all innermost loops; without loops, those of
    the whole kernel.
    """
    after, before = _ways(code)
    # A backward branch encloses the instructions that run between its target and itself. Rarely run
    # code may stand behind the end of the kernel and belongs to no loop.
    back = [(place, first) for place, ways in enumerate(after) for first in ways if first <= place]
    loops = [
        ahead & _reached(before, first)
        for place, first in back
        if place in (ahead := _reached(after, first))
    ]
    # backward branches to one target, or whose ranges overlap, form one loop
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
    """Return the successors and the predecessors of each instruction."""
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
    """Return the indices of the instructions that are reachable from one."""
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
