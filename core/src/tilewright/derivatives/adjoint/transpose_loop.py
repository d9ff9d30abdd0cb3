"""The rule of loops.

A loop is *free of order* where it only adds: each carried float has the same cotangent before and
after an iteration, and no derivative reads its value. Then the adjoint's iterations may run in any
order, here forward, and everything else that the loop carries (addresses, counters) is carried as
in the kernel. This is decided on the generated body: the cotangent that comes out is the value that
went in, and the parameter that stands for the carried value has no readers in the end.

Other loops are walked backward, from a tape (:mod:`.loop_tape`).
"""

from __future__ import annotations

from tilewright.derivatives.adjoint.adjoint_builder import AdjointBuilder
from tilewright.derivatives.adjoint.loop_tape import LoopTape
from tilewright.derivatives.adjoint.rules import transposes
from tilewright.derivatives.cotangent_types import is_float
from tilewright.ir.core import Region, Value
from tilewright.ir.ops.control import For


class NeedsTapeError(Exception):
    """A loop is not free of order.

    Attributes:
        loop: its number.
    """

    def __init__(self, loop: int) -> None:
        super().__init__(f"loop {loop} is not free of order")
        self.loop = loop


@transposes(
    For,
    "the adjoint loop runs forward if the iterations only add, otherwise backward with a "
    "tape of loop-carried values",
)
def loop(builder: AdjointBuilder, operation: For, *cotangents: Value | None) -> None:
    number = builder.loops[operation]
    if number in builder.analysis.taped:
        _walk_backward(builder, operation, cotangents)
    elif _stores_in_order(builder, operation):
        raise NeedsTapeError(number)
    else:
        _walk_forward(builder, operation, cotangents)


def _stores_in_order(builder: AdjointBuilder, operation: For) -> bool:
    """Return whether iterations may store one element of an output, of which the last counts."""
    memory, consumed = builder.analysis.memory, builder.analysis.consumed
    if operation not in memory.storing:
        return False
    inside = set(operation.walk())
    return any(
        write in inside
        for argument, writes in memory.written.items()
        if argument.name in consumed
        for write in writes
    )


def _walk_forward(
    builder: AdjointBuilder, operation: For, cotangents: tuple[Value | None, ...]
) -> None:
    b, body, number = builder.b, operation.body, builder.loops[operation]
    assert body.last is not None
    carried = body.arguments[1:]
    kept = [i for i, value in enumerate(carried) if value not in builder.varied]
    closure = builder.closure(operation)
    inits = [builder.primal[operation.inits[i]] for i in kept]
    inits += [builder.take_cotangent(value) for value in closure]
    made = Region(
        [operation.lower.type, *(value.type for value in inits)],
        [body.arguments[0].name, *(carried[i].name for i in kept)],
    )
    primal, outer = dict(builder.primal), builder.cotangents
    builder.primal[body.arguments[0]] = made.arguments[0]
    builder.primal.update((carried[i], made.arguments[1 + place]) for place, i in enumerate(kept))
    builder.cotangents = dict(zip(closure, made.arguments[1 + len(kept) :], strict=True))
    with b.at_region(made):
        for value in carried:
            if value in builder.varied:
                builder.primal[value] = builder.placeholder(value, number)
        for value, cotangent in zip(body.last.operands, cotangents, strict=True):
            builder.add_cotangent(value, cotangent)
        builder.replay(body)
        builder.transpose(body)
        b.yield_(
            [
                *(builder.primal[body.last.operands[i]] for i in kept),
                *(builder.cotangents[value] for value in closure),
            ]
        )
    for value, cotangent in zip(carried, cotangents, strict=True):
        if value in builder.varied and builder.cotangents.get(value) is not cotangent:
            raise NeedsTapeError(number)
    builder.primal, builder.cotangents = primal, outer
    bounds = [primal[value] for value in (operation.lower, operation.upper, operation.step)]
    found = b.region_op("for", *bounds, inits, regions=[made]).results
    builder.cotangents.update(zip(closure, found[len(kept) :], strict=True))
    for value, cotangent in zip(operation.inits, cotangents, strict=True):
        builder.add_cotangent(value, cotangent)  # a value of the closure may be one of the inits


def _walk_backward(
    builder: AdjointBuilder, operation: For, cotangents: tuple[Value | None, ...]
) -> None:
    b, body = builder.b, operation.body
    assert body.last is not None
    tape = LoopTape(builder, operation)
    carried = body.arguments[1:]
    active = [i for i, value in enumerate(carried) if value in builder.varied and is_float(value)]
    closure = builder.closure(operation)
    inits = [builder.or_zero(cotangents[i], carried[i]) for i in active]
    inits += [builder.take_cotangent(value) for value in closure]
    tape.record()
    trips = tape.trips
    made = Region([trips.type, *(value.type for value in inits)])
    primal, outer = dict(builder.primal), builder.cotangents
    builder.cotangents = dict(zip(closure, made.arguments[1 + len(active) :], strict=True))
    with b.at_region(made):
        tape.restore(made.arguments[0])
        for place, i in enumerate(active):
            builder.add_cotangent(body.last.operands[i], made.arguments[1 + place])
        builder.replay(body)
        builder.transpose(body)
        b.yield_(
            [
                *(builder.take_cotangent(carried[i]) for i in active),
                *(builder.cotangents[value] for value in closure),
            ]
        )
    builder.primal, builder.cotangents = primal, outer
    zero, one = (b.constant_like(trips.type, number) for number in (0, 1))
    found = b.region_op("for", zero, trips, one, inits, regions=[made]).results
    tape.barrier()
    builder.cotangents.update(zip(closure, found[len(active) :], strict=True))
    for i, cotangent in zip(active, found, strict=False):
        builder.add_cotangent(operation.inits[i], cotangent)
