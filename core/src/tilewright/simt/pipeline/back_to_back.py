"""Software-pipelined halves of loops over back-to-back matmuls.

In a loop over dependent asynchronous matmuls, such as ``s = a @ b; p = f(s); acc = p @ v + g(s) *
acc``, each matmul with an operand that is computed from another matmul of the iteration is *late*,
as is every operation that depends on it; all others are *early*. No early operation depends on a
late one, not even in a later iteration. So the early half of the next iteration is written beside
the late half of this one:

    if the loop runs at all:
        early half of the first iteration
        for each iteration but the first:
            start the early matmuls
            start the late matmuls of the previous iteration
            wait for the early matmuls; the rest of the early half
            wait for the late matmuls; the rest of the late half
        late half of the last iteration

Comparisons of the counter with its lower bound are constant in each part: masks of the first
iteration alone, such as that on the diagonal, take no instructions in the loop.

While threads compute ``f``, the late matmuls run. Values that cross from one half to the other are
loop-carried, except those that are cheap to recompute where they are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tilewright.ir.builder import Builder
from tilewright.ir.core import Operation, Region, Value
from tilewright.ir.ops import TABLE
from tilewright.ir.ops.arithmetic import Arange, Cmp, Constant
from tilewright.ir.ops.control import For
from tilewright.ir.ops.shape import Broadcast, ExpandDims, Splat
from tilewright.ir.types import I1, IntType
from tilewright.passes.clone import clone_operation
from tilewright.passes.effects import clobbers_memory
from tilewright.passes.rewriter import constant_of
from tilewright.simt.dialect.ops.async_copy import Wait
from tilewright.simt.dialect.ops.buffers import SharedLoad, SharedView, Slot
from tilewright.simt.dialect.ops.dot import DotStart, PlannedDot
from tilewright.simt.target.plan_selection import plan_of
from tilewright.simt.target.simt_target import SimtTarget

#: Operations that are recomputed if both halves read their results.
_REPEATED: Final = (Constant, Splat, Broadcast, ExpandDims, Arange, Slot, SharedView)


def asynchronous_matmuls(body: Region, target: SimtTarget) -> list[PlannedDot]:
    """Return the matmuls of a loop's body that can be started and waited for later."""
    plans = {
        operation: plan_of(operation, target)
        for operation in body
        if isinstance(operation, PlannedDot)
    }
    return [
        matmul
        for matmul, plan in plans.items()
        if plan.asynchronous or plan.accumulator is not None
    ]


def late_half(body: Region, matmuls: Sequence[PlannedDot]) -> set[Operation] | None:
    """Return the late operations of a body with the given matmuls.

    Returns None if the matmuls are not back to back, or the halves depend on each other in both
    directions.
    """
    late_matmuls = [
        matmul for matmul in matmuls if _reads_any(body, (matmul.a, matmul.b), set(matmuls))
    ]
    late = _dependents(body, late_matmuls)
    if not late_matmuls or all(matmul in late for matmul in matmuls):
        return None
    # loads of a slot with late readers only are late
    late |= {
        one
        for one in body
        if isinstance(one, SharedLoad)
        and all(_of_body(body, user) in late for user in one.results[0].uses)
    }
    return late


def is_chain(loop: For, target: SimtTarget) -> bool:
    """Return whether a loop is worth splitting into two software-pipelined halves.

    Both halves have matmuls, nothing in the loop writes to memory, and the accumulators of all
    matmuls fit in tensor memory at a time.
    """
    (body,) = loop.regions
    if any(clobbers_memory(operation) for operation in body):
        return False
    matmuls = asynchronous_matmuls(body, target)
    accumulators = (plan_of(matmul, target).accumulator for matmul in matmuls)
    units = sum(one.units for one in accumulators if one is not None)
    available = 0 if target.tensor_memory is None else target.tensor_memory.columns
    return units <= available and late_half(body, matmuls) is not None


def _of_body(body: Region, operation: Operation) -> Operation | None:
    """Return the operation of a body that is, or contains, another one."""
    while operation.parent is not body:
        owner = operation.parent.owner if operation.parent is not None else None
        if not isinstance(owner, Operation):
            return None
        operation = owner
    return operation


def _read_by(operation: Operation) -> Iterator[Value]:
    """Yield the operands of an operation and of the operations in its regions."""
    yield from operation.operands
    for region in operation.regions:
        for inner in region.walk():
            yield from inner.operands


def _reads_any(body: Region, values: Iterable[Value], wanted: set[Operation]) -> bool:
    """Return whether values depend on one of the wanted operations, in the same iteration."""
    work, seen = list(values), set[Operation]()
    while work:
        operation = work.pop().definition
        top = _of_body(body, operation) if operation is not None else None
        if top is None or top in seen:
            continue
        if top in wanted:
            return True
        seen.add(top)
        work += _read_by(top)
    return False


