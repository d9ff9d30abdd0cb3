"""Layout transfer functions of operations, and checks of their layouts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

from tilewright.ir.core import Operation
from tilewright.ir.ops.arithmetic import Arange
from tilewright.ir.ops.shape import Broadcast, Cat, Join, Moved, Permute, Splat, Split
from tilewright.ir.types import TileType
from tilewright.simt.dialect.attributes import layout_of
from tilewright.simt.layouts.linear_layout import LinearLayout, axis_shifts, log2

# ---- operations that only move or repeat elements: (operation, layout of its result) -> layout of
# its operands


def _reshaped(operation: Moved, layout: LinearLayout) -> LinearLayout:
    return layout.reshape(shape_of_operand(operation))


def _permuted(operation: Permute, layout: LinearLayout) -> LinearLayout:
    order = operation.order
    return layout.permute(sorted(range(len(order)), key=order.__getitem__))


def _broadcast(operation: Moved, layout: LinearLayout) -> LinearLayout:
    return layout.broadcast_source(shape_of_operand(operation))


def _joined(operation: Join, layout: LinearLayout) -> LinearLayout:
    return layout.without_axis(len(layout.shape) - 1)


def _split(operation: Moved, layout: LinearLayout) -> LinearLayout:
    return layout.joined()


def _cat(operation: Cat, layout: LinearLayout) -> LinearLayout:
    bit = _cat_bit(operation, layout.shape)
    low = (1 << bit) - 1

    def removed(images: Sequence[int]) -> list[int]:
        return [image & low | image >> bit + 1 << bit for image in images]

    basis = _Independent()
    registers = tuple([image for image in removed(layout.registers) if basis.add(image)])
    return LinearLayout(
        shape_of_operand(operation),
        registers,
        tuple(removed(layout.lanes)),
        tuple(removed(layout.warps)),
    )


def _cat_bit(operation: Cat, shape: tuple[int, ...]) -> int:
    """Return the bit of a row-major index that distinguishes b from a."""
    axis = operation.axis
    return axis_shifts(shape)[axis] + log2(shape[axis]) - 1


def _cat_result(operation: Cat, layout: LinearLayout) -> LinearLayout:
    shape = shape_of_result(operation)
    bit = _cat_bit(operation, shape)
    low = (1 << bit) - 1

    def spread(images: Sequence[int]) -> tuple[int, ...]:
        return tuple(image & low | image >> bit << bit + 1 for image in images)

    return LinearLayout(
        shape, (*spread(layout.registers), 1 << bit), spread(layout.lanes), spread(layout.warps)
    )


def _broadcast_result(operation: Moved, layout: LinearLayout) -> LinearLayout:
    """Return the result's layout of a broadcast in which each thread repeats its elements."""
    source, shape = shape_of_operand(operation), shape_of_result(operation)
    before, after = axis_shifts(source), axis_shifts(shape)
    moves = {
        before[axis] + bit: after[axis] + bit
        for axis, extent in enumerate(source)
        for bit in range(log2(extent))
    }
    new = [
        1 << after[axis] + bit
        for axis, (old, extent) in enumerate(zip(source, shape, strict=True))
        if old != extent
        for bit in range(log2(extent))
    ]

    def moved(images: Sequence[int]) -> tuple[int, ...]:
        return tuple(
            sum(1 << to for bit, to in moves.items() if image >> bit & 1) for image in images
        )

    registers = moved(layout.registers)
    # Images in the order of addresses along the last axis, so that repeated elements there stay
    # contiguous.
    ordered = (*new, *registers) if new and new[0] == 1 else (*registers, *new)
    return LinearLayout(shape, ordered, moved(layout.lanes), moved(layout.warps))


# Operations are of the classes that their rows name, which a table by name cannot tell.
Map = Callable[[Any, LinearLayout], LinearLayout]

#: Layout of the operands from that of a result.
_BACK: Final[dict[str, Map]] = {
    "expand_dims": _reshaped,
    "reshape": _reshaped,
    "permute": _permuted,
    "broadcast": _broadcast,
    "join": _joined,
    "split": _split,
    "cat": _cat,
}

#: Layout of a result from that of the operands.
_FORWARD: Final[dict[str, Map]] = {
    "expand_dims": lambda operation, layout: layout.reshape(shape_of_result(operation)),
    "reshape": lambda operation, layout: layout.reshape(shape_of_result(operation)),
    "permute": lambda operation, layout: layout.permute(operation.order),
    "broadcast": _broadcast_result,
    "join": lambda operation, layout: layout.joined(),
    "split": lambda operation, layout: layout.without_axis(len(layout.shape) - 1),
    "cat": _cat_result,
}

