"""Choice of the occupancy, and of each program's share, for loops over back-to-back matmuls.

Such a loop (:mod:`.back_to_back`) is warp-specialized, and its producer warps need few registers.
The remaining registers go to the consumer warps or to other programs on the SM: while one program
waits for its matmuls, another one computes. So as many programs are resident as have registers for
a thread's tiles in flight, and shared memory for two slots of each load. If there are few programs,
and registers are left, the halves of the loop are software-pipelined, unless both read one load and
a program that is alone has two slots of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tilewright.ir.core import Function
from tilewright.ir.ops.control import For
from tilewright.simt.analysis.register_pressure import words_of
from tilewright.simt.analysis.shared_views import views_of
from tilewright.simt.dialect.attributes import PROGRAMS, note, warps_of
from tilewright.simt.dialect.ops.dot import Multiplication
from tilewright.simt.dialect.pipeline_attributes import BY, CHAIN, PARTS, selected
from tilewright.simt.pipeline.back_to_back import asynchronous_matmuls, late_half
from tilewright.simt.pipeline.completion.tma_copies import block_bytes
from tilewright.simt.pipeline.partitions.tma_partitions import rings_of
from tilewright.simt.pipeline.partitions.warp_specialize import LOAD, MATH
from tilewright.simt.pipeline.pipelined_loop import LoopSchedule
from tilewright.simt.pipeline.shared_memory_budget import scratch_beside, slot_bytes
from tilewright.simt.pipeline.start_matmuls import held_by
from tilewright.simt.target.copy_mechanism import BARRIER
from tilewright.simt.target.simt_target import SimtTarget, required

#: Minimum number of slots: one is filled while the other is read.
_MIN_SLOTS: Final = 2


@dataclass(frozen=True, slots=True)
class _Share:
    """A program's share of an SM.

    ``chained`` says whether the halves of its loops are software-pipelined, ``shared`` whether
    loops with equal loads share multi-buffered memory, and ``slots`` is the number of its slots.
    """

    programs: int
    chained: bool
    shared: bool
    slots: int


def settle_chains(
    function: Function, schedules: Mapping[For, LoopSchedule], target: SimtTarget
) -> None:
    """Choose the occupancy, and with it the form and depth of loops over back-to-back matmuls."""
    chains = [loop for loop, found in schedules.items() if found.form == CHAIN]
    if not chains:
        return
    words = max(_registers_in_flight(loop, target) for loop in chains)
    # a loop around such a loop is treated as that of a persistent kernel: one program on each SM
    most = (
        1
        if any(isinstance(outer, For) for loop in chains for outer in loop.ancestors())
        else target.resources.max_resident
    )
    shares = (
        _share(function, schedules, words, programs, target) for programs in range(most, 0, -1)
    )
    share = next(share for share in shares if share is not None)
    if share.programs > 1:
        function.attributes[PROGRAMS] = share.programs
    largest = max(chains, key=lambda loop: sum(map(slot_bytes, selected(loop))))
    ring = rings_of(largest)
    fits, limit = share.slots >= _MIN_SLOTS, _registers(chains[0], share.programs, target)
    for loop in chains:
        if not share.chained:
            why = (
                f"both halves read one load, which takes three slots, and there are {share.slots}"
                if share.shared
                else f"{words} registers of what would be in flight, of {limit}"
            )
            note(loop, f"matmuls are waited for one by one: {why}")
        is_specialized = loop is largest or (share.shared and rings_of(loop) == ring)
        if not fits:
            schedules[loop].form = BARRIER
        elif not share.chained:
            schedules[loop].form = PARTS if is_specialized else BARRIER
    for loop, found in schedules.items():
        if _MIN_SLOTS <= share.slots < found.slots:
            note(
                loop,
                f"pipelined {share.slots} deep instead of {found.slots}, for want of shared memory",
            )
            found.slots = share.slots


def _share(
    function: Function,
    schedules: Mapping[For, LoopSchedule],
    words: int,
    programs: int,
    target: SimtTarget,
) -> _Share | None:
    """Return each program's share for a given occupancy; None if it is too small."""
    chains = [loop for loop, found in schedules.items() if found.form == CHAIN]
    limit, widest = (
        _registers(chains[0], programs, target),
        max(_widest(loop, target) for loop in chains),
    )
    thresholds = target.costs.thresholds
    if programs > 1 and (
        words + thresholds.registers_in_flight > limit
        or widest + thresholds.matmul_registers > _first_registers(chains[0], programs, target)
    ):
        return None
    # producer warps start the copies, so consumers need no registers for them
    chained = shared = (
        programs <= thresholds.pipelined_programs
        and words + target.costs.other_registers * 3 // 4 <= limit
    )
    # loops with equal loads share multi-buffered memory if there are registers for both halves
    rings = {(rings_of(loop) if shared and loop in chains else loop): loop for loop in schedules}
    # with several programs, too low an estimate costs one of them: blocks are assumed to be stored
    # when no slots are needed any more, and loaded blocks to be read in place
    names = ("descriptor_load",) if programs > 1 else ("descriptor_load", "descriptor_store")
    around = [
        operation
        for operation in function.walk()
        if operation.name in names and BY not in operation.attributes
    ]
    there = (
        {view.value for load in around for view in views_of(load.results[0])}
        if programs > 1
        else set()
    )
    beside = (
        sum(map(block_bytes, around))
        + max(scratch_beside(loop, target, there) for loop in schedules)
        + thresholds.mbarrier_bytes
    )
    free = target.resources.resident_memory(programs) - beside
    slots = min(
        *(schedules[loop].slots for loop in chains),
        max(0, free) // sum(slot_bytes(load) for loop in rings.values() for load in selected(loop)),
    )
    # what both halves read is held for an iteration more: with two slots nothing is prefetched
    # while matmuls run, and no other program computes meanwhile
    if (
        programs == 1
        and slots == _MIN_SLOTS
        and any(_is_read_by_both(loop, target) for loop in chains)
    ):
        chained = False
    return (
        _Share(programs, chained, shared, slots) if programs == 1 or slots >= _MIN_SLOTS else None
    )


