"""What a program takes of a GPU, from what the compiler of its PTX says and the architecture's limits: no GPU is needed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tilewright.errors import BackendError
from tilewright.plugins.manifest import CodeObject, Target
from tilewright_nvidia.architectures import ARCHITECTURES
from tilewright_nvidia.linking import Linked, assemble

#: Registers are given to a warp in steps of this many.
_REGISTER_STEP = 256
#: Warps that share a multiprocessor's schedulers: registers are counted in groups of this many.
_WARP_STEP = 4
#: Shared memory is given in steps of this many bytes.
_SHARED_STEP = 128
#: Bytes that the system takes of each program's shared memory, from compute capability 8.0 on.
_SYSTEM_SHARED = 1024


@dataclass(frozen=True, slots=True)
class Occupancy:
    """How many programs a multiprocessor holds.

    Attributes:
        programs: how many at a time.
        share: the part of its threads that they are.
        limit: what allows no more: ``registers``, ``shared memory``, ``threads`` or ``programs``.
    """

    programs: int
    share: float
    limit: str


def occupancy(arch: str, registers: int, shared: int, threads: int) -> Occupancy:
    """Programs of ``threads`` threads with ``registers`` registers each and ``shared`` bytes that a multiprocessor of an architecture holds (the rules of
    NVIDIA's occupancy calculator; all shared memory that can be is taken to be shared memory)."""
    row = ARCHITECTURES[arch]
    warps = -(-threads // 32)
    limits = {"threads": row.threads // 32 // warps, "programs": row.blocks}
    if registers:
        each = -(-registers * 32 // _REGISTER_STEP) * _REGISTER_STEP
        limits["registers"] = 65536 // each // _WARP_STEP * _WARP_STEP // warps
    taken = -(-(shared + (_SYSTEM_SHARED if row.capability >= 80 else 0)) // _SHARED_STEP) * _SHARED_STEP
    if taken:
        limits["shared memory"] = row.shared_total // taken
    limit = min(limits, key=lambda name: limits[name])
    return Occupancy(limits[limit], limits[limit] * warps * 32 / row.threads, limit)


def registers_of(log: str) -> int | None:
    """Registers of a thread that a compiler's log reports."""
    found = re.search(r"Used (\d+) registers", log)
    return int(found[1]) if found else None


def resources(code: CodeObject, target: Target) -> Mapping[str, Any]:
    """Registers, spills, stack and shared memory of a program, and how many fit a multiprocessor, in words.

    Registers are known where the driver of this machine has compiled the kernel, or ``ptxas`` is found.
    """
    threads, shared = 32 * int(code.metadata["num_warps"]), int(code.metadata["shared"])
    facts: dict[str, Any] = {"threads": threads, "shared memory": f"{shared} bytes of {target.limits['shared_memory']}"}
    log = str(code.metadata.get("link_log", ""))
    by = "the driver"
    if registers_of(log) is None:
        try:
            linked: Linked = assemble(code.stages["ptx"], target.arch)
        except BackendError as error:
            return {**facts, "registers": f"not known: {error}"}
        log, by = linked.log, "ptxas"
    registers = registers_of(log)
    if registers is None:
        return {**facts, "registers": f"not known: {by} did not say"}
    stack = re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", log)
    facts["registers"] = f"{registers} a thread (by {by})"
    if stack:
        facts["stack"] = f"{stack[1]} bytes a thread"
        facts["spills"] = f"{stack[2]} bytes stored, {stack[3]} bytes loaded"
    found = occupancy(target.arch, registers, shared, threads)
    facts["occupancy"] = f"{found.share:.0%}: {found.programs} programs a multiprocessor, limited by {found.limit}"
    return facts


__all__ = ["Occupancy", "occupancy", "registers_of", "resources"]
