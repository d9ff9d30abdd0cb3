"""Mbarriers: how parts of a program wait for each other, for TMA copies and for matmuls."""

from __future__ import annotations

from tilewright.ir.core import Operation
from tilewright.ir.declare import Declarations, SingleOperand, TypedAttribute
from tilewright.ir.ops.rules import nothing
from tilewright.ir.table import Effect, RuleError, Shape
from tilewright.ir.types import I1, Type
from tilewright.simt.dialect.ops import fields
from tilewright.simt.dialect.ops.type_rules import require_barrier
from tilewright.simt.dialect.types import BarriersType


def _barriers(shape: Shape) -> list[Type]:
    if not isinstance(shape.result, BarriersType):
        raise RuleError(f"the result must be barriers, not {shape.result}")
    return [shape.result]


def _on_barrier(shape: Shape) -> list[Type]:
    require_barrier(shape)
    for name in ("condition", "phase"):
        group = shape.groups.get(name, ())
        if any(type_ is not I1 for type_ in group):
            raise RuleError(f"{name} must be {I1}, not {group[0]}")
    return []


OPS = Declarations()


class OnBarrier(Operation):
    """Operation on an mbarrier."""

    __slots__ = ()

    barriers = fields.BARRIERS
    index = fields.INDEX
    condition = fields.CONDITION


@OPS.operation(
    "simt.barriers",
    "mbarriers, in their first phase, each of which ends a phase after so many arrivals, when all "
    "bytes that were announced have come",
    _barriers,
    effects=Effect.ORDER,
    explicit_results=True,
)
class Barriers(Operation):
    __slots__ = ()

    count = TypedAttribute[int]("arrivals of a phase")


@OPS.operation(
    "simt.expect",
    "arrive at an mbarrier, by one thread, and announce bytes that copies will bring in this phase",
    _on_barrier,
    effects=Effect.ORDER,
)
class Expect(OnBarrier):
    __slots__ = ()

    bytes = TypedAttribute[int]("that come")
    ordered = TypedAttribute[bool](
        "whoever wrote it saw to it that no thread may still wait for the phase before", False
    )


@OPS.operation(
    "simt.arrive",
    "arrive at an mbarrier: each warp once, after what its threads did before",
    _on_barrier,
    effects=Effect.ORDER,
)
class Arrive(OnBarrier):
    __slots__ = ()

    at_all = TypedAttribute[bool]("of a cluster: at the objects of all blocks", False)


@OPS.operation(
    "simt.arrive_after",
    "arrive at an mbarrier, once, when all matmuls into accumulators that were started before "
    "have ended",
    _on_barrier,
    effects=Effect.ORDER,
)
class ArriveAfter(OnBarrier):
    __slots__ = ()


@OPS.operation(
    "simt.await",
    "wait until the phase of this parity of an mbarrier has ended; that before the first one has",
    _on_barrier,
    effects=Effect.ORDER,
)
class Await(OnBarrier):
    __slots__ = ()

    phase = SingleOperand("its parity: false for the first phase")
    condition = fields.CONDITION
    alone = TypedAttribute[bool](
        "only the warp waits that starts TMA copies: the others do not depend on what it waits for",
        False,
    )


@OPS.operation(
    "simt.publish",
    "a proxy fence: from the next barrier or arrival on, TMA copies, and matmuls that read shared "
    "memory themselves, see what threads wrote there before, and come after what they read",
    nothing,
    effects=Effect.ORDER,
)
class Publish(Operation):
    __slots__ = ()

    everywhere = TypedAttribute[bool]("what they wrote to global memory as well", False)
