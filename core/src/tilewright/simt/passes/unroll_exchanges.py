"""Unrolling of loops whose counter decides over which distance the elements of a tile are
exchanged: bitonic networks become register moves and shuffles."""

from __future__ import annotations

from tilewright.ir.core import Function, Region, Value
from tilewright.ir.ops.control import For
from tilewright.ir.ops.shape import Gather
from tilewright.ir.table import Effect
from tilewright.ir.types import TileType
from tilewright.passes.effects import effects_of
from tilewright.passes.rewriter import constant_of
from tilewright.simt.analysis.xor_exchange import distance_of
from tilewright.simt.passes.unroll import bounds_of, unroll
from tilewright.simt.target.thresholds import Thresholds


def unroll_exchanges(function: Function, thresholds: Thresholds) -> bool:
    """Unroll a loop of constant bounds whose counter decides on the distance of an exchange;
    whether there was one.

    A loop whose bounds depend on the loop around it becomes one of constant bounds when that is
    unrolled and its bounds are folded: callers repeat. Loops that repeat a whole network stay.
    """
    for operation in function.walk():
        if (
            isinstance(operation, Gather)
            and (loop := _loop_to_unroll(operation, thresholds)) is not None
        ):
            unroll(loop)
            return True
    return False


def _loop_to_unroll(operation: Gather, thresholds: Thresholds) -> For | None:
    """The outermost loop that the distance of an exchange depends on, if that is computed from loop
    counters and constants alone and the tile is small."""
    distance, tile = distance_of(operation), operation.x.type
    assert isinstance(tile, TileType)
    if distance is None or constant_of(distance) is not None:
        return None
    if tile.numel > thresholds.exchange_loop_elements:
        return None
    loops = _counters(distance) or set()
    loop = next((one for one in loops if loops.isdisjoint(one.ancestors())), None)
    if loop is None or loop.unroll or loop.num_stages:
        return None
    trips = bounds_of(loop)
    if trips is None or len(trips) > thresholds.exchange_loop_trips:
        return None
    return loop


def _counters(value: Value) -> set[For] | None:
    """The loops whose counters and bounds a value is computed from; None where it depends on
    anything else."""
    found, seen, pending = set[For](), set[Value](), [value]
    while pending:
        one = pending.pop()
        if one in seen:
            continue
        seen.add(one)
        maker = one.definition
        if maker is not None:
            if (
                maker.regions
                or effects_of(maker) is not Effect.NONE
                or (not maker.operands and constant_of(one) is None)
            ):
                return None
            pending += maker.operands
            continue
        loop = one.owner.owner if isinstance(one.owner, Region) else None
        if not isinstance(loop, For) or one.index:
            return None
        found.add(loop)
        pending += [loop.lower, loop.upper, loop.step]
    return found
