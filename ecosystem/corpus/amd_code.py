"""Figures of the assembly text of a kernel for AMD GPUs, with the metadata that ends it."""

from __future__ import annotations

import re

from corpus.figures import Figures
from tilewright.gpu_host.code_counts import count, main_loop
from tilewright.gpu_host.resources import occupancy
from tilewright_amd.architectures import ARCHITECTURES
from tilewright_amd.toolchain.gcn_assembly import effect, parse
from tilewright_amd.toolchain.resources import processor, usage_of


def figures_of(listing: str, shared: int) -> Figures:
    """Figures of the one kernel of an assembly text.

    Args:
        shared: bytes of LDS that a launch asks for, those that the code declares included.
    """
    arch = re.search(r'^\s*\.amdgcn_target\s+"[^"]*--(gfx\w+)', listing, re.M)
    name = re.search(r"^\s+\.symbol:\s+'?([\w$.]+)\.kd'?$", listing, re.M)
    threads = re.search(r"^\s+\.max_flat_workgroup_size:\s+(\d+)$", listing, re.M)
    fixed = re.search(r"^\s+(?:- )?\.group_segment_fixed_size:\s+(\d+)$", listing, re.M)
    assert arch is not None and name is not None and threads is not None, "the text has no kernel"
    usage = usage_of(listing)
    taken = max(shared, int(fixed[1]) if fixed else 0)
    room = occupancy(processor(arch[1]), usage.registers, taken, int(threads[1]))
    code = parse(listing, name[1])
    return Figures(
        registers=usage.registers,
        spilled=4 * usage.spilled,
        stack=usage.private,
        shared=taken,
        threads=int(threads[1]),
        ctas=room.programs,
        limit=room.limit,
        code=count(code, effect),
        loop=main_loop(code, effect),
    )


def shared_limit(target: str) -> int:
    """Bytes of LDS that a workgroup may have."""
    return ARCHITECTURES[target].shared_memory
