"""Asynchronous matmuls, and those with accumulators in tensor memory: written as calls of the
engine, which multiplies when it likes.

While matmuls are in flight, a thread's registers of the result are in memory, a place for each
chain of matmuls that go on in the same registers (:mod:`tilewright.simt.analysis.async_hazards`);
the values of the IR keep what they had. A wait brings them back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.ir.core import Function, Operation, Value
from tilewright.ir.types import Type, element_type
from tilewright.llvm.emission.registers import (
    constant,
    register_type,
    storage_size,
    storage_type,
)
from tilewright.simt.analysis.async_hazards import InFlight
from tilewright.simt.dialect.ops import dot as ops
from tilewright.simt.dialect.ops.async_copy import Wait
from tilewright.simt.emulator import layout
from tilewright.simt.emulator.code import call_engine, word
from tilewright.simt.emulator.multiply import AccumulatorSite, MatmulSite, operand_layout
from tilewright.simt.layouts.linear_layout import LinearLayout
from tilewright.simt.lowering.emission.context import SimtContext
from tilewright.simt.target.matmul_plan import (
    SHARED,
    Matmul,
    MatmulPlan,
    OperandSource,
    SharedOperand,
    TensorMemoryAccumulator,
)

#: Bytes before a chain's registers: whether matmuls are in flight there.
_HEADER = 8


def asynchronous_plan(
    name: str, matmul: Matmul, c: LinearLayout, reads: tuple[str, str]
) -> MatmulPlan:
    """A plan of the emulated machine for asynchronous matmuls, whose result is in any layout ``c``
    without blocks: each thread computes its elements.

    Args:
        reads: where operands are taken from. Of one in registers a thread needs whole rows (or
            columns).
    """
    a, b = (operand_layout(c, matmul.k, position) for position in (0, 1))

    def start(
        context: SimtContext, left: OperandSource, right: OperandSource, accumulator: list[str]
    ) -> list[str]:
        from tilewright.simt.emulator.record import record_of

        if isinstance(context.operation, ops.DotStart) and context.operation.overwrites:
            accumulator = [constant(matmul.accumulator, 0)] * len(accumulator)
        return record_of(context.writer).matmuls_in_flight.start(
            context, matmul, (a, b, c), (left, right), accumulator
        )

    return MatmulPlan(name, a, b, c, start, reads, asynchronous=True)


def accumulating_plan(name: str, matmul: Matmul, c: LinearLayout, units: int) -> MatmulPlan:
    """A plan of the emulated machine with an f32 accumulator in ``units`` of tensor memory.

    Threads read and write the accumulator in layout ``c``."""
    a, b = (operand_layout(c, matmul.k, position) for position in (0, 1))
    elements = matmul.a, matmul.b, matmul.accumulator

    def start(
        context: SimtContext, left: SharedOperand, right: SharedOperand, accumulator: list[str]
    ) -> list[str]:
        w = context.writer
        site = _site(context, AccumulatorSite(c, matmul.k, elements, (left.shared, right.shared)))
        addresses = [w.emit(f"ptrtoint ptr {operand.address} to i64") for operand in (left, right)]
        place, adds = (
            w.emit(f"zext {type_} {name} to i64")
            for type_, name in zip(("i32", "i1"), accumulator, strict=True)
        )
        call_engine(w, layout.START_INTO, [str(site), place, adds, *addresses])
        return []

    def moved(context: SimtContext, code: int, place: str, area: str) -> None:
        w = context.writer
        site = _site(context, AccumulatorSite(c, matmul.k, elements))
        numbers = [
            w.emit(f"zext i32 {name} to i64") for name in (place, context.lane, context.warp)
        ]
        call_engine(w, code, [str(site), w.emit(f"ptrtoint ptr {area} to i64"), *numbers])

    def load(context: SimtContext, place: str) -> list[str]:
        w = context.writer
        area = w.alloca("i8", 4 * c.register_count, 16)
        moved(context, layout.LOAD_ACCUMULATORS, place, area)
        return [
            w.load("float", w.gep("float", area, register), 4)
            for register in range(c.register_count)
        ]

    def store(context: SimtContext, place: str, names: list[str]) -> None:
        area = context.writer.alloca("i8", 4 * c.register_count, 16)
        _write(context, area, matmul.accumulator, names)
        moved(context, layout.STORE_ACCUMULATORS, place, area)

    return MatmulPlan(
        name,
        a,
        b,
        c,
        start,
        (SHARED, SHARED),
        accumulator=TensorMemoryAccumulator(units, load, store),
    )


def _site(context: SimtContext, site: AccumulatorSite) -> int:
    from tilewright.simt.emulator.record import record_of

    return record_of(context.writer).add_site(site)


class Matmuls:
    """The asynchronous matmuls of the kernel that is being written.

    Attributes:
        words: of memory of 8 bytes that a thread needs for the kernels written so far.
    """

    def __init__(self, add_site: Callable[[MatmulSite], int]) -> None:
        self.words = 1
        self._add_site = add_site
        self.flights: InFlight | None = None
        self._places: dict[int | Operation, int] = {}
        self._used = 0

    def begin(self, function: Function) -> None:
        """Another kernel is written."""
        self.flights, self._places, self._used = InFlight(function), {}, 0

    def start(
        self,
        context: SimtContext,
        matmul: Matmul,
        layouts: tuple[LinearLayout, LinearLayout, LinearLayout],
        operands: tuple[OperandSource, OperandSource],
        accumulator: list[str],
    ) -> list[str]:
        """Write the start of a matmul; the names of the registers of the result, which are what
        they were."""
        operation, w = context.operation, context.writer
        assert isinstance(operation, ops.TileMatmul) and self.flights is not None
        elements = matmul.a, matmul.b, matmul.accumulator
        sizes = [
            layout_.register_count * storage_size(element)
            for layout_, element in zip(layouts, elements, strict=True)
        ]
        place = self._place(context, operation.results[0], operation, sizes[2])
        mine = w.emit(f"icmp eq i64 {w.load('i64', place, 8)}, 0")
        registers = w.gep("i8", place, _HEADER)
        if not self.flights.may_be(operation.c):
            with w.when(w.emit(f"xor i1 {mine}, true"), likely=False):
                call_engine(w, layout.BUSY)
        with w.when(mine):
            _write(context, registers, matmul.accumulator, accumulator)
        w.store("i64", "1", place, 8)
        addresses = []
        for operand, element, size in zip(operands, elements, sizes, strict=False):
            if isinstance(operand, SharedOperand):
                addresses.append(operand.address)
            else:
                addresses.append(w.alloca("i8", size, 16))
                _write(context, addresses[-1], element, operand)
        shared = tuple(
            operand.shared if isinstance(operand, SharedOperand) else None for operand in operands
        )
        site = self._add_site(MatmulSite(*layouts, elements, (shared[0], shared[1])))
        numbers = [w.emit(f"ptrtoint ptr {address} to i64") for address in (registers, *addresses)]
        thread = [w.emit(f"zext i32 {name} to i64") for name in (context.lane, context.warp)]
        call_engine(w, layout.START_MATMUL, [str(site), *numbers, *thread])
        return list(accumulator)

    def brought_back(self, context: SimtContext, names: Sequence[Sequence[str]]) -> list[list[str]]:
        """The registers of the tiles that the operation being written waits for, after the wait."""
        operation, flights = context.operation, self.flights
        assert operation is not None and flights is not None
        if not isinstance(
            operation, Wait
        ):  # a matmul that is waited for at once, or a loop that leaves some in flight
            return [
                self._brought_back(context, operation, tile, registers)
                for tile, registers in zip(operation.results[: len(names)], names, strict=True)
            ]
        return [
            list(registers)
            if flights.chain(tile) is None
            else self._brought_back(context, operation, tile, registers)
            for tile, registers in zip(operation.tiles, names, strict=True)
        ]

    def _brought_back(
        self, context: SimtContext, operation: Operation, tile: Value, names: Sequence[str]
    ) -> list[str]:
        """The registers of a chain, where matmuls were started in it; else those that it would have
        gone on in."""
        w, element = context.writer, element_type(tile.type)
        place = self._place(context, tile, operation, len(names) * storage_size(element))
        started = w.emit(f"icmp ne i64 {w.load('i64', place, 8)}, 0")
        before, then, join = w.current, w.new_block("then"), w.new_block("join")
        w.branch_if(started, then, join)
        w.place(then)
        base, stored = w.gep("i8", place, _HEADER), storage_type(element)
        found = [
            w.load(stored, w.gep(stored, base, i), storage_size(element)) for i in range(len(names))
        ]
        w.store("i64", "0", place, 8)
        after = w.current
        w.branch(join)
        w.place(join)
        return [
            w.phi(register_type(element), ((value, after), (name, before)))
            for value, name in zip(found, names, strict=True)
        ]

    def _place(self, context: SimtContext, value: Value, operation: Operation, size: int) -> str:
        """The address of a chain's memory; a matmul that is waited for at once is a chain of its
        own."""
        assert self.flights is not None
        number = self.flights.chain(value)
        key = number if number is not None else operation
        if key not in self._places:
            self._places[key] = self._used
            self._used += -(-(_HEADER + size) // 16) * 2
            self.words = max(self.words, self._used)
        w = context.writer
        return w.gep("i64", word(w, "%own", layout.AREA, "ptr"), self._places[key])


def _write(context: SimtContext, base: str, element: Type, names: Sequence[str]) -> None:
    w, stored = context.writer, storage_type(element)
    for i, name in enumerate(names):
        w.store(stored, name, w.gep(stored, base, i), storage_size(element))
