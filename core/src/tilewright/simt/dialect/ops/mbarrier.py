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
    "have happened and all bytes that the phase expects have been copied. The next phase then "
    "begins",
    _barriers,
    effects=Effect.ORDER,
    explicit_results=True,
)
class Barriers(Operation):
    __slots__ = ()

    count = TypedAttribute[int]("the number of arrivals that complete a phase")


@OPS.operation(
    "simt.expect",
    "make one thread arrive at an mbarrier and increase the number of bytes that the current "
    "phase of the mbarrier expects (PTX: arrive.expect_tx)",
    _on_barrier,
    effects=Effect.ORDER,
)
class Expect(OnBarrier):
    __slots__ = ()

    bytes = TypedAttribute[int]("the number of bytes that are added")
    ordered = TypedAttribute[bool](
        "whether no barrier is needed before this operation, because the pass that created the "
        "operation guarantees that no thread still waits for the previous phase",
        False,
    )


@OPS.operation(
    "simt.arrive",
    "make each warp arrive once at an mbarrier, after all earlier memory accesses of this warp",
    _on_barrier,
    effects=Effect.ORDER,
)
class Arrive(OnBarrier):
    __slots__ = ()

    at_all = TypedAttribute[bool](
        "whether each warp arrives at this mbarrier in all CTAs of the cluster", False
    )


@OPS.operation(
    "simt.arrive_after",
    "make the GPU arrive at an mbarrier when all matmuls that accumulate in tensor memory and "
    "that were started earlier are complete (PTX: tcgen05.commit)",
    _on_barrier,
    effects=Effect.ORDER,
)
class ArriveAfter(OnBarrier):
    __slots__ = ()


@OPS.operation(
    "simt.await",
    "wait until a phase of an mbarrier has completed. The operand `phase` is the parity of this "
    "phase: false for the first phase, true for the second, false for the third, and so on. "
    "During the first phase, a wait for the parity true returns at once",
    _on_barrier,
    effects=Effect.ORDER,
)
class Await(OnBarrier):
    __slots__ = ()

    phase = SingleOperand("the parity of the phase")
    condition = fields.CONDITION
    alone = TypedAttribute[bool](
        "whether only the warp that starts TMA copies waits, because no other warp depends on the "
        "phase",
        False,
    )
    stores = TypedAttribute[bool](
        "whether all warps arrive at this mbarrier at the end of each iteration of the "
        "surrounding loop, so that this wait orders their stores to global memory in the previous "
        "iteration before the code after the wait",
        False,
    )


@OPS.operation(
    "simt.publish",
    "execute a proxy fence. TMA and matmuls access shared memory on another path, the async "
    "proxy, than threads. If a barrier or an arrival follows the fence, later accesses by TMA and "
    "matmuls are ordered after the earlier accesses of this thread to shared memory",
    nothing,
    effects=Effect.ORDER,
)
class Publish(Operation):
    __slots__ = ()

    everywhere = TypedAttribute[bool](
        "whether the fence also orders earlier writes to global memory", False
    )
