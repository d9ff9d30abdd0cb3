"""Programs whose loops run longer start first.

Machines start the programs of a grid in the order of their numbers, and a grid ends with its last
program. Where programs of higher numbers along the first axis go on for longer, as those of causal
attention do, the last to start are the longest, and most of the machine waits for them. Programs
are independent of each other, so that each may do the work of another: their numbers along that
axis are turned round.

A kernel in which programs talk to each other, or to the outside, keeps its numbers.
"""

from __future__ import annotations

from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Operation, Region, Value
from tilewright.ir.ops.arithmetic import ProgramId
from tilewright.ir.ops.control import For
from tilewright.ir.table import Effect
from tilewright.passes.analysis.affine import Affine, Atom
from tilewright.passes.effects import effects_of

_ATOMICS = frozenset({"atomic_rmw", "atomic_cas", "atomic_load", "atomic_store"})


def start_longest_first(function: Function) -> bool:
    """Turn the numbers of programs along the first axis round, where loops of programs of higher
    numbers run longer; whether that was done."""
    numbers = [operation for operation in function.walk() if isinstance(operation, ProgramId) and operation.axis == 0]
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
    """Return whether others than the program itself see when an operation happens."""
    return operation.name in _ATOMICS or (not operation.regions and not operation.spec.terminator and bool(effects_of(operation) & Effect.ORDER))


def _grows(function: Function) -> bool:
    """Return whether some loops run longer with the program's number, and none shorter, as far as
    can be told."""
    found, affine = False, Affine(function)
    for operation in function.walk():
        if not isinstance(operation, For):
            continue
        lower, upper = (_slope(affine, value) for value in (operation.lower, operation.upper))
        if lower is None or upper is None or upper < lower:
            return False
        found |= upper > lower
    return found


def _slope(affine: Affine, value: Value) -> int | None:
    """By how much a number grows with the program's number along the first axis, if that is known."""
    polynomial, program = affine.number(value), affine.unknown("program_id", 0)
    slope = dict(polynomial.terms).get(program.terms[0][0], 0)
    return slope if all(map(_is_shared, map(affine.atom, polynomial.plus(program, -slope).unknowns()))) else None


def _is_shared(atom: Atom) -> bool:
    """Return whether an unknown is the same in all programs along the first axis: an argument, or
    about the grid."""
    if atom.kind == "value":
        owner = atom.of[0].owner
        return isinstance(owner, Region) and isinstance(owner.owner, Function)
    return atom.kind == "num_programs" or (atom.kind == "program_id" and atom.of[0] != 0)
