"""Programs whose loops run longer start first.

Machines start the programs of a grid in the order of their numbers, and a grid ends with its last program. Where programs of higher numbers along the first
axis go on for longer, as those of causal attention do, the last to start are the longest, and most of the machine waits for them. Programs are independent
of each other, so that each may do the work of another: their numbers along that axis are turned round.

A kernel in which programs talk to each other, or to the outside, keeps its numbers.
"""

from __future__ import annotations

from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Operation, Value
from tilewright.ir.table import Effect
from tilewright.passes.effects import effects_of
from tilewright.passes.rewriter import constant_of

#: Operations that keep how a number depends on the program's.
_SAME = frozenset({"cast", "hint"})
#: Operations that are the same in all programs along the first axis.
_SHARED = frozenset({"constant", "num_programs"})
_ATOMICS = frozenset({"atomic_rmw", "atomic_cas", "atomic_load", "atomic_store"})


def start_longest_first(function: Function) -> bool:
    """Turn the numbers of programs along the first axis round, where loops of programs of higher numbers run longer; whether that was done."""
    numbers = [operation for operation in function.walk() if operation.name == "program_id" and operation.attribute("axis") == 0]
    if not numbers or not _grows(function) or any(_is_seen(operation) for operation in function.walk()):
        return False
    for number in numbers:
        builder = Builder(number.parent, number.next, number.location)
        (value,) = number.results
        readers = list(value.uses)
        last = builder.sub(builder.num_programs(axis=0), builder.constant(value=1, result=value.type))
        turned = builder.sub(last, value)
        for reader in readers:
            for position, operand in enumerate(reader.operands):
                if operand is value:
                    reader.set_operand(position, turned)
    return True


def _is_seen(operation: Operation) -> bool:
    """Whether others than the program itself see when an operation happens."""
    return operation.name in _ATOMICS or (not operation.regions and not operation.spec.terminator and bool(effects_of(operation) & Effect.ORDER))


def _grows(function: Function) -> bool:
    """Whether some loops run longer with the program's number, and none shorter, as far as can be told."""
    found = False
    for operation in function.walk():
        if operation.name != "for":
            continue
        lower, upper = (_slope(value) for value in operation.operands[:2])
        if lower is None or upper is None or upper < lower:
            return False
        found |= upper > lower
    return found


def _slope(value: Value) -> int | None:
    """By how much a number grows with the program's number along the first axis, if that is known."""
    operation = value.definition
    if operation is None:
        return 0 if isinstance(value.owner, Function) or isinstance(getattr(value.owner, "owner", None), Function) else None
    if operation.name == "program_id":
        return 1 if operation.attribute("axis") == 0 else 0
    if operation.name in _SHARED:
        return 0
    if operation.name in _SAME:
        return _slope(operation.operands[0])
    if operation.name in ("add", "sub", "mul"):
        first, second = operation.operands
        a, b = _slope(first), _slope(second)
        if a is None or b is None:
            return None
        if operation.name != "mul":
            return a + b if operation.name == "add" else a - b
        for slope, other, factor in ((a, b, constant_of(second)), (b, a, constant_of(first))):
            if other == 0 and isinstance(factor, int):
                return slope * factor
        return 0 if a == b == 0 else None
    return None
