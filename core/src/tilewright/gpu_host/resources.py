"""Resource usage and occupancy of a program, from its compiler's log; needs no GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Processor:
    """The limits of an SM (CU), which runs all threads of a program.

    Attributes:
        warp: threads of a warp.
        threads: threads that it holds.
        programs: programs that it holds.
        registers: registers of 32 bits that it has for all threads.
        register_step: granularity of a warp's register allocation.
        schedulers: parts that have registers of their own, the same number each; a warp is in one
            of them.
        shared: bytes of shared memory.
        shared_step: granularity of shared-memory allocation in bytes.
        system_shared: bytes of shared memory that the system reserves per program.
        name: the vendor's term for it.
    """

    warp: int
    threads: int
    programs: int
    registers: int
    register_step: int
    schedulers: int
    shared: int
    shared_step: int
    system_shared: int = 0
    name: str = "processor"


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Occupancy of an SM (CU).

    Attributes:
        programs: resident at a time.
        share: the fraction of its threads that they fill.
        limit: the limiting resource: ``registers``, ``shared memory``, ``threads`` or ``programs``.
    """

    programs: int
    share: float
    limit: str


def occupancy(processor: Processor, registers: int, shared: int, threads: int) -> Occupancy:
    """Compute the occupancy of programs of ``threads`` threads and ``shared`` bytes.

    Each thread has ``registers`` registers; 0 leaves registers out of account. The maximum
    shared-memory carve-out is assumed.
    """
    warps = -(-threads // processor.warp)
    limits = {
        "threads": processor.threads // processor.warp // warps,
        "programs": processor.programs,
    }
    if registers:
        each = -(-registers * processor.warp // processor.register_step) * processor.register_step
        held = processor.registers // processor.schedulers // each * processor.schedulers
        limits["registers"] = held // warps
    taken = -(-(shared + processor.system_shared) // processor.shared_step) * processor.shared_step
    if taken:
        limits["shared memory"] = processor.shared // taken
    limit = min(limits, key=lambda name: limits[name])
    return Occupancy(
        limits[limit], limits[limit] * warps * processor.warp / processor.threads, limit
    )


@dataclass(frozen=True, slots=True)
class Usage:
    """Resource usage of a kernel as its compiler reported it.

    Attributes:
        registers: of a thread.
        by: the compiler.
        stack: bytes of local memory of a thread; None where it did not say.
        stored, loaded: bytes of register spills that a thread stores and loads, where ``stack`` is
            known.
    """

    registers: int
    by: str
    stack: int | None = None
    stored: int = 0
    loaded: int = 0


def described(
    processor: Processor, threads: int, shared: int, available: int, usage: Usage | str
) -> Mapping[str, Any]:
    """Describe a program's registers, spills, stack, shared memory and occupancy in words.

    Args:
        threads, shared: threads and bytes of shared memory of a program.
        available: bytes of shared memory that a program may have.
        usage: the compiler's report, or the reason why there is none.
    """
    facts: dict[str, Any] = {"threads": threads, "shared memory": f"{shared} bytes of {available}"}
    if isinstance(usage, str):
        return {**facts, "registers": f"not known: {usage}"}
    facts["registers"] = f"{usage.registers} a thread (by {usage.by})"
    if usage.stack is not None:
        facts["stack"] = f"{usage.stack} bytes a thread"
        facts["spills"] = f"{usage.stored} bytes stored, {usage.loaded} bytes loaded"
    found = occupancy(processor, usage.registers, shared, threads)
    limit = (
        f"the maximum of {processor.programs} CTAs" if found.limit == "programs" else found.limit
    )
    facts["occupancy"] = (
        f"{found.share:.0%}: {found.programs} CTA{'s' if found.programs != 1 else ''} per "
        f"{processor.name}, limited by {limit}"
    )
    return facts
