"""TMA loads around warp-specialized loops: operands that all iterations of a loop read.

    for each tile:                                          (of a persistent kernel)
        %q = descriptor_load ...
        for each iteration: ... dot %q, %k

The producer issues such a load, too, so that the next tile's operand arrives while the consumer is
still in this tile's loop or its epilogue:

    S slots of shared memory; S mbarriers ``full``, S mbarriers ``empty``
    partition
        part "load":
            for each tile: wait until its slot is empty; expect and start its copy at ``full``; ...
        part "math":
            for each tile:
                wait for ``full``
                for each iteration: ... matmuls read the slot
                each warp arrives at ``empty``; ... the epilogue

With two slots, if they fit, the copy of the next tile's operand does not hold back the copies of
the loop that follow it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Operation, Region, Value
from tilewright.ir.ops.control import For
from tilewright.ir.ops.memory import DescriptorLoad, MakeDescriptor
from tilewright.ir.types import I1, I32, TileType
from tilewright.simt.analysis.pipelined_loads import matmuls_of, wished_layout
from tilewright.simt.dialect.attributes import warps_of
from tilewright.simt.dialect.loop_carried import terminator
from tilewright.simt.dialect.pipeline_attributes import BY, CHAIN, TILE_SLOTS, selected
from tilewright.simt.dialect.types import BarriersType
from tilewright.simt.passes.allocate_shared import scratch_of
from tilewright.simt.passes.ssa_repair import thread_values
from tilewright.simt.passes.tma.lower_tma_loads import read_slot
from tilewright.simt.pipeline.completion.tma_copies import block_bytes
from tilewright.simt.pipeline.partitions.warp_specialize import is_issuable, writer_of
from tilewright.simt.pipeline.pipelined_loop import LoopSchedule
from tilewright.simt.pipeline.shared_memory_budget import scratch_beside, slot_bytes
from tilewright.simt.pipeline.slot_reads import ends_of_reads
from tilewright.simt.target.simt_target import SimtTarget
from tilewright.simt.target.tma_mechanism import block_buffer, block_mechanism, create

#: Slots of an operand, if they fit: one is read while the other is filled.
_SLOTS = 2


# ---- selection


def select_tile_operands(
    function: Function, schedules: Mapping[For, LoopSchedule], target: SimtTarget
) -> None:
    """Mark the loads around warp-specialized loops that a producer issues, with their slots."""
    loops = [loop for loop, found in schedules.items() if found.form == CHAIN]
    loads = [
        operation
        for operation in function.walk()
        if isinstance(operation, DescriptorLoad)
        and BY not in operation.attributes
        and _is_issued_ahead(operation, loops, target)
    ]
    if not loads:
        return
    rings = {
        tuple(load.results[0].type for load in selected(loop)): schedules[loop].slots
        * sum(map(slot_bytes, selected(loop)))
        for loop in schedules
    }
    there = {load.results[0] for load in loads}
    scratch = [scratch_beside(loop, target, there) for loop in schedules]
    scratch += [scratch_of(operation, target) for operation in function.walk()]
    free = (
        target.resources.shared_memory
        - target.costs.thresholds.mbarrier_bytes
        - sum(rings.values())
        - max(scratch)
    )
    slots = _SLOTS if _SLOTS * sum(map(block_bytes, loads)) <= free else 1
    for load in loads:
        load.attributes[TILE_SLOTS] = slots


def _is_issued_ahead(load: DescriptorLoad, loops: Collection[For], target: SimtTarget) -> bool:
    """Return whether a producer can issue a load, and it is worth while.

    The load is in a loop around some of ``loops``, whose matmuls alone read its tile.
    """
    outer = load.parent.owner if load.parent is not None else None
    if not isinstance(outer, For) or isinstance(load.descriptor.definition, MakeDescriptor):
        return False
    matmuls = [matmul for _, matmul, _ in matmuls_of(load.results[0])]
    around = [next(matmul.ancestors(), None) for matmul in matmuls]
    return (
        bool(matmuls)
        and all(
            isinstance(loop, For) and loop in loops and outer in loop.ancestors() for loop in around
        )
        and is_issuable(load.operands, [outer, *outer.ancestors()])
        and writer_of([load]) is None
        and wished_layout(load, block_mechanism(load, target), target) is not None
    )


# ---- expansion


def expand_tile_operands(
    load_part: Region, math_part: Region, before: Builder, target: SimtTarget
) -> None:
    """Write the marked loads of two partitions, whose loops are expanded."""
    copies, loads = (_marked(part) for part in (load_part, math_part))
    for copy, load in zip(copies, loads, strict=True):
        _TileOperand(load, before, target).write(copy, load, load_part, math_part)


def _marked(region: Region) -> list[DescriptorLoad]:
    return [
        operation
        for operation in region.walk()
        if isinstance(operation, DescriptorLoad) and TILE_SLOTS in operation.attributes
    ]


class _TileOperand:
    """The slots and mbarriers of one load."""

    def __init__(self, load: DescriptorLoad, before: Builder, target: SimtTarget) -> None:
        self.target, self.mechanism = target, block_mechanism(load, target)
        self.slots: int = load.attributes[TILE_SLOTS]
        shared = wished_layout(load, self.mechanism, target)
        assert shared is not None
        (result,) = load.results
        assert isinstance(result.type, TileType)
        self.buffer = block_buffer(before, self.slots, result.type, shared, self.mechanism)
        self.full, self.empty = (
            create(before, "simt.barriers", result=BarriersType(self.slots), count=count).results[0]
            for count in (1, warps_of(load))
        )
        self.first = [before.constant(value=0, result=I32), before.constant(value=False, result=I1)]

    def write(
        self,
        copy: DescriptorLoad,
        load: DescriptorLoad,
        load_part: Region,
        math_part: Region,
    ) -> None:
        """Issue the copy in the producer; wait for it and release its slot in the consumer."""
        thread_values(load_part, [copy], self.first, self._issue)
        thread_values(math_part, [load], self.first, self._read)

    def _issue(self, copy: DescriptorLoad, values: tuple[Value, ...]) -> Sequence[Value]:
        """Start a copy as soon as its slot is empty."""
        which, phase = values
        builder = Builder.at(copy)
        passed = builder.xor(phase, builder.constant(value=True, result=I1))
        create(builder, "simt.await", [self.empty], [which], [passed], alone=True)
        create(builder, "simt.expect", [self.full], [which], bytes=block_bytes(copy), ordered=True)
        create(
            builder,
            "simt.block_load_start",
            [create(builder, "simt.slot", [self.buffer], [which]).results[0]],
            [copy.descriptor],
            copy.offsets,
            [self.full],
            [which],
            by=self.mechanism.name,
            ordered=True,
        )
        del copy.attributes[TILE_SLOTS]
        return self._advanced(builder, which, phase)

    def _read(self, load: DescriptorLoad, values: tuple[Value, ...]) -> Sequence[Value]:
        """Wait for a copy, let its readers read the slot, and release it after the last one."""
        which, phase = values
        builder, region = Builder.at(load), load.parent
        assert region is not None
        create(builder, "simt.await", [self.full], [which], [phase])
        slot = create(builder, "simt.slot", [self.buffer], [which]).results[0]
        read_slot(builder, load, slot, self.target)
        ends = {_in(region, end) for end in ends_of_reads(slot)}
        last = max(ends, key=list(region).index) if ends else load
        place = last.next or terminator(region)
        create(Builder.at(place), "simt.arrive", [self.empty], [which])
        advanced = self._advanced(builder, which, phase)
        load.erase()
        return advanced

    def _advanced(self, builder: Builder, which: Value, phase: Value) -> Sequence[Value]:
        """Compute the next slot and its parity, which flips where the slot index wraps."""
        zero, one, final = (
            builder.constant(value=value, result=I32) for value in (0, 1, self.slots - 1)
        )
        is_last = builder.cmp(which, final, predicate="eq")
        return [
            builder.select(is_last, zero, builder.add(which, one)),
            builder.xor(phase, is_last),
        ]


def _in(region: Region, operation: Operation) -> Operation:
    """Return the operation of a region that is, or contains, another one."""
    while operation.parent is not region:
        operation = next(operation.ancestors())
    return operation
