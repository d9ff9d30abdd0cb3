"""Selection of the TMA mechanism for descriptor loads and stores, and shared memory for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tilewright.errors import LoweringError
from tilewright.ir.builder import Builder
from tilewright.ir.core import Operation, Value
from tilewright.ir.ops.memory import DescriptorScatter
from tilewright.ir.types import I32, TileType
from tilewright.simt.dialect.ops import SIMT_TABLE
from tilewright.simt.dialect.types import BufferType
from tilewright.simt.layouts.linear_layout import SharedLayout
from tilewright.simt.target.copy_mechanism import (
    BARRIER,
    BLOCK_STORES,
    ROW_COPIES,
    BlockAccess,
    CopyMechanism,
)
from tilewright.simt.target.matmul_plan import OPERAND_ALIGNMENT
from tilewright.simt.target.simt_target import SimtTarget


def block_mechanism(operation: BlockAccess, target: SimtTarget) -> CopyMechanism:
    """Return the copy mechanism for a load or store through a descriptor.

    For a gather or scatter of rows, its ``fills`` is the mechanism's ``fills_rows``.

    Raises:
        LoweringError: the target keeps the descriptor, but has no mechanism for it.
    """
    stores, rows = (
        isinstance(operation, (*BLOCK_STORES, DescriptorScatter)),
        isinstance(operation, ROW_COPIES),
    )
    for mechanism in target.async_copy.mechanisms:
        if (
            mechanism.completes == BARRIER
            and (mechanism.store if stores else mechanism.start) is not None
        ):
            if not rows:
                return mechanism
            if mechanism.fills_rows is not None:
                return replace(mechanism, fills=mechanism.fills_rows)
    raise LoweringError(
        f"{operation.name} at {operation.location}: {target.name} keeps the descriptor, and has no "
        "TMA copies for it"
    )


def no_layout(
    operation: BlockAccess, mechanism: CopyMechanism, target: SimtTarget
) -> LoweringError:
    """Return the error that a mechanism has no suitable layout for a block."""
    type_ = operation.descriptor.type
    return LoweringError(
        f"{operation.name} at {operation.location}: {mechanism.name} of {target.name} copies no "
        f"block of {type_} in a layout that is wanted"
    )


def block_buffer(
    builder: Builder, count: int, tile: TileType, shared: SharedLayout, mechanism: CopyMechanism
) -> Value:
    """Create a shared-memory buffer for tiles that a mechanism copies."""
    buffer = BufferType(count, tile.shape, tile.element, shared)
    alignment = max(
        mechanism.alignment, OPERAND_ALIGNMENT if buffer.tile_bytes >= OPERAND_ALIGNMENT else 16
    )
    return create(builder, "simt.buffer", result=buffer, alignment=alignment).results[0]


def block_slot(builder: Builder, buffer: Value, which: int) -> Value:
    """Create a slot of a buffer, by a constant index."""
    return create(
        builder, "simt.slot", [buffer], [builder.constant(value=which, result=I32)]
    ).results[0]


def create(
    builder: Builder, name: str, *groups: Sequence[Value], result: Any = None, **attributes: Any
) -> Operation:
    """Create a SIMT operation; operands by group."""
    spec = SIMT_TABLE[name]
    padded = [*groups, *([] for _ in spec.operands[len(groups) :])]
    return builder.create(spec, padded, attributes, () if result is None else (result,))
