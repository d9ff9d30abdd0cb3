"""Lowering of mbarriers and named barriers, which synchronize partitions and TMA copies."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

from tilewright.ir.core import Operation, Value
from tilewright.ir.ops.arithmetic import Constant
from tilewright.simt.dialect.attributes import offset_of
from tilewright.simt.dialect.op_interface import Interface, SharedEffects
from tilewright.simt.dialect.ops import mbarrier as ops
from tilewright.simt.dialect.ops.buffers import Buffer
from tilewright.simt.dialect.ops.tma import BlockLoadStart, RowsLoadStart
from tilewright.simt.dialect.ops.warp_specialize import Turn
from tilewright.simt.dialect.registry import register_interfaces
from tilewright.simt.dialect.types import BarriersType
from tilewright.simt.lowering.emission.context import SimtContext
from tilewright.simt.target.capabilities.clusters import Clusters
from tilewright.simt.target.capabilities.mbarriers import Mbarriers
from tilewright.simt.target.capabilities.named_barriers import NamedBarriers
from tilewright.simt.target.simt_target import required

#: Operations that refer to an mbarrier.
OnBarrier = ops.OnBarrier | BlockLoadStart | RowsLoadStart


def clusters_of(context: SimtContext) -> Clusters:
    """Return the cluster instructions of the target of a kernel that runs in clusters."""
    return required(context.target.clusters, context.target, "clusters")


def _mbarriers(context: SimtContext) -> Mbarriers:
    return required(context.target.mbarriers, context.target, "mbarriers")


def _named_barriers(context: SimtContext) -> NamedBarriers:
    return required(context.target.named_barriers, context.target, "named barriers")


def in_one_thread(
    context: SimtContext, body: Callable[[], None], condition: Value | None = None
) -> None:
    """Emit ``body()`` for the first of the threads that run this code, if a condition holds."""
    with (
        context.writer.when(context.is_first_thread()),
        context.writer.when(context.scalar(condition)) if condition is not None else nullcontext(),
    ):
        body()


def barrier_address(context: SimtContext, operation: OnBarrier) -> str:
    """Emit the address of the mbarrier of an operation."""
    barriers, index = operation.barriers, operation.index
    w, start, number, size = (
        context.writer,
        context.scalar(barriers),
        context.scalar(index),
        _mbarriers(context).bytes,
    )
    if number.isdecimal():
        return context.shared_address(int(start) + int(number) * size)
    type_ = context.llvm_type(index.type)
    if type_ != "i32":
        number = w.emit(f"{'trunc' if type_ == 'i64' else 'zext'} {type_} {number} to i32")
    return context.shared_address(w.emit(f"add i32 {w.emit(f'mul i32 {number}, {size}')}, {start}"))


def lower_barriers(context: SimtContext, operation: ops.Barriers) -> None:
    """Initialize mbarriers, and make them visible to all threads after the last of a sequence.

    In a cluster the CTAs also synchronize before the first of them, so that none still arrives at
    earlier mbarriers in the same memory.
    """
    (result,) = operation.results
    assert isinstance(result.type, BarriersType)
    context.bind(result, [str(offset_of(operation))])
    more, mbarriers = _makes_more(operation), _mbarriers(context)
    if context.cluster > 1 and not _were_made(operation):
        if context.target.async_proxy is not None:
            context.target.async_proxy.fence(context.writer, everywhere=False)
        clusters_of(context).barrier(context)
    with context.writer.when(context.is_first_thread()):
        for i in range(result.type.count):
            address = context.shared_address(offset_of(operation) + i * mbarriers.bytes)
            mbarriers.initialize(context, address, operation.count)
        if not more:
            mbarriers.fence_initialization(context)
    if not more:
        clusters_of(context).barrier(context) if context.cluster > 1 else context.barrier()


def _makes_more(operation: Operation) -> bool:
    """Return whether another ``simt.barriers`` follows, with only no-op operations in between."""
    following = operation.next
    while following is not None and isinstance(following, _IDLE):
        following = following.next
    return following is not None and isinstance(following, ops.Barriers)


def _were_made(operation: Operation) -> bool:
    """Return whether a ``simt.barriers`` precedes, with only no-op operations in between."""
    earlier = operation.previous
    while earlier is not None and isinstance(earlier, _IDLE):
        earlier = earlier.previous
    return earlier is not None and isinstance(earlier, ops.Barriers)


#: Operations that emit no instruction.
_IDLE = (Buffer, Constant)


def lower_publish(context: SimtContext, operation: ops.Publish) -> None:
    required(context.target.async_proxy, context.target, "async proxy").fence(
        context.writer, everywhere=operation.everywhere
    )


def lower_expect(context: SimtContext, operation: ops.Expect) -> None:
    address = barrier_address(context, operation)
    in_one_thread(
        context,
        lambda: _mbarriers(context).expect(context, address, operation.bytes),
        operation.condition,
    )


def lower_arrive(context: SimtContext, operation: ops.Arrive) -> None:
    """Arrive once for each warp, after a warp barrier that orders the accesses of its lanes."""
    w, condition = context.writer, operation.condition
    address = barrier_address(context, operation)
    context.target.threads.warp_barrier(w)
    first = context.thread_is_zero(context.target.resources.warp_size - 1, 0)
    with (
        w.when(first or "true"),
        w.when(context.scalar(condition)) if condition is not None else nullcontext(),
    ):
        if operation.at_all and context.cluster > 1:
            clusters_of(context).arrive_at_all(context, address)
        else:
            _mbarriers(context).arrive(context, address)


def lower_await(context: SimtContext, operation: ops.Await) -> None:
    address, parity, condition, alone = (
        barrier_address(context, operation),
        context.scalar(operation.phase),
        operation.condition,
        operation.alone,
    )
    first = context.thread_is_zero(0, _all_warps(context)) if alone else None
    with (
        context.writer.when(first or "true"),
        context.writer.when(context.scalar(condition)) if condition is not None else nullcontext(),
    ):
        _mbarriers(context).wait(context, address, parity)
        if alone:
            # one lane goes on to operations that may complete the next phase
            context.target.threads.warp_barrier(context.writer)


def _all_warps(context: SimtContext) -> int:
    """Return a mask of the bits that the numbers of the current warps may have."""
    return (1 << (context.threads.count - 1).bit_length()) - 1


def _object(operation: OnBarrier) -> tuple[tuple[Value, Value], ...]:
    return ((operation.barriers, operation.index),)


def _expects(operation: ops.Expect) -> SharedEffects:
    return SharedEffects(announced=_object(operation), ordered=operation.ordered)


def _awaits(operation: ops.Await) -> SharedEffects:
    return SharedEffects() if operation.alone else SharedEffects(awaited=_object(operation))


def _turn(context: SimtContext, operation: Turn) -> tuple[int, int, int]:
    return (
        context.orders.setdefault(operation.order, len(context.orders)),
        operation.place,
        operation.of,
    )


def lower_turn_wait(context: SimtContext, operation: Turn) -> None:
    _named_barriers(context).wait(context, *_turn(context, operation), context.threads)


def lower_turn_pass(context: SimtContext, operation: Turn) -> None:
    _named_barriers(context).hand_over(context, *_turn(context, operation), context.threads)


INTERFACES = register_interfaces(
    {
        "simt.barriers": Interface(lower_barriers),
        "simt.expect": Interface(lower_expect, effects=_expects),
        "simt.arrive": Interface(lower_arrive),
        "simt.await": Interface(lower_await, effects=_awaits),
        "simt.publish": Interface(lower_publish),
        "simt.turn_wait": Interface(lower_turn_wait),
        "simt.turn_pass": Interface(lower_turn_pass),
    }
)
