"""Resources of a kernel (registers, spills, shared memory) and its occupancy, without a GPU."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from tilewright.errors import BackendError
from tilewright.gpu_host.code_counts import counted
from tilewright.gpu_host.resources import Processor, Usage, described
from tilewright.plugins.manifest import CodeObject, Target
from tilewright_nvidia.architectures import ARCHITECTURES
from tilewright_nvidia.toolchain.linking import assemble
from tilewright_nvidia.toolchain.sass import disassemble, effect, parse

#: What device code begins with; PTX, which stands for it where the driver compiles, does not.
_ELF: Final = b"\x7fELF"


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
        name="SM",
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
    """Registers, spills, stack and shared memory of a program, and how many fit a multiprocessor, in words; what its machine code counts.

    Registers are known where the driver of this machine has compiled the kernel, or ``ptxas`` is found; machine code where ``nvdisasm`` is found, too.
    """
    usage: Usage | str | None = usage_of(str(code.metadata.get("link_log", "")), str(code.metadata.get("linked_by", "the driver")))
    binary = code.binary
    if usage is None:
        try:
            linked = assemble(code.stages["ptx"], target.arch)
            usage, binary = usage_of(linked.log, "ptxas") or "ptxas did not say", linked.binary
        except BackendError as error:
            usage = str(error)
    threads, shared = 32 * int(code.metadata["num_warps"]), int(code.metadata["shared"])
    return {**described(processor(target.arch), threads, shared, target.limits["shared_memory"], usage), **_machine_code(binary, code.name)}


def _machine_code(binary: bytes, kernel: str) -> Mapping[str, Any]:
    """What a kernel's machine code counts, all of it and its innermost loop; why that is not known. Nothing where the driver keeps the code to itself."""
    if not binary.startswith(_ELF):
        return {}
    try:
        return counted(parse(disassemble(binary), kernel), effect)
    except BackendError as error:
        return {"machine code": f"not known: {error}"}


__all__ = ["processor", "registers_of", "resources", "usage_of"]
