"""Sums of digits carried through loops, for accumulators that loops carry.

A loop whose accumulator is used as that of dots alone carries the accumulators of its digits in
its place, so that it has the shape of the loop on floats: dots that chain, and nothing between
them. The residue is computed after the loop. Where the sums could become inexact, which depends on
the number of iterations, they are added to a residue that the loop carries beside them, as often as
their type requires.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilewright.ir.core import Operation, Region, Value
from tilewright.ir.integer_ranges import known_integer
from tilewright.ir.ops.arithmetic import Binary
from tilewright.ir.ops.control import For, Yield
from tilewright.ir.ops.linear import Dot, DotScaled
from tilewright.ir.types import I32, TileType, with_element
from tilewright.passes.exact.digit_dot import (
    add_digit_dots,
    is_zero,
    line_maxima,
    payloads_of_dot,
    plan_of_dot,
    residue,
    spread_maxima,
)
from tilewright.passes.exact.digits import DigitPlan
from tilewright.passes.exact.ring import is_float
from tilewright.passes.exact.scaled_dot import (
    payloads_of_scaled_dot,
    plan_of_scaled_dot,
    terms_of,
)

if TYPE_CHECKING:
    from tilewright.passes.exact.context import ExactContext


@dataclass(frozen=True)
class CarriedAccumulator:
    """A loop-carried value that dots of the loop's body add to, one after the other.

    Attributes:
        index: its position among the values that the loop carries.
        plan: the digits of the dots.
        steps: the operations that return what is accumulated -> the dot that adds to it: itself, or
            an operand of the addition.
        terms: the number of terms along K of an iteration.
    """

    index: int
    plan: DigitPlan
    steps: dict[Operation, Dot | DotScaled]
    terms: int

    @property
    def iterations(self) -> int:
        """The number of iterations after which sums could become inexact."""
        return self.plan.capacity // self.terms


def accumulators_of(loop: For, way: str) -> list[CarriedAccumulator]:
    """Return the accumulators of a loop of the module on floats, with dots computed in a way."""
    return [
        found
        for index in range(len(loop.inits))
        if (found := _accumulator(loop, index, way)) is not None
    ]


def _accumulator(loop: For, index: int, way: str) -> CarriedAccumulator | None:
    body = loop.body
    value, steps = body.arguments[1 + index], dict[Operation, Dot | DotScaled]()
    if not is_float(value.type) or not isinstance(value.type, TileType):
        return None
    while (user := _only_user(value, body)) is not None and not isinstance(user, Yield):
        dot = _dot_of_step(user, value, body)
        if dot is None:
            return None
        steps[user], value = dot, user.results[0]
    if user is None or user.operands[index] is not value or not steps:
        return None
    plans = [_plan(way, dot) for dot in steps.values()]
    # of dots that differ in their number of terms, the longest one may need other digits
    plan = next((one for one in plans if not one.is_native), plans[0])
    if any((one.a, one.b) != (plan.a, plan.b) for one in plans):
        return None
    found = CarriedAccumulator(index, plan, steps, sum(map(_terms, steps.values())))
    return found if found.iterations else None


def _only_user(value: Value, body: Region) -> Operation | None:
    if sum(value.uses.values()) != 1:
        return None
    (user,) = value.uses
    return user if user.parent is body else None


def _dot_of_step(user: Operation, value: Value, body: Region) -> Dot | DotScaled | None:
    """Return the dot that an operation adds to a value; None if it does something else."""
    if isinstance(user, Dot | DotScaled):
        return user if user.c is value else None
    if not isinstance(user, Binary) or user.name != "add":
        return None
    other = next(operand for operand in user.operands if operand is not value)
    dot = other.definition
    if (
        isinstance(dot, Dot | DotScaled)
        and _only_user(other, body) is user
        and dot.parent is body
        and is_zero(dot.c)
    ):
        return dot
    return None


def _plan(way: str, dot: Dot | DotScaled) -> DigitPlan:
    return plan_of_dot(way, dot) if isinstance(dot, Dot) else plan_of_scaled_dot(way, dot)


def _terms(dot: Dot | DotScaled) -> int:
    if isinstance(dot, DotScaled):
        return terms_of(dot)
    assert isinstance(dot.a.type, TileType)
    return dot.a.type.shape[-1]


def _trips(loop: For) -> int | None:
    """The number of iterations, where it is known."""
    lower, upper, step = map(known_integer, (loop.lower, loop.upper, loop.step))
    if lower is None or upper is None or not step:
        return None
    return max(-(-(upper - lower) // step), 0)


class _CarriedSums:
    """The values that a new loop carries in the place of an accumulator.

    Attributes:
        source: the accumulator.
        like: a type of its shape.
        sums: accumulators of the digits, by weight.
        maxima: where digits are in i8, the largest payload so far of each row and column, which
            tell of codes.
        added: the residue that the sums lack; None where it is zero.
        is_periodic: whether the loop adds the sums to ``added``, which it carries.
    """

    def __init__(self, context: ExactContext, loop: For, source: CarriedAccumulator) -> None:
        builder, plan = context.builder, source.plan
        trips = _trips(loop)
        init = loop.inits[source.index]
        assert isinstance(init.type, TileType)
        self.context, self.source, self.like = context, source, init.type
        self.is_periodic = trips is None or trips > source.iterations
        self.added: Value | None = None
        if self.is_periodic or not is_zero(init):
            (self.added,) = context.payloads([init])
        self.sums = self._zeros()
        self.maxima: list[Value] = []
        if not plan.is_native:
            *batch, rows, columns = self.like.shape
            for operand, extent in ((plan.a, rows), (plan.b, columns)):
                line = TileType((*batch, extent), operand.ring.payload)
                self.maxima.append(builder.constant_like(line, 0))

    def _zeros(self) -> dict[int, Value]:
        type_ = with_element(self.like, self.source.plan.accumulator)
        zero = self.context.builder.constant_like(type_, 0)
        return dict.fromkeys(self.source.plan.weights, zero)

    def values(self) -> list[Value]:
        """The values that the loop carries."""
        added = [self.added] if self.is_periodic and self.added is not None else []
        return [*self.sums.values(), *self.maxima, *added]

    def replace(self, values: Sequence[Value]) -> None:
        """Replace the values, which :meth:`values` lists."""
        remaining = iter(values)
        self.sums = {weight: next(remaining) for weight in self.sums}
        self.maxima = [next(remaining) for _ in self.maxima]
        if self.is_periodic:
            self.added = next(remaining)

    def add(self, dot: Dot | DotScaled) -> None:
        """Append the dots of the digits of one dot's operands."""
        context = self.context
        operands = (
            payloads_of_dot(context, dot)
            if isinstance(dot, Dot)
            else payloads_of_scaled_dot(context, dot)
        )
        add_digit_dots(context, self.source.plan, operands, self.sums, self.like)
        if self.maxima:
            found = line_maxima(context, operands.a, operands.b)
            self.maxima = [*map(context.builder.max, self.maxima, found)]

    def add_up(self) -> None:
        """Append the addition of the sums to the residue, and begin new ones."""
        self.added = residue(self.context, self.source.plan, self.sums, self.added, (), adds_c=True)
        self.sums = self._zeros()

    def result(self) -> Value:
        """Append the payload after the loop."""
        maxima = spread_maxima(self.context, self.maxima, self.like) if self.maxima else ()
        return residue(self.context, self.source.plan, self.sums, self.added, maxima, adds_c=True)


