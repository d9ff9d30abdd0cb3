"""Bounds checks of all accesses of a loop nest at once, in front of its loops.

The addresses of an access that grows by steps along each axis lie between those of two corners of
its tile: cut to what bounds in its mask admit, which other conditions only make less of. Where both
corners are inside, so is every active lane, and rows are written without a check. Rows of loop
nests where that does not hold are written a second time, with every active lane checked: see
:func:`~tilewright_cpu.codegen.loops.inner_loop.version_row`.

A corner's address is computed as a lane's is, in the kernel's own integers: where one of these
wraps around on the way from one corner to the other, the two are nearer to each other than the
steps say, and nothing is assumed to be inside. Two that wrap around in opposite ways could hide
that from the corners, which takes an axis along which both move: such accesses are checked lane by
lane.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from tilewright.ir.core import Value
from tilewright.ir.ops.arithmetic import Addptr, Cast
from tilewright.ir.ops.memory import Load, Store
from tilewright.ir.ops.shape import Moved, Reshape
from tilewright.ir.types import (
    I64,
    IntType,
    PointerType,
    TileType,
    bit_width,
    element_type,
    shape_of,
)
from tilewright.llvm.emission.casts import emit_cast
from tilewright.llvm.emission.registers import storage_size
from tilewright.passes.analysis.transfer_functions import unit_reshape
from tilewright_cpu.codegen.analysis.mask_bounds import (
    Axes,
    PrefixBound,
    bound_of,
    emit_limit,
    operand_axes,
    placed_conjuncts,
)
from tilewright_cpu.codegen.analysis.strides import AxisStride, stride_along
from tilewright_cpu.codegen.analysis.tiles import is_tile
from tilewright_cpu.codegen.context import ZERO, Context, Coordinate, Index, with_coordinate
from tilewright_cpu.codegen.sanitizer.bounds import bounds_of, is_checked, is_span

#: Steps beyond this many bytes are not looked at: with any tile's extents their sums are numbers of
#: 63 bits.
_MAX_STEP: Final = 1 << 38


def decidable(
    context: Context, operations: Iterable[Load | Store], several_rows: bool
) -> list[Load | Store]:
    """Accesses of a loop nest that are checked for all of it at once.

    A check for each row or strip would cost more than that.
    """
    checked = [
        operation
        for operation in dict.fromkeys(operations)
        if is_checked(context, operation) and None not in _steps(context, operation)
    ]
    found = [operation for operation in checked if _wraps_are_seen(context, operation.pointer)]
    return (
        found if several_rows or not all(is_span(context, operation) for operation in found) else []
    )


def record_passed(context: Context, operations: Iterable[Load | Store]) -> None:
    """Take loads for checked behind the statement that has read all their lanes.

    It has stopped where one was outside.
    """
    checked = [operation for operation in operations if is_checked(context, operation)]
    known = [
        operation
        for operation in checked
        if not any(
            _reads(context, operand)
            for operand in (operation.pointer, operation.mask)
            if operand is not None
        )
    ]
    context.checks.passed |= frozenset(known)


def _reads(context: Context, value: Value) -> bool:
    """Return whether evaluating a tile reads the kernel's memory."""
    stack, seen = [value], set()
    while stack:
        here = context.resolve(stack.pop())
        operation = here.definition
        if here in seen or here in context.buffers or operation is None or not is_tile(here):
            continue
        if isinstance(operation, Load):
            return True
        seen.add(here)
        stack.extend(operation.operands)
    return False


def _wraps_are_seen(context: Context, value: Value) -> bool:
    """Return whether the ends of a tile tell that it has not wrapped around in between.

    They do, where they are as far apart as the steps say, if the integers of fewer than 64 bits
    that the tile is the sum of move along axes of their own: each, wrapped around, brings the ends
    nearer to each other by its range, or by a multiple, and none takes them apart.
    """
    parts = _parts(context, value)
    if parts is None:
        return False
    moved: set[int] = set()
    for part, axes in parts:
        along = {
            axis
            for number, axis in enumerate(axes)
            if axis is not None and stride_along(context, part, number) != 0
        }
        if along & moved:
            return False
        moved |= along
    return True


def _parts(context: Context, value: Value) -> dict[tuple[Value, Axes], None] | None:
    """Tiles of integers of fewer than 64 bits that an address or a number is computed of.

    They are taken as they are before they are widened, with their axes in it; None where they have
    none in common with it.
    """
    assert isinstance(value.type, TileType)
    axes: Axes = tuple(range(value.type.rank))
    stack: list[tuple[Value, Axes]] = [(context.resolve(value), axes)]
    seen = set(stack)
    found: dict[tuple[Value, Axes], None] = dict.fromkeys(stack) if _is_narrow(value, 64) else {}
    while stack:
        here, axes = stack.pop()
        operation = here.definition
        if (
            operation is None
            or here in context.consecutive
            or not (operation.spec.elementwise or isinstance(operation, Moved | Load))
        ):
            continue
        if isinstance(operation, Moved) and not _keeps_axes(operation):
            return None
        for number, operand in enumerate(operation.operands):
            if not is_tile(operand):
                continue
            part = context.resolve(operand), operand_axes(here, axes, number)
            if isinstance(operation, Addptr | Cast) and _is_narrow(
                operand, 64 if isinstance(operation, Addptr) else bit_width(here.type)
            ):
                found[part] = None
            if part not in seen:
                seen.add(part)
                stack.append(part)
    return found


def _keeps_axes(operation: Moved) -> bool:
    return (
        not isinstance(operation, Reshape)
        or unit_reshape(shape_of(operation.x.type), shape_of(operation.result.type)) is not None
    )


