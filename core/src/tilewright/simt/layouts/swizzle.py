"""Shared layouts without bank conflicts, derived from the layouts that write and read a tile.

A shared layout is given by a basis of the element space: the vectors that the bits of an offset
stand for, lowest first. The lowest are the elements that one access moves together (``vector``),
the next fill a row of the banks (``bank``), the rest choose the row (``row``). Lanes served
together conflict where their difference lies in the span of the vector and row parts, so row
vectors are chosen outside the span of the lanes of both sides: where each side leaves room but not
the same room, the sum of a vector outside the one and a vector outside the other is outside both
(after the optimal swizzling of Zhou et al., "Linear Layouts: Robust Code Generation of Efficient
Tensor Computation Using F2").
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tilewright.simt.layouts.linear_layout import (
    Basis,
    LinearLayout,
    SharedLayout,
    combine,
    log2,
    span,
)


@dataclass(frozen=True, slots=True)
class Accesses:
    """Accesses that move a thread's registers to or from shared memory. Offsets are in elements.

    Attributes:
        width: consecutive elements per access.
        groups: per access, (registers in the order of their offsets, the XOR of the access's offset
            with the thread's offset).
        lanes, warps: images of the lane and warp bits in the thread's offset.
    """

    width: int
    groups: tuple[tuple[tuple[int, ...], int], ...]
    lanes: tuple[int, ...]
    warps: tuple[int, ...]


@functools.lru_cache(maxsize=1024)
def accesses(layout: LinearLayout, shared: SharedLayout, limit: int) -> Accesses:
    """Return the widest accesses, of at most ``limit`` elements, for a tile in shared memory.

    ``layout`` is the register layout, and ``shared`` the layout in shared memory.
    """
    registers, lanes, warps = (
        shared.through(images) for images in (layout.registers, layout.lanes, layout.warps)
    )
    by_thread = functools.reduce(int.__or__, (*lanes, *warps), 0)
    basis = Basis(registers)
    steps: list[int] = []  # the register bits at offsets 1, 2, 4, ...
    while 2 << len(steps) <= limit and not by_thread >> len(steps) & 1:
        step = basis.solve(1 << len(steps))
        if step is None:
            break
        steps.append(step)
    low = (1 << len(steps)) - 1
    chosen = Basis(steps)
    rest = [1 << bit for bit in range(len(registers)) if chosen.add(1 << bit)]
    groups = []
    for register in span(rest):
        register ^= combine(steps, combine(registers, register) & low)
        groups.append(
            (tuple([register ^ step for step in span(steps)]), combine(registers, register))
        )
    return Accesses(1 << len(steps), tuple(groups), lanes, warps)


def transactions(
    layout: LinearLayout, shared: SharedLayout, size: int, max_access: int, banks: int
) -> tuple[int, int]:
    """(accesses, turns of the memory) that a warp takes to move a tile of elements of ``size``
    bytes.

    The memory serves as many of a warp's lanes at a time, in order, as fill its banks, each bank
    giving one word of 4 bytes a turn; lanes that ask for one word are served together. Offsets are
    linear in the lane, so that the conflict of one phase is that of all.
    """
    plan = accesses(layout, shared, max(1, max_access // size))
    row = banks * 4
    phase = min(len(plan.lanes), log2(row) - log2(max(4, plan.width * size)))
    offsets = [image * size for image in plan.lanes[:phase]]
    words = Basis([offset >> 2 for offset in offsets]).rank
    served = Basis([offset % row >> 2 for offset in offsets]).rank
    return len(plan.groups), len(plan.groups) << (len(plan.lanes) - phase) << (words - served)


def intersection(a: Sequence[int], b: Sequence[int]) -> list[int]:
    """Return a basis of the intersection of the spans of ``a`` and ``b``, each independent."""
    basis, added, found = Basis(a), [], []
    for vector in b:
        used = basis.solve(vector)
        if used is None:
            basis.add(vector)
            added.append(vector)
        else:
            found.append(vector ^ combine(added, used >> len(a)))
    return found


@functools.lru_cache(maxsize=1024)
def shared_between(
    writer: LinearLayout,
    reader: LinearLayout,
    size: int,
    max_access: int,
    banks: int,
    round_bits: int = 0,
    vector: tuple[int, ...] | None = None,
) -> SharedLayout:
    """The shared layout through which a tile goes from one layout to the other in the fewest turns
    of the memory.

    Args:
        size: bytes of an element.
        max_access: bytes of the widest access.
        banks: banks of 4 bytes.
        round_bits: highest bits of the offset that should not depend on the thread on either side,
            as far as that is possible: the tile then passes through memory in 2**round_bits rounds,
            each thread with as many registers in each.
        vector: images that must be the lowest bits of the offset, for copies that cannot be split.
    """
    limit = max(0, log2(max_access) - log2(size))
    if vector is not None:
        candidates = [list(vector)]
    else:
        common = _ordered(
            intersection(writer.registers, reader.registers), writer.registers, reader.registers
        )
        candidates = [common[:limit]]
        if len(common) < limit:
            for side in (writer, reader):
                longer = _independent((*common, *side.registers))[:limit]
                if longer not in candidates:
                    candidates.append(longer)
        # narrower accesses leave registers that both sides have for the rounds
        for width in (
            range(min(limit, len(common)), max(0, len(common) - round_bits) - 1, -1)
            if round_bits
            else ()
        ):
            if common[:width] not in candidates:
                candidates.append(common[:width])

    def score(shared: SharedLayout) -> tuple[int, bool, int]:
        """Turns; whether threads have their registers in different rounds: they then hold more at a
        time; accesses."""
        moves = [transactions(side, shared, size, max_access, banks) for side in (writer, reader)]
        inside = max(0, len(shared.images) - round_bits)
        apart = any(
            image >> inside
            for side in (writer, reader)
            for image in shared.through((*side.lanes, *side.warps))
        )
        return sum(turns for _, turns in moves), apart, sum(count for count, _ in moves)

    return min(
        (_swizzled(writer, reader, candidate, size, banks, round_bits) for candidate in candidates),
        key=score,
    )


def _ordered(vectors: list[int], *sides: Sequence[int]) -> list[int]:
    """The span of ``vectors``, with images of registers first, in their order: neighbours in
    registers should be neighbours in memory."""
    basis = Basis(vectors)
    inside = [image for side in sides for image in side if basis.solve(image) is not None]
    return _independent((*inside, *vectors))


def _independent(vectors: Iterable[int]) -> list[int]:
    basis = Basis()
    return [vector for vector in vectors if basis.add(vector)]


def _swizzled(
    writer: LinearLayout,
    reader: LinearLayout,
    vector: list[int],
    size: int,
    banks: int,
    round_bits: int,
) -> SharedLayout:
    dimension = log2(math.prod(writer.shape))
    word = min(max(0, 2 - log2(size)), dimension)
    row_bits = log2(banks * 4) - log2(size)  # offset bits within a row of the banks
    units = [1 << bit for bit in range(dimension)]
    if (
        len(vector) < word
    ):  # what shares a word is served together: lanes of both sides, if they agree
        both = intersection(_independent(writer.lanes), _independent(reader.lanes))
        vector = _independent((*vector, *both, *writer.lanes, *reader.lanes, *units))[:word]
    # Vectors that complete the basis; threads' images come first, so that the rounds at the end do
    # not depend on threads and none of them has a part within an access.
    atoms = _independent(
        (
            *vector,
            *writer.lanes,
            *reader.lanes,
            *writer.warps,
            *reader.warps,
            *writer.registers,
            *reader.registers,
            *units,
        )
    )
    split = max(len(vector), dimension - round_bits)
    inner, rounds = atoms[len(vector) : split], atoms[split:]
    taken = []
    for side in (writer, reader):
        own = Basis(side.registers)
        width = next((i for i, image in enumerate(vector) if own.solve(image) is None), len(vector))
        together = max(word, width)
        taken.append(Basis((*vector[:together], *side.lanes[: max(0, row_bits - together)])))
    low = Basis(vector)
    rows = []
    for _ in range(split - row_bits):
        row = _outside(taken[0], taken[1], low, inner)
        rows.append(row)
        for basis in (*taken, low):
            basis.add(row)
    bank = [atom for atom in inner if low.add(atom)]
    basis = Basis((*vector, *bank, *rows, *rounds))
    images = [basis.solve(unit) for unit in units]
    assert None not in images and basis.rank == dimension
    return SharedLayout(writer.shape, tuple(image for image in images if image is not None))


def _outside(a: Basis, b: Basis, low: Basis, atoms: Sequence[int]) -> int:
    """A sum of atoms outside both spans where there is one, else outside as many as possible;
    outside ``low`` always."""
    outside_a = next((atom for atom in atoms if a.solve(atom) is None), 0)
    outside_b = next((atom for atom in atoms if b.solve(atom) is None), 0)
    candidates = [
        atom
        for atom in (outside_a, outside_b, outside_a ^ outside_b)
        if a.solve(atom) is None and b.solve(atom) is None
    ]
    for candidate in (*candidates, outside_a, outside_b, *atoms):
        if candidate and low.solve(candidate) is None:
            return candidate
    raise AssertionError("the atoms complete the basis")
