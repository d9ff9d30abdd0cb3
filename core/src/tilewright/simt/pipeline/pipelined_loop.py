"""A loop that is being pipelined: its schedule, and the operations that every mechanism needs.

The schedule of a loop is modulo: iterations start one after the other, and each is cut into stages.

- *Stage 0* of an iteration copies its tiles to shared memory: the loads, and the slice of the body
  that computes their addresses.
- *Stage D* is the body, which reads the tiles. D is the *prefetch distance*: while iteration i is
  in stage D, iteration i+D is in stage 0, and the copies of D iterations are in flight.
- A matmul whose wait is deferred is waited for in *stage D+1*.

A load has S *slots* of shared memory; iteration i uses slot i mod S. With D = S-1, the slot that
iteration i+D fills was read by iteration i-1. The slice of stage 0 is the body's own
(:func:`~tilewright.simt.analysis.iteration_slices.slice_of`), computed with loop-carried values
that are D iterations ahead. All of that is arithmetic modulo the width of the loop's counter; an
iteration past the end is recognized by the number of iterations left, which fits the counter's
unsigned type, and not by the counter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.ir.builder import Builder
from tilewright.ir.core import Operation, Region, Value
from tilewright.ir.ops import TABLE
from tilewright.ir.ops.control import For
from tilewright.ir.ops.memory import Load
from tilewright.ir.types import I1, I32, IntType, TileType, Type
from tilewright.passes.rewriter import constant_of
from tilewright.simt.analysis.iteration_slices import SliceReader, slice_of
from tilewright.simt.analysis.masked_off_lanes import UNOBSERVED, fills_with_zeros
from tilewright.simt.dialect.ops import SIMT_TABLE
from tilewright.simt.dialect.pipeline_attributes import (
    BY,
    CHAIN,
    FORM,
    PARTS,
    SHARED,
    SLOTS,
    WIDTH,
    Ahead,
    selected,
    shared_layout,
)
from tilewright.simt.dialect.types import BufferType
from tilewright.simt.passes.ssa_repair import carry_in_for, yield_more
from tilewright.simt.target.matmul_plan import OPERAND_ALIGNMENT
from tilewright.simt.target.simt_target import SimtTarget


@dataclass(slots=True)
class LoopSchedule:
    """A loop's schedule, before it is written to the loop's attributes.

    Attributes:
        form: the form of the expansion, which says who issues copies and how they complete.
        slots: the number of slots of each load.
    """

    form: str
    slots: int

    @property
    def specialized(self) -> bool:
        """Return whether a producer partition issues the copies."""
        return self.form in (PARTS, CHAIN)


class PipelinedLoop:
    """A loop with a schedule.

    Attributes:
        loads: the prefetched loads.
        slots: the number of slots of each load.
        last: the terminator of the body.
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

    @property
    def before(self) -> Builder:
        """A builder in front of the loop."""
        return Builder.at(self.loop)

    @property
    def behind(self) -> Builder:
        """A builder right behind the loop."""
        return Builder(self.loop.parent, self.loop.next, self.loop.location)

    @property
    def end(self) -> Builder:
        """A builder at the end of the body."""
        return Builder(self.body, self.last, self.loop.location)

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
        mechanism = self.target.async_copy.mechanism(load.attributes[BY])
        minimum = OPERAND_ALIGNMENT if buffer.tile_bytes >= OPERAND_ALIGNMENT else 16
        alignment = max(mechanism.alignment, minimum)
        return self.create(builder, "simt.buffer", result=buffer, alignment=alignment).results[0]

    def places(self, builder: Builder, buffers: Sequence[Value], which: Value) -> list[Value]:
        """Create slot number ``which`` of each buffer."""
        return [
            self.create(builder, "simt.slot", [buffer], [which]).results[0] for buffer in buffers
        ]

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
            again.attributes[UNOBSERVED] = True
        made = again.results[0]
        made.layout = load.results[0].layout
        mapping[load.results[0]] = made

    def masked(
        self, builder: Builder, pointer: Value, mask: Value | None, live: Value | None
    ) -> Value:
        """Combine ``mask`` with the condition ``live``."""
        assert live is not None
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


def _addresses(
    reader: SliceReader, mapping: Mapping[Value, Value]
) -> tuple[Value, Value | None, Value | None]:
    """Return the pointer, mask and ``other`` of a load in another iteration."""
    pointer, mask, other = (reader.operand(name) for name in ("pointer", "mask", "other"))
    assert pointer is not None
    return mapping.get(pointer, pointer), _mapped(mask, mapping), _mapped(other, mapping)


def _mapped(value: Value | None, mapping: Mapping[Value, Value]) -> Value | None:
    return None if value is None else mapping.get(value, value)


def redirect(readers: Iterable[Operation], old: Value, new: Value) -> None:
    """Let some readers of a value read another one."""
    for reader in readers:
        for position, operand in enumerate(reader.operands):
            if operand is old:
                reader.set_operand(position, new)
