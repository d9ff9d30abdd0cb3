"""Loads beside asynchronous matmuls, prefetched to words of each warp's own in shared memory.

A loop may load more than the operands of its matmuls, such as scales of the results. What it loads
is read when the matmul has completed, and a load takes longer than a matmul. So each warp copies
its own elements some iterations ahead (cp.async). No other warp reads them: there is no barrier,
which would end the independence of the warp groups of a warp-specialized consumer. Lanes that hold
the same elements share their words, which one of them copies: copies of one element to the words of
32 lanes take as many accesses of shared memory.

    S words of shared memory for each element of each warp; D = S - 1
    for s in 0 .. D-1:  copy the elements of iteration s, where s < n; commit
    for each iteration i:
        start the matmul
        copy the elements of iteration i+D, where i+D < n, to the words of iteration i-1; commit
        wait until D groups are in flight: the elements of iteration i have arrived
        read them; wait for the matmul; ... the body

A prefetch to registers would not do: the registers of the next iteration's elements are not those
of this one's, and the move at the end of the body waits for the load.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Operation, Region, Value
from tilewright.ir.ops.control import For
from tilewright.ir.ops.memory import Load
from tilewright.ir.types import I1, I32, FloatType, IntType, TileType, Type, element_type
from tilewright.llvm.emission.registers import storage_size
from tilewright.passes.dce import dce_function
from tilewright.passes.rewriter import constant_of
from tilewright.simt.analysis.alias import root_of, writer_in
from tilewright.simt.analysis.iteration_slices import Slice, slice_of
from tilewright.simt.dialect.attributes import layout_of, warps_of
from tilewright.simt.dialect.ops import SIMT_TABLE
from tilewright.simt.dialect.ops.async_copy import CopyStart, Wait
from tilewright.simt.dialect.ops.dot import DotStart
from tilewright.simt.dialect.own_words import repeated_lanes
from tilewright.simt.dialect.types import COPIES, BufferType
from tilewright.simt.layouts.linear_layout import SharedLayout
from tilewright.simt.passes.allocate_shared import peak_bytes
from tilewright.simt.passes.ssa_repair import carry_in_for, yield_more
from tilewright.simt.target.copy_mechanism import GROUPS
from tilewright.simt.target.simt_target import SimtTarget

#: Slots of the prefetched elements, a power of two.
_SLOTS: Final = 4
#: Maximum number of elements per thread that a loop prefetches in an iteration.
_ELEMENTS: Final = 8


def prefetch_beside_matmuls(function: Function, target: SimtTarget) -> None:
    """Prefetch small loads whose results are read behind the wait for an asynchronous matmul.

    Nothing is prefetched if the words do not fit in shared memory beside what else is there.
    """
    mechanism = next(
        (
            one
            for one in target.async_copy.mechanisms
            if one.completes == GROUPS and not one.lanes_side_by_side
        ),
        None,
    )
    if mechanism is None:
        return
    found = [
        one
        for loop in function.walk()
        if isinstance(loop, For) and (one := _beside(loop, mechanism.widths, target)) is not None
    ]
    room = target.resources.shared_memory - (peak_bytes(function.body, target) if found else 0)
    if not found or sum(one.bytes(target) for one in found) > room:
        return
    for one in found:
        one.write(mechanism.name, target)
    dce_function(function)


def _beside(loop: For, widths: Sequence[int], target: SimtTarget) -> _Prefetch | None:
    """Return the loads of a loop to prefetch, if there are any."""
    wait = _wait_for_matmul(loop.body)
    if wait is None or any(isinstance(one, CopyStart) for one in loop.body):
        return None
    found, count = _Prefetch(loop, wait), 0
    places = {operation: number for number, operation in enumerate(loop.body)}
    for load in loop.body:
        if not isinstance(load, Load) or not _is_copyable(load, widths):
            continue
        part, users = slice_of(loop.body, (load,), target), _users_before(load, wait, places)
        if (
            part is None
            or users is None
            or any(isinstance(one.operation, Load) for one in part.operations)
        ):
            continue
        elements = _elements(load)
        if (
            count + elements <= _ELEMENTS
            and (part.counter or part.carried)
            and writer_in(loop.body, [root_of(load.pointer)]) is None
        ):
            count += elements
            found.loads.append(load)
            found.moved.update(users)
    return found if found.loads else None


def _users_before(
    load: Load, wait: Wait, places: Mapping[Operation, int]
) -> list[Operation] | None:
    """Return what depends on a load and stands before a wait; None if it has to stay there."""
    found: list[Operation] = []
    work: list[Operation] = [load]
    if places[load] > places[wait]:
        return found
    while work:
        operation = work.pop()
        found.append(operation)
        for user in {user for result in operation.results for user in result.uses}:
            if user not in places:
                return None  # in a region of an operation of the body
            if places[user] > places[wait] or user in found:
                continue
            if not user.spec.pure or user.regions:
                return None
            work.append(user)
    return found


def _wait_for_matmul(body: Region) -> Wait | None:
    """Return the first wait for a matmul that the same iteration starts."""
    tokens: set[Value] = set()
    for operation in body:
        if isinstance(operation, DotStart):
            tokens.update(operation.results)
        elif isinstance(operation, Wait) and tokens.intersection(operation.tokens):
            return operation
    return None


def _is_copyable(load: Load, widths: Sequence[int]) -> bool:
    """Return whether a load is of numbers of a width, and zero where its mask is false."""
    element = element_type(load.results[0].type)
    zero = 0 if load.other is None else constant_of(load.other)
    return (
        isinstance(element, IntType | FloatType)
        and element is not I1
        and storage_size(element) in widths
        and not load.volatile
        and zero == 0
        and not str(zero).startswith("-")
    )


def _elements(load: Load) -> int:
    """Return the elements of a load per thread."""
    (result,) = load.results
    return layout_of(result).register_count if isinstance(result.type, TileType) else 1


@dataclass
class _Prefetch:
    """The prefetched loads of a loop.

    Attributes:
        loop: the loop.
        wait: its wait for a matmul, before which it reads the elements.
        loads: the loads, in order.
        moved: operations before the wait, of the loads and what depends on them.
    """

    loop: For
    wait: Wait
    loads: list[Load] = field(default_factory=list)
    moved: set[Operation] = field(default_factory=set)

    def _buffer(self, load: Load, target: SimtTarget) -> BufferType:
        warp_size = target.resources.warp_size
        lanes = warp_size >> repeated_lanes(load.results[0], warp_size).bit_count()
        shape = (_elements(load) * lanes * warps_of(self.loop),)
        element = element_type(load.results[0].type)
        return BufferType(_SLOTS, shape, element, SharedLayout.row_major(shape))

    def bytes(self, target: SimtTarget) -> int:
        """Return the bytes of all words."""
        return sum(self._buffer(load, target).bytes for load in self.loads)

    def write(self, by: str, target: SimtTarget) -> None:
        """Write the copies, waits and reads in place of the loads."""
        loop, body = self.loop, self.loop.body
        for operation in [one for one in body if one in self.moved]:
            operation.move_before(self.wait)
        first = next((one for one in body if one in self.moved), self.wait)
        before, top = Builder.at(loop), Builder.at(first)
        part = slice_of(body, self.loads, target)
        assert part is not None
        counter, *carried = body.arguments
        buffers = [
            _create(before, "simt.buffer", result=self._buffer(load, target)).results[0]
            for load in self.loads
        ]

        # prologue
        ahead = {counter: loop.lower}
        ahead.update((carried[index], loop.inits[index]) for index in part.carried)
        live, tokens = before.cmp(loop.lower, loop.upper, predicate="lt"), []
        for number in range(_SLOTS - 1):
            mapping = dict(ahead)
            self._copy(before, part, mapping, buffers, _number(before, number), live, by)
            tokens.append(_create(before, "simt.commit", result=COPIES).results[0])
            ahead, live = self._advance(before, part, mapping, ahead, live)

        # steady state
        keys = list(ahead)
        ahead = {key: carry_in_for(loop, ahead[key]) for key in keys}
        for key, value in ahead.items():
            value.layout = key.layout
        live = carry_in_for(loop, live)
        slot = carry_in_for(loop, _number(before, 0))
        tokens = [carry_in_for(loop, token) for token in tokens]
        last, final = (_number(top, value) for value in (_SLOTS - 1, 1))
        mapping = dict(ahead)
        free = top.and_(top.add(slot, last), last)
        self._copy(top, part, mapping, buffers, free, live, by)
        token = _create(top, "simt.commit", result=COPIES).results[0]
        following, more = self._advance(top, part, mapping, ahead, live)
        _create(top, "simt.wait", [tokens[0]])
        for load, buffer in zip(self.loads, buffers, strict=True):
            place = _create(top, "simt.slot", [buffer], [slot]).results[0]
            (result,) = load.results
            found = _create(top, "simt.own_load", [place], result=result.type).results[0]
            found.name, found.layout = result.name, result.layout
            result.replace_all_uses(found)
        next_slot = top.and_(top.add(slot, final), last)
        for load in self.loads:
            load.erase()
        yield_more(body, [*following.values(), more, next_slot, *tokens[1:], token])

        # epilogue
        behind = Builder(loop.parent, loop.next, loop.location)
        count = len(tokens)
        _create(behind, "simt.wait", list(loop.results[-count:]))

    def _copy(
        self,
        builder: Builder,
        part: Slice,
        mapping: dict[Value, Value],
        buffers: Sequence[Value],
        which: Value,
        live: Value,
        by: str,
    ) -> None:
        """Start the copies of an iteration; ``mapping`` has its values, and receives the copies."""
        for reader in part.operations:
            builder.insert(reader.clone(mapping))
        for load, buffer in zip(self.loads, buffers, strict=True):
            # of a load, no other value stands before the mask
            pointer, *rest = part.load(load).operands
            mask = rest[0] if rest else None
            pointer = mapping.get(pointer, pointer)
            where = live
            if isinstance(pointer.type, TileType):
                where = builder.splat(live, result=TileType(pointer.type.shape, I1))
                where.layout = pointer.layout
            if mask is not None:
                where = builder.and_(where, mapping.get(mask, mask))
                where.layout = pointer.layout
            place = _create(builder, "simt.slot", [buffer], [which]).results[0]
            _create(builder, "simt.own_copy_start", [place], [pointer], [where], by=by)

    def _advance(
        self,
        builder: Builder,
        part: Slice,
        mapping: dict[Value, Value],
        ahead: dict[Value, Value],
        live: Value,
    ) -> tuple[dict[Value, Value], Value]:
        """Return the values of ``ahead`` one iteration later, and whether that one will run."""
        loop = self.loop
        counter, *carried = loop.body.arguments
        type_ = counter.type
        assert isinstance(type_, IntType)
        unsigned, now = IntType(type_.bits, signed=False), ahead[counter]
        # where the iteration runs, the difference of bound and counter fits the unsigned type
        left = builder.cast(builder.sub(loop.upper, now), result=unsigned)
        more = builder.cmp(left, builder.cast(loop.step, result=unsigned), predicate="gt")
        found = {counter: builder.add(now, loop.step)}
        for index, value in zip(part.carried, part.following, strict=True):
            found[carried[index]] = mapping.get(value, value)
        return found, builder.and_(live, more)


def _create(
    builder: Builder,
    name: str,
    *groups: Sequence[Value],
    result: Type | None = None,
    **attributes: Any,
) -> Operation:
    """Create a SIMT operation; operands by group."""
    spec = SIMT_TABLE[name]
    padded = [*groups, *([] for _ in spec.operands[len(groups) :])]
    return builder.create(spec, padded, attributes, () if result is None else (result,))


def _number(builder: Builder, value: int) -> Value:
    made: Value = builder.constant(value=value, result=I32)
    return made
