"""Divergence analysis: branches and loops that threads of one program may take differently.

To a program a scalar is one value, and so is each element of a tile: all threads that hold it hold
the same. Inline assembly is where that ends. It runs in each thread, and gives each what it reads
there: the thread's number, a clock, memory as it is at that moment. What is computed from its
results may differ between threads (it *diverges*), and so does which way a branch goes, and how
often a loop runs, by such a condition: a part of the threads runs what is inside, or runs it more
often than others.

Not divergent are the results of assembly that computes them from inputs that are not (a target
reads its instructions: :meth:`~tilewright.simt.target.simt_target.SimtTarget.is_uniform_assembly`),
functions of libraries, loads at addresses that are not, and what atomic operations return: one
thread does them, and gives it to the others.
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

#: Operations that one thread does, for all.
_BY_ONE: Final = (AtomicRmw, AtomicCas, AtomicLoad, Clock)


class Divergence:
    """The values of a function that may differ between threads, and why.

    Attributes:
        values: divergent value -> the inline assembly that it comes from.
    """

    def __init__(self, function: Function, target: SimtTarget) -> None:
        self.values: dict[Value, InlineAsm] = {}
        assembly = [operation for operation in function.walk() if isinstance(operation, InlineAsm) and operation.results]
        sources = [operation for operation in assembly if not target.is_uniform_assembly(operation.assembly)]
        if sources:
            self._spread(sources, all_carried(function))

    def cause(self, operation: Operation) -> InlineAsm | None:
        """The assembly by whose results threads may take a branch or loop differently; None where
        all take it alike."""
        return next((self.values[value] for value in _conditions(operation) if value in self.values), None)

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
                        work += [(other, cause) for other in _reached(user, position, readers.get((user, position), ()))]


def _reached(user: Operation, position: int, carried: Iterable[Carried]) -> list[Value]:
    """What is divergent because an operand is."""
    if user.spec.terminator and (owner := _owner(user)) is not None and owner.name not in CARRIERS:
        return owner.results  # what a reduce or map computes of elements
    if user.name in CARRIERS or user.spec.terminator:
        found = [value for one in carried for value in one.values]
        decided = _decided(user, position)
        # threads leave a loop with what it carried in iterations of their own
        return found if decided is None else [*found, *decided.results, *(argument for region in decided.regions for argument in region.arguments)]
    return [] if isinstance(user, _BY_ONE) else user.results


def _owner(terminator: Operation) -> Operation | None:
    """The operation whose region a terminator ends; None for a function's."""
    owner = terminator.parent.owner if terminator.parent is not None else None
    return owner if isinstance(owner, Operation) else None


def _decided(user: Operation, position: int) -> Operation | None:
    """The branch or loop that an operand decides about."""
    if isinstance(user, For):
        return user if position < 3 else None
    if isinstance(user, If):
        return user
    if user.name == "condition" and position == 0:
        return _owner(user)
    return None


def _conditions(operation: Operation) -> list[Value]:
    """The values that decide about a branch or loop."""
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
    """A branch or loop that threads take differently, whose regions are looked through.

    Attributes:
        operation, cause: what it is, and the assembly that its condition comes from.
        shared: an operation that shares memory of the program with other threads, without a barrier
            in between.
        waits: whether any operation would have to wait for other threads.
    """

    operation: Operation
    cause: InlineAsm
    shared: Operation | None = None
    waits: bool = False

    def refusal(self, operation: Operation) -> LoweringError:
        """The error for an operation for which the program's threads would have to meet."""
        return LoweringError(
            f"{operation.name} at {_line(operation)} needs all threads of the program, and is inside of the {self.operation.name} at {_line(self.operation)}, "
            f"which threads may take differently: its condition comes from the inline assembly at {_line(self.cause)}, whose result is each thread's own. "
            f"Do it outside of there, or by a condition that is the same in all threads"
        )


def _line(operation: Operation) -> str:
    """The kernel's own line that an operation comes from."""
    return str(operation.location.chain()[-1]) if operation.location is not None else "?"


__all__ = ["Divergence", "DivergentBranch"]
