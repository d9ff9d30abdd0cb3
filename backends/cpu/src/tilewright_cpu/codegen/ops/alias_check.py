"""Run-time alias checks of loads that the loop nest of a store reads strip by strip.

A program loads a tile as a whole before it stores what it makes of it. The loop nest of the store
reads the load just before each strip instead, which is the same unless a strip that is stored lies
where a later one is read. Where the addresses of both are sums of strides, their ranges are
compared when the kernel runs, once a store: where they meet, the load is copied first, and the loop
nest reads the copy by the same instructions, from another address.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from tilewright.ir.core import Value
from tilewright.ir.ops.arithmetic import Addptr
from tilewright.ir.ops.memory import Load, Store
from tilewright.ir.ops.shape import Splat
from tilewright.ir.types import PointerType, TileType, Type, element_type
from tilewright.llvm.emission.registers import storage_size
from tilewright.passes.analysis.intervals import interval_of
from tilewright_cpu.codegen.analysis.strides import stride_along
from tilewright_cpu.codegen.analysis.tiles import is_tile
from tilewright_cpu.codegen.context import (
    ZERO,
    Context,
    Coordinate,
    Copy,
    Index,
    lane_axis,
    with_coordinate,
)
from tilewright_cpu.codegen.loops.evaluate import as_vector, evaluate, store_strip
from tilewright_cpu.codegen.loops.loop_nest import NestPlan, identity
from tilewright_cpu.codegen.loops.materialize import complete_partial, settle, write_rows


def is_comparable(context: Context, pointer: Value) -> bool:
    """Return whether a tile's range of addresses is found without looking at each.

    They are sums of strides along all axes, or along all but one that is short; or offsets from one
    address that have limits.
    """
    assert isinstance(pointer.type, TileType)
    listed = _listed(context, pointer)
    if listed and _limits(context, pointer) is not None:
        return True
    if len(listed) == 1:
        return pointer.type.shape[listed[0]] * _ROW <= pointer.type.numel
    return not listed


#: Bytes between the limits of a tile's offsets, at most: what lies between may well be other tiles.
_SPAN: Final = 1 << 20
#: An axis whose addresses are compared one by one has to be this many times shorter than the tile.
_ROW: Final = 16


def _listed(context: Context, pointer: Value) -> list[int]:
    """The axes along which the addresses go by no stride."""
    assert isinstance(pointer.type, TileType)
    return [
        axis for axis in range(pointer.type.rank) if stride_along(context, pointer, axis) is None
    ]


def _limits(context: Context, pointer: Value) -> tuple[Value, int, int] | None:
    """Find the scalar that all pointers of a tile are offset from, with the limits in bytes.

    The tile lies from the first limit to before the second.
    """
    first, end = 0, _size(pointer)
    while True:
        operation = context.resolve(pointer).definition
        if isinstance(operation, Splat):
            return (operation.x, first, end) if end - first <= _SPAN else None
        if not isinstance(operation, Addptr):
            return None
        interval = interval_of(operation.offset)
        if interval is None:
            return None
        first += interval[0] * _size(pointer)
        end += interval[1] * _size(pointer)
        pointer = operation.pointer


class _Extent(NamedTuple):
    """The bytes that a tile of pointers leads to: i64 operands.

    ``base`` is the address of the first element, ``steps`` are the bytes from one element to the
    next along each axis of more than one ("0" where there is no such number); the tile lies in
    ``first`` .. ``end`` - 1.
    """

    base: str
    steps: tuple[str, ...]
    first: str
    end: str


def plan_copies(context: Context) -> list[NestPlan]:
    """Plan the copies of the loads to be compared with the store at hand; before its own nest."""
    plans = []
    for value in context.compared:
        if value in context.buffers:
            continue
        definition = value.definition
        assert isinstance(definition, Load) and isinstance(value.type, TileType)
        for operand in definition.operands:
            if is_tile(operand):
                settle(context, operand)
        plan = NestPlan(context, value.type.shape, [(value, identity(value.type.rank))])
        if plan.fresh:
            context.materialize(value)
            continue
        complete_partial(plan, frozenset())
        # copies are seldom made: little code counts for more than speed
        plan.unroll = 1
        if context.state.hardware.can("mask"):
            plan.without_versions()
        plans.append(plan)
    return plans


def copy_overlapping(context: Context, store: Store, lane: int, plans: list[NestPlan]) -> None:
    """Write the comparison, and the copies behind a branch; ``lane`` is the store's axis of lanes.

    What the loop nest that follows has to know of the copies is left in ``context.copies``.
    """
    plans = [plan for plan in plans if plan.roots[0][0] not in context.buffers]
    if not plans:
        return
    writer = context.writer
    with context.nest():
        meets = "false"
        for plan in plans:
            load = plan.roots[0][0].definition
            assert isinstance(load, Load)
            text = may_meet(context, load.pointer, store.pointer)
            meets = text if meets == "false" else writer.emit(f"or i1 {meets}, {text}")
    apart, copying = writer.new_block("apart"), writer.new_block("overlapping")
    writer.branch_if(writer.emit(f"xor i1 {meets}, true"), apart, copying, likely=True)
    writer.place(copying)
    lines, mark = context.lines, writer.mark
    if lines is not None:
        # the copies are no access of the author's: explanations and profiles say nothing of them
        context.lines, writer.mark = None, lines.generated
    for plan in plans:
        value = plan.roots[0][0]
        strides = _strides(plan.shape, lane)
        element: Type = value.type.element  # type: ignore[attr-defined]
        pointer = context.scratch(math.prod(plan.shape) * storage_size(element))

        def write(
            index: Index,
            value: Value = value,
            strides: tuple[int, ...] = strides,
            element: Type = element,
            pointer: str = pointer,
        ) -> None:
            at = lane_axis(index)
            text = as_vector(context, value, index, index[at].width if at >= 0 else 0)
            store_strip(context, pointer, strides, element, index, text)

        with context.nest():
            write_rows(plan, write)
        context.copies[value] = Copy(meets, pointer, strides)
    context.lines, writer.mark = lines, mark
    writer.branch(apart)
    writer.place(apart)


def _strides(shape: tuple[int, ...], lane: int) -> tuple[int, ...]:
    """Elements from one coordinate to the next in a dense copy whose lanes are neighbours."""
    found, step = [0] * len(shape), 1
    axes = sorted(range(len(shape)), key=lambda axis: (axis == lane, axis), reverse=True)
    for axis in axes:
        found[axis] = step
        step *= shape[axis]
    return tuple(found)


# ---- the comparison


def _extent(context: Context, pointer: Value) -> _Extent:
    writer, type_ = context.writer, pointer.type
    assert isinstance(type_, TileType) and isinstance(type_.element, PointerType)
    limits = _limits(context, pointer) if _listed(context, pointer) else None
    if limits is not None:
        scalar, low, high = limits
        base = writer.emit(f"ptrtoint ptr {context.scalar(scalar)} to i64")
        first, end = (writer.emit(f"add i64 {base}, {number}") for number in (low, high))
        return _Extent(base, ("0",) * type_.rank, first, end)
    zeros: Index = (ZERO,) * type_.rank
    base = writer.emit(f"ptrtoint ptr {evaluate(context, pointer, zeros)} to i64")
    steps: list[str] = []
    first, end, fixed_first, fixed_end = base, base, 0, storage_size(type_.element.pointee)
    listed = _listed(context, pointer)
    if listed:
        first, end = _range(context, pointer, listed[0], base)
    for axis, extent in enumerate(type_.shape):
        if extent == 1:
            continue
        if axis in listed:
            steps.append("0")
            continue
        step = stride_along(context, pointer, axis)
        if isinstance(step, int):
            steps.append(str(step))
            fixed_first += min(0, step * (extent - 1))
            fixed_end += max(0, step * (extent - 1))
            continue
        second = evaluate(context, pointer, with_coordinate(zeros, axis, Coordinate("1")))
        distance = writer.emit(f"sub i64 {writer.emit(f'ptrtoint ptr {second} to i64')}, {base}")
        steps.append(distance)
        reach = ("i64", writer.emit(f"mul i64 {distance}, {extent - 1}"))
        below = writer.intrinsic("llvm.smin", "i64", [reach, ("i64", "0")])
        above = writer.intrinsic("llvm.smax", "i64", [reach, ("i64", "0")])
        first = writer.emit(f"add i64 {first}, {below}")
        end = writer.emit(f"add i64 {end}, {above}")
    if fixed_first:
        first = writer.emit(f"add i64 {first}, {fixed_first}")
    return _Extent(base, tuple(steps), first, writer.emit(f"add i64 {end}, {fixed_end}"))


def _range(context: Context, pointer: Value, axis: int, base: str) -> tuple[str, str]:
    """The lowest and the highest address along an axis, where the other coordinates are 0."""
    writer = context.writer
    assert isinstance(pointer.type, TileType)
    zeros: Index = (ZERO,) * pointer.type.rank
    carried = [("i64", base), ("i64", base)]
    with context.loop("0", str(pointer.type.shape[axis]), 1, carried, nonempty=True) as (loop, at):
        here = evaluate(context, pointer, with_coordinate(zeros, axis, at))
        number = ("i64", writer.emit(f"ptrtoint ptr {here} to i64"))
        low, high = (("i64", value) for value in loop.values)
        loop.next_values = [
            writer.intrinsic("llvm.umin", "i64", [low, number]),
            writer.intrinsic("llvm.umax", "i64", [high, number]),
        ]
    context.scopes[-1].block = writer.current
    first, last = loop.results
    return first, last


def may_meet(context: Context, loaded: Value, stored: Value) -> str:
    """An i1: whether a strip that is stored may lie where a later one is loaded from.

    Where ``loaded`` is what an earlier store writes: whether its later strips may write over the
    other's.
    """
    writer = context.writer
    row = _row_step(context, loaded), _row_step(context, stored)
    if row[0] and row[0] == row[1]:
        # strips go upwards in memory: what is stored at or before its source is read already
        here, there = (_first(context, pointer) for pointer in (loaded, stored))
        length = row[0] * (loaded.type.numel - 1) + _size(loaded)  # type: ignore[attr-defined]
        end = writer.gep("i8", here, str(length))
        behind = writer.emit(f"icmp ult ptr {here}, {there}")
        below = writer.emit(f"icmp ult ptr {there}, {end}")
        return writer.emit(f"and i1 {behind}, {below}")
    source, target = _extent(context, loaded), _extent(context, stored)
    below = writer.emit(f"icmp ult i64 {source.first}, {target.end}")
    above = writer.emit(f"icmp ult i64 {target.first}, {source.end}")
    meets = writer.emit(f"and i1 {below}, {above}")
    if len(source.steps) != len(target.steps) or "0" in source.steps:
        return meets
    # in place, element by element: each is read and then written by its own strip
    differs = writer.emit(f"icmp ne i64 {source.base}, {target.base}")
    for one, other in zip(source.steps, target.steps, strict=True):
        if one != other:
            unequal = writer.emit(f"icmp ne i64 {one}, {other}")
            differs = writer.emit(f"or i1 {differs}, {unequal}")
    return writer.emit(f"and i1 {meets}, {differs}")


def _size(pointer: Value) -> int:
    element = element_type(pointer.type)
    assert isinstance(element, PointerType)
    return storage_size(element.pointee)


def _first(context: Context, pointer: Value) -> str:
    assert isinstance(pointer.type, TileType)
    return evaluate(context, pointer, (ZERO,) * pointer.type.rank)


def _row_step(context: Context, pointer: Value) -> int:
    """The bytes from one element to the next of a tile of one axis.

    0 where it has several axes, or its elements overlap or go downwards in memory.
    """
    assert isinstance(pointer.type, TileType)
    axes = [axis for axis, extent in enumerate(pointer.type.shape) if extent > 1]
    steps = [stride_along(context, pointer, axis) for axis in axes]
    step = steps[0] if len(steps) == 1 else 0
    return step if isinstance(step, int) and step >= _size(pointer) else 0