def _is_narrow(value: Value, bits: int) -> bool:
    element = element_type(value.type)
    return isinstance(element, IntType) and element.bits < bits


def emit_inside(context: Context, operations: Sequence[Load | Store]) -> str:
    """An i1: whether all accesses of the operations are inside.

    It is written into the outermost scope of the loop nest.
    """
    w, result = context.writer, ""
    for operation in operations:
        inside = _inside(context, operation)
        result = w.emit(f"and i1 {result}, {inside}") if result else inside
    return result


def _steps(context: Context, operation: Load | Store) -> list[AxisStride]:
    pointer = operation.pointer
    assert isinstance(pointer.type, TileType)
    return [stride_along(context, pointer, axis) for axis in range(pointer.type.rank)]


def _inside(context: Context, operation: Load | Store) -> str:
    w, pointer = context.writer, operation.pointer
    assert isinstance(pointer.type, TileType) and isinstance(pointer.type.element, PointerType)
    shape, size = pointer.type.shape, storage_size(pointer.type.element.pointee)
    zeros: Index = (ZERO,) * len(shape)

    def address(index: Index) -> str:
        return w.emit(f"ptrtoint ptr {context.evaluate(pointer, index)} to i64")

    counts, sound = _admitted(context, operation, shape)
    low = high = zeros
    distance, empty = "0", ""
    for axis, step in enumerate(_steps(context, operation)):
        count = counts[axis]
        if not count.isdigit():
            none = w.emit(f"icmp eq i64 {count}, 0")
            empty = w.emit(f"or i1 {empty}, {none}") if empty else none
        if step == 0 or shape[axis] == 1:
            continue
        last = (
            str(int(count) - 1)
            if count.isdigit()
            else w.intrinsic("llvm.usub.sat", "i64", [("i64", count), ("i64", "1")])
        )
        if isinstance(step, int):
            ends = (ZERO, Coordinate(last)) if step > 0 else (Coordinate(last), ZERO)
            length = str(abs(step))
        else:
            moved = w.emit(
                f"sub i64 {address(with_coordinate(zeros, axis, Coordinate('1')))}, "
                f"{address(zeros)}"
            )
            grows = w.emit(f"icmp sgt i64 {moved}, 0")
            first, second = (
                w.emit(f"select i1 {grows}, i64 {a}, i64 {b}")
                for a, b in (("0", last), (last, "0"))
            )
            ends = Coordinate(first), Coordinate(second)
            length = w.emit(f"select i1 {grows}, i64 {moved}, i64 {w.emit(f'sub i64 0, {moved}')}")
            sound.append(w.emit(f"icmp ult i64 {length}, {_MAX_STEP}"))
        low, high = with_coordinate(low, axis, ends[0]), with_coordinate(high, axis, ends[1])
        distance = w.emit(f"add i64 {distance}, {w.emit(f'mul i64 {last}, {length}')}")
    lowest, highest = address(low), address(high)
    sound.append(w.emit(f"icmp eq i64 {w.emit(f'sub i64 {highest}, {lowest}')}, {distance}"))
    inside = ""
    for argument in context.state.checks.accesses[operation]:
        start, room = bounds_of(context, argument, size)
        here = [
            w.emit(f"icmp ult i64 {w.emit(f'sub i64 {end}, {start}')}, {room}")
            for end in (lowest, highest)
        ]
        both = w.emit(f"and i1 {here[0]}, {here[1]}")
        inside = w.emit(f"or i1 {inside}, {both}") if inside else both
    for one in sound:
        inside = w.emit(f"and i1 {inside}, {one}")
    return w.emit(f"or i1 {inside}, {empty}") if empty else inside


def _admitted(
    context: Context, operation: Load | Store, shape: Sequence[int]
) -> tuple[list[str], list[str]]:
    """Number of coordinates along each axis that the mask's bounds admit, from 0 on (i64).

    The second result are the conditions (i1) under which that is so.
    """
    w, mask = context.writer, operation.mask
    counts: list[str] = [str(extent) for extent in shape]
    sound: list[str] = []
    if mask is None:
        return counts, sound
    for leaf, axes in placed_conjuncts(context, mask, tuple(range(len(shape)))):
        moving = [
            axis
            for number, axis in enumerate(axes)
            if axis is not None and stride_along(context, leaf, number) != 0
        ]
        bound = bound_of(context, leaf, axes, moving[0]) if len(moving) == 1 else None
        if bound is None or not _wraps_are_seen(context, bound.moving):
            continue
        axis = moving[0]
        limit = emit_limit(context, bound, (ZERO,) * len(shape), shape[axis])
        counts[axis] = (
            limit
            if counts[axis].isdigit()
            else w.intrinsic("llvm.umin", "i64", [("i64", counts[axis]), ("i64", limit)])
        )
        sound += _steady(context, bound, shape[axis])
    return counts, sound


def _steady(context: Context, bound: PrefixBound, extent: int) -> list[str]:
    """The condition under which what a bound compares does not wrap around along its axis."""
    w, element = context.writer, element_type(bound.moving.type)
    row: Index = (ZERO,) * len(bound.axes)
    ends = [
        context.evaluate(bound.moving, with_coordinate(row, bound.axis, Coordinate(at)))
        for at in ("0", str(extent - 1))
    ]
    first, last = (emit_cast(context, text, element, I64, 0) for text in ends)
    return [
        w.emit(f"icmp eq i64 {w.emit(f'sub i64 {last}, {first}')}, {bound.step * (extent - 1)}")
    ]