def loop_of_sums(
    context: ExactContext,
    loop: For,
    accumulators: Sequence[CarriedAccumulator],
    append: Callable[[Operation], None],
) -> list[Value]:
    """Append a loop that carries sums for its accumulators; payloads in their results' places.

    Args:
        append: appends the new form of an operation of the body.
    """
    builder = context.builder
    carried = {one.index: _CarriedSums(context, loop, one) for one in accumulators}
    periodic = [one for one in carried.values() if one.is_periodic]
    inits: list[Value] = []
    places: list[slice] = []
    for index, init in enumerate(loop.inits):
        own = carried[index].values() if index in carried else [context.values[init]]
        places.append(slice(len(inits), len(inits) + len(own)))
        inits += own
    zero = builder.constant(value=0, result=I32)
    if periodic:
        inits.append(zero)
    body = Region(
        [context.type_of(loop.body.arguments[0]), *(value.type for value in inits)],
        [loop.body.arguments[0].name],
    )
    arguments = body.arguments[1:]
    context.values[loop.body.arguments[0]] = body.arguments[0]
    for index, old in enumerate(loop.body.arguments[1:]):
        if index in carried:
            carried[index].replace(arguments[places[index]])
        else:
            (context.values[old],) = arguments[places[index]]
    end = loop.body.last
    assert end is not None
    with builder.at_region(body):
        _fill(context, loop, carried, append)
        builder.location = end.location
        count = _add_up(context, periodic, arguments[-1]) if periodic else None
        yielded: list[Value] = []
        for index, value in enumerate(end.operands):
            yielded += carried[index].values() if index in carried else [context.values[value]]
        builder.yield_([*yielded, *(() if count is None else (count,))])
    builder.location = loop.location
    made = builder.region_op(
        "for",
        *(context.values[value] for value in (loop.lower, loop.upper, loop.step)),
        inits,
        regions=[body],
        **dict(loop.attributes),
    )
    results: list[Value] = []
    for index, place in enumerate(places):
        own = made.results[place]
        if index in carried:
            carried[index].replace(own)
            own = [carried[index].result()]
        results += own
    return results


def _fill(
    context: ExactContext,
    loop: For,
    carried: dict[int, _CarriedSums],
    append: Callable[[Operation], None],
) -> None:
    """Append the new body but for its end."""
    steps = {step: (one, dot) for one in carried.values() for step, dot in one.source.steps.items()}
    added = {dot for step, (_, dot) in steps.items() if dot is not step}
    for operation in loop.body:
        if operation in steps:
            one, dot = steps[operation]
            context.builder.location = dot.location
            one.add(dot)
        elif operation not in added and not isinstance(operation, Yield):
            append(operation)


def _add_up(context: ExactContext, periodic: Sequence[_CarriedSums], count: Value) -> Value:
    """Append the additions of sums to residues, when it is time; return the new count."""
    builder = context.builder
    iterations = min(one.source.iterations for one in periodic)
    one = builder.constant(value=1, result=I32)
    last = builder.constant(value=iterations, result=I32)
    counted = builder.add(count, one)
    is_due = builder.cmp(counted, last, predicate="eq")
    before = [value for carry in periodic for value in carry.values()]
    then, otherwise = Region([], []), Region([], [])
    with builder.at_region(then):
        for carry in periodic:
            carry.add_up()
        builder.yield_([value for carry in periodic for value in carry.values()])
    with builder.at_region(otherwise):
        builder.yield_(before)
    chosen = iter(
        builder.region_op(
            "if", is_due, regions=[then, otherwise], results=[value.type for value in before]
        ).results
    )
    for carry in periodic:
        carry.replace([next(chosen) for _ in carry.values()])
    found: Value = builder.select(is_due, builder.constant(value=0, result=I32), counted)
    return found
