"""Tapes: what a loop carries, an iteration after the other, in memory of the launch.

The replay of a loop writes its carried values, and the adjoint's loop reads them from the last
iteration to the first. Each carried value has a parameter, ``tape_<loop>_<position>_<elements>``:
elements of ``tape_trips`` iterations for each program of the grid. What nothing reads in the end is
not recorded. Addresses and integers to which each iteration adds the same are computed from the
iteration's number instead.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tilewright.derivatives.adjoint.adjoint_builder import AdjointBuilder
from tilewright.derivatives.analysis.addresses import is_address
from tilewright.derivatives.cotangent_types import is_float
from tilewright.derivatives.refusals import refusal
from tilewright.derivatives.shadow_addresses import add_argument
from tilewright.derivatives.tile_memory import elements_of, tile_at
from tilewright.ir.builder import Builder
from tilewright.ir.core import Operation, Value
from tilewright.ir.ops.arithmetic import Addptr, Binary
from tilewright.ir.ops.control import For
from tilewright.ir.types import I1, I64, U8, PointerType, TileType, Type, element_type, with_element

#: The parameter with the iterations that a tape has room for, for each program.
TRIPS = "tape_trips"


@dataclass(frozen=True, slots=True)
class TapeParameter:
    """The meaning of a tape's name.

    Attributes:
        loop: the number of the loop.
        position: that of the carried value.
        elements: those of an iteration.
    """

    loop: int
    position: int
    elements: int

    @classmethod
    def of(cls, name: str) -> TapeParameter | None:
        """Read a parameter's name; None if it is not a tape's."""
        found = re.fullmatch(r"tape_(\d+)_(\d+)_(\d+)", name)
        return None if found is None else cls(*map(int, found.groups()))

    def __str__(self) -> str:
        return f"tape_{self.loop}_{self.position}_{self.elements}"


def trip_count(b: Builder, lower: Value, upper: Value, step: Value) -> Value:
    """Append the number of iterations of a loop, in the type of its bounds."""
    one, zero = (b.constant_like(lower.type, number) for number in (1, 0))
    span = b.add(b.sub(upper, lower), b.sub(step, one))
    is_empty = b.cmp(upper, lower, predicate="le")
    found: Value = b.select(is_empty, zero, b.div(span, step))
    return found


class LoopTape:
    """The tape of a loop that is walked backward.

    Attributes:
        trips: the number of iterations.
    """

    def __init__(self, builder: AdjointBuilder, loop: For) -> None:
        self._builder, self._loop = builder, loop
        self._number = builder.loops[loop]
        self._carried = loop.body.arguments[1:]
        self._tapes: dict[Value, Value] = {}
        self._lower, self._upper, self._step = (
            builder.primal[value] for value in (loop.lower, loop.upper, loop.step)
        )
        self.trips = trip_count(builder.b, self._lower, self._upper, self._step)

    def barrier(self) -> None:
        """Order the accesses of the tape before with those after."""
        self._builder.b.barrier()
        region = self._builder.b.region
        assert region is not None
        assert region.last is not None
        self._builder.tape_barriers[region.last] = self._number

    def record(self) -> None:
        """Let the last replay of the loop write what it carries."""
        builder, b = self._builder, self._builder.b
        copy = builder.replays[self._loop]
        region, before = b.region, b.before
        b.region, b.before = copy.body, copy.body.first
        iteration = b.div(b.sub(copy.body.arguments[0], self._lower), self._step)
        for position, value in enumerate(self._carried):
            if is_address(value):
                continue
            name = str(TapeParameter(self._number, position, elements_of(value.type)))
            pointer = PointerType(_memory_type(element_type(value.type)))
            known = (v for v in builder.function.arguments if v.name == name)
            tape = next(known, None) or add_argument(builder.function, pointer, name)
            self._tapes[value] = tape
            recorded = copy.body.arguments[1 + position]
            wide = with_element(recorded.type, pointer.pointee)
            b.store(self._slot(value, iteration), builder.to(recorded, wide))
        b.region, b.before = region, before
        self.barrier()

    def restore(self, number: Value) -> None:
        """Append the carried values of an iteration, counted from the last one."""
        builder, b = self._builder, self._builder.b
        iteration = b.sub(b.sub(self.trips, b.constant_like(self.trips.type, 1)), number)
        primal, arguments = builder.primal, self._loop.body.arguments
        primal[arguments[0]] = b.add(self._lower, b.mul(iteration, self._step))
        for value in self._carried:
            moved = self._closed_form(value, iteration)
            if moved is not None:
                primal[value] = moved
            elif value in self._tapes:
                loaded = b.load(self._slot(value, iteration))
                primal[value] = builder.to(loaded, value.type)
            else:
                error = refusal(
                    self._loop,
                    f"is walked backward, and carries the address {value.name or '(unnamed)'}, "
                    "which iterations do not move by one distance",
                    "compute the address from the number of the iteration",
                )
                primal[value] = builder.placeholder(value, error)

    def _slot(self, value: Value, iteration: Value) -> Value:
        """Append the pointers to what an iteration of this program recorded of a value."""
        builder, b = self._builder, self._builder.b
        known = (v for v in builder.function.arguments if v.name == TRIPS)
        room = next(known, None) or add_argument(builder.function, I64, TRIPS)
        x, y, z = (builder.to(b.program_id(axis=axis), I64) for axis in range(3))
        width, height = (builder.to(b.num_programs(axis=axis), I64) for axis in range(2))
        program = b.add(x, b.mul(width, b.add(y, b.mul(height, z))))
        place = b.add(b.mul(program, room), builder.to(iteration, I64))
        return tile_at(b, self._tapes[value], place, value.type)

    def _closed_form(self, value: Value, iteration: Value) -> Value | None:
        """Append what a loop carries to which it adds the same each time; None for the rest."""
        body, position = self._loop.body, value.index - 1
        assert body.last is not None
        yielded = body.last.operands[position].definition
        if is_float(value) or yielded is None or yielded.parent is not body:
            return None
        if isinstance(yielded, Addptr):
            before, added = yielded.pointer, yielded.offset
        elif isinstance(yielded, Binary) and yielded.name == "add":
            before, added = yielded.a, yielded.b
        else:
            return None
        if before is not value or self._is_inside(added):
            return None
        builder, b = self._builder, self._builder.b
        init, by = builder.primal[self._loop.inits[position]], builder.primal[added]
        if is_address(value):
            by = builder.to(by, with_element(by.type, I64))  # many iterations may go far
        count = builder.to(iteration, element_type(by.type))
        wide = b.splat(count, result=by.type) if isinstance(by.type, TileType) else count
        distance = b.mul(by, wide)
        found: Value = b.addptr(init, distance) if is_address(value) else b.add(init, distance)
        return found

    def _is_inside(self, value: Value) -> bool:
        owner = value.owner
        if isinstance(owner, Operation):
            return self._loop in owner.ancestors()
        around = owner.owner
        return around is self._loop or (
            isinstance(around, Operation) and self._loop in around.ancestors()
        )


def _memory_type(element: Type) -> Type:
    """Return the type in which an element is recorded."""
    return U8 if element is I1 else element
