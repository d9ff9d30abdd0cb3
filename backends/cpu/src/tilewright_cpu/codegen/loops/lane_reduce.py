"""Reductions of the lanes of whole tiles to a few numbers: a flag, the minimum and the maximum."""

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
    """A number that lanes are reduced to.

    Attributes:
        type: its register type, an integer of 8 bits at least or i1.
        start: the identity.
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
    """Write loops over tiles of one shape; return their loop nest, and the numbers.

    Args:
        carried: a strip's width, 0 for a scalar -> (register type, first value) of what is carried
            over strips of it.
        add: (index, carried values, width) -> with a strip.
        finish: (carried values, width) -> the numbers.
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

        def accumulate(index: Index, values: Sequence[str], width: int) -> list[str]:
            context.nest_index = index
            values = add(index, values, width)
            for value in filled:
                evaluate(context, value, index)
            return list(values)

        def strip(index: Index, width: int) -> list[str]:
            return finish(accumulate(index, [start for _, start in carried(width)], width), width)

        for row in plan.rows():

            def write(row: Index = row) -> list[tuple[str, str]]:
                pieces: list[list[str]] = []

                def body(index: Index, values: list[str], copy: int) -> Sequence[str]:
                    return accumulate(index, values, plan.width)

                def rest(index: Index) -> None:
                    width = index[plan.lane].width
                    pieces.append(strip(index, width))

                if plan.lane < 0:
                    pieces.append(strip(row, 0))
                else:
                    lanes = InnerLoop(plan, row, body, carried(plan.width), rest)
                    pieces += [
                        finish(group, plan.width) for group in lanes.run(None, lanes.limit())
                    ]
                columns = zip(numbers, zip(*pieces, strict=True), strict=True)
                return [
                    (number.type, functools.reduce(functools.partial(number.merge, context), texts))
                    for number, texts in columns
                ]

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
        found[position] = (
            text if type_ == number.type else w.emit(f"trunc {type_} {text} to {number.type}")
        )
    return plan, found
