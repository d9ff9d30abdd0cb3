"""Lowering of TMA gather and scatter of rows.

    %x = descriptor_gather %d, %rows, %column
    descriptor_scatter %d, %rows, %column, %x

The thread that issues a copy needs the row indices, which threads hold in any layout: it reads them
from shared memory,

    simt.store %numbers, %rows
    simt.rows_load_start %slot, %d, %numbers, %column, %full, %n    (see :mod:`.lower_tma_loads`)

    simt.store %numbers, %rows
    simt.store %slot, %x
    simt.rows_store_start %slot, %d, %numbers, %column
    simt.wait of it

Two scatters may share rows, so a scatter first waits for all stores in flight, and the wait for it
follows immediately: until its slot has been read, if it is the only store, executes once, and its
data is not read in the kernel; otherwise until all is written.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Value
from tilewright.ir.ops.memory import DescriptorGather, DescriptorScatter
from tilewright.ir.types import TileType
from tilewright.simt.dialect.attributes import layout_of
from tilewright.simt.dialect.loop_carried import is_repeated
from tilewright.simt.dialect.types import STORES, BufferType
from tilewright.simt.layouts.linear_layout import SharedLayout
from tilewright.simt.passes.tma.lower_tma_stores import drain, is_unread, staging_layout
from tilewright.simt.target.copy_mechanism import BLOCK_STORES
from tilewright.simt.target.simt_target import SimtTarget
from tilewright.simt.target.tma_mechanism import block_buffer, block_mechanism, block_slot, create

#: Alignment of row indices in shared memory: they are read four at a time.
_ALIGNMENT = 16


def numbers_and_column(
    builder: Builder, operation: DescriptorGather | DescriptorScatter
) -> tuple[list[Value], list[Value]]:
    """Return a slot with the row indices of a gather or scatter, and the first column."""
    rows, column = operation.rows, operation.column
    assert isinstance(rows.type, TileType)
    shared = BufferType(
        1, rows.type.shape, rows.type.element, SharedLayout.row_major(rows.type.shape)
    )
    slot = block_slot(
        builder, create(builder, "simt.buffer", result=shared, alignment=_ALIGNMENT).results[0], 0
    )
    create(builder, "simt.store", [slot], [rows])
    return [slot], [column]


def write_row_stores(
    scatters: Sequence[DescriptorScatter], function: Function, target: SimtTarget
) -> None:
    """Lower scatters of rows.

    Raises:
        LoweringError: the target keeps a descriptor that it has no mechanism for, or whose rows its
            mechanisms cannot lay out.
    """
    others = [operation for operation in function.walk() if isinstance(operation, BLOCK_STORES)]
    unread = {scatter: is_unread(scatter) for scatter in scatters}
    alone = len(scatters) == 1 and not others and not is_repeated(scatters[0])
    for scatter in scatters:
        if others:
            drain(scatter, written=True)
        _write(scatter, written=not (alone and unread[scatter]), target=target)


def _write(scatter: DescriptorScatter, *, written: bool, target: SimtTarget) -> None:
    builder, tile = Builder.at(scatter), scatter.value
    assert isinstance(tile.type, TileType)
    mechanism = block_mechanism(scatter, target)
    shared = staging_layout(scatter, tile.type, layout_of(tile), target)
    slot = block_slot(builder, block_buffer(builder, 1, tile.type, shared, mechanism), 0)
    places = numbers_and_column(builder, scatter)
    create(builder, "simt.store", [slot], [tile])
    create(
        builder, "simt.rows_store_start", [slot], [scatter.descriptor], *places, by=mechanism.name
    )
    create(
        builder,
        "simt.wait",
        [create(builder, "simt.commit", result=STORES).results[0]],
        written=written,
    )
    scatter.erase()
