"""Layouts for copies whose lanes write side by side: a warp's copy fills one run of shared memory,
lane after lane.

Where an element goes is then decided by which lane reads it. The layout of the load, and that of
the shared memory it fills, are one basis of the element space: what a lane copies, the lanes, the
warps, the registers, each in the order of offsets. That of memory is such a basis, and threads that
read rows of it would meet in the banks. So vectors that begin a new row of the banks have others
within the row added to them: lanes read the same lines of memory in another order, and rows lie
shifted against each other.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.simt.layouts.linear_layout import (
    Basis,
    LinearLayout,
    SharedLayout,
    axis_shifts,
    log2,
    span,
)
from tilewright.simt.layouts.swizzle import accesses, transactions


def lane_ordered(
    shape: tuple[int, ...],
    order: Sequence[int],
    width: int,
    reader: LinearLayout,
    size: int,
    lanes: int,
    warps: int,
    max_access: int,
    banks: int,
) -> LinearLayout | None:
    """A layout in which a load is coalesced and its lanes can write side by side, such that
    ``reader`` reads what they write in few turns of the memory; None for a tile with too few
    elements.

    Args:
        order: the axes, the one along which addresses are consecutive first.
        width: consecutive elements that a lane copies at once.
        size: bytes of an element.
        max_access: bytes of the widest access of shared memory.
        banks: banks of 4 bytes.
    """
    shifts = axis_shifts(shape)
    atoms = [1 << shifts[axis] + bit for axis in order for bit in range(log2(shape[axis]))]
    inside = log2(width)
    if len(atoms) < inside + log2(lanes) or width > shape[order[0]]:
        return None
    plain = _layout(shape, atoms, inside, lanes, warps)
    shifted = _layout(
        shape, _shifted(atoms, plain, inside, reader, size, max_access, banks), inside, lanes, warps
    )
    return min(
        (plain, shifted),
        key=lambda layout: transactions(reader, _filled(layout, inside), size, max_access, banks)[
            1
        ],
    )


def lane_ordered_shared(layout: LinearLayout, width: int) -> SharedLayout | None:
    """The shared layout that lanes fill side by side, each with ``width`` elements at once; None
    where they hold elements twice."""
    if layout.redundant_threads()[0] or any(not image for image in layout.lanes):
        return None
    return _filled(layout, log2(width))


def _layout(
    shape: tuple[int, ...], basis: Sequence[int], inside: int, lanes: int, warps: int
) -> LinearLayout:
    threads = inside + log2(lanes), inside + log2(lanes * warps)
    of_warps = basis[threads[0] : threads[1]]
    registers = (*basis[:inside], *basis[threads[1] :])
    return LinearLayout(
        shape,
        registers,
        tuple(basis[inside : threads[0]]),
        (*of_warps, *(0,) * (log2(warps) - len(of_warps))),
    )


def _filled(layout: LinearLayout, inside: int) -> SharedLayout:
    basis = Basis(
        [
            *layout.registers[:inside],
            *layout.lanes,
            *(image for image in layout.warps if image),
            *layout.registers[inside:],
        ]
    )
    images = [basis.solve(1 << bit) for bit in range(basis.count)]
    return SharedLayout(layout.shape, tuple(image for image in images if image is not None))


def _shifted(
    atoms: Sequence[int],
    plain: LinearLayout,
    inside: int,
    reader: LinearLayout,
    size: int,
    max_access: int,
    banks: int,
) -> list[int]:
    """The basis ``atoms`` with vectors within a row of the banks added to those that begin new
    rows, so that lanes of the reader that are served together are in different banks, as far as
    that is possible."""
    width = accesses(reader, _filled(plain, inside), max(1, max_access // size)).width
    row = min(log2(banks * 4) - log2(size), len(atoms))
    # lanes that are served together, and what each of them reads
    phase = reader.lanes[: max(0, log2(banks * 4) - log2(max(4, width * size)))]
    together = max(log2(width), log2(max(1, 4 // size)))
    taken = Basis([*atoms[:together], *phase])
    shifts = span(atoms[inside:row])
    found = list(atoms[:row])
    for atom in atoms[row:]:
        best = next((atom ^ shift for shift in shifts if taken.solve(atom ^ shift) is None), atom)
        found.append(best)
        taken.add(best)
    return found
