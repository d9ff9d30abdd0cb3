"""Reads of slots in the body of a pipelined loop, in place of the results of its loads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tilewright.ir.builder import Builder
from tilewright.ir.core import Operation, Value
from tilewright.ir.types import TileType
from tilewright.simt.analysis.register_pressure import hot_peak_words_in
from tilewright.simt.analysis.shared_views import View, views_of
from tilewright.simt.dialect.attributes import part_of
from tilewright.simt.dialect.ops import buffers as ops
from tilewright.simt.dialect.ops.async_copy import Wait
from tilewright.simt.dialect.ops.dot import DotStart, Multiplication
from tilewright.simt.dialect.pipeline_attributes import Ahead, shared_layout
from tilewright.simt.dialect.types import SlotType
from tilewright.simt.pipeline.pipelined_loop import PipelinedLoop, redirect
from tilewright.simt.target.matmul_plan import MULTIPLYING
from tilewright.simt.target.plan_selection import plan_of


def read_slots(loop: PipelinedLoop, slots: Sequence[Value]) -> None:
    """Replace the results of the loads by reads of their slots.

    Matmuls read the slots themselves. Other readers load a tile, directly in their own layout
    if they only convert it.
    """
    for load, slot in zip(loop.loads, slots, strict=True):
        result = load.results[0]
        for view in list(views_of(result)):
            for user in list(view.value.uses):
                if isinstance(user, ops.Convert):
                    _read_at(loop, user, user.results[0], slot, view, load)
                elif isinstance(user, MULTIPLYING) and view.value is not result:
                    _read_at(loop, user, view.value, slot, view, load, only=user)
        if result.uses:
            reader = _first_reader(loop, result)
            read = _read_at(loop, load, result, slot, next(views_of(result)), load)
            if read is not None:
                _shorten(loop, read, reader)


def _shorten(loop: PipelinedLoop, read: Operation, reader: Operation) -> None:
    """Move the read of a slot from its load to its first reader if registers are short.

    Where the load stood, often at the top of an iteration, the read overlaps with the first
    matmuls, but the tile takes registers until it is read. Only a warp-specialized loop, which
    releases its slots at the end of an iteration, may read them later.
    """
    part = part_of(loop.loop)
    if part is None:
        return
    registers = part.registers or loop.target.resources.registers
    if hot_peak_words_in(loop.body) > registers:
        read.move_before(reader)


def _first_reader(loop: PipelinedLoop, value: Value) -> Operation:
    """Return the first operation of the loop's body that reads a value, or contains its reader."""
    readers = set(value.uses)
    return next(
        operation
        for operation in loop.body
        if operation in readers or not readers.isdisjoint(_inside(operation))
    )


def _inside(operation: Operation) -> Iterator[Operation]:
    for region in operation.regions:
        yield from region.walk()


def _read_at(
    loop: PipelinedLoop,
    place: Operation,
    value: Value,
    slot: Value,
    view: View,
    load: Ahead,
    only: Operation | None = None,
) -> Operation | None:
    """Replace ``value`` by reads of a slot.

    Matmuls read the slot, other readers a tile that is loaded before ``place``. Return that load,
    if there is one.
    """
    for matmul in [only] if only is not None else list(value.uses):
        if not isinstance(matmul, Multiplication) or matmul.parent is not loop.body:
            continue
        seen = _view(loop, Builder.at(matmul), slot, view, load)
        assert isinstance(seen.type, SlotType)
        plan = plan_of(matmul, loop.target)
        for position, operand in enumerate((matmul.a, matmul.b)):
            if operand is value and plan.can_read(position, seen.type.layout):
                matmul.set_operand(position, seen)
    readers = [] if only is not None else list(value.uses)
    if only is not None and value in only.operands:
        readers = [only]
    if not readers:
        return None
    builder = Builder.at(place)
    read = loop.create(builder, "simt.load", [_view(loop, builder, slot, view, load)])
    (found,) = read.results
    found.layout = value.layout
    if only is None:
        value.replace_all_uses(found)
    else:
        redirect([only], value, found)
    return read


def same_view(
    loop: PipelinedLoop,
    builder: Builder,
    place: Value,
    slots: Sequence[Value],
    others: Sequence[Value],
) -> Value:
    """Translate ``place``, one of ``slots`` or a view of one, to the same one of ``others``."""
    if place in slots:
        return others[slots.index(place)]
    view = place.definition
    assert isinstance(view, ops.SharedView)
    return loop.create(
        builder, "simt.view", [others[slots.index(view.x)]], result=place.type
    ).results[0]


def _view(loop: PipelinedLoop, builder: Builder, slot: Value, view: View, load: Ahead) -> Value:
    """View a slot with the shape and layout of a renamed tile."""
    assert isinstance(view.value.type, TileType)
    type_ = SlotType(
        view.value.type.shape, view.value.type.element, view.shared(shared_layout(load))
    )
    return (
        slot
        if slot.type is type_
        else loop.create(builder, "simt.view", [slot], result=type_).results[0]
    )


def ends_of_reads(place: Value) -> list[Operation]:
    """Return the operations after which a slot is not read any more."""
    found: list[Operation] = []
    work = [place]
    while work:
        for user in work.pop().uses:
            if isinstance(user, ops.SharedView):
                work.append(user.results[0])
            elif isinstance(user, DotStart):
                token = user.results[1]
                found += [waiting for waiting in token.uses if isinstance(waiting, Wait)]
            else:
                found.append(user)
    return found