#: Operations on tiles whose operand layouts follow from the result's layout.
SHAPE_OPERATIONS = frozenset(_BACK)

#: Operations whose result can have any layout at no cost.
SOURCES = (Splat, Arange)


class _Independent:
    """Incremental test of images for linear independence over F2."""

    __slots__ = ("_span",)

    def __init__(self) -> None:
        self._span = {0}

    def add(self, image: int) -> bool:
        if image in self._span:
            return False
        self._span |= {image ^ other for other in self._span}
        return True


def shape_of_operand(operation: Moved | Cat) -> tuple[int, ...]:
    type_ = (operation.a if isinstance(operation, Cat) else operation.x).type
    assert isinstance(type_, TileType)
    return type_.shape


def shape_of_result(operation: Operation) -> tuple[int, ...]:
    type_ = operation.results[0].type
    assert isinstance(type_, TileType)
    return type_.shape


def result_layout(operation: Operation, operand: LinearLayout) -> LinearLayout:
    """A layout that a shape operation can give its result where its operands are in layout
    ``operand``."""
    return _FORWARD[operation.name](operation, operand)


def operand_layout(operation: Operation, result: LinearLayout) -> LinearLayout:
    """The layout of a shape operation's operands that yields its result layout ``result``, or one
    near to it."""
    return _BACK[operation.name](operation, result)


def from_operands(operation: Operation, result: LinearLayout) -> tuple[LinearLayout, LinearLayout]:
    """(the layout that a shape operation yields its result, that of its operands) nearest to the
    layout asked of the result."""
    operand = operand_layout(operation, result)
    if isinstance(operation, Join | Cat):
        return result_layout(operation, operand), operand
    return result, operand


def packed(layout: LinearLayout, pack: int) -> LinearLayout:
    """The layout nearest to this one in which groups of ``pack`` elements that follow each other
    are in registers that follow each other."""
    pack = min(pack, math.prod(layout.shape))  # a group may be as large as the tile, or larger
    bits = tuple(1 << bit for bit in range(log2(pack)))
    if layout.registers[: len(bits)] == bits:
        return layout
    low = pack - 1

    def cleared(images: Sequence[int]) -> list[int]:
        return [image & ~low for image in images]

    basis = _Independent()
    registers = [image for image in (*bits, *cleared(layout.registers)) if basis.add(image)]
    return LinearLayout(
        layout.shape, tuple(registers), tuple(cleared(layout.lanes)), tuple(cleared(layout.warps))
    )


# ---- checks of single operations


class LayoutError(AssertionError):
    """Violated layout constraint."""


def operand_layouts(operation: Operation) -> list[LinearLayout]:
    """Return the layouts of an operation's tile operands."""
    return [layout_of(value) for value in operation.operands if isinstance(value.type, TileType)]


def tile_layouts(operation: Operation) -> list[LinearLayout]:
    """Return the layouts of an operation's tile operands and results."""
    return [
        *operand_layouts(operation),
        *(layout_of(value) for value in operation.results if isinstance(value.type, TileType)),
    ]


def one_layout(operation: Operation, target: object) -> str:
    """The check of operations whose tiles are all alike."""
    return (
        ""
        if len(set(tile_layouts(operation))) <= 1
        else "operands and results must have one layout"
    )


def shape_rule(operation: Operation) -> str:
    """The rule that a shape operation breaks, or the empty string."""
    operands = operand_layouts(operation)
    results = [layout_of(value) for value in operation.results]
    if len(set(operands)) > 1 or len(set(results)) > 1:
        return "operands must have one layout, and results one"
    operand, result = operands[0], results[0]
    if isinstance(operation, Broadcast):
        holds, rule = (
            _unordered(result.broadcast_source(operand.shape)) == _unordered(operand),
            "the operand must have what the result repeats",
        )
    elif isinstance(operation, Split):
        holds, rule = (
            1 in operand.registers and _unordered(result.joined()) == _unordered(operand),
            "results must be the halves, which are in one thread",
        )
    elif isinstance(operation, Cat):
        held = 1 << _cat_bit(operation, result.shape) in result.registers
        holds, rule = (
            held and _unordered(result_layout(operation, operand)) == _unordered(result),
            "the result must be a, then b, in one thread",
        )
    else:
        holds, rule = (
            result_layout(operation, operand) == result,
            "the result's layout must follow from the operand's",
        )
    return "" if holds else rule


def _unordered(layout: LinearLayout) -> tuple[object, ...]:
    return frozenset(layout.registers), layout.lanes, layout.warps
