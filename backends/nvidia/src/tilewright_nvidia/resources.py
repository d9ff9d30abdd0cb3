"""What a program takes of a GPU, from what the compiler of its PTX says and the architecture's limits: no GPU is needed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tilewright.errors import BackendError
from tilewright.plugins.manifest import CodeObject, Target
from tilewright.simt.host.resources import Processor, Usage, described
from tilewright_nvidia.architectures import ARCHITECTURES
from tilewright_nvidia.linking import assemble


def processor(arch: str) -> Processor:
    """A multiprocessor of an architecture, by the rules of NVIDIA's occupancy calculator."""
    row = ARCHITECTURES[arch]
    return Processor(
        warp=32,
        threads=row.threads,
        programs=row.blocks,
        registers=65536,
        register_step=256,
        schedulers=4,
        shared=row.shared_total,
        shared_step=128,
        system_shared=1024 if row.capability >= 80 else 0,
    )


def registers_of(log: str) -> int | None:
    """Registers of a thread that a compiler's log reports."""
    found = re.search(r"Used (\d+) registers", log)
    return int(found[1]) if found else None


def usage_of(log: str, by: str) -> Usage | None:
    """What a compiler's log reports of a kernel; None where it does not tell the registers."""
    registers = registers_of(log)
    stack = re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", log)
    return None if registers is None else Usage(registers, by, *(map(int, stack.groups()) if stack else ()))


def resources(code: CodeObject, target: Target) -> Mapping[str, Any]:
    """Registers, spills, stack and shared memory of a program, and how many fit a multiprocessor, in words.

    Registers are known where the driver of this machine has compiled the kernel, or ``ptxas`` is found.
    """
    usage: Usage | str | None = usage_of(str(code.metadata.get("link_log", "")), str(code.metadata.get("linked_by", "the driver")))
    if usage is None:
        try:
            usage = usage_of(assemble(code.stages["ptx"], target.arch).log, "ptxas") or "ptxas did not say"
        except BackendError as error:
            usage = str(error)
    threads, shared = 32 * int(code.metadata["num_warps"]), int(code.metadata["shared"])
    return described(processor(target.arch), threads, shared, target.limits["shared_memory"], usage)


__all__ = ["processor", "registers_of", "resources", "usage_of"]