def _is_read_by_both(loop: For, target: SimtTarget) -> bool:
    """Return whether both halves of a loop read one of its loads."""
    (body,) = loop.regions
    late = late_half(body, asynchronous_matmuls(body, target)) or set()
    for load in selected(loop):
        halves = {
            user in late
            for view in views_of(load.results[0])
            for user in view.value.uses
            if isinstance(user, Multiplication)
        }
        if len(halves) > 1:
            return True
    return False


def _registers_in_flight(loop: For, target: SimtTarget) -> int:
    """Return a thread's registers for the tiles that a loop has in flight at a time.

    These are the results of all matmuls, and the operands that the late matmuls read from
    registers.
    """
    (body,) = loop.regions
    matmuls = asynchronous_matmuls(body, target)
    tiles = {value for matmul in matmuls for value in (matmul.results[0], *held_by(matmul, target))}
    return sum(map(words_of, tiles))


def _widest(loop: For, target: SimtTarget) -> int:
    """Return a thread's registers for the largest result of a matmul."""
    return max(
        words_of(matmul.results[0]) for matmul in asynchronous_matmuls(loop.regions[0], target)
    )


def _registers(loop: For, programs: int, target: SimtTarget) -> int:
    """Return the registers of a thread in a consumer warp, for a given occupancy."""
    warps = warps_of(loop)
    specialization = required(target.warp_specialization, target, "warp specialization")
    given = specialization.registers(
        {MATH: warps, LOAD: specialization.warp_multiple}, programs
    ).get(MATH)
    return given or min(target.resources.registers, _first_registers(loop, programs, target))


def _first_registers(loop: For, programs: int, target: SimtTarget) -> int:
    """Return the registers of each thread at the kernel's start, for a given occupancy."""
    warps = (
        warps_of(loop)
        + required(target.warp_specialization, target, "warp specialization").warp_multiple
    )
    return target.resources.register_file // (target.resources.warp_size * warps * programs)
