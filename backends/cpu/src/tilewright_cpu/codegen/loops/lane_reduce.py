"""Loops over the lanes of tiles that gather something of all of them in a few numbers: whether a condition fails, the least and the greatest element."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilewright.ir.core import Value
from tilewright_cpu.codegen.context import Context, Index
from tilewright_cpu.codegen.loops.evaluate import evaluate
from tilewright_cpu.codegen.loops.inner_loop import InnerLoop, version_row
from tilewright_cpu.codegen.loops.loop_nest import NestPlan, identity
from tilewright_cpu.codegen.loops.materialize import begin_fill, complete_partial, end_fill


@dataclass(frozen=True)
class LaneReduction:
    """A number that is gathered.

    Attributes:
        type: its register type, an integer of 8 bits at least or i1.
        start: what it is where there is nothing.
        merge: (context, two of them) -> what they are together.
    """

    type: str
    start: str
    merge: Callable[[Context, str, str], str]

    @property
    def stored(self) -> tuple[str, int]:
        """Its type in memory, and its bytes."""
        type_ = "i8" if self.type == "i1" else self.type
        return type_, int(type_[1:]) // 8


def reduce_lanes(
    context: Context,
    shape: tuple[int, ...],
    tiles: Sequence[Value],
    carried: Callable[[int], list[tuple[str, str]]],
    add: Callable[[Index, Sequence[str], int], list[str]],
    finish: Callable[[Sequence[str], int], list[str]],
    numbers: Sequence[LaneReduction],
) -> tuple[NestPlan, list[str]]:
    """Loops over tiles of one shape: their nest, and the numbers.

    Args:
        carried: a chunk's width, 0 for a scalar -> (register type, first value) of what is gathered over chunks of it.
        add: (index, what was gathered, width) -> with a chunk.
        finish: (what was gathered, width) -> the numbers.
    """
    w = context.writer
    plan = NestPlan(context, shape, [(tile, identity(len(shape))) for tile in tiles])
    complete_partial(plan, frozenset())
    kept: list[str] = []
    if plan.outer_axes():
        for number in numbers:
            type_, size = number.stored
            kept.append(w.alloca(type_, 1, size))
            w.store(type_, "0" if type_ != number.type else number.start, kept[-1], size)
    found: list[str] = []
    with context.nest():
        filled = begin_fill(plan)

        def gather(index: Index, values: Sequence[str], width: int) -> list[str]:
            context.nest_index = index
            values = add(index, values, width)
            for value in filled:
                evaluate(context, value, index)
            return list(values)

        def strip(index: Index, width: int) -> list[str]:
            return finish(gather(index, [start for _, start in carried(width)], width), width)

        for row in plan.rows():

            def write(row: Index = row) -> list[tuple[str, str]]:
                pieces: list[list[str]] = []

                def body(index: Index, values: list[str], copy: int) -> Sequence[str]:
                    return gather(index, values, plan.width)

                def rest(index: Index) -> None:
                    width = index[plan.lane].width
                    pieces.append(strip(index, width))

                if plan.lane < 0:
                    pieces.append(strip(row, 0))
                else:
                    lanes = InnerLoop(plan, row, body, carried(plan.width), rest)
                    pieces += [finish(group, plan.width) for group in lanes.run(None, lanes.limit())]
                columns = zip(numbers, zip(*pieces, strict=True), strict=True)
                return [(number.type, functools.reduce(functools.partial(number.merge, context), texts)) for number, texts in columns]

            found = version_row(plan, row, write, False)
            for number, place, text in zip(numbers, kept, found, strict=True) if kept else ():
                number_type, size = number.stored
                earlier = w.load(number_type, place, size)
                if number_type != number.type:
                    earlier = w.emit(f"trunc {number_type} {earlier} to {number.type}")
                text = number.merge(context, earlier, text)
                if number_type != number.type:
                    text = w.emit(f"zext {number.type} {text} to {number_type}")
                w.store(number_type, text, place, size)
        end_fill(context, filled)
    for position, (number, place) in enumerate(zip(numbers, kept, strict=True) if kept else ()):
        type_, size = number.stored
        text = w.load(type_, place, size)
        found[position] = text if type_ == number.type else w.emit(f"trunc {type_} {text} to {number.type}")
    return plan, found
