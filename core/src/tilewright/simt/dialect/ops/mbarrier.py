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
    "allocate and initialize mbarriers. A phase of an mbarrier completes when `count` arrivals "
    "have happened and all bytes that the phase expects have been copied",
    _barriers,
    effects=Effect.ORDER,
    explicit_results=True,
)
class Barriers(Operation):
    __slots__ = ()

    count = TypedAttribute[int]("the number of arrivals that complete a phase")


@OPS.operation(
    "simt.expect",
    "arrive at an mbarrier from one thread, and increase the number of bytes that the mbarrier "
    "expects in this phase (arrive.expect_tx)",
    _on_barrier,
    effects=Effect.ORDER,
)
class Expect(OnBarrier):
    __slots__ = ()

    bytes = TypedAttribute[int]("the expected bytes")
    ordered = TypedAttribute[bool](
        "whether the pass that created the operation guarantees that no thread may still wait for "
        "the previous phase",
        False,
    )


@OPS.operation(
    "simt.arrive",
    "arrive at an mbarrier once per warp, after all earlier memory accesses of the warp",
    _on_barrier,
    effects=Effect.ORDER,
)
class Arrive(OnBarrier):
    __slots__ = ()

    at_all = TypedAttribute[bool](
        "whether to arrive at the mbarriers of all CTAs of the cluster", False
    )


@OPS.operation(
    "simt.arrive_after",
    "arrive at an mbarrier when all matmuls into tensor memory that were started earlier are "
    "complete (tcgen05.commit)",
    _on_barrier,
    effects=Effect.ORDER,
)
class ArriveAfter(OnBarrier):
    __slots__ = ()


@OPS.operation(
    "simt.await",
    "wait until the phase of an mbarrier with the given parity has completed. While the first "
    "phase of the mbarrier is incomplete, a wait with `phase` true returns at once",
    _on_barrier,
    effects=Effect.ORDER,
)
class Await(OnBarrier):
    __slots__ = ()

    phase = SingleOperand("the parity of the phase: false for the first one")
    condition = fields.CONDITION
    alone = TypedAttribute[bool](
        "whether only the warp that starts TMA copies waits, because no other warp depends on the "
        "phase",
        False,
    )
    stores = TypedAttribute[bool](
        "whether the arrivals of all warps at the end of the previous iteration of the "
        "surrounding loop order their stores to global memory before the code after this wait",
        False,
    )


@OPS.operation(
    "simt.publish",
    "execute a proxy fence. Accesses through the async proxy (TMA, wgmma) that follow the next "
    "barrier or arrival are then ordered after this thread's earlier accesses to shared memory",
    nothing,
    effects=Effect.ORDER,
)
class Publish(Operation):
    __slots__ = ()

    everywhere = TypedAttribute[bool](
        "whether to order earlier writes to global memory, too", False
    )
