"""What a program takes of a GPU, from what its compiler said and the processor's limits: no GPU is needed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Processor:
    """What of a device runs a program, with all its threads.

    Attributes:
        warp: threads of a warp.
        threads: threads that it holds.
        programs: programs that it holds.
        registers: registers of 32 bits that it has for all threads.
        register_step: registers are given to a warp in steps of this many.
        schedulers: parts that have registers of their own, the same number each; a warp is in one of them.
        shared: bytes of shared memory.
        shared_step: shared memory is given in steps of this many bytes.
        system_shared: bytes that the system takes with each program.
        name: what its vendor calls it.
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
    """How many programs a processor holds.

    Attributes:
        programs: how many at a time.
        share: the part of its threads that they are.
        limit: what allows no more: ``registers``, ``shared memory``, ``threads`` or ``programs``.
    """

    programs: int
    share: float
    limit: str


def occupancy(processor: Processor, registers: int, shared: int, threads: int) -> Occupancy:
    """Programs of ``threads`` threads with ``registers`` registers each and ``shared`` bytes that a processor holds. Registers of 0 are not counted; all memory
    that can be shared memory is taken to be shared memory."""
    warps = -(-threads // processor.warp)
    limits = {"threads": processor.threads // processor.warp // warps, "programs": processor.programs}
    if registers:
        each = -(-registers * processor.warp // processor.register_step) * processor.register_step
        held = processor.registers // processor.schedulers // each * processor.schedulers
        limits["registers"] = held // warps
    taken = -(-(shared + processor.system_shared) // processor.shared_step) * processor.shared_step
    if taken:
        limits["shared memory"] = processor.shared // taken
    limit = min(limits, key=lambda name: limits[name])
    return Occupancy(limits[limit], limits[limit] * warps * processor.warp / processor.threads, limit)


@dataclass(frozen=True, slots=True)
class Usage:
    """What a compiler said of a kernel.

    Attributes:
        registers: of a thread.
        by: the compiler.
        stack: bytes of local memory of a thread; None where it did not say.
        stored, loaded: bytes that a thread stores and loads for want of registers, where ``stack`` is told.
    """

    registers: int
    by: str
    stack: int | None = None
    stored: int = 0
    loaded: int = 0


def described(processor: Processor, threads: int, shared: int, available: int, usage: Usage | str) -> Mapping[str, Any]:
    """Registers, spills, stack and shared memory of a program, and how many fit a processor, in words.

    Args:
        threads, shared: threads and bytes of shared memory of a program.
        available: bytes of shared memory that a program may have.
        usage: what the compiler said, or why that is not known.
    """
    facts: dict[str, Any] = {"threads": threads, "shared memory": f"{shared} bytes of {available}"}
    if isinstance(usage, str):
        return {**facts, "registers": f"not known: {usage}"}
    facts["registers"] = f"{usage.registers} a thread (by {usage.by})"
    if usage.stack is not None:
        facts["stack"] = f"{usage.stack} bytes a thread"
        facts["spills"] = f"{usage.stored} bytes stored, {usage.loaded} bytes loaded"
    found = occupancy(processor, usage.registers, shared, threads)
    facts["occupancy"] = f"{found.share:.0%}: {found.programs} CTA{'s' if found.programs != 1 else ''} per {processor.name}, limited by {found.limit}"
    return facts
