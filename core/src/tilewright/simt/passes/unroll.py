"""Loops of constant bounds, written out before layouts are assigned."""

from __future__ import annotations

import math
from typing import Any, Final

from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Value
from tilewright.ir.ops.control import For, While
from tilewright.ir.ops.linear import Dot, DotScaled
from tilewright.ir.ops.memory import Load
from tilewright.ir.ops.shape import Gather
from tilewright.ir.types import IntType, TileType
from tilewright.passes.clone import clone_operation
from tilewright.passes.rewriter import constant_of
from tilewright.simt.target.thresholds import Thresholds

#: Operations whose loops stay.
_KEPT: Final = (Dot, DotScaled, Gather)


def bounds_of(loop: For) -> range | None:
    """The counter's values; None where they are not constant."""
    lower, upper, step = (constant_of(value) for value in (loop.lower, loop.upper, loop.step))
    if (
        not isinstance(lower, int)
        or not isinstance(upper, int)
        or not isinstance(step, int)
        or step <= 0
    ):
        return None
    return range(lower, upper, step)


def unroll(loop: For) -> None:
    """Write a loop of constant bounds out."""
    trips = bounds_of(loop)
    parent = loop.parent
    assert trips is not None and parent is not None
    induction, *carried = loop.body.arguments
    values: list[Value] = list(loop.inits)
    for number in trips:
        assert isinstance(induction.type, IntType)
        mapping: dict[Any, Value] = {
            induction: Builder(parent, loop, loop.location).constant(
                value=number, result=induction.type
            )
        }
        mapping.update(zip(carried, values, strict=True))
        for operation in loop.body:
            if operation.spec.terminator:
                values = [mapping.get(value, value) for value in operation.operands]
            else:
                parent.insert_before(clone_operation(operation, mapping), loop)
    for result, value in zip(loop.results, values, strict=True):
        result.replace_all_uses(value)
    loop.erase()


def unroll_short_loops(function: Function, thresholds: Thresholds) -> bool:
    """Unroll innermost loops that load, of few iterations and little work; whether there were any.

    Loads of all iterations are then in flight together, and warps that store nothing skip what only
    stores need. Code generators keep such loops: their loads are assembly. Loops of matmuls stay
    for the pipeline, and loops of exchanges for :mod:`tilewright.simt.analysis.xor_exchange`.
    """
    loops = [
        operation
        for operation in function.walk()
        if isinstance(operation, For) and _is_short(operation, thresholds)
    ]
    for loop in loops:
        unroll(loop)
    return bool(loops)


def _is_short(loop: For, thresholds: Thresholds) -> bool:
    trips = bounds_of(loop)
    if trips is None or loop.unroll or loop.num_stages:
        return False
    if len(trips) > thresholds.short_loop_trips:
        return False
    elements, loads = 0, False
    for operation in loop.walk():
        if operation is not loop and isinstance(operation, (For, While, *_KEPT)):
            return False
        loads = loads or isinstance(operation, Load)
        elements += sum(
            math.prod(result.type.shape)
            for result in operation.results
            if isinstance(result.type, TileType)
        )
    return loads and elements * len(trips) <= thresholds.short_loop_elements
