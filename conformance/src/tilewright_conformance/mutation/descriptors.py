"""Bugs of tensor descriptors."""

from __future__ import annotations

from typing import Any

from tilewright.ir import Builder, Operation, Value
from tilewright.ir.types import DescriptorType, TileType, shape_of
from tilewright_conformance.mutation.mutant import Switch, rewriting
from tilewright_conformance.mutation.rewriting import (
    CHANGED,
    Rewrite,
    again,
    as_type,
    element,
    like,
)


def _zero_padding(operation: Operation, b: Builder) -> Any:
    if operation.attribute("padding") == "zero":
        return None
    operation.attributes["padding"] = "zero"
    return CHANGED


def _dense(operation: Operation, b: Builder) -> Any:
    """Strides of a dense tensor of the extents, whatever the strides given."""
    base, extents, strides = (
        operation.operands[0],
        operation.group("shape"),
        operation.group("strides"),
    )
    dense: list[Value] = [like(b, strides[-1], 1)]
    for extent in reversed(extents[1:]):
        wide = as_type(b, extent, element(dense[0])) if extent.type is not dense[0].type else extent
        dense.insert(0, b.mul(dense[0], wide))
    operation.replace_operands([base, *extents, *dense], operation.segments)
    return CHANGED


def _moved(operation: Operation, b: Builder, move: Any) -> Any:
    """The block at ``move(offset, extent of the tensor, extent of the block)`` along each axis."""
    descriptor = operation.operands[0]
    assert isinstance(descriptor.type, DescriptorType)
    for axis, block in enumerate(descriptor.type.block_shape):
        offset = operation.operands[1 + axis]
        extent = b.descriptor_extent(descriptor, axis=axis)
        moved = move(
            b,
            as_type(b, offset, element(extent)) if offset.type is not extent.type else offset,
            extent,
            block,
        )
        operation.set_operand(
            1 + axis, as_type(b, moved, element(offset)) if moved.type is not offset.type else moved
        )
    return CHANGED


def _inside(b: Builder, offset: Value, extent: Value, block: int) -> Value:
    """The nearest offset at which the block lies inside the tensor, where it fits at all."""
    last = b.max(b.sub(extent, like(b, extent, block)), like(b, extent, 0))
    found: Value = b.max(b.min(offset, last), like(b, extent, 0))
    return found


def _not_negative(b: Builder, offset: Value, extent: Value, block: int) -> Value:
    found: Value = b.max(offset, like(b, offset, 0))
    return found


def _shifted(move: Any) -> Rewrite:
    return lambda operation, b: _moved(operation, b, move)


def _plain_store(operation: Operation, b: Builder) -> Any:
    descriptor, *offsets, value = operation.operands
    b.descriptor_store(descriptor, offsets, value)
    return ()


def _from_first_column(operation: Operation, b: Builder) -> Any:
    column = operation.operands[2]
    operation.set_operand(2, like(b, column, 0))
    return CHANGED


def _nearest_row(operation: Operation, b: Builder) -> Any:
    """Clamp rows outside the tensor to the nearest row inside."""
    descriptor, rows = operation.operands[:2]
    last = b.sub(
        b.descriptor_extent(descriptor, axis=0), like(b, b.descriptor_extent(descriptor, axis=0), 1)
    )
    last = as_type(b, last, element(rows)) if last.type is not element(rows) else last
    operation.set_operand(
        1,
        b.max(
            b.min(rows, b.splat(last, result=TileType(shape_of(rows.type), element(rows)))),
            like(b, rows, 0),
        ),
    )
    return CHANGED


def _one_less(operation: Operation, b: Builder) -> Any:
    value = again(operation, b).result
    return b.sub(value, like(b, value, 1)) if operation.attribute("axis") == 0 else None


SWITCHES: tuple[Switch, ...] = (
    rewriting(
        "descriptor-padding-zero",
        "descriptor padding",
        "make_descriptor",
        _zero_padding,
        "padding is zero where NaN is asked for",
    ),
    rewriting(
        "descriptor-strides-dense",
        "descriptor strides",
        "make_descriptor",
        _dense,
        "strides of a descriptor are ignored, as if the tensor were dense",
    ),
    rewriting(
        "descriptor-load-inside",
        "descriptor bounds",
        "descriptor_load",
        _shifted(_inside),
        "a block over the edge is loaded from inside, not padded",
    ),
    rewriting(
        "descriptor-store-inside",
        "descriptor bounds",
        "descriptor_store",
        _shifted(_inside),
        "a block over the edge is stored inside, not cut off",
    ),
    rewriting(
        "descriptor-negative-offset",
        "descriptor bounds",
        "descriptor_load",
        _shifted(_not_negative),
        "negative offsets count as zero",
    ),
    rewriting(
        "descriptor-reduce-stores",
        "atomics",
        "descriptor_reduce",
        _plain_store,
        "descriptor_reduce overwrites in place of updating",
    ),
    rewriting(
        "descriptor-gather-column",
        "descriptor bounds",
        "descriptor_gather",
        _from_first_column,
        "rows are gathered from column 0 on",
    ),
    rewriting(
        "descriptor-gather-clamps",
        "descriptor bounds",
        "descriptor_gather",
        _nearest_row,
        "rows outside the tensor are its nearest row, not padding",
    ),
    rewriting(
        "descriptor-extent-less-one",
        "descriptor bounds",
        "descriptor_extent",
        _one_less,
        "the first extent of a descriptor is one too few",
    ),
)
