"""The partitioner of warp specialization: a producer and a consumer partition of a function.

    partition
        part "load": the whole program without its effects, down to the addresses of its loads
        part "math": the program

The loops of both partitions are then expanded (:mod:`.tma_partitions`): of the stages of their
schedule, the producer has the one that issues copies, and the consumer the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tilewright.ir.core import Function, Operation, Region, Value
from tilewright.ir.ops import TABLE
from tilewright.ir.ops.control import For, If, While
from tilewright.ir.ops.memory import DescriptorLoad, Load, MakeDescriptor
from tilewright.ir.table import Effect
from tilewright.ir.types import TileType
from tilewright.passes.clone import clone_operation
from tilewright.passes.effects import effects_of
from tilewright.simt.analysis.alias import reached, root_of, written_arguments
from tilewright.simt.dialect.attributes import PROGRAMS, WARPS, function_of
from tilewright.simt.dialect.loop_carried import CARRIERS, all_carried
from tilewright.simt.dialect.ops import SIMT_TABLE
from tilewright.simt.dialect.pipeline_attributes import Ahead, selected
from tilewright.simt.target.simt_target import SimtTarget, required

LOAD, MATH = "load", "math"


def is_separable(loop: For) -> bool:
    """Return whether a producer can compute a loop's loads and trip count from scalars alone.

    The computation must not depend on anything that the program writes, and on loads of scalars
    alone, such as of the numbers of pages.
    """
    operands = [operand for load in selected(loop) for operand in load.operands]
    return is_issuable(operands, [loop, *loop.ancestors()])


def is_issuable(operands: Iterable[Value], around: Sequence[Operation]) -> bool:
    """Return whether a producer can compute operands of loads, and the control flow around them.

    See :func:`is_separable`.
    """
    function = function_of(around[0])
    written = written_arguments(function)
    if any(_has_effect(operation) and _decides(operation, around) for operation in function.walk()):
        return False
    carried = all_carried(function)
    work = list(operands)
    for operation in around:
        if not isinstance(operation, For | If):
            return False
        work += operation.operands[: 3 if isinstance(operation, For) else 1]
    seen: set[Value] = set()
    while work:
        value = work.pop()
        if value in seen:
            continue
        seen.add(value)
        if isinstance(value.type, TileType):
            return False
        owner = value.owner
        if value in carried:
            one = carried[value]
            if isinstance(one.operation, While):
                return False
            work += [
                *one.incoming(),
                *one.operation.operands[: 3 if isinstance(one.operation, For) else 1],
            ]
        elif isinstance(owner, Operation):
            if isinstance(owner, Load):
                if written is None or owner.volatile or root_of(owner.pointer) in (None, *written):
                    return False
            elif not owner.spec.pure or owner.regions:
                return False
            work += owner.operands
        elif isinstance(owner.owner, Operation):  # a loop's counter
            assert isinstance(owner.owner, For)
            work += [owner.owner.lower, owner.owner.upper, owner.owner.step]
    return True


def writer_of(loads: Sequence[Ahead]) -> Operation | None:
    """Return an operation of the program that may write to the tensors of TMA loads, if any.

    A producer warp's loads are not ordered with it.
    """
    descriptors = [load.descriptor for load in loads if isinstance(load, DescriptorLoad)]
    roots = {root_of(descriptor) for descriptor in descriptors}
    made = any(isinstance(descriptor.definition, MakeDescriptor) for descriptor in descriptors)

    def changes(written: Value | None) -> bool:
        return written in roots or (made and (written is None or None in roots))

    return next(
        (
            operation
            for operation in function_of(loads[0]).walk()
            if any(map(changes, reached(operation, Effect.WRITE)))
        ),
        None,
    )


def _has_effect(operation: Operation) -> bool:
    """Return whether an operation has effects that only the consumer may have."""
    return (
        not isinstance(operation, CARRIERS)
        and not operation.spec.terminator
        and bool(effects_of(operation) & (Effect.WRITE | Effect.ORDER))
    )


def _decides(operation: Operation, around: Sequence[Operation]) -> bool:
    """Return whether control flow around a loop depends on an operation's results.

    Other control flow may depend on them: the producer leaves out what it contains.
    """
    work, seen = list(operation.results), set(operation.results)
    while work:
        for user in work.pop().uses:
            reader = _reader(user)
            if reader in around:
                return True
            fresh = [result for result in reader.results if result not in seen]
            seen.update(fresh)
            work += fresh
    return False


def _reader(user: Operation) -> Operation:
    """Return an operation that uses a value, or the one around it if it ends a region."""
    return next(user.ancestors()) if user.spec.terminator else user


def divide(loops: Sequence[For], target: SimtTarget) -> tuple[list[For], dict[str, Region]]:
    """Split a function into a producer and a consumer partition for some of its loops.

    Returns the copies of the loops in the producer, and the partitions' bodies.
    """
    function = function_of(loops[0])
    for number, loop in enumerate(loops):
        loop.attributes[_MARK] = number
    bodies = _divide(function)
    copies = sorted(
        (one for one in bodies[LOAD].walk() if isinstance(one, For) and _MARK in one.attributes),
        key=lambda one: one.attributes[_MARK],
    )
    for operation in (*loops, *copies):
        del operation.attributes[_MARK]
    last = function.body.terminator
    assert last is not None
    specialization = required(target.warp_specialization, target, "warp specialization")
    warps = {MATH: function.attributes[WARPS], LOAD: specialization.warp_multiple}
    function.attributes[WARPS] = sum(warps.values())
    registers = specialization.registers(warps, function.attributes.get(PROGRAMS, 1))
    parts = Region()
    for name, count in warps.items():
        bodies[name].append(_end())
        parts.append(
            Operation(
                SIMT_TABLE["simt.part"],
                (),
                (),
                {"name": name, "warps": count, "registers": registers.get(name, 0)},
                (),
                [bodies[name]],
                loop.location,
            )
        )
    parts.append(_end())
    function.body.insert_before(
        Operation(SIMT_TABLE["simt.partition"], (), (), {}, (), [parts], loop.location), last
    )
    return copies, bodies


def _end() -> Operation:
    return Operation(TABLE["yield"], (), (0,), {}, ())


#: Attribute that identifies the copies of loops, by number.
_MARK = "simt.divided"


def _divide(function: Function) -> dict[str, Region]:
    """Move a function's body to the consumer, and copy it without effects to the producer.

    The terminator stays in the function.
    """
    load, math = Region(), Region()
    mapping: dict[Value, Value] = {}
    for operation in function.body:
        if not operation.spec.terminator:
            load.append(clone_operation(operation, mapping))
    for operation in function.body:
        if not operation.spec.terminator:
            operation.move_to_end(math)
    _without_effects(load)
    return {LOAD: load, MATH: math}


def _without_effects(region: Region) -> None:
    for operation in reversed(list(region)):
        if isinstance(operation, CARRIERS):
            for inner in operation.regions:
                _without_effects(inner)
        elif _has_effect(operation):
            # readers of a result have no effect, and are erased as well
            _forget(operation)


def _forget(operation: Operation) -> None:
    """Erase an operation and all operations that depend on it."""
    for result in operation.results:
        while result.uses:
            _forget(_reader(next(iter(result.uses))))
    if operation.parent is not None:
        operation.erase()
