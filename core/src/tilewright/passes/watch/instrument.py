"""Recording of each float value that a kernel computes.

The pass adds two parameters to the kernel, the memory of :mod:`tilewright.passes.watch.record`, and
behind each operation that computes floats the code that updates its record. Operations that only
move elements, and code on scalars within a reduction, have no record.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Location, Module, Operation, Value
from tilewright.ir.expressions import Number, select
from tilewright.ir.ops.arithmetic import Constant
from tilewright.ir.ops.control import LOOPS, If
from tilewright.ir.ops.memory import (
    AtomicLoad,
    AtomicRmw,
    AtomicStore,
    DescriptorReduce,
    DescriptorScatter,
    DescriptorStore,
    Load,
    Store,
)
from tilewright.ir.table import Effect, Trait
from tilewright.ir.types import F32, I1, I32, I64, IntType, PointerType, Type
from tilewright.passes.analysis.argument_access import accesses_of
from tilewright.passes.inline import inline
from tilewright.passes.watch.record import WORDS, Field
from tilewright.passes.watch.statistics import (
    branch,
    count,
    is_float,
    not_finite,
    ordered,
    positions,
    reduced,
    widened,
)

#: Accesses of some of their elements alone.
_MASKED: Final = (Load, Store, AtomicRmw, AtomicLoad, AtomicStore)
#: Writes of floats to memory that have no result.
_WRITES: Final = (Store, AtomicStore, DescriptorStore, DescriptorScatter, DescriptorReduce)
#: What a NaN and an infinity are recorded in: how many, where they begin, the first one.
_NAN_FIELDS: Final = (Field.NAN, Field.NAN_ORIGINS, Field.FIRST_NAN)
_INF_FIELDS: Final = (Field.INF, Field.INF_ORIGINS, Field.FIRST_INF)


@dataclass(frozen=True)
class WatchedValue:
    """A value that has a record; its position in the list is the record's.

    Attributes:
        operation: the name of the operation that computes the value, or that writes it to memory.
        name: what the source calls the value, "" where it has no name.
        type: of the value.
        place: where the operation comes from, with its chain of calls.
        written: the kernel's parameters whose memory the operation may write the value to.
        read: the same of a load.
    """

    operation: str
    name: str
    type: Type
    place: Location | None
    written: tuple[str, ...] = ()
    read: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Flags:
    """Two scalars of i1: whether a value has a NaN, and whether it has an infinity."""

    nan: Value
    inf: Value


def instrument(module: Module) -> list[WatchedValue]:
    """Record the float values of a module's kernel; calls are inlined first.

    The kernel gets two more parameters, ``watch_records: ptr<i64>`` and ``watch_sums: ptr<f32>``.
    """
    inline(module)
    return _Instrumentation(module).run()


class _Instrumentation:
    def __init__(self, module: Module) -> None:
        self.function: Function = module.kernel
        self.watched: list[WatchedValue] = []
        self.flags: dict[Value, _Flags] = {}
        names = [argument.name for argument in self.function.arguments]
        self.arguments = {
            access.operation: tuple(names[position] for position in sorted(access.arguments))
            for access in accesses_of(module)
        }
        add = self.function.body.add_argument
        self.parameters = list(self.function.arguments)
        self.records = add(PointerType(I64), "watch_records")
        self.sums = add(PointerType(F32), "watch_sums")
        self.function.argument_attributes += [{"divisibility": 16}, {"divisibility": 16}]

    def run(self) -> list[WatchedValue]:
        operations = list(self.function.body)
        builder = Builder(self.function.body, self.function.body.first, self.function.location)
        self.program = self._program(builder)
        self._flag(builder, self.parameters)
        self._visit(operations)
        return self.watched

    @staticmethod
    def _program(b: Builder) -> Value:
        """The program's position in the grid, counted along the first axis first."""
        ids = [Number(b, b.program_id(axis=axis)).cast(I64) for axis in range(3)]
        extents = [Number(b, b.num_programs(axis=axis)).cast(I64) for axis in range(2)]
        return (ids[0] + extents[0] * (ids[1] + extents[1] * ids[2])).value

    def _visit(self, operations: Sequence[Operation]) -> None:
        for operation in operations:
            if isinstance(operation, (If, *LOOPS)):
                for region in operation.regions:
                    inner = list(region)
                    self._flag(Builder(region, region.first, operation.location), region.arguments)
                    self._visit(inner)
                self._flag(self._behind(operation), operation.results)
            elif not operation.spec.terminator:
                self._watch(operation)

    @staticmethod
    def _behind(operation: Operation) -> Builder:
        assert operation.next is not None, "a region ends with a terminator"
        return Builder(operation.parent, operation.next, operation.location)

    def _flag(self, b: Builder, values: Sequence[Value]) -> None:
        """Find the flags of values that no operation computes."""
        for value in values:
            if is_float(value):
                nan, inf = (count(b, bad) > 0 for bad in not_finite(widened(Number(b, value))))
                self.flags[value] = _Flags(nan.value, inf.value)

    def _watch(self, operation: Operation) -> None:
        results = [value for value in operation.results if is_float(value)]
        moved = Trait.SHAPE in operation.spec.traits or operation.spec.forwards
        if isinstance(operation, Constant):
            self._flag(self._behind(operation), results)
            return
        b = self._behind(operation)
        operands = self._either(
            b, [self.flags[value] for value in operation.operands if value in self.flags]
        )
        if moved:
            self.flags.update(dict.fromkeys(results, operands))
            return
        mask = operation.mask if isinstance(operation, _MASKED) else None
        accessed = self.arguments.get(operation, ())
        for value in results:
            name, read = value.name, accessed if Effect.READ in operation.spec.effects else ()
            flags = self._record(b, value, mask, operands)
            self.flags[value] = flags
            self.watched.append(
                WatchedValue(operation.name, name, value.type, operation.location, read=read)
            )
        if isinstance(operation, _WRITES) and is_float(value := operation.value):
            self._record(b, value, mask, operands)
            self.watched.append(
                WatchedValue(
                    operation.name, value.name, value.type, operation.location, written=accessed
                )
            )

    @staticmethod
    def _either(b: Builder, flags: Sequence[_Flags]) -> _Flags:
        """Return whether any of some values has a NaN, and whether any has an infinity."""
        if not flags:
            no: Value = b.constant(value=False, result=I1)
            return _Flags(no, no)
        nan, inf = flags[0].nan, flags[0].inf
        for other in flags[1:]:
            nan, inf = b.or_(nan, other.nan), b.or_(inf, other.inf)
        return _Flags(nan, inf)

    def _record(self, b: Builder, value: Value, mask: Value | None, operands: _Flags) -> _Flags:
        """Update the next record by a value, and return its flags.

        ``mask`` excludes elements from the record; they count for the flags, since operations that
        read the value compute with them.
        """
        slot = len(self.watched)
        x = widened(Number(b, value))
        lanes = x.constant(True, I1) if mask is None else Number(b, mask)
        every = not_finite(x)
        nan, inf = (lanes & bad for bad in every)
        finite = lanes & (nan | inf).apply("xor", True)
        nans, infs, finites = (count(b, each) for each in (nan, inf, finite))
        total = reduced(b, select(finite, x, 0.0), "add").cast(F32)
        self._update(b, self.sums, slot, "add", total)
        self._atomic(b, slot, Field.COUNT, "add", count(b, lanes).cast(I64))
        keys = ordered(x)
        key_type = keys.element
        assert isinstance(key_type, IntType)
        smallest = reduced(b, select(finite, keys, key_type.maximum), "min")
        largest = reduced(b, select(finite, keys, key_type.minimum), "max")
        with branch(b, finites > 0):
            self._atomic(b, slot, Field.MINIMUM, "min", smallest.cast(I64))
            self._atomic(b, slot, Field.MAXIMUM, "max", largest.cast(I64))
        with self._not_finite(b, slot, _NAN_FIELDS, nan, nans, operands.nan) as begins:
            from_inf = begins & Number(b, operands.inf)
            self._atomic(b, slot, Field.NAN_FROM_INF, "add", from_inf.cast(I64))
        with self._not_finite(b, slot, _INF_FIELDS, inf, infs, operands.inf):
            pass
        if mask is not None:
            nans, infs = (count(b, bad) for bad in every)
        return _Flags((nans > 0).value, (infs > 0).value)

    @contextlib.contextmanager
    def _not_finite(
        self,
        b: Builder,
        slot: int,
        fields: tuple[Field, Field, Field],
        bad: Number,
        number: Number,
        in_operands: Value,
    ) -> Iterator[Number]:
        """Record elements of one kind, of which there are ``number``, if there are any.

        Within the ``with`` block further code of that branch is built; its value is whether they
        begin here: whether no operand has any.
        """
        total, origins, first = fields
        with branch(b, number > 0):
            self._atomic(b, slot, total, "add", number.cast(I64))
            begins = Number(b, in_operands).apply("xor", True)
            self._atomic(b, slot, origins, "add", begins.cast(I64))
            places = select(bad, positions(b, bad.value.type), I32.maximum)
            key = (Number(b, self.program) << 32) | reduced(b, places, "min").cast(I64)
            self._atomic(b, slot, first, "min", key)
            yield begins

    def _atomic(self, b: Builder, slot: int, field: Field, kind: str, value: Number) -> None:
        self._update(b, self.records, slot * WORDS + field, kind, value)

    @staticmethod
    def _update(b: Builder, base: Value, offset: int, kind: str, value: Number) -> None:
        address = b.addptr(base, b.constant(value=offset, result=I32))
        b.atomic_rmw(address, value.value, kind=kind, order="relaxed")
