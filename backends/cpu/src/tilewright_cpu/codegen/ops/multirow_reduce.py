"""Lane reductions of as many rows at once as a vector has lanes.

A row on its own takes a chain of shuffles, each of which combines half of the lanes with the other
half. Of ``width`` rows together each round combines two vectors into one whose lanes are all of
use, so that ``width - 1`` combinations yield the results of all rows, side by side in one vector.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tilewright.ir.types import Type
from tilewright.llvm.emission.registers import storage_size, vector_type
from tilewright_cpu.codegen.context import ZERO, Coordinate, Index, with_coordinate
from tilewright_cpu.codegen.loops.loop_nest import NestPlan

#: Lanes of the narrowest vectors for which it is done.
_MIN_ROWS: Final = 4


def can_reduce_together(plan: NestPlan) -> bool:
    """Return whether the rows of a loop nest are whole vectors and a multiple of the lanes."""
    outer, width, shape = plan.outer_axes(), plan.width, plan.shape
    return (
        bool(outer)
        and width >= _MIN_ROWS
        and shape[outer[-1]] % width == 0
        and shape[plan.lane] % width == 0
    )


class MultirowReduction:
    """Gathers the vectors that rows were combined into, in the order of the loop nest's rows.

    Args:
        plan: the loop nest; see :func:`can_reduce_together`.
        element: of the lanes.
        combine: (vector, vector) -> their lanes combined one by one.
        store: (index, vector) takes the results of ``plan.width`` rows; the index has as many lanes
        along the innermost axis of rows, and 0 along the row.
    """

    def __init__(
        self,
        plan: NestPlan,
        element: Type,
        combine: Callable[[str, str], str],
        store: Callable[[Index, str], None],
    ) -> None:
        self.plan, self.combine, self.store, self.width = plan, combine, store, plan.width
        self.type = vector_type(element, plan.width)
        self.bytes = storage_size(element) * plan.width
        self.vectors = plan.context.scratch(self.bytes * plan.width)

    def add(self, row: Index, vector: str) -> None:
        """Add a row's vector; with the last row of a group, write the results of all."""
        context, axis = self.plan.context, self.plan.outer_axes()[-1]
        writer, at = context.writer, row[axis]
        number = writer.emit(f"and i64 {at.base}, {self.width - 1}")
        first = writer.emit(f"sub nsw i64 {at.base}, {number}")
        writer.store(self.type, vector, writer.gep(self.type, self.vectors, number), self.bytes)
        context.scopes[-1].block = writer.current
        with writer.when(writer.emit(f"icmp eq i64 {number}, {self.width - 1}")):
            vectors = [
                writer.load(self.type, writer.gep(self.type, self.vectors, lane), self.bytes)
                for lane in range(self.width)
            ]
            index = with_coordinate(
                with_coordinate(row, self.plan.lane, ZERO),
                axis,
                Coordinate(first, at.depth, self.width),
            )
            self.store(index, self._merged(vectors))

    def _merged(self, vectors: list[str]) -> str:
        """A vector whose lane i has all lanes of vector i combined.

        Each round combines lanes ``step`` apart of two vectors into one that has the partial
        results of both, in turns of ``step`` lanes.
        """
        writer, width, step = self.plan.context.writer, self.width, 1
        while len(vectors) > 1:
            picks = []
            for start in (0, step):
                lanes = [
                    start + lane if not lane & step else width + start + lane - step
                    for lane in range(width)
                ]
                picks.append(f"<{width} x i32> <{', '.join(f'i32 {lane}' for lane in lanes)}>")
            merged = []
            for a, b in zip(vectors[::2], vectors[1::2], strict=True):
                low, high = (
                    writer.emit(f"shufflevector {self.type} {a}, {self.type} {b}, {pick}")
                    for pick in picks
                )
                merged.append(self.combine(low, high))
            vectors, step = merged, 2 * step
        return vectors[0]
