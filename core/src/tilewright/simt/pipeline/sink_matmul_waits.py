"""Sinking of waits for matmuls: independent matmuls of a loop are in flight together.

    %s, %t = simt.dot_start ...                     %s, %t = simt.dot_start ...
    %s1 = simt.wait %t, %s                          %p, %u = simt.dot_start ...
    %p, %u = simt.dot_start ...            ->       %s1 = simt.wait %t, %s
    %p1 = simt.wait %u, %p                          ... what reads %s1
    ... what reads %s1                              %p1 = simt.wait %u, %p
    ... what reads %p1                              ... what reads %p1

A wait moves down to the first operation that depends on it, if another matmul starts in between.
Matmuls complete in order, so each wait leaves those in flight that started later
(:mod:`tilewright.simt.dialect.async_groups`). A wait does not pass what may release or overwrite
the shared memory that its matmul reads, and stays where the registers of an operand, which are kept
until the wait, would raise the register pressure.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.core import Operation, Region
from tilewright.ir.table import Effect
from tilewright.passes.effects import effects_of
from tilewright.simt.analysis.register_pressure import peak_words_in
from tilewright.simt.dialect.attributes import part_of
from tilewright.simt.dialect.loop_carried import is_repeated
from tilewright.simt.dialect.ops.async_copy import Wait
from tilewright.simt.dialect.ops.dot import DotStart
from tilewright.simt.dialect.types import MATMULS


def sink_matmul_waits(waits: Sequence[Wait]) -> None:
    """Move waits for single matmuls in loops down, where that starts an independent matmul earlier.

    Only consumers of warp-specialized loops have registers to spare for that: others hold addresses
    of copies. ``waits`` are in program order, each behind the start of its matmul.
    """
    together: dict[Region, list[Wait]] = {}
    for wait in waits:
        assert wait.parent is not None
        if is_repeated(wait) and part_of(wait) is not None:
            together.setdefault(wait.parent, []).append(wait)
    for region, found in together.items():
        places = [(wait, wait.next) for wait in found]
        # one after the other: those that only follow must not stand before those that overlap
        moved = [_sink(wait, region) for wait in found]
        if not any(moved):
            for wait, behind in reversed(places):
                assert behind is not None
                wait.move_before(behind)


def _sink(wait: Wait, region: Region) -> bool:
    """Move a wait down, unless that takes more registers.

    Return whether it passed the start of another matmul.
    """
    behind, before = wait.next, peak_words_in(region)
    assert behind is not None
    place, overlaps = _place(wait)
    wait.move_before(place)
    if peak_words_in(region) <= before:
        return overlaps
    wait.move_before(behind)
    return False


def _place(wait: Wait) -> tuple[Operation, bool]:
    """Return the operation that a wait must precede, and whether a matmul starts before it."""
    following, overlaps = wait.next, False
    assert following is not None
    while not (following.spec.terminator or _depends(following, wait) or not _passes(following)):
        overlaps = overlaps or isinstance(following, DotStart)
        following = following.next
        assert following is not None
    return following, overlaps


def _depends(operation: Operation, wait: Wait) -> bool:
    results = set(wait.results)
    return any(operand in results for operand in operation.operands) or any(
        operand in results
        for region in operation.regions
        for inner in region.walk()
        for operand in inner.operands
    )


def _passes(operation: Operation) -> bool:
    if isinstance(operation, DotStart):
        return True
    if isinstance(operation, Wait):
        return all(token.type is MATMULS for token in operation.tokens)
    return not effects_of(operation) & (Effect.WRITE | Effect.ORDER)
