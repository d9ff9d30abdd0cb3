"""Resources of a kernel (registers, spills, LDS) and its occupancy, without a GPU."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tilewright.gpu_host.code_counts import counted
from tilewright.gpu_host.resources import Processor, Usage, described
from tilewright.plugins.manifest import CodeObject, Target
from tilewright_amd.architectures import architecture
from tilewright_amd.toolchain.gcn_assembly import effect, parse


@dataclass(frozen=True, slots=True)
class KernelUsage:
    """What the metadata of an assembly text says of its kernel.

    Attributes:
        registers: vector registers of a thread, those for accumulators with them.
        scalars: scalar registers of a wave.
        spilled: vector registers that did not fit, and are in memory of the thread's own.
        moved: scalar registers that did not fit, and are in lanes of vector registers.
        private: bytes of memory of its own that a thread takes.
    """

    registers: int
    scalars: int
    spilled: int
    moved: int
    private: int


def usage_of(listing: str) -> KernelUsage:
    """The usage of the one kernel of an assembly text."""

    def number(name: str) -> int:
        found = re.search(rf"^\s+(?:- )?\.{name}:\s+(\d+)$", listing, re.M)
        return int(found[1]) if found else 0

    names = "vgpr_count", "sgpr_count", "vgpr_spill_count", "sgpr_spill_count", "private_segment_fixed_size"
    return KernelUsage(*map(number, names))


def processor(arch: str) -> Processor:
    """A compute unit of an architecture."""
    row = architecture(arch)
    return Processor(
        warp=row.wave,
        threads=row.waves * row.wave,
        programs=row.waves,
        registers=row.file,
        register_step=row.granule * row.wave,
        schedulers=row.simds,
        shared=row.shared_total,
        shared_step=512,
        name="CU",
    )


def resources(code: CodeObject, target: Target) -> Mapping[str, Any]:
    """Registers, spills, private memory and LDS of a program, and how many fit a compute unit, in words; what its machine code counts."""
    listing = code.stages["amdgcn"]
    assert isinstance(listing, str)
    found = usage_of(listing)
    threads = architecture(target.arch).wave * int(code.metadata["num_warps"])
    usage = Usage(found.registers, "the code generator", found.private, 4 * found.spilled, 4 * found.spilled)
    return {
        **described(processor(target.arch), threads, int(code.metadata["shared"]), target.limits["shared_memory"], usage),
        "scalar registers": f"{found.scalars} a wave, and {found.moved} in lanes of vector registers",
        **counted(parse(listing, code.name), effect),
    }
