"""Axis attributes of tiles whose elements are moved, repeated or put together from others'."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from tilewright.ir.ops.shape import (
    Broadcast,
    Cat,
    ExpandDims,
    Gather,
    Join,
    Permute,
    Reshape,
    Splat,
    Split,
    Unsplat,
)
from tilewright.ir.types import shape_of
from tilewright.passes.analysis.axis_info import (
    AxisInfo,
    any_element,
    join,
    unit_of,
    unknown,
)


def _splat(operation: Splat, x: AxisInfo) -> AxisInfo:
    shape = shape_of(operation.result.type)
    return AxisInfo(
        (1,) * len(shape), x.divisibility * len(shape), shape, x.constant, x.nonnegative
    )


def _broadcast(operation: Broadcast, x: AxisInfo) -> AxisInfo:
    before, after = shape_of(operation.x.type), shape_of(operation.result.type)
    constancy = tuple(
        [new if old == 1 else run for old, new, run in zip(before, after, x.constancy, strict=True)]
    )
    return replace(x, constancy=constancy)


def _expand_dims(operation: ExpandDims, x: AxisInfo) -> AxisInfo:
    axis = operation.axis
    all_ = x.divisibility_of_all(unit_of(operation.result.type))

    def widened(entries: tuple[int, ...], entry: int) -> tuple[int, ...]:
        return (*entries[:axis], entry, *entries[axis:])

    return AxisInfo(
        widened(x.contiguity, 1),
        widened(x.divisibility, all_),
        widened(x.constancy, 1),
        x.constant,
        x.nonnegative,
    )


def _permute(operation: Permute, x: AxisInfo) -> AxisInfo:
    order = operation.order
    contiguity, divisibility, constancy = (
        tuple([entries[axis] for axis in order])
        for entries in (x.contiguity, x.divisibility, x.constancy)
    )
    return AxisInfo(contiguity, divisibility, constancy, x.constant, x.nonnegative)


def _reshape(operation: Reshape, x: AxisInfo) -> AxisInfo:
    """Row-major order keeps runs along the last of axes that are merged or divided."""
    before, after = shape_of(operation.x.type), shape_of(operation.result.type)
    unit = unit_of(operation.result.type)
    contiguity, constancy = [1] * len(after), [1] * len(after)
    divisibility = [x.divisibility_of_all(unit)] * len(after)
    if x.constancy == before:
        constancy = list(after)
    elif not operation.reorder:
        for old, new in _parts_of_reshape(before, after):
            run = math.gcd(x.contiguity[old[-1]], before[old[-1]], after[new[-1]])
            contiguity[new[-1]], divisibility[new[-1]] = run, x.divisibility_at(old[-1], run, unit)
            equal = _equal_in_a_row(
                [before[axis] for axis in old], [x.constancy[axis] for axis in old]
            )
            for axis in reversed(new):
                constancy[axis] = math.gcd(equal, after[axis])
                if constancy[axis] != after[axis]:
                    break
                equal //= after[axis]
    return AxisInfo(
        tuple(contiguity), tuple(divisibility), tuple(constancy), x.constant, x.nonnegative
    )


def _parts_of_reshape(
    before: Sequence[int], after: Sequence[int]
) -> list[tuple[list[int], list[int]]]:
    """The axes of more than one element of both shapes, in the smallest parts that have as many
    elements in both."""
    old, new = (
        [axis for axis, extent in enumerate(shape) if extent > 1] for shape in (before, after)
    )
    found = []
    while old and new:
        mine, theirs = [old.pop()], [new.pop()]
        while (held := math.prod(before[axis] for axis in mine)) != (
            wanted := math.prod(after[axis] for axis in theirs)
        ):
            if held < wanted:
                mine.insert(0, old.pop())
            else:
                theirs.insert(0, new.pop())
        found.append((mine, theirs))
    return found


def _equal_in_a_row(shape: Sequence[int], constancy: Sequence[int]) -> int:
    """The length of aligned runs of equal elements in row-major order."""
    found = 1
    for extent, run in zip(reversed(shape), reversed(constancy), strict=True):
        found *= math.gcd(run, extent)
        if run % extent:
            break
    return found


def _split(operation: Split, x: AxisInfo) -> AxisInfo:
    """Each half has every other element of the last axis, whole runs along the others."""
    if x.rank == 1:
        return any_element(x, operation.x.type)
    contiguity, divisibility, constancy = (
        entries[:-1] for entries in (x.contiguity, x.divisibility, x.constancy)
    )
    return AxisInfo(contiguity, divisibility, constancy, x.constant, x.nonnegative)


def joined(operation: Join, a: AxisInfo, b: AxisInfo) -> AxisInfo:
    """Neighbors along the new axis are elements of a and b at one place, of which nothing is known
    together."""
    unit = unit_of(operation.result.type)
    each = join(a, b, unit)
    return AxisInfo(
        (*each.contiguity, 1),
        (*each.divisibility, each.divisibility_of_all(unit)),
        (*each.constancy, 1 if each.constant is None else 2),
        each.constant,
        each.nonnegative,
    )


def concatenated(operation: Cat, a: AxisInfo, b: AxisInfo) -> AxisInfo:
    """Runs along the axis stay where b begins at a multiple of their length."""
    unit, axis = unit_of(operation.result.type), operation.axis
    begin = shape_of(operation.a.type)[axis]
    each = join(a, b, unit)
    contiguity, divisibility, constancy = (
        list(entries) for entries in (each.contiguity, each.divisibility, each.constancy)
    )
    contiguity[axis] = math.gcd(contiguity[axis], begin)
    constancy[axis] = math.gcd(constancy[axis], begin)
    divisibility[axis] = each.divisibility_at(axis, contiguity[axis], unit)
    return AxisInfo(
        tuple(contiguity), tuple(divisibility), tuple(constancy), each.constant, each.nonnegative
    )


def picked(operation: Gather, x: AxisInfo, index: AxisInfo) -> AxisInfo:
    """Elements of x in any order along an axis: equal for equal indices, and for all where x is the
    same along it."""
    known, axis = unknown(operation.result.type), operation.axis
    constancy = list(index.constancy)
    if x.constancy[axis] % shape_of(operation.x.type)[axis] == 0:
        constancy = list(x.constancy)
        constancy[axis] = shape_of(operation.result.type)[axis]
    else:
        constancy = [
            run if along == axis else math.gcd(run, x.constancy[along])
            for along, run in enumerate(constancy)
        ]
    divisibility = (x.divisibility_of_all(unit_of(operation.result.type)),) * known.rank
    return AxisInfo(known.contiguity, divisibility, tuple(constancy), x.constant, x.nonnegative)


def _unsplat(operation: Unsplat, x: AxisInfo) -> AxisInfo:
    return any_element(x, operation.x.type)


MOVED: dict[str, Callable[[Any, AxisInfo], AxisInfo]] = {
    "splat": _splat,
    "broadcast": _broadcast,
    "expand_dims": _expand_dims,
    "permute": _permute,
    "reshape": _reshape,
    "split": _split,
    "unsplat": _unsplat,
}

__all__ = ["MOVED", "concatenated", "joined", "picked"]
