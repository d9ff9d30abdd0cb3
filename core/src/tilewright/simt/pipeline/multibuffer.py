"""Multi-buffered shared memory and address slices, common to all forms of pipelined loops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.ir.builder import Builder
from tilewright.ir.core import Operation, Region, Value
from tilewright.ir.ops import TABLE
from tilewright.ir.ops.control import For
from tilewright.ir.ops.memory import Load
from tilewright.ir.types import I1, I32, IntType, TileType, Type
from tilewright.passes.rewriter import constant_of
from tilewright.simt.analysis.iteration_slices import SliceReader, slice_of
from tilewright.simt.analysis.masked_off_lanes import UNSEEN, fills_with_zeros
from tilewright.simt.analysis.shared_views import View, views_of
from tilewright.simt.dialect.ops import SIMT_TABLE
from tilewright.simt.dialect.ops import buffers as ops
from tilewright.simt.dialect.ops.dot import Multiplication
from tilewright.simt.dialect.pipeline_attributes import (
    BY,
    FORM,
    SHARED,
    SLOTS,
    WIDTH,
    Ahead,
    selected,
    shared_layout,
)
from tilewright.simt.dialect.types import BufferType, SlotType
from tilewright.simt.passes.ssa_repair import carry_in_for, yield_more
from tilewright.simt.pipeline.defer_matmul_wait import (
    Accumulation,
    Trailing,
    held_by,
    no_matmul,
    start,
    start_and_wait,
    wait,
)
from tilewright.simt.target.matmul_plan import MULTIPLYING, OPERAND_ALIGNMENT
from tilewright.simt.target.plan_selection import plan_of
from tilewright.simt.target.simt_target import SimtTarget


class Ring:
    """The expansion of one loop over multi-buffered shared memory.

    Attributes:
        loads: the prefetched loads.
        slots: the number of slots: iterations whose loads fit at a time.
        part: the slice of the body that is computed ahead.
        count_type: an integer type that the number of iterations fits.
    """

    def __init__(self, loop: For, target: SimtTarget) -> None:
        self.loop, self.target = loop, target
        self.loads = selected(loop)
        self.slots: int = loop.attributes.pop(SLOTS)
        del loop.attributes[FORM]
        self.body: Region = loop.regions[0]
        last, part = self.body.terminator, slice_of(self.body, self.loads, target)
        assert last is not None and part is not None
        self.last, self.part = last, part
        counter = loop.lower.type
        assert isinstance(counter, IntType)
        self.count_type = IntType(counter.bits, signed=False)

    # ---- making operations

    def create(
        self,
        builder: Builder,
        name: str,
        *groups: list[Value],
        result: Type | None = None,
        **attributes: Any,
    ) -> Operation:
        """Create a SIMT operation; operands by group."""
        spec = SIMT_TABLE[name]
        padded = [*groups, *([] for _ in spec.operands[len(groups) :])]
        return builder.create(spec, padded, attributes, () if result is None else (result,))

    def number(self, builder: Builder, value: int, type_: Type) -> Value:
        """Create a constant."""
        constant: Value = builder.constant(value=value, result=type_)
        return constant

    # ---- shared memory

    def buffer(self, builder: Builder, load: Ahead) -> Value:
        """Create the multi-buffered shared memory of a load."""
        type_ = load.results[0].type
        assert isinstance(type_, TileType)
        buffer = BufferType(self.slots, type_.shape, type_.element, shared_layout(load))
        alignment = OPERAND_ALIGNMENT if buffer.tile_bytes >= OPERAND_ALIGNMENT else 16
        return self.create(builder, "simt.buffer", result=buffer, alignment=alignment).results[0]

    def slot(self, builder: Builder, buffer: Value, which: Value) -> Value:
        """Create a slot of a buffer."""
        return self.create(builder, "simt.slot", [buffer], [which]).results[0]

    def neighbours(self, builder: Builder, slot: Value) -> tuple[Value, Value]:
        """Compute the indices of the previous and the next slot, modulo the number of slots."""
        zero, one, final = (self.number(builder, value, I32) for value in (0, 1, self.slots - 1))
        previous = builder.select(
            builder.cmp(slot, zero, predicate="eq"), final, builder.sub(slot, one)
        )
        following = builder.select(
            builder.cmp(slot, final, predicate="eq"), zero, builder.add(slot, one)
        )
        return previous, following

    # ---- iterations

    def iterations(self, builder: Builder) -> Value:
        """Compute the trip count: ceil((upper - lower) / step), or 0."""
        lower, upper, step = self.loop.lower, self.loop.upper, self.loop.step
        runs = builder.cmp(lower, upper, predicate="lt")
        low, high, by = (
            value if value.type is self.count_type else builder.cast(value, result=self.count_type)
            for value in (lower, upper, step)
        )
        zero, one = (self.number(builder, value, self.count_type) for value in (0, 1))
        count = builder.sub(high, low)
        if constant_of(step) != 1:
            # without iterations the difference and the quotient are arbitrary, but the division
            # does not trap: a step is positive
            count = builder.add(builder.div(builder.sub(count, one), by), one)
        result: Value = builder.select(runs, count, zero)
        return result

    def left_after(self, builder: Builder, count: Value, done: int) -> Value:
        """Compute the number of iterations after the first ``done``, or 0."""
        rest = self.number(builder, done, self.count_type)
        more = builder.cmp(count, rest, predicate="gt")
        left: Value = builder.select(
            more, builder.sub(count, rest), self.number(builder, 0, self.count_type)
        )
        return left

    def first(self) -> dict[Value, Value]:
        """Return the first iteration's counter and loop-carried values that the slice reads."""
        ahead = {self.body.arguments[0]: self.loop.lower}
        for index in self.part.carried:
            ahead[self.body.arguments[1 + index]] = self.loop.inits[index]
        return ahead

    def keys(self, ahead: Mapping[Value, Value]) -> list[Value]:
        """Return the values of ``ahead`` that have to be loop-carried."""
        return [
            argument
            for argument in ahead
            if argument is not self.body.arguments[0] or self.part.counter
        ]

    def advanced(
        self, builder: Builder, mapping: Mapping[Value, Value], ahead: Mapping[Value, Value]
    ) -> dict[Value, Value]:
        """Return the values of ``ahead`` one iteration later.

        ``mapping`` has the copies of the slice's operations.
        """
        counter, *carried = self.body.arguments
        sources = dict(zip(self.part.carried, self.part.following, strict=True))
        found = {}
        for argument, value in ahead.items():
            if argument is counter:
                found[argument] = builder.add(value, self.loop.step)
            else:
                source = sources[carried.index(argument)]
                found[argument] = mapping.get(source, source)
        return found

    def repeat(self, builder: Builder, mapping: dict[Value, Value], live: Value) -> None:
        """Copy the slice for another iteration.

        ``mapping`` has that iteration's values of the slice's inputs, and receives the copies.
        """
        for reader in self.part.operations:
            if isinstance(reader.operation, Load):
                self._repeat_load(builder, reader.operation, reader, mapping, live)
            else:
                builder.insert(reader.clone(mapping))

    def addresses(
        self, load: Ahead, mapping: Mapping[Value, Value]
    ) -> tuple[Value, Value | None, Value | None]:
        """Return the pointer, mask and ``other`` of a prefetched load in another iteration.

        ``mapping`` has that iteration's values.
        """
        return _addresses(self.part.load(load), mapping)

    def _repeat_load(
        self,
        builder: Builder,
        load: Load,
        reader: SliceReader,
        mapping: dict[Value, Value],
        live: Value,
    ) -> None:
        """Copy a load of the slice, masked off if its iteration will not run."""
        pointer, mask, other = _addresses(reader, mapping)
        groups = [
            (pointer,),
            (self.masked(builder, pointer, mask, live),),
            () if other is None else (other,),
        ]
        kept = {
            name: value
            for name, value in load.attributes.items()
            if name not in (BY, SHARED, WIDTH)
        }
        again = builder.create(TABLE["load"], groups, kept)
        if other is None and not fills_with_zeros(
            load
        ):  # of an iteration that will not run nobody sees anything
            again.attributes[UNSEEN] = True
        made = again.results[0]
        made.layout = load.results[0].layout
        mapping[load.results[0]] = made

    def masked(self, builder: Builder, pointer: Value, mask: Value | None, live: Value) -> Value:
        """Combine ``mask`` with the condition ``live``."""
        if isinstance(pointer.type, TileType):
            live = builder.splat(live, result=TileType(pointer.type.shape, I1))
            live.layout = pointer.layout
        if mask is None:
            return live
        both: Value = builder.and_(live, mask)
        both.layout = pointer.layout
        return both

    # ---- loop-carried values

    def carry(self, init: Value) -> Value:
        """Add a loop-carried value; return its argument in the body.

        :meth:`yield_more` adds its next value to the terminator.
        """
        return carry_in_for(self.loop, init)

    def yield_more(self, values: list[Value]) -> None:
        """Yield the next values of the added loop-carried values, in the order of :meth:`carry`."""
        yield_more(self.body, values)

    def results_of(self, arguments: list[Value]) -> list[Value]:
        """Return the loop's results for loop-carried values."""
        return [
            self.loop.results[self.body.arguments.index(argument) - 1] for argument in arguments
        ]

    # ---- deferred waits for matmuls

    def overlap(self, found: Accumulation, before: Builder) -> tuple[Value, Value]:
        """Defer the wait for a matmul to the next iteration.

        Returns the loop-carried token of the previous matmul, which is waited for right after the
        start of this one, and the token of this one, which the loop has to yield for it.
        """
        tile, token = start(found.matmul)
        earlier = self.carry(no_matmul(before))
        wait(Builder.at(found.matmul), [earlier], [])
        found.matmul.results[0].replace_all_uses(tile)
        found.matmul.erase()
        return earlier, token

    def after_wait(self, token: Value) -> Builder:
        """Return a builder behind the wait for a loop-carried token."""
        (waiting,) = token.uses
        assert waiting.next is not None
        return Builder(self.body, waiting.next, self.loop.location)

    def trail(self, found: Trailing, before: Builder) -> tuple[list[Value], list[Value]]:
        """Defer the wait for the last matmul until the next iteration waits for its first one.

        Returns the loop-carried token and register operands of the previous iteration's matmul, and
        those of this iteration, which the loop has to yield for them.
        """
        held = held_by(found.matmul, self.target)
        tile, token = start(found.matmul)
        earlier = [
            self.carry(no_matmul(before)),
            *(self.carry(self._nothing(before, value)) for value in held),
        ]
        found.matmul.results[0].replace_all_uses(tile)
        found.matmul.erase()
        _, waiting = start_and_wait(found.first, self.target)
        carried = self.body.arguments[1 + found.index]
        tokens, tiles, kept = waiting.tokens, waiting.tiles, waiting.held
        readers = [user for user in carried.uses if user is not waiting]
        ended, settled = wait(
            Builder.at(waiting),
            [*tokens, earlier[0]],
            [*tiles, carried],
            held=[*kept, *earlier[1:]],
        )
        waiting.results[0].replace_all_uses(ended)
        waiting.erase()
        for reader in readers:
            for position, operand in enumerate(reader.operands):
                if operand is carried:
                    reader.set_operand(position, settled)
        return earlier, [token, *held]

    def _nothing(self, builder: Builder, like: Value) -> Value:
        """Create a tile of zeros with the type and layout of another tile."""
        found: Value = builder.constant_like(like.type, 0)
        found.layout = like.layout
        return found

    def settle(self, found: Accumulation | Trailing, earlier: Sequence[Value]) -> Builder:
        """Wait for the last matmul after the loop, given its token and operands in registers.

        Returns a builder behind the wait.
        """
        loop = self.loop
        result = loop.results[found.index]
        readers = list(result.uses)
        builder = Builder(loop.parent, loop.next, loop.location)
        token, *held = self.results_of(list(earlier))
        (settled,) = wait(builder, [token], [result], held=held)
        for reader in readers:
            for position, operand in enumerate(reader.operands):
                if operand is result:
                    reader.set_operand(position, settled)
        return builder

    # ---- reads of slots

    def read(self, slots: list[Value]) -> None:
        """Replace the results of the loads by reads of their slots.

        Matmuls read the slots themselves. Other readers load a tile, directly in their own layout
        if they only convert it.
        """
        for load, slot in zip(self.loads, slots, strict=True):
            result = load.results[0]
            for view in list(views_of(result)):
                for user in list(view.value.uses):
                    if isinstance(user, ops.Convert):
                        self._read_at(user, user.results[0], slot, view, load)
                    elif isinstance(user, MULTIPLYING) and view.value is not result:
                        self._read_at(user, view.value, slot, view, load, only=user)
            if result.uses:
                self._read_at(load, result, slot, next(views_of(result)), load)

    def _read_at(
        self,
        place: Operation,
        value: Value,
        slot: Value,
        view: View,
        load: Ahead,
        only: Operation | None = None,
    ) -> None:
        """Replace ``value`` by reads of a slot.

        Matmuls read the slot, other readers a tile that is loaded before ``place``.
        """
        for matmul in [only] if only is not None else list(value.uses):
            if not isinstance(matmul, Multiplication) or matmul.parent is not self.body:
                continue
            seen = self._view(Builder.at(matmul), slot, view, load)
            assert isinstance(seen.type, SlotType)
            plan = plan_of(matmul, self.target)
            for position, operand in enumerate((matmul.a, matmul.b)):
                if operand is value and plan.can_read(position, seen.type.layout):
                    matmul.set_operand(position, seen)
        readers = [] if only is not None else list(value.uses)
        if only is not None and value in only.operands:
            readers = [only]
        if not readers:
            return
        builder = Builder.at(place)
        found = self.create(builder, "simt.load", [self._view(builder, slot, view, load)]).results[
            0
        ]
        found.layout = value.layout
        if only is None:
            value.replace_all_uses(found)
            return
        for position, operand in enumerate(only.operands):
            if operand is value:
                only.set_operand(position, found)

    def seen(
        self, builder: Builder, place: Value, slots: list[Value], others: list[Value]
    ) -> Value:
        """Translate ``place``, one of ``slots`` or a view of one, to the same one of ``others``."""
        if place in slots:
            return others[slots.index(place)]
        view = place.definition
        assert isinstance(view, ops.SharedView)
        return self.create(
            builder, "simt.view", [others[slots.index(view.x)]], result=place.type
        ).results[0]

    def _view(self, builder: Builder, slot: Value, view: View, load: Ahead) -> Value:
        """View a slot with the shape and layout of a renamed tile."""
        assert isinstance(view.value.type, TileType)
        type_ = SlotType(
            view.value.type.shape, view.value.type.element, view.shared(shared_layout(load))
        )
        return (
            slot
            if slot.type is type_
            else self.create(builder, "simt.view", [slot], result=type_).results[0]
        )


def _addresses(
    reader: SliceReader, mapping: Mapping[Value, Value]
) -> tuple[Value, Value | None, Value | None]:
    """Return the pointer, mask and ``other`` of a load in another iteration."""
    pointer, mask, other = (reader.operand(name) for name in ("pointer", "mask", "other"))
    assert pointer is not None
    return mapping.get(pointer, pointer), _mapped(mask, mapping), _mapped(other, mapping)


def _mapped(value: Value | None, mapping: Mapping[Value, Value]) -> Value | None:
    return None if value is None else mapping.get(value, value)
