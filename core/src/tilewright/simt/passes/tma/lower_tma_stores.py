"""Lowering of TMA stores and reductions: stage the tile in shared memory, and copy it from there.

    simt.store %slot, %x
    simt.block_store_start %slot, %d, [%i, %j]
    %t = simt.commit

In a loop the copy overlaps with the program, and the wait for it stands before the next write of
its slot:

    for ... (..., %t):                                  the copy of the slot's previous content
        ... for each piece of a tile, which is cut along its last axis as often as shared memory is
        too small for it:
            simt.wait %t
            simt.store %slot, %piece
            simt.block_store_start; a new token

Stores of tiles with one type and layout share a slot, or alternate between two if they fit.
Elsewhere the wait follows the store immediately, until the slot has been read. If the kernel may
read the stored data, the wait lasts until the tensor is written as well. Before a store that may
write to the same location as others in flight (:mod:`tilewright.simt.analysis.store_order`), the
program waits for all of these in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Operation, Region, Value
from tilewright.ir.ops import TABLE
from tilewright.ir.ops.control import LOOPS
from tilewright.ir.ops.memory import (
    ATOMICS,
    DescriptorReduce,
    DescriptorScatter,
    DescriptorStore,
    MakeDescriptor,
)
from tilewright.ir.table import Effect
from tilewright.ir.types import TileType, Type
from tilewright.llvm.emission.registers import storage_size
from tilewright.simt.analysis.alias import may_be_same, reached, root_of
from tilewright.simt.analysis.store_order import draining_stores
from tilewright.simt.dialect.attributes import function_of, layout_of, part_of
from tilewright.simt.dialect.loop_carried import is_repeated, operations_of_program
from tilewright.simt.dialect.ops.async_copy import Wait
from tilewright.simt.dialect.ops.dot import DotStart
from tilewright.simt.dialect.ops.tma import BlockStoreStart, RowsStoreStart
from tilewright.simt.dialect.types import MATMULS, STORES
from tilewright.simt.layouts.linear_layout import LinearLayout, SharedLayout
from tilewright.simt.layouts.swizzle import shared_between, transactions
from tilewright.simt.passes.allocate_shared import peak_bytes
from tilewright.simt.passes.ssa_repair import thread_values
from tilewright.simt.target.copy_mechanism import BLOCK_STORES
from tilewright.simt.target.simt_target import SimtTarget
from tilewright.simt.target.thresholds import Thresholds
from tilewright.simt.target.tma_mechanism import (
    block_buffer,
    block_mechanism,
    block_slot,
    create,
    no_layout,
)

_Store = DescriptorStore | DescriptorReduce
#: Operations that store a block, before and after this pass.
_STORING = (*BLOCK_STORES, DescriptorScatter, BlockStoreStart, RowsStoreStart)


@dataclass(frozen=True, slots=True)
class Pieces:
    """Staging of tiles in shared memory: in ``count`` pieces, alternating between ``slots``."""

    count: int
    slots: int

    def bytes(self, tile: TileType) -> int:
        return self.slots * _bytes(tile) // self.count


def write_block_stores(stores: Sequence[_Store], function: Function, target: SimtTarget) -> None:
    """Lower stores through descriptors.

    Raises:
        LoweringError: the target keeps a descriptor that it has no mechanism for, or whose block
            its mechanisms cannot lay out.
    """
    drained = draining_stores([store for store in stores if is_unread(store)], function)
    together: dict[tuple[Operation | None, TileType, LinearLayout, bool], list[_Store]] = {}
    for store in stores:
        tile = store.value
        assert isinstance(tile.type, TileType)
        together.setdefault(
            (part_of(store), tile.type, layout_of(tile), may_run_on(store)), []
        ).append(store)
    for store in drained:
        drain(store, written=True)
    for made in dict.fromkeys(store.descriptor.definition for store in stores if may_run_on(store)):
        if made is not None and is_repeated(made):
            # another one takes its place, and stores in flight may still read it
            drain(made, written=False)
    for (part, _, _, runs_on), group in together.items():
        if runs_on:
            _write_together(group, part.regions[0] if part is not None else function.body, target)
        else:
            for store in group:
                _write_alone(store, is_unread(store), target)


def drain(place: Operation, *, written: bool) -> None:
    """Wait before an operation for all stores in flight."""
    builder = Builder.at(place)
    create(
        builder,
        "simt.wait",
        [create(builder, "simt.commit", result=STORES).results[0]],
        written=written,
    )


def may_run_on(store: _Store) -> bool:
    """Return whether a store may overlap with the following code.

    It is in a loop, and the kernel does not read its data.
    """
    return is_repeated(store) and is_unread(store)


def is_unread(store: _Store | DescriptorScatter) -> bool:
    """Return whether nothing in the kernel reads a store's tensor, or stores to it in another way.

    Atomics may signal other programs to read it, and count as reads. Different arguments are
    assumed not to alias.
    """
    function, descriptor = function_of(store), store.descriptor
    if descriptor in function.arguments:
        # its components follow it, the pointer first
        following = function.arguments.index(descriptor) + 1
        if any(pointer.uses for pointer in function.arguments[following : following + 1]) or any(
            not isinstance(user, _STORING) for user in descriptor.uses
        ):
            return False
        anywhere = any(root_of(made) is None for made in _made(function))
    else:
        root = root_of(descriptor)
        anywhere = root is None or any(_shares(operation, root) for operation in function.walk())
    return not anywhere and not any(isinstance(operation, ATOMICS) for operation in function.walk())


def _made(function: Function) -> Iterator[Value]:
    """Descriptors that a kernel makes."""
    return (
        operation.results[0]
        for operation in function.walk()
        if isinstance(operation, MakeDescriptor)
    )


def _shares(operation: Operation, root: Value) -> bool:
    """Return whether an operation may read the memory of an underlying object.

    A store counts if its memory may alias the object, but is not known to be the same.
    """
    if isinstance(operation, _STORING):
        return any(
            may_be_same(other, root) and other is not root
            for other in reached(operation, Effect.WRITE)
        )
    return any(may_be_same(other, root) for other in reached(operation, Effect.READ))


def min_staging(loop: Operation, target: SimtTarget) -> int:
    """Shared memory that stores which live at the same time as what a pipelined loop copies need at
    least, in pieces that serve well."""
    outer = [operation for operation in loop.ancestors() if isinstance(operation, LOOPS)]
    found: dict[Type, int] = {}
    thresholds = target.costs.thresholds
    for around in outer:
        for store in operations_of_program(around.regions[-1]):
            if isinstance(store, DescriptorStore):
                tile = store.value
                assert isinstance(tile.type, TileType)
                ways = list(_ways(tile, 1, thresholds)) if may_run_on(store) else [Pieces(1, 1)]
                preferred = thresholds.staged_piece_bytes
                well = next((one for one in ways if one.bytes(tile.type) <= preferred), ways[-1])
                found[tile.type] = max(found.get(tile.type, 0), well.bytes(tile.type))
    return sum(found.values())


def _bytes(tile: TileType) -> int:
    return math.prod(tile.shape) * storage_size(tile.element)


def _ways(tile: Value, stores: int, thresholds: Thresholds) -> Iterator[Pieces]:
    """Ways to cut tiles of ``stores`` stores, from whole ones on: while a half of the last axis is
    in other registers of the same threads than the rest."""
    type_, layout, count = tile.type, layout_of(tile), 1
    assert isinstance(type_, TileType)
    width = type_.shape[-1]
    if stores > 1:
        yield Pieces(1, 2)
    yield Pieces(1, 1)
    while (
        width > 1
        and width // 2 in layout.registers
        and width // 2 * storage_size(type_.element) >= thresholds.staged_row_bytes
    ):
        width, count = width // 2, count * 2
        yield Pieces(count, 1)


# ---- in place


def _write_alone(store: _Store, unread: bool, target: SimtTarget) -> None:
    """A store that is waited for where it stands."""
    builder, tile = Builder.at(store), store.value
    assert isinstance(tile.type, TileType)
    mechanism = block_mechanism(store, target)
    shared = staging_layout(store, tile.type, layout_of(tile), target)
    slot = block_slot(builder, block_buffer(builder, 1, tile.type, shared, mechanism), 0)
    create(
        builder, "simt.wait", [_start(builder, store, tile, slot, 0, target)], written=not unread
    )
    store.erase()


def staging_layout(
    store: _Store | DescriptorScatter, type_: TileType, layout: LinearLayout, target: SimtTarget
) -> SharedLayout:
    """The layout in shared memory of a tile, or a piece of it: the one that is written fastest of
    those that can be copied from."""
    mechanism = block_mechanism(store, target)
    size = storage_size(type_.element)
    others = mechanism.layouts(type_.shape, type_.element) if mechanism.layouts is not None else ()
    between = shared_between(
        layout, layout, size, target.resources.max_access, target.resources.banks
    )
    candidates = [
        one
        for one in (between, *others, SharedLayout.row_major(type_.shape))
        if mechanism.can_fill(one, type_.element)
    ]
    if not candidates:
        raise no_layout(store, mechanism, target)
    return min(
        candidates,
        key=lambda one: transactions(
            layout, one, size, target.resources.max_access, target.resources.banks
        )[1],
    )


def _start(
    builder: Builder, store: _Store, tile: Value, slot: Value, column: int, target: SimtTarget,
    staging: Builder | None = None,
) -> Value:  # fmt: skip
    """Copy a tile, or the piece of it that begins at a column, through a slot; the token.

    The tile is written to the slot at ``staging``, if that is given.
    """
    *others, last = store.offsets
    at = builder.add(last, builder.constant(value=column, result=last.type)) if column else last
    create(staging or builder, "simt.store", [slot], [tile])
    how = {
        "by": block_mechanism(store, target).name,
        "reduction": store.kind if isinstance(store, DescriptorReduce) else "",
    }
    create(builder, "simt.block_store_start", [slot], [store.descriptor], [*others, at], **how)
    return create(builder, "simt.commit", result=STORES).results[0]


# ---- in a loop


def _write_together(stores: list[_Store], region: Region, target: SimtTarget) -> None:
    """Stores of tiles alike, which take turns with the same slots."""
    first = stores[0]
    tile = first.value
    assert isinstance(tile.type, TileType)
    room = target.resources.shared_memory - peak_bytes(region, target)
    ways = list(_ways(tile, len(stores), target.costs.thresholds))
    pieces = next((way for way in ways if way.bytes(tile.type) <= room), ways[-1])
    type_, layout = _piece(tile.type, layout_of(tile), pieces.count)
    shared = staging_layout(first, type_, layout, target)
    start = Builder(region, region.first, first.location)
    buffer = block_buffer(start, pieces.slots, type_, shared, block_mechanism(first, target))
    slots = [block_slot(start, buffer, number) for number in range(pieces.slots)]
    tokens = [create(start, "simt.commit", result=STORES).results[0] for _ in slots]
    turn = 0

    def write(store: _Store, values: tuple[Value, ...]) -> list[Value]:
        nonlocal turn
        builder, now = Builder.at(store), list(values)
        for number, piece in enumerate(_cut(builder, store.value, pieces.count)):
            create(builder if number else _before_matmul(store), "simt.wait", [now[turn]])
            staging = _behind_tile(store) if pieces.count == 1 else None
            now[turn] = _start(
                builder, store, piece, slots[turn], number * type_.shape[-1], target, staging
            )
            turn = (turn + 1) % pieces.slots
        store.erase()
        return now

    last = thread_values(region, stores, tokens, write)
    end = region.terminator
    assert end is not None
    create(Builder.at(end), "simt.wait", list(last))


def _before_matmul(store: _Store) -> Builder:
    """Return a builder at the start of the matmul that computes a store's tile, or at the store.

    The barrier that orders the wait for the slot before the next write of it is then one that the
    matmul's operands need anyway.
    """
    waiting = store.value.definition
    if isinstance(waiting, Wait) and waiting.parent is store.parent and len(waiting.tokens) == 1:
        start = waiting.tokens[0].definition
        if isinstance(start, DotStart) and start.parent is store.parent:
            return Builder.at(start)
    return Builder.at(store)


def _behind_tile(store: _Store) -> Builder:
    """Return a builder for the write of a store's tile to shared memory.

    It is before the waits for other matmuls that stand directly before the store: those matmuls
    run meanwhile. The copy starts behind these waits.
    """
    place: Operation = store
    before = place.previous
    while (
        isinstance(before, Wait)
        and store.value not in before.results
        and all(token.type is MATMULS for token in before.tokens)
    ):
        place, before = before, before.previous
    return Builder.at(place)


def _halves_of(layout: LinearLayout) -> tuple[LinearLayout, LinearLayout, LinearLayout]:
    """The layouts of a tile whose last axis is cut in two, as (..., 2, half), as (..., half, 2),
    and of a half."""
    *outer, width = layout.shape
    rank = len(layout.shape)
    cut = layout.reshape((*outer, 2, width // 2))
    permuted = cut.permute((*range(rank - 1), rank, rank - 1))
    return cut, permuted, permuted.without_axis(rank)


def _piece(type_: TileType, layout: LinearLayout, count: int) -> tuple[TileType, LinearLayout]:
    """The type and layout of one of ``count`` pieces of a tile."""
    while count > 1:
        layout, count = _halves_of(layout)[2], count // 2
    return TileType(layout.shape, type_.element), layout


def _cut(builder: Builder, tile: Value, count: int) -> list[Value]:
    """A tile in ``count`` pieces along its last axis. Only registers get other names."""
    if count == 1:
        return [tile]
    assert isinstance(tile.type, TileType)
    cut, permuted, half = _halves_of(layout_of(tile))
    x = builder.create(
        TABLE["reshape"], [[tile]], {}, (TileType(cut.shape, tile.type.element),)
    ).results[0]
    rank = len(half.shape)
    y = builder.create(
        TABLE["permute"], [[x]], {"order": (*range(rank - 1), rank, rank - 1)}
    ).results[0]
    x.layout, y.layout = cut, permuted
    halves = builder.create(TABLE["split"], [[y]], {}).results
    for one in halves:
        one.layout = half
    return [piece for one in halves for piece in _cut(builder, one, count // 2)]
