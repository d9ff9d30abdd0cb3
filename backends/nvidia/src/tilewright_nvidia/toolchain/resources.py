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

#: The magic number of device code, which distinguishes it from PTX.
_ELF: Final = b"\x7fELF"


def processor(arch: str) -> Processor:
    """Describe an SM of an architecture, by the rules of NVIDIA's occupancy calculator."""
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
    """Return a thread's registers from a compiler's log; None if it does not report them."""
    found = re.search(r"Used (\d+) registers", log)
    return int(found[1]) if found else None


def usage_of(log: str, by: str) -> Usage | None:
    """Parse the resource usage in a compiler's log; None if it does not report registers."""
    registers = registers_of(log)
    stack = re.search(
        r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", log
    )
    return (
        None
        if registers is None
        else Usage(registers, by, *(map(int, stack.groups()) if stack else ()))
    )


def resources(code: CodeObject, target: Target) -> Mapping[str, Any]:
    """Report a CTA's registers, spills and shared memory, its occupancy, and instruction counts.

    Registers are known if the local driver compiled the kernel or ``ptxas`` is installed;
    instruction counts if ``nvdisasm`` is installed, too.
    """
    usage: Usage | str | None = usage_of(
        str(code.metadata.get("link_log", "")), str(code.metadata.get("linked_by", "the driver"))
    )
    binary = code.binary
    if usage is None:
        try:
            linked = assemble(code.stages["ptx"], target.arch)
            usage, binary = usage_of(linked.log, "ptxas") or "ptxas did not say", linked.binary
        except BackendError as error:
            usage = str(error)
    threads, shared = 32 * int(code.metadata["num_warps"]), int(code.metadata["shared"])
    return {
        **described(processor(target.arch), threads, shared, target.limits["shared_memory"], usage),
        **_machine_code(binary, code.name),
    }


def _machine_code(binary: bytes, kernel: str) -> Mapping[str, Any]:
    """Count the instructions of a kernel and of its innermost loop.

    The result is empty if the driver does not return the code, and explains other failures.
    """
    if not binary.startswith(_ELF):
        return {}
    try:
        return counted(parse(disassemble(binary), kernel), effect)
    except BackendError as error:
        return {"machine code": f"not known: {error}"}


__all__ = ["processor", "registers_of", "resources", "usage_of"]
