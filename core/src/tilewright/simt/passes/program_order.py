"""Tile scheduling: start the programs with the longest loops first.

Hardware starts the programs of a grid in the order of their ids, and a grid ends with its last
program. If programs with higher ids along the first axis run longer, as in causal attention, the
longest ones start last, and most of the GPU idles while they finish. Programs are independent, so
that each may do the work of another: the pass reverses their ids along that axis.

A kernel whose programs communicate with each other or the outside keeps its ids.
"""

from __future__ import annotations

from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Operation, Region, Value
from tilewright.ir.ops.arithmetic import ProgramId
from tilewright.ir.ops.control import For
from tilewright.ir.ops.memory import ATOMICS
from tilewright.ir.table import Effect
from tilewright.passes.analysis.affine import Affine, Atom
from tilewright.passes.effects import effects_of


def start_longest_first(function: Function) -> bool:
    """Reverse the program ids along the first axis if loops run longer at higher ids.

    Return whether that was done.
    """
    numbers = [
        operation
        for operation in function.walk()
        if isinstance(operation, ProgramId) and operation.axis == 0
    ]
    if (
        not numbers
        or not _grows(function)
        or any(_is_seen(operation) for operation in function.walk())
    ):
        return False
    for number in numbers:
        builder = Builder(number.parent, number.next, number.location)
        (value,) = number.results
        readers = list(value.uses)
        last = builder.sub(
            builder.num_programs(axis=0), builder.constant(value=1, result=value.type)
        )
        reversed_index = builder.sub(last, value)
        for reader in readers:
            for position, operand in enumerate(reader.operands):
                if operand is value:
                    reader.set_operand(position, reversed_index)
    return True


def _is_seen(operation: Operation) -> bool:
    """Return whether the time of an operation is observable from outside of its program."""
    return isinstance(operation, ATOMICS) or (
        not operation.regions
        and not operation.spec.terminator
        and bool(effects_of(operation) & Effect.ORDER)
    )


def _grows(function: Function) -> bool:
    """Return whether some loops are known to run longer at higher ids, and none shorter."""
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
    """Return a number's slope in the program id along the first axis, if known."""
    polynomial, program = affine.number(value), affine.unknown("program_id", 0)
    slope = dict(polynomial.terms).get(program.terms[0][0], 0)
    return (
        slope
        if all(map(_is_shared, map(affine.atom, polynomial.plus(program, -slope).unknowns())))
        else None
    )


def _is_shared(atom: Atom) -> bool:
    """Return whether an unknown is uniform along the first axis: an argument, or of the grid."""
    if atom.kind == "value":
        owner = atom.of[0].owner
        return isinstance(owner, Region) and isinstance(owner.owner, Function)
    return atom.kind == "num_programs" or (atom.kind == "program_id" and atom.of[0] != 0)
