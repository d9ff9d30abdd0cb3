"""Order of stores to global memory in the tiles of a persistent, warp-specialized kernel.

Two tiles may store to one address, and then the later tile's value stays. A barrier of all consumer
warps between the stores of two tiles would see to it, and keep the warps in step: while they store,
no matmul would run. An mbarrier has the same effect without a wait, where warps are less than a
tile apart:

    for each tile:
        ...
        wait until all warps have arrived in the previous tile
        store ...
        each warp arrives
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tilewright.ir.builder import Builder
from tilewright.ir.core import Operation, Region, Value
from tilewright.ir.ops.control import For
from tilewright.ir.ops.memory import Store
from tilewright.ir.types import I1, I32
from tilewright.simt.dialect.attributes import warps_of
from tilewright.simt.dialect.loop_carried import terminator
from tilewright.simt.dialect.types import BarriersType
from tilewright.simt.passes.ssa_repair import thread_values
from tilewright.simt.target.tma_mechanism import create


def order_stores(math_part: Region, loops: Iterable[For], before: Builder) -> None:
    """Order the stores of loops of the consumer by mbarriers."""
    for loop in loops:
        stores = [operation for operation in loop.body if isinstance(operation, Store)]
        if stores and not any(
            isinstance(inner, Store) and inner.parent is not loop.body for inner in loop.walk()
        ):
            _order(math_part, stores[0], before)


def _order(math_part: Region, first: Store, before: Builder) -> None:
    """Write the wait before the first store of a tile, and the arrival at the tile's end."""
    barriers = create(
        before, "simt.barriers", result=BarriersType(1), count=warps_of(first)
    ).results[0]
    which, parity = (
        before.constant(value=0, result=I32),
        before.constant(value=False, result=I1),
    )

    def update(place: Operation, values: tuple[Value, ...]) -> Sequence[Value]:
        (phase,) = values
        builder, region = Builder.at(place), place.parent
        assert region is not None
        # the phase before the first one counts as completed
        flipped = builder.xor(phase, builder.constant(value=True, result=I1))
        create(builder, "simt.await", [barriers], [which], [flipped], stores=True)
        create(Builder.at(terminator(region)), "simt.arrive", [barriers], [which])
        return [flipped]

    thread_values(math_part, [first], [parity], update)
