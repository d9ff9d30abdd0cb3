"""Overlap of what follows an asynchronous matmul with the matmul of the next iteration.

A loop whose matmul only adds to an accumulator defers the wait for it by one iteration. One that
goes on to use the result, such as to scale it before it is added, cannot: the result of the next
iteration would be loop-carried in flight, in other registers than the ones it is read from. So
several iterations are written out, whose results alternate between two sets of registers:

    for each four iterations i, i+1, i+2, i+3:
        start matmul i
        start matmul i+1; wait for matmul i; use its result
        start matmul i+2; wait for matmul i+1; use its result
        start matmul i+3; wait for matmul i+2; use its result
        wait for matmul i+3; use its result
    the loop as it was, for the remaining iterations
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Operation, Value
from tilewright.ir.ops.control import For
from tilewright.ir.ops.memory import Barrier
from tilewright.ir.types import IntType, TileType
from tilewright.passes.clone import clone_operation
from tilewright.simt.analysis.register_pressure import words_of
from tilewright.simt.dialect.attributes import is_made_in, part_of
from tilewright.simt.dialect.loop_carried import terminator
from tilewright.simt.dialect.ops import SIMT_TABLE
from tilewright.simt.dialect.ops.async_copy import Commit, OwnCopyStart, OwnLoad, Wait
from tilewright.simt.dialect.ops.buffers import SharedStore
from tilewright.simt.dialect.ops.dot import DotStart
from tilewright.simt.dialect.ops.mbarrier import Await
from tilewright.simt.pipeline.pipelined_loop import redirect
from tilewright.simt.target.simt_target import SimtTarget

#: Iterations that are written out.
_ITERATIONS: Final = 4


@dataclass(frozen=True, slots=True)
class _Matmul:
    """A matmul of an iteration, in program order.

    Attributes:
        awaited: the wait for the copies of its operands.
        start, wait: its start, and the wait for its result.
    """

    awaited: Await
    start: DotStart
    wait: Wait


def overlap_results(function: Function, target: SimtTarget) -> None:
    """Write out iterations of loops of consumers that use the results of asynchronous matmuls."""
    for loop in [one for one in function.walk() if isinstance(one, For)]:
        part = part_of(loop)
        if part is None:
            continue
        found = _matmuls(loop)
        if len(found) != 1 or is_made_in(found[0].start.c, loop):
            continue
        budget = part.registers or target.resources.registers
        words = words_of(found[0].start.results[0])
        indices = _accumulators(loop, found[0].wait)
        if 3 * words + target.costs.other_registers <= budget and indices:
            _overlap(*_written_out(loop, indices))


def _matmuls(loop: For) -> list[_Matmul]:
    """Return the matmuls of a loop; none if an operation keeps them from being written out.

    A matmul starts early with what its start depends on by values, and the wait for its copies. So
    threads store nothing to shared memory that it reads, such as an operand that they convert.
    """
    found: list[_Matmul] = []
    awaited: Await | None = None
    for operation in loop.body:
        if isinstance(operation, Barrier | SharedStore) or operation.regions:
            return []
        if isinstance(operation, Await):
            if awaited is not None:
                return []
            awaited = operation
        if isinstance(operation, DotStart):
            tile, token = operation.results
            waits = [
                user
                for user in token.uses
                if isinstance(user, Wait) and user.parent is loop.body and tile in user.tiles
            ]
            if awaited is None or len(waits) != 1:
                return []
            found.append(_Matmul(awaited, operation, waits[0]))
            awaited = None
    return found


def _accumulators(loop: For, wait: Wait) -> list[int]:
    """Return the indices of the loop-carried tiles that depend on the result of a matmul."""
    reached, work = set[Value](), list(wait.results)
    while work:
        for user in work.pop().uses:
            fresh = [result for result in user.results if result not in reached]
            reached.update(fresh)
            work += fresh
    return [
        index
        for index, value in enumerate(terminator(loop.body).operands)
        if isinstance(value.type, TileType) and value in reached
    ]


def _written_out(loop: For, indices: Sequence[int]) -> tuple[For, list[list[Value]]]:
    """Insert a loop over several iterations at once before a loop that keeps the remaining ones.

    Returns it, and the accumulators, of the indices ``indices``, that each of these iterations but
    the last yields.
    """
    accumulators: list[list[Value]] = []
    before = Builder.at(loop)
    counter, *carried = loop.body.arguments
    type_ = counter.type
    assert isinstance(type_, IntType)
    unsigned = IntType(type_.bits, signed=False)

    def number(value: int) -> Value:
        made: Value = before.constant(value=value, result=unsigned)
        return made

    low, high, step = (
        before.cast(one, result=unsigned) for one in (loop.lower, loop.upper, loop.step)
    )
    count = before.add(before.div(before.sub(before.sub(high, low), number(1)), step), number(1))
    runs = before.cmp(loop.lower, loop.upper, predicate="lt")
    count = before.select(runs, count, number(0))
    rounds = before.div(count, number(_ITERATIONS))
    length = before.mul(before.mul(rounds, number(_ITERATIONS)), step)
    middle = before.add(loop.lower, before.cast(length, result=type_))
    stride = before.mul(loop.step, before.constant(value=_ITERATIONS, result=type_))

    mapping: dict[Value, Value] = {}
    main = clone_operation(loop, mapping)
    assert isinstance(main, For)
    before.insert(main)
    main.set_operand(1, middle)
    main.set_operand(2, stride)
    last = terminator(main.body)
    at = mapping[counter]
    for number_ in range(1, _ITERATIONS):
        builder = Builder.at(last)
        accumulators.append([last.operands[index] for index in indices])
        mapping = dict(zip(carried, list(last.operands), strict=True))
        offset = builder.constant(value=number_, result=type_)
        mapping[counter] = builder.add(at, builder.mul(loop.step, offset))
        for operation in loop.body:
            if not operation.spec.terminator:
                builder.insert(clone_operation(operation, mapping))
        following = [mapping.get(value, value) for value in terminator(loop.body).operands]
        for position, value in enumerate(following):
            last.set_operand(position, value)
    loop.set_operand(0, middle)
    for position, value in enumerate(main.results):
        loop.set_operand(3 + position, value)
    return main, accumulators


def _overlap(loop: For, accumulators: Sequence[Sequence[Value]]) -> None:
    """Start each matmul before the wait for the previous one, and use results before the next."""
    matmuls = _matmuls(loop)
    for earlier, later in itertools.pairwise(matmuls):
        for operation in _needed_before(loop, earlier.wait, later):
            operation.move_before(earlier.wait)
    for matmul, values in zip(matmuls, accumulators, strict=False):
        _pin(loop, matmul, values)
    for earlier, later in zip(matmuls, matmuls[2:], strict=False):
        (free,) = earlier.wait.results
        later.start.set_operand(2, free)
        later.start.attributes["overwrites"] = True


def _needed_before(loop: For, wait: Wait, later: _Matmul) -> list[Operation]:
    """Return what starts a matmul, of the operations behind a wait, in program order.

    What an iteration prefetches beside its matmul is a part of it: waits for copies end while the
    results of the previous matmul are still computed.
    """
    beside = _between(later.start, later.wait)
    behind = {*_between(wait, later.start), *beside}
    needed = {later.awaited, later.start, *(one for one in beside if _is_prefetch(one))}
    work: list[Operation] = list(needed)
    while work:
        for operand in work.pop().operands:
            made = operand.definition
            if made in behind and made not in needed:
                needed.add(made)
                work.append(made)
    return [operation for operation in loop.body if operation in needed]


def _between(first: Operation, last: Operation) -> list[Operation]:
    """Return the operations of a region between two of them."""
    found, operation = [], first.next
    while operation is not None and operation is not last:
        found.append(operation)
        operation = operation.next
    return found


def _is_prefetch(operation: Operation) -> bool:
    """Return whether an operation copies to words of each warp's own, waits for it, or reads."""
    return isinstance(operation, OwnCopyStart | Commit | OwnLoad) or (
        isinstance(operation, Wait) and not operation.results
    )


def _pin(loop: For, matmul: _Matmul, accumulators: Sequence[Value]) -> None:
    """Compute what an iteration yields before the next matmul but one starts.

    The code generator could move it down, past that start, which needs the result's registers.
    """
    for value in accumulators:
        made = value.definition
        assert made is not None
        readers = list(value.uses)
        builder = Builder(loop.body, made.next, made.location)
        groups: list[list[Value]] = [[matmul.start.results[1]], [value], []]
        (pinned,) = builder.create(SIMT_TABLE["simt.wait"], groups, {}, ()).results
        pinned.layout = value.layout
        redirect(readers, value, pinned)
