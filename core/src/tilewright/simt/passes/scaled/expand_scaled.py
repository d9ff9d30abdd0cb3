"""Expansion of block-scaled matmuls to plain matmuls: unpack, scale, multiply.

Each operand is converted to the narrowest type that represents an element times its scale exactly,
except for that type's range: bf16 for all formats of up to eight significant bits, scaled or not;
f16 for unscaled f16 and for another operand with no more bits; f32 for scaled f16, or where bf16
and f16 meet.

Products outside of the type's range become infinite or NaN
(:func:`~tilewright.simt.passes.scaled.scaled_operands.scaled`), and these propagate through the
matmul: a result that is finite is therefore correct. If a result is not, the matmul is computed
again for scales of any size (:mod:`.exact_scaled`); a matmul without such results only costs the
test. Operands are also scaled by a power of two, ``2**headroom``, so that the smallest scales lose
nothing:

    r = dot(scaled a, scaled b, c * 2**headroom) / 2**headroom
    r = if any(r is not finite) {exact dot} else {r}

A loop that only loads and computes is tested as a whole, after its end, and repeated if necessary,
so that the test does not prevent its pipelining. If it carries the accumulator, only that is
tested:

    total = for ... {total = dot(scaled a, scaled b, total)} from c * 2**headroom
    r = total / 2**headroom
    r = if any(r is not finite) {the loop, with exact dots, from c} else {r}

For other matmul results in such a loop, the loop carries their maximum magnitudes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Operation, Region, Value
from tilewright.ir.ops.arithmetic import Constant
from tilewright.ir.ops.control import For
from tilewright.ir.ops.linear import DotScaled
from tilewright.ir.ops.shape import Splat
from tilewright.ir.table import Effect
from tilewright.ir.types import U32, TileType, with_element
from tilewright.passes.clone import clone_operation
from tilewright.passes.effects import effects_of
from tilewright.simt.dialect.attributes import COLD
from tilewright.simt.passes.scaled.exact_scaled import exact_dot, passes_of
from tilewright.simt.passes.scaled.scaled_operands import (
    dot_type,
    headroom,
    is_guarded,
    operands_of,
    scaled,
)
from tilewright.simt.passes.ssa_repair import carry_in_for, yield_more
from tilewright.simt.target.simt_target import SimtTarget

#: Bits of an f32 without its sign, and those of infinity: greater ones are NaN.
_MAGNITUDE: Final = 0x7FFFFFFF
_INFINITY: Final = 0x7F800000
#: Operand index of a ``for``'s first iteration argument.
_INITS: Final = 3


def expand_scaled(function: Function, target: SimtTarget) -> bool:
    """Expand every ``dot_scaled`` that the target does not keep; return whether there was one."""
    found = [
        operation
        for operation in function.walk()
        if isinstance(operation, DotScaled) and not target.matrix.keeps_scaled(operation)
    ]
    by_loop: dict[For, list[DotScaled]] = {}
    for operation in found:
        loop = _repeatable_loop(operation)
        if not _is_guarded(operation):
            operation.results[0].replace_all_uses(_plain(operation, operation.c))
            operation.erase()
        elif loop is None:
            _expand(operation)
        else:
            by_loop.setdefault(loop, []).append(operation)
    # inner loops first: what repeats an outer one holds them as they are then
    for loop in reversed(by_loop):
        _expand_in_loop(loop, by_loop[loop])
    return bool(found)


def _repeatable_loop(operation: DotScaled) -> For | None:
    """The loop that an operation is in, if it may run twice: if it reads and computes, and nothing
    else."""
    loop = operation.parent.owner if operation.parent is not None else None
    return loop if isinstance(loop, For) and not effects_of(loop) & ~Effect.READ else None


def _is_guarded(operation: DotScaled) -> bool:
    operands = operands_of(operation)
    return any(is_guarded(operand, dot_type(operands)) for operand in operands)


def _headroom(operation: DotScaled) -> int:
    """The exponent of what the dot of scaled operands is too great by."""
    operands = operands_of(operation)
    return sum(headroom(operand, dot_type(operands)) for operand in operands)


def _plain(operation: DotScaled, c: Value) -> Value:
    """The dot of scaled operands, before an operation."""
    b, operands = Builder.at(operation), operands_of(operation)
    left, right = (scaled(b, operand, dot_type(operands)) for operand in operands)
    result: Value = b.dot(left, right, c)
    return result


def _expand(operation: DotScaled) -> None:
    """Expand an operation where it is."""
    room, result, again = _headroom(operation), operation.results[0], Region([])
    inside = Builder.at_end(again, operation.location)
    inside.yield_([exact_dot(inside, operands_of(operation), operation.c)])
    matmul = _plain(operation, _times(Builder.at(operation), operation.c, room))
    b = Builder.at(operation)
    matmul = _times(b, matmul, -room)
    (chosen,) = _unless_finite(b, [_bits(b, matmul)], again, [matmul])
    result.replace_all_uses(chosen)
    operation.erase()


def _expand_in_loop(loop: For, operations: Sequence[DotScaled]) -> None:
    """Expand the operations of a loop, and test their results after it."""
    chains = _chains(loop, operations)
    summing = {operation for chain in chains.values() for operation in chain}
    indices = list(chains) if len(summing) == len(operations) else list(range(len(loop.results)))
    again, rooms = Region([]), {index: _headroom(chain[0]) for index, chain in chains.items()}
    inside = Builder.at_end(again, loop.location)
    inside.yield_(
        [_sum_again(inside, loop, index, chains) for index in chains]
        if len(summing) == len(operations)
        else _loop_again(inside, loop, operations)
    )

    for index, room in rooms.items():
        loop.set_operand(
            _INITS + index, _times(Builder.at(loop), loop.operands[_INITS + index], room)
        )
    readers = {index: list(loop.results[index].uses) for index in indices}
    count = len(loop.results)
    for operation in operations:
        _expand_part(loop, operation, is_sum=operation in summing)

    after = Builder(loop.parent, loop.next, loop.location)
    results, values = list(loop.results[:count]), list(loop.results[count:])
    for index, room in rooms.items():
        results[index] = _times(after, results[index], -room)
        values.append(_bits(after, results[index]))
    chosen = _unless_finite(after, values, again, [results[index] for index in indices])
    for index, new in zip(indices, chosen, strict=True):
        for user in readers[index]:
            for position, operand in enumerate(user.operands):
                if operand is loop.results[index]:
                    user.set_operand(position, new)


def _expand_part(loop: For, operation: DotScaled, *, is_sum: bool) -> None:
    """Expand an operation of a loop, all of whose results are tested after it."""
    if is_sum:
        matmul = _plain(operation, operation.c)
    else:
        room = _headroom(operation)
        matmul = _plain(operation, _times(Builder.at(operation), operation.c, room))
        b = Builder.at(operation)
        bits = _bits(b, matmul)
        assert isinstance(bits.type, TileType)
        maximum = _reduced(b, bits, bits.type.rank - 1)
        carried = carry_in_for(loop, Builder.at(loop).constant_like(maximum.type, 0))
        yield_more(loop.body, [b.max(carried, maximum)])
        matmul = _times(b, matmul, -room)
    operation.results[0].replace_all_uses(matmul)
    operation.erase()


def _sum_again(
    b: Builder, loop: For, index: int, chains: Mapping[int, Sequence[DotScaled]]
) -> Value:
    """Write what a loop sums up in a carried value once more, by exact dots: the loop is run in
    each pass."""
    own, others = (
        set(chains[index]),
        {operation for chain in chains.values() for operation in chain},
    )
    passes = passes_of(operands_of(chains[index][0]))

    def add(inside: Builder, part: Value, number: Value) -> Value:
        def write(body: Builder, operation: Operation, mapping: dict[Value, Value]) -> bool:
            if not isinstance(operation, DotScaled) or operation not in others:
                return False
            c = mapping[operation.c]
            mapping[operation.results[0]] = (
                passes.add(body, operands_of(operation, mapping), c, number)
                if operation in own
                else c
            )
            return True

        return _repeated(inside, loop, {index: part}, write)[index]

    return passes.run(b, loop.operands[_INITS + index], add)


def _loop_again(b: Builder, loop: For, operations: Sequence[DotScaled]) -> Sequence[Value]:
    """Write a loop once more, with exact dots."""
    own = set(operations)

    def write(body: Builder, operation: Operation, mapping: dict[Value, Value]) -> bool:
        if not isinstance(operation, DotScaled) or operation not in own:
            return False
        mapping[operation.results[0]] = exact_dot(
            body, operands_of(operation, mapping), mapping.get(operation.c, operation.c)
        )
        return True

    return _repeated(b, loop, {}, write)


def _repeated(
    b: Builder,
    loop: For,
    inits: Mapping[int, Value],
    write: Callable[[Builder, Operation, dict[Value, Value]], bool],
) -> Sequence[Value]:
    """Write a loop once more, which nothing pipelines, with other values in place of some that it
    carries; ``write`` writes what becomes other operations."""
    carried = [inits.get(index, value) for index, value in enumerate(loop.operands[_INITS:])]
    lower, upper, step = loop.operands[:_INITS]
    region = Region([loop.body.arguments[0].type, *(value.type for value in carried)])
    mapping = dict(zip(loop.body.arguments, region.arguments, strict=True))
    inside = Builder.at_end(region, loop.location)
    for operation in loop.body:
        inside.location = operation.location
        if not write(inside, operation, mapping):
            inside.insert(clone_operation(operation, mapping))
    results: Sequence[Value] = b.region_op(
        "for", lower, upper, step, carried, regions=[region], num_stages=1, no_licm=loop.no_licm
    ).results
    return results


def _chains(loop: For, operations: Iterable[DotScaled]) -> dict[int, list[DotScaled]]:
    """The operations through which a carried value passes and nothing else touches, from the loop's
    argument to what it yields, by its index.

    Those that differ in what is left of range, or in passes, are omitted.
    """
    own = set(operations)
    last = loop.body.terminator
    found = {}
    for index, argument in enumerate(loop.body.arguments[1:]):
        chain: list[DotScaled] = []
        value = argument
        while (
            (user := _only_user(value)) in own and isinstance(user, DotScaled) and user.c is value
        ):
            chain.append(user)
            value = user.results[0]
        kinds = {(_headroom(operation), passes_of(operands_of(operation))) for operation in chain}
        if len(kinds) == 1 and user is last and last is not None and last.operands[index] is value:
            found[index] = chain
    return found


def _only_user(value: Value) -> Operation | None:
    """The one operation that reads a value, once."""
    return next(iter(value.uses)) if sum(value.uses.values()) == 1 else None


def _unless_finite(
    b: Builder, values: Sequence[Value], again: Region, found: Sequence[Value]
) -> Sequence[Value]:
    """Return ``found``, or the result of ``again`` if there is an infinity or NaN among values (of
    :func:`_magnitude`)."""
    maximum = None
    for bits in values:
        assert isinstance(bits.type, TileType)
        flat = b.reshape(bits, result=TileType((bits.type.numel,), U32))
        one = _reduced(b, flat, 0)
        maximum = one if maximum is None else b.max(maximum, one)
    assert maximum is not None
    maximum = b.and_(maximum, b.constant(value=_MAGNITUDE, result=U32))
    condition = b.cmp(maximum, b.constant_like(maximum.type, _INFINITY), predicate="ge")
    otherwise = Region([])
    Builder.at_end(otherwise, b.location).yield_(list(found))
    chosen = b.region_op(
        "if", condition, regions=[again, otherwise], results=[value.type for value in found]
    )
    chosen.attributes[COLD] = True
    results: Sequence[Value] = chosen.results
    return results


def _bits(b: Builder, value: Value) -> Value:
    found: Value = b.bitcast(value, result=with_element(value.type, U32))
    return found


def _reduced(b: Builder, bits: Value, axis: int) -> Value:
    """The maximum magnitude along an axis: bits of f32 but for their signs, an order in which
    infinities and NaN come last."""
    combine = Region([U32, U32], ["a", "b"])
    with b.at_region(combine):
        magnitude = b.constant(value=_MAGNITUDE, result=U32)
        b.yield_([b.max(*(b.and_(value, magnitude) for value in combine.arguments))])
    (found,) = b.region_op("reduce", [bits], regions=[combine], axis=axis).results
    return found


def _times(b: Builder, value: Value, exponent: int) -> Value:
    """A tile of f32 times a power of two; 0 is 0."""
    made = value.definition
    is_zero = (
        isinstance(made, Splat)
        and isinstance(made.x.definition, Constant)
        and made.x.definition.value == 0
    )
    if exponent == 0 or is_zero:
        return value
    result: Value = b.mul(value, b.constant_like(value.type, 2.0**exponent))
    return result
