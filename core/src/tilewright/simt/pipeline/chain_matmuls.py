"""Chaining of matmuls: one that adds to another's result starts without a wait for it.

    %s, %t = simt.dot_start %a, %b, %c              %s, %t = simt.dot_start %a, %b, %c
    %s1 = simt.wait %t, %s                   ->     %r, %u = simt.dot_start %d, %e, %s
    %r, %u = simt.dot_start %d, %e, %s1             %r1 = simt.wait %u, %r
    %r1 = simt.wait %u, %r

Matmuls complete in order, and those of one shape accumulate in the same registers one after the
other. A wait between them would leave the matrix unit idle while it drains.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.core import Operation
from tilewright.ir.table import Effect
from tilewright.passes.effects import effects_of
from tilewright.simt.dialect.attributes import layout_of
from tilewright.simt.dialect.ops.async_copy import Wait
from tilewright.simt.dialect.ops.dot import DotStart
from tilewright.simt.dialect.types import MATMULS


def chain_matmuls(waits: Sequence[Wait]) -> list[Wait]:
    """Remove waits for matmuls whose result only the next matmul reads, as its accumulator.

    ``waits`` are in program order, each behind the start of its matmul; return those that are left.
    What the removed ones keep in registers, the next matmul's wait keeps.
    """
    left = list(waits)
    for wait in waits:
        following = _continued_by(wait)
        behind = None if following is None else _wait_for(following, left)
        if following is None or behind is None:
            continue
        following.set_operand(following.operands.index(following.c), wait.tiles[0])
        if wait.held:
            _hold(behind, wait)
        left.remove(wait)
        wait.erase()
    return left


def _continued_by(wait: Wait) -> DotStart | None:
    """Return the matmul that alone reads what a wait for a matmul returns, as its accumulator."""
    if len(wait.tokens) != 1 or wait.tokens[0].type is not MATMULS or len(wait.tiles) != 1:
        return None
    tile, (result,) = wait.tiles[0], wait.results
    following: Operation | None = wait.next
    while following is not None and not isinstance(following, DotStart):
        if effects_of(following) & (Effect.WRITE | Effect.ORDER):
            # it may release what the matmul reads
            return None
        following = following.next
    if (
        following is None
        or following.c is not result
        or dict(result.uses) != {following: 1}
        or layout_of(tile) != layout_of(following.results[0])
    ):
        return None
    return following


def _wait_for(start: DotStart, waits: Sequence[Wait]) -> Wait | None:
    """Return the wait for a matmul alone, in its region, if there is one."""
    token = start.results[1]
    return next(
        (wait for wait in waits if list(wait.tokens) == [token] and wait.parent is start.parent),
        None,
    )


def _hold(wait: Wait, earlier: Wait) -> None:
    """Keep in registers until a wait what an earlier one keeps, too."""
    tokens, tiles, held = wait.tokens, wait.tiles, wait.held
    wait.replace_operands(
        (*tokens, *tiles, *held, *earlier.held),
        (len(tokens), len(tiles), len(held) + len(earlier.held)),
    )
