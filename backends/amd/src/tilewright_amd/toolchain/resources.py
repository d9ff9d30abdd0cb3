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
    """The resource usage in the metadata of an assembly text.

    Attributes:
        registers: vector registers of a thread, including accumulator registers.
        scalars: scalar registers of a wave.
        spilled: vector registers spilled to scratch memory.
        moved: scalar registers spilled to lanes of vector registers.
        private: bytes of scratch memory of a thread.
    """

    registers: int
    scalars: int
    spilled: int
    moved: int
    private: int


def usage_of(listing: str) -> KernelUsage:
    """Parse the resource usage of the only kernel of an assembly text."""

    def number(name: str) -> int:
        found = re.search(rf"^\s+(?:- )?\.{name}:\s+(\d+)$", listing, re.M)
        return int(found[1]) if found else 0

    names = (
        "vgpr_count",
        "sgpr_count",
        "vgpr_spill_count",
        "sgpr_spill_count",
        "private_segment_fixed_size",
    )
    return KernelUsage(*map(number, names))


def processor(arch: str) -> Processor:
    """Describe a compute unit of an architecture."""
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
    """Report a program's registers, spills and LDS, its occupancy, and instruction counts."""
    listing = code.stages["amdgcn"]
    assert isinstance(listing, str)
    found = usage_of(listing)
    threads = architecture(target.arch).wave * int(code.metadata["num_warps"])
    usage = Usage(
        found.registers, "the code generator", found.private, 4 * found.spilled, 4 * found.spilled
    )
    return {
        **described(
            processor(target.arch),
            threads,
            int(code.metadata["shared"]),
            target.limits["shared_memory"],
            usage,
        ),
        (
            "scalar registers"
        ): f"{found.scalars} a wave, and {found.moved} in lanes of vector registers",
        **counted(parse(listing, code.name), effect),
    }
