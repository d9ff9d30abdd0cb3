"""Lowering of operations that only rename registers: elements stay in their threads.

Operands and results differ by a linear map of row-major numbers. A thread's part of a number maps
to its part of the other, so the register that holds an element is found from the registers' parts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.ir.core import Operation, Value
from tilewright.ir.ops.shape import Broadcast, Cat, Join, Moved, Permute, Split
from tilewright.ir.types import TileType, shape_of
from tilewright.simt.dialect.op_interface import Interface
from tilewright.simt.dialect.registry import register_interfaces
from tilewright.simt.layouts.linear_layout import (
    LinearLayout,
    axis_shifts,
    coordinates,
    log2,
    row_major,
    span,
)
from tilewright.simt.lowering.emission.context import SimtContext


def numbered(context: SimtContext, value: Value) -> dict[int, str]:
    """Return a tile's registers by their offsets from the number of the thread's first element."""
    return dict(
        zip(context.layout(value).register_elements(), context.registers[value], strict=True)
    )


def _rename(context: SimtContext, operation: Moved) -> None:
    """Bind the result, whose element n is element ``source(n)`` of the operand."""
    held, result = numbered(context, operation.x), operation.results[0]
    context.bind(
        result, [held[number] for number in source_elements(operation, context.layout(result))]
    )


def _same_number(operation: Moved) -> Callable[[int], int]:
    """Return the identity: ``reshape`` and ``expand_dims`` preserve row-major numbers."""
    return lambda number: number


def _broadcast_number(operation: Broadcast) -> Callable[[int], int]:
    source, target = shape_of(operation.x.type), shape_of(operation.result.type)

    def narrowed(number: int) -> int:
        return row_major(
            [
                point if extent > 1 else 0
                for point, extent in zip(coordinates(number, target), source, strict=True)
            ],
            source,
        )

    return narrowed


def _permuted_number(operation: Permute) -> Callable[[int], int]:
    order = operation.order
    source, target = shape_of(operation.x.type), shape_of(operation.result.type)

    def moved(number: int) -> int:
        point = coordinates(number, target)
        return row_major([point[order.index(axis)] for axis in range(len(order))], source)

    return moved


#: For operations with one operand: the map from row-major numbers of the result to the operand's.
SOURCE_NUMBERS: dict[str, Callable[[Any], Callable[[int], int]]] = {
    "reshape": _same_number,
    "expand_dims": _same_number,
    "broadcast": _broadcast_number,
    "permute": _permuted_number,
}


def source_elements(operation: Operation, layout: LinearLayout) -> list[int]:
    """Return the operand's element offset for each register of the result, in ``layout``.

    Offsets are relative to the thread's part; the maps move bits, and so are linear.
    """
    source = SOURCE_NUMBERS[operation.name](operation)
    return span([source(image) for image in layout.registers])


def lower_cat(context: SimtContext, operation: Cat) -> None:
    """Select the operand by the highest bit of the coordinate along the axis."""
    axis, result = operation.axis, operation.result
    source, target = shape_of(operation.a.type), shape_of(result.type)
    operands = [numbered(context, value) for value in (operation.a, operation.b)]
    top = 1 << (axis_shifts(target)[axis] + log2(source[axis]))

    def held(number: int) -> str:
        return operands[bool(number & top)][row_major(coordinates(number & ~top, target), source)]

    context.bind(result, [held(number) for number in context.layout(result).register_elements()])


def lower_join(context: SimtContext, operation: Join) -> None:
    operands, result = (
        [numbered(context, value) for value in (operation.a, operation.b)],
        operation.result,
    )
    context.bind(
        result,
        [
            operands[number & 1][number >> 1]
            for number in context.layout(result).register_elements()
        ],
    )


def lower_split(context: SimtContext, operation: Split) -> None:
    held = numbered(context, operation.x)
    for half, result in enumerate(operation.results):
        numbers = (
            context.layout(result).register_elements() if isinstance(result.type, TileType) else [0]
        )
        context.bind(result, [held[number << 1 | half] for number in numbers])


INTERFACES = register_interfaces(
    {
        **{name: Interface(_rename) for name in SOURCE_NUMBERS},
        "cat": Interface(lower_cat),
        "join": Interface(lower_join),
        "split": Interface(lower_split),
    }
)
