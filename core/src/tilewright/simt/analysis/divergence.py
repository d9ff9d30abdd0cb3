"""Divergence analysis: branches and loops on which threads of one program may diverge.

A scalar, or an element of a tile, has one value for the whole program: all threads that hold it
hold the same value. Inline assembly is the exception. It runs in each thread, and may return a
different value to each: the thread's index, a clock, the current content of memory. Values computed
from its results may differ between threads (they *diverge*), and so may the direction of a branch,
or the trip count of a loop, with such a condition: only some threads execute its body, or some
execute it more often than others.

The following are not divergent: results of assembly that computes them from uniform inputs (the
target analyzes the instructions:
:meth:`~tilewright.simt.target.capabilities.kernel_assembly.InlineAssembly.is_uniform`), library
functions and loads with uniform operands, and results of atomic operations: one thread executes
these, and broadcasts the result.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tilewright.errors import LoweringError
from tilewright.ir.core import Function, Operation, Value
from tilewright.ir.ops.control import Condition, For, If, While
from tilewright.ir.ops.debug import InlineAsm
from tilewright.ir.ops.memory import AtomicCas, AtomicLoad, AtomicRmw, Clock
from tilewright.simt.dialect.loop_carried import CARRIERS, Carried, all_carried
from tilewright.simt.target.simt_target import SimtTarget

#: Operations that one thread executes, for all threads.
_BY_ONE: Final = (AtomicRmw, AtomicCas, AtomicLoad, Clock)


class Divergence:
    """Divergent values of a function, with their causes.

    Attributes:
        values: divergent value -> the inline assembly that it depends on.
    """

    def __init__(self, function: Function, target: SimtTarget) -> None:
        self.values: dict[Value, InlineAsm] = {}
        assembly = [
            operation
            for operation in function.walk()
            if isinstance(operation, InlineAsm) and operation.results
        ]
        sources = [
            operation
            for operation in assembly
            if target.assembly is None or not target.assembly.is_uniform(operation.assembly)
        ]
        if sources:
            self._spread(sources, all_carried(function))

    def cause(self, operation: Operation) -> InlineAsm | None:
        """Return the assembly on which a branch or loop diverges; None if it is uniform."""
        return next(
            (self.values[value] for value in _conditions(operation) if value in self.values), None
        )

    def _spread(self, sources: Iterable[InlineAsm], carried: dict[Value, Carried]) -> None:
        readers: dict[tuple[Operation, int], list[Carried]] = {}
        for one in dict.fromkeys(carried.values()):
            for source in one.sources:
                readers.setdefault(source, []).append(one)
        work = [(result, source) for source in sources for result in source.results]
        while work:
            value, cause = work.pop()
            if value in self.values:
                continue
            self.values[value] = cause
            for user in value.uses:
                for position, operand in enumerate(user.operands):
                    if operand is value:
                        work += [
                            (other, cause)
                            for other in _reached(user, position, readers.get((user, position), ()))
                        ]


def _reached(user: Operation, position: int, carried: Iterable[Carried]) -> list[Value]:
    """Values that diverge if an operand of ``user`` does."""
    if (
        user.spec.terminator
        and (owner := _owner(user)) is not None
        and not isinstance(owner, CARRIERS)
    ):
        return owner.results  # results of a reduce or map
    if isinstance(user, CARRIERS) or user.spec.terminator:
        found = [value for one in carried for value in one.values]
        decided = _decided(user, position)
        # threads leave a divergent loop in different iterations, with different values
        return (
            found
            if decided is None
            else [
                *found,
                *decided.results,
                *(argument for region in decided.regions for argument in region.arguments),
            ]
        )
    return [] if isinstance(user, _BY_ONE) else user.results


def _owner(terminator: Operation) -> Operation | None:
    """Return the operation whose region a terminator ends; None for a function's terminator."""
    owner = terminator.parent.owner if terminator.parent is not None else None
    return owner if isinstance(owner, Operation) else None


def _decided(user: Operation, position: int) -> Operation | None:
    """Return the branch or loop whose condition or bounds an operand is."""
    if isinstance(user, For):
        return user if position < 3 else None
    if isinstance(user, If):
        return user
    if isinstance(user, Condition) and position == 0:
        return _owner(user)
    return None


def _conditions(operation: Operation) -> list[Value]:
    """Conditions and bounds that determine the control flow of a branch or loop."""
    if isinstance(operation, For):
        return [operation.lower, operation.upper, operation.step]
    if isinstance(operation, If):
        return [operation.condition]
    if isinstance(operation, While):
        last = operation.before.terminator
        assert isinstance(last, Condition)
        return [last.condition]
    return []


@dataclass(slots=True)
class DivergentBranch:
    """Divergent branch or loop whose regions are being visited.

    Attributes:
        operation, cause: the branch or loop, and the assembly that its condition depends on.
        shared: an operation that conflicts with other threads in shared memory, without a barrier
            in between.
        waits: whether any operation would need a barrier.
    """

    operation: Operation
    cause: InlineAsm
    shared: Operation | None = None
    waits: bool = False

    def refusal(self, operation: Operation) -> LoweringError:
        """Return the error for an operation that needs all threads of the program."""
        return LoweringError(
            f"{operation.name} at {_line(operation)} needs all threads of the program, and is "
            f"inside of the {self.operation.name} at {_line(self.operation)}, which threads may "
            "take differently: its condition comes from the inline assembly at "
            f"{_line(self.cause)}, whose result is each thread's own. Do it outside of there, or "
            "by a condition that is the same in all threads"
        )


def _line(operation: Operation) -> str:
    """Return the line of the kernel itself that an operation comes from."""
    return str(operation.location.chain()[-1]) if operation.location is not None else "?"


__all__ = ["Divergence", "DivergentBranch"]