def _dependents(body: Region, seeds: Iterable[Operation]) -> set[Operation]:
    """Return operations of a body and all their dependents, in this iteration or a later one."""
    last = body.terminator
    assert last is not None
    found, work = set[Operation](), list(seeds)
    carried = set[int]()

    def follow(value: Value) -> None:
        for user in value.uses:
            if user is last:
                for index, operand in enumerate(last.operands):
                    if operand is value and index not in carried:
                        carried.add(index)
                        follow(body.arguments[1 + index])
            elif (top := _of_body(body, user)) is not None:
                work.append(top)

    while work:
        operation = work.pop()
        if operation not in found:
            found.add(operation)
            for result in operation.results:
                follow(result)
    return found


@dataclass
class Halves:
    """A loop whose matmuls are started and waited for in place, before its halves are pipelined.

    Attributes:
        loop: the ``for``.
        late: the late operations of its body.
        after: extra predecessors of an operation beside its operands, such as the wait for the
            memory that it refers to.
    """

    loop: For
    late: set[Operation]
    after: dict[Operation, list[Operation]] = field(default_factory=dict)

    def interleave(self) -> list[Value]:
        """Replace the loop by its software-pipelined halves; return its results."""
        return _Interleaved(self).run()


class _Interleaved:
    def __init__(self, halves: Halves) -> None:
        self.loop, self.after = halves.loop, halves.after
        (self.body,) = self.loop.regions
        last = self.body.terminator
        assert last is not None
        self.last = last
        operations = [operation for operation in self.body if operation is not last]
        self.late_arguments = self._late_arguments(halves.late)
        early, late = (
            [one for one in operations if (one in halves.late) is half] for half in (False, True)
        )
        self.early, self.late = self._starts_first(early), self._starts_first(late)
        self.crossing = self._crossing(late)

    def _late_arguments(self, late: set[Operation]) -> set[int]:
        """Return the indices of the loop-carried values that depend on the late half."""
        found = set[int]()
        while True:
            more = {
                index
                for index, operand in enumerate(self.last.operands)
                if operand.definition in late
                or (operand.owner is self.body and operand.index - 1 in found)
            }
            if more == found:
                return found
            found = more

    def _starts_first(self, operations: list[Operation]) -> tuple[list[Operation], list[Operation]]:
        """Split a half into (starts of matmuls and their operands, the rest).

        Both are in program order. The starts are those that wait for no matmul of the half.
        """
        own = set(operations)
        needed = set[Operation]()
        for start in (operation for operation in operations if isinstance(operation, DotStart)):
            closure = self._needed(start, own)
            if not any(isinstance(operation, Wait) for operation in closure):
                needed |= closure
        return [one for one in operations if one in needed], [
            one for one in operations if one not in needed
        ]

    def _needed(self, operation: Operation, own: set[Operation]) -> set[Operation]:
        found, work = set[Operation](), [operation]
        while work:
            one = work.pop()
            if one in found or one not in own:
                continue
            found.add(one)
            work += self.after.get(one, ())
            for value in _read_by(one):
                definition = value.definition
                top = _of_body(self.body, definition) if definition is not None else None
                if top is not None:
                    work.append(top)
        return found

    def _is_early(self, value: Value) -> bool:
        """Return whether a value is defined in the early half, or at the iteration's beginning."""
        if value.owner is self.body:
            return value.index - 1 not in self.late_arguments or value.index == 0
        definition = value.definition
        return (
            definition is not None
            and definition.parent is self.body
            and definition not in self._late_set
        )

    def _crossing(self, late: list[Operation]) -> list[Value]:
        """Return the early values that the late half reads, without those that it recomputes."""
        self._late_set = set(late)
        found: dict[Value, None] = {}
        work = [value for operation in late for value in _read_by(operation)]
        work += [
            operand
            for index, operand in enumerate(self.last.operands)
            if index in self.late_arguments
        ]
        seen = set[Value]()
        while work:
            value = work.pop()
            if value in seen or not self._is_early(value):
                continue
            seen.add(value)
            definition = value.definition
            if definition is not None and isinstance(definition, _REPEATED):
                work += definition.operands
            else:
                found[value] = None
        return list(found)

    # ---- writing

    def run(self) -> list[Value]:
        loop, place = self.loop, Builder.at(self.loop)
        lower, upper, step, inits = loop.lower, loop.upper, loop.step, loop.inits
        runs = place.cmp(lower, upper, predicate="lt")
        then, otherwise = Region(), Region()
        inside = Builder(then, None, loop.location)

        first: dict[Value, Value] = dict(zip(self.body.arguments, (lower, *inits), strict=True))
        self._write(inside, (*self.early[0], *self.early[1]), first)
        following = self._rest(inside, lower, upper, step, first)
        results = self._final(inside, following)
        inside.insert(_yield(results))
        Builder(otherwise, None, loop.location).insert(_yield(inits))
        types = [result.type for result in loop.results]
        made = place.insert(
            Operation(TABLE["if"], [runs], (1,), {}, types, [then, otherwise], loop.location)
        )
        for old, new in zip(loop.results, made.results, strict=True):
            new.name, new.layout = old.name, old.layout
            old.replace_all_uses(new)
        loop.erase()
        return list(made.results)

    def _rest(
        self,
        builder: Builder,
        lower: Value,
        upper: Value,
        step: Value,
        first: Mapping[Value, Value],
    ) -> dict[Value, Value]:
        """Write the loop over all iterations but the first.

        Returns the values that the late half of the last iteration reads.
        """
        arguments, counter = self.body.arguments, lower.type
        assert isinstance(counter, IntType)
        unsigned = IntType(counter.bits, signed=False)
        distance = builder.sub(
            *(
                value if value.type is unsigned else builder.cast(value, result=unsigned)
                for value in (upper, lower)
            )
        )
        stride = step if step.type is unsigned else builder.cast(step, result=unsigned)
        again = builder.select(
            builder.cmp(distance, stride, predicate="gt"), builder.add(lower, step), upper
        )

        indices = range(len(self.last.operands))
        early = [index for index in indices if index not in self.late_arguments]
        late = [index for index in indices if index in self.late_arguments]
        inits = [first.get(self.last.operands[index], self.last.operands[index]) for index in early]
        inits += [first[arguments[1 + index]] for index in late]
        inits += [first[value] for value in self.crossing]
        olds = [arguments[1 + index] for index in (*early, *late)] + self.crossing
        region = Region(
            [counter, *(value.type for value in olds)],
            [arguments[0].name, *(value.name for value in olds)],
        )
        for old, new in zip(olds, region.arguments[1:], strict=True):
            new.layout = old.layout
        inner = Builder(region, None, self.loop.location)
        made = region.arguments[1:]
        ahead = {
            arguments[0]: region.arguments[0],
            **dict(zip(olds[: len(early)], made, strict=False)),
        }
        behind = dict(zip(olds[len(early) :], made[len(early) :], strict=True))
        known = {
            operation: truth
            for operation in (*self.early[0], *self.early[1])
            if (truth := self._after_first(operation)) is not None
        }
        for operation, truth in known.items():
            ahead[operation.results[0]] = inner.constant(value=truth, result=I1)
        for operations, mapping in (
            (self.early[0], ahead),
            (self.late[0], behind),
            (self.early[1], ahead),
            (self.late[1], behind),
        ):
            self._write(inner, [one for one in operations if one not in known], mapping)
        yielded = [
            ahead.get(self.last.operands[index], self.last.operands[index]) for index in early
        ]
        yielded += [self._late_value(inner, self.last.operands[index], behind) for index in late]
        yielded += [ahead[value] for value in self.crossing]
        inner.insert(_yield(yielded))
        operation = Operation(
            self.loop.spec,
            [again, upper, step, *inits],
            (1, 1, 1, len(inits)),
            self.loop.attributes,
            [value.type for value in olds],
            [region],
            self.loop.location,
        )
        builder.insert(operation)
        for old, new in zip(olds, operation.results, strict=True):
            new.name, new.layout = old.name, old.layout
        self._early_results = dict(zip(early, operation.results, strict=False))
        return dict(zip(olds[len(early) :], operation.results[len(early) :], strict=True))

    def _after_first(self, operation: Operation) -> bool | None:
        """Return the truth of a comparison of counter and lower bound after the first iteration."""
        counter, lower = self.body.arguments[0], self.loop.lower
        if not isinstance(operation, Cmp) or operation.a is not counter:
            return None
        bound = constant_of(lower)
        if operation.b is not lower and (bound is None or constant_of(operation.b) != bound):
            return None
        return operation.predicate in ("gt", "ge", "ne")

    def _final(self, builder: Builder, behind: dict[Value, Value]) -> list[Value]:
        """Write the late half of the last iteration; return the loop's results."""
        self._write(builder, (*self.late[0], *self.late[1]), behind)
        return [
            self._late_value(builder, operand, behind)
            if index in self.late_arguments
            else self._early_results[index]
            for index, operand in enumerate(self.last.operands)
        ]

    def _late_value(self, builder: Builder, value: Value, behind: dict[Value, Value]) -> Value:
        self._repeat(builder, value, behind)
        return behind.get(value, value)

    def _write(
        self, builder: Builder, operations: Iterable[Operation], mapping: dict[Value, Value]
    ) -> None:
        for operation in operations:
            if operation in self._late_set:
                for value in _read_by(operation):
                    self._repeat(builder, value, mapping)
            builder.insert(clone_operation(operation, mapping))

    def _repeat(self, builder: Builder, value: Value, mapping: dict[Value, Value]) -> None:
        """Recompute an early value for the late half, if it is not loop-carried."""
        definition = value.definition
        if value in mapping or definition is None or not self._is_early(value):
            return
        for operand in definition.operands:
            self._repeat(builder, operand, mapping)
        builder.insert(clone_operation(definition, mapping))


def _yield(values: Sequence[Value]) -> Operation:
    return Operation(TABLE["yield"], list(values), (len(values),), {}, ())
