"""Execution counts of a kernel's regions in a launch, over programs and loops.

Numbers of a program are polynomials (:mod:`.affine`) over arguments, the program's place in the
grid and iterations of loops. Here they are computed for all runs of a region at once, as arrays
with an entry a run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from tilewright.ir.core import Operation, Value
from tilewright.ir.ops.arithmetic import Cmp, Constant, Select
from tilewright.ir.ops.control import For
from tilewright.ir.ops.memory import Load
from tilewright.ir.types import TileType
from tilewright.passes.analysis.affine import Affine, Atom
from tilewright.passes.analysis.footprint import Integers
from tilewright.passes.analysis.polynomials import Polynomial
from tilewright.passes.fold import fold

#: Runs of a region beyond which they are not followed one by one.
MOST_RUNS: Final = 1 << 21
#: A number that is the same in all runs, or one for each.
Number = int | float | Integers


@dataclass(frozen=True, slots=True)
class Runs:
    """Runs of a region.

    Attributes:
        count: how many.
        places: the program's place along each axis of the grid, for each run; empty where the grid
            is not known, and these are the runs of one program.
        iterations: loop around -> its iteration, from 0 on, for each run.
    """

    count: int
    places: tuple[Integers, ...] = ()
    iterations: Mapping[Operation, Integers] = field(default_factory=dict)

    @classmethod
    def of_grid(cls, sizes: tuple[int, int, int] | None) -> Runs:
        """One run of each program; of one program where the grid's sizes are not known."""
        if sizes is None:
            return cls(1)
        count = math.prod(sizes)
        number = np.arange(count, dtype=np.int64)
        return cls(
            count,
            (number % sizes[0], number // sizes[0] % sizes[1], number // (sizes[0] * sizes[1])),
        )

    def of_loop(self, loop: Operation, trips: Number) -> Runs:
        """The runs of the body of a loop that is run so many times."""
        each = np.broadcast_to(np.asarray(trips, np.int64), (self.count,))
        first = np.repeat(np.cumsum(each) - each, each)
        total = int(each.sum())
        return self._taken(
            np.repeat(np.arange(self.count), each),
            total,
            {loop: np.arange(total, dtype=np.int64) - first},
        )

    def where(self, holds: Number) -> Runs:
        """The runs in which a condition is not 0."""
        chosen = np.flatnonzero(np.broadcast_to(np.asarray(holds), (self.count,)))
        return self._taken(chosen, len(chosen), {})

    def _taken(self, chosen: Integers, count: int, more: Mapping[Operation, Integers]) -> Runs:
        iterations = {loop: each[chosen] for loop, each in self.iterations.items()}
        return Runs(count, tuple(place[chosen] for place in self.places), {**iterations, **more})


class Numbers:
    """Computes a launch's numbers, and collects what is lacking for those that cannot be.

    Attributes:
        lacking: names of arguments, and ``grid``, which the launch would have to say.
        unknown: what no launch says before it runs, in words.
    """

    def __init__(
        self,
        affine: Affine,
        arguments: Mapping[Value, int | float],
        sizes: tuple[int, int, int] | None,
    ) -> None:
        self.affine, self._sizes = affine, sizes
        self._arguments = arguments
        self._names = {argument: argument.name for argument in affine.function.arguments}
        self.lacking: dict[str, None] = {}
        self.unknown: dict[str, None] = {}

    def of(self, polynomial: Polynomial, runs: Runs) -> Number | None:
        """A polynomial in each run; None where something is lacking."""
        total: Any = 0
        for monomial, factor in polynomial.terms:
            term: Any = factor
            for number in monomial:
                found = self._atom(self.affine.atom(number), runs)
                term = None if found is None or term is None else term * found
            total = None if term is None or total is None else total + term
        result: Number | None = total
        return result

    def in_first(self, polynomial: Polynomial, runs: Runs) -> int | None:
        """A polynomial in the first run; None where something is lacking."""
        found = self.of(polynomial, runs)
        return None if found is None else int(np.ravel(found)[0])

    def of_value(self, value: Value, runs: Runs) -> Number | None:
        """A scalar number or condition in each run; None where something is lacking."""
        operation = value.definition
        if isinstance(operation, Cmp):
            a, b = self.of_value(operation.a, runs), self.of_value(operation.b, runs)
            return (
                None
                if a is None or b is None
                else _plain(np.asarray(_COMPARED[operation.predicate](a, b)).astype(np.int64))
            )
        if isinstance(operation, Constant):
            return int(operation.value) if isinstance(operation.value, bool) else operation.value
        if operation is not None and operation.name in _LOGIC:
            parts = [self.of_value(operand, runs) for operand in operation.operands]
            return (
                None
                if any(part is None for part in parts)
                else _plain(_LOGIC[operation.name](*parts))
            )
        return self.of(self.affine.number(value), runs)

    def trips(self, loop: For, runs: Runs) -> Number | None:
        """Return a loop's iterations in each run of the surrounding region; None if unknown."""
        bounds: list[Any] = [
            self.of_value(operand, runs) for operand in (loop.lower, loop.upper, loop.step)
        ]
        if any(bound is None for bound in bounds):
            return None
        lower, upper, step = bounds
        return _plain(np.maximum(0, -((lower - upper) // np.maximum(1, step))))

    def _atom(self, atom: Atom, runs: Runs) -> Number | None:
        if atom.kind == "program_id":
            return runs.places[atom.of[0]] if runs.places else self._lacks("grid")
        if atom.kind == "num_programs":
            return self._sizes[atom.of[0]] if self._sizes is not None else self._lacks("grid")
        if atom.kind == "iteration":
            found = runs.iterations.get(atom.of[0])
            return found if found is not None else self._not_known(atom.of[0])
        if atom.kind == "value":
            return self._value(atom.of[0], runs)
        a, b = (self.of(part, runs) for part in atom.of)
        return None if a is None or b is None else _plain(_COMBINED[atom.kind](a, b))

    def _value(self, value: Value, runs: Runs) -> Number | None:
        if value in self._names:
            found = self._arguments.get(value)
            return found if found is not None else self._lacks(self._names[value])
        operation = value.definition
        if operation is None or isinstance(value.type, TileType):
            return self._not_known(operation)
        if isinstance(operation, Select):
            holds, a, b = (self.of_value(operand, runs) for operand in operation.operands)
            return (
                None if holds is None or a is None or b is None else _plain(np.where(holds, a, b))
            )
        if operation.regions or not operation.spec.pure or not operation.operands:
            return self._not_known(operation)
        operands = [self.of_value(operand, runs) for operand in operation.operands]
        if any(not isinstance(operand, int | float) for operand in operands):
            return (
                self._not_known(operation)
                if all(operand is not None for operand in operands)
                else None
            )
        result = fold(operation, operands)
        return result if result is not None else self._not_known(operation)

    def _lacks(self, name: str) -> Number | None:
        self.lacking[name] = None
        return None

    def _not_known(self, operation: Operation | None) -> Number | None:
        self.unknown[unknown_text(operation)] = None
        return None


def unknown_text(operation: Operation | None) -> str:
    """Describe the unknown result of an operation."""
    line = (
        f" at line {operation.location.line}"
        if operation is not None and operation.location is not None
        else ""
    )
    if isinstance(operation, Load):
        return f"what is loaded{line}"
    return f"what is computed{line}" if line else "what a loop or branch computes"


def _plain(number: Any) -> Number:
    """A number that is the same in all runs as an int."""
    found: Integers = np.asarray(number)
    return found.item() if found.ndim == 0 else found


def _quotient(a: Any, b: Any) -> Any:
    """Rounded towards zero; 0 for a divisor of 0, which no program has that ends."""
    divisor = np.where(np.asarray(b) == 0, 1, b)
    return np.where(
        np.asarray(b) == 0, 0, np.sign(a) * np.sign(divisor) * (np.abs(a) // np.abs(divisor))
    )


_COMBINED: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "div": _quotient,
    "rem": lambda a, b: a - b * _quotient(a, b),
    "min": np.minimum,
    "max": np.maximum,
}
_COMPARED: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
_LOGIC: Final[Mapping[str, Callable[..., Any]]] = {"and": np.bitwise_and, "or": np.bitwise_or}

__all__ = ["MOST_RUNS", "Number", "Numbers", "Runs", "unknown_text"]
