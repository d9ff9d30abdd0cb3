"""TMA copies of a descriptor's tensor, and of rows of it, each started by one thread."""

from __future__ import annotations

from tilewright.ir.core import Operation
from tilewright.ir.declare import Declarations, SingleOperand, TypedAttribute, VariadicOperand
from tilewright.ir.ops.memory import descriptor_of
from tilewright.ir.table import Effect, RuleError, Shape
from tilewright.ir.types import I32, DescriptorType, IntType, TileType, Type
from tilewright.simt.dialect.ops import fields
from tilewright.simt.dialect.ops.type_rules import require_barrier, slot_of


def _block(shape: Shape, *, pieces: bool = False) -> None:
    """A descriptor, an offset for each of its axes, and a slot for its block or a part of it."""
    descriptor, slot = descriptor_of(shape), slot_of(shape)
    if len(shape.groups["offsets"]) != descriptor.rank:
        raise RuleError(
            f"{descriptor} takes {descriptor.rank} offsets, not {len(shape.groups['offsets'])}"
        )
    block = descriptor.block_type
    fits = (
        slot.element is block.element
        and len(slot.shape) == descriptor.rank
        and not any(b % a for a, b in zip(slot.shape, block.shape, strict=True))
    )
    if slot.tile is not block and not (pieces and fits):
        raise RuleError(
            f"slot must be one of {block}{' or of a piece of it' if pieces else ''}, not {slot}"
        )


def _block_load_start(shape: Shape) -> list[Type]:
    _block(shape)
    require_barrier(shape)
    return []


def _block_store_start(shape: Shape) -> list[Type]:
    _block(shape, pieces=True)
    return []


def _row_copy(shape: Shape) -> None:
    """A descriptor of rows, a slot for as many of them as another slot has numbers, and the first
    column."""
    descriptor, slot, rows = shape.type("descriptor"), slot_of(shape), slot_of(shape, "rows")
    if (
        not isinstance(descriptor, DescriptorType)
        or descriptor.rank != 2
        or descriptor.block_shape[0] != 1
    ):
        raise RuleError(f"descriptor must be one of rows, not {descriptor}")
    if len(rows.shape) != 1 or rows.element is not I32:
        raise RuleError(f"rows must be a slot of numbers of {I32}, not {rows}")
    wanted = TileType((rows.shape[0], descriptor.block_shape[1]), descriptor.block_type.element)
    if slot.tile is not wanted:
        raise RuleError(f"slot must be one of {wanted}, not {slot}")
    if not isinstance(shape.type("column"), IntType):
        raise RuleError(f"column must be an integer, not {shape.type('column')}")


def _rows_load_start(shape: Shape) -> list[Type]:
    _row_copy(shape)
    require_barrier(shape)
    return []


def _rows_store_start(shape: Shape) -> list[Type]:
    _row_copy(shape)
    return []


OPS = Declarations()


class TmaCopy(Operation):
    """A copy between a slot and a descriptor's block."""

    __slots__ = ()

    slot = fields.SLOT
    descriptor = SingleOperand()
    offsets = VariadicOperand("the position of the block in the tensor, in elements")
    by = fields.BY


class RowCopy(Operation):
    """A copy between a slot and rows of a descriptor's tensor."""

    __slots__ = ()

    slot = fields.SLOT
    descriptor = SingleOperand()
    rows = SingleOperand("the slot that contains the indices of the rows")
    column = SingleOperand("the first column, in elements")
    by = fields.BY


@OPS.operation(
    "simt.block_load_start",
    "make one thread start a TMA copy of a block of a tensor to a slot. The descriptor states the "
    "tensor and the shape of the block. The mbarrier that `index` selects counts the bytes that "
    "have been copied",
    _block_load_start,
    effects=Effect.READ | Effect.WRITE,
)
class BlockLoadStart(TmaCopy):
    __slots__ = ()

    barriers = fields.BARRIERS
    index = fields.INDEX
    condition = fields.CONDITION
    cache = fields.CACHE
    eviction = fields.EVICTION
    ordered = fields.ORDERED
    to_all = TypedAttribute[bool](
        "whether the CTAs of the cluster load the block together: each CTA copies a part of the "
        "block to the slots of all CTAs (multicast)",
        False,
    )


@OPS.operation(
    "simt.block_store_start",
    "make one thread start a TMA store, which copies a slot to a block of a tensor or to a part "
    "of the block. The descriptor states the tensor and the shape of the block. The store does "
    "not write elements outside the tensor. The next `simt.commit` adds the store to a commit "
    "group. After a `simt.wait` for this group, the kernel may overwrite the slot",
    _block_store_start,
    effects=Effect.READ | Effect.WRITE,
)
class BlockStoreStart(TmaCopy):
    __slots__ = ()

    reduction = TypedAttribute[str](
        "the atomic operation with which the store updates the tensor's elements; if empty, the "
        "store overwrites the elements",
        "",
    )


@OPS.operation(
    "simt.rows_load_start",
    "make one thread start a TMA gather (gather4), which copies rows of a matrix to a slot. The "
    "slot `rows` contains the indices of the rows. The copy of each row starts at the column "
    "`column`. The mbarrier that `index` selects counts the bytes that have been copied",
    _rows_load_start,
    effects=Effect.READ | Effect.WRITE,
)
class RowsLoadStart(RowCopy):
    __slots__ = ()

    barriers = fields.BARRIERS
    index = fields.INDEX


@OPS.operation(
    "simt.rows_store_start",
    "make one thread start a TMA scatter (scatter4), which copies a slot to rows of a matrix. The "
    "slot `rows` contains the indices of the rows. The copy of each row starts at the column "
    "`column`. The store does not write elements outside the matrix. The next `simt.commit` adds "
    "the store to a commit group. After a `simt.wait` for this group, the kernel may overwrite "
    "the slot",
    _rows_store_start,
    effects=Effect.READ | Effect.WRITE,
)
class RowsStoreStart(RowCopy):
    __slots__ = ()
