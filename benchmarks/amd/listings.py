"""What an AMDGPU assembly text tells of its kernel: registers, LDS, spills, and what its hot loop is made of."""

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
        vector, scalar, accumulators: registers of a thread (those for sums are part of ``vector``), and of a wave.
        lds: bytes of a program.
        spilled: vector and scalar registers that did not fit.
        loop: instructions of the hot loop; of the whole kernel where there is none.
        matrix: matrix instructions among them.
        work: what an iteration does: multiplications of its matrix instructions, or else the bytes that its loads bring a thread; 1 where neither is.
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
            found += [(part.split()[0], part) for part in text.split("::")] if "::" in text else [(name, operands.strip())]
    return found


def hot_loop(code: list[tuple[str, str]]) -> list[str]:
    """The mnemonics of the innermost loop with most matrix instructions; where none has any those of all innermost loops; of the whole kernel without loops."""
    places = {operands: place for place, (name, operands) in enumerate(code) if not name}
    loops = []
    for place, (name, operands) in enumerate(code):
        first = places.get(operands.strip(), place) if name.startswith(("s_cbranch", "s_branch")) else place
        # code that is seldom run stands behind the end, and comes back from there
        if first < place and place in _reached(code, places, first):
            loops.append((first, place))
    inner = [loop for loop in loops if not any(other != loop and loop[0] <= other[0] and other[1] <= loop[1] for other in loops)]
    bodies = [[name for name, _ in code[first : last + 1] if name] for first, last in inner]
    hottest = max(bodies, key=lambda body: (sum(1 for name in body if _EXTENTS.match(name)), len(body)), default=[])
    if any(_EXTENTS.match(name) for name in hottest):
        return hottest
    return [name for body in bodies for name in body] or [name for name, _ in code if name]


def _reached(code: list[tuple[str, str]], places: dict[str, int], start: int) -> set[int]:
    """Places that may be executed after one."""
    found: set[int] = set()
    waiting = [start]
    while waiting:
        place = waiting.pop()
        while place < len(code) and place not in found:
            found.add(place)
            name, operands = code[place]
            if name.startswith(("s_cbranch", "s_branch")):
                waiting.append(places.get(operands.strip(), len(code)))
            if name in ("s_endpgm", "s_branch", "s_setpc_b64"):
                break
            place += 1
    return found


def _multiplications(name: str) -> int:
    found = _EXTENTS.match(name)
    assert found is not None
    m, n, k = map(int, found.groups())
    return m * n * k


def _bytes(name: str) -> int:
    found = re.match(r"^(?:global|buffer|flat)_load_(?:d16_)?(?:hi_)?(\w+?)(?:_d16.*)?$", name)
    return _LOADED.get(found[1], 0) if found else 0
