"""Figures of PTX: by ``ptxas``, as the driver compiles it, and of the SASS that it makes, by
``nvdisasm``.
"""

from __future__ import annotations

import re

from corpus.figures import Figures
from tilewright.gpu_host.code_counts import count, main_loop
from tilewright.gpu_host.resources import occupancy
from tilewright_nvidia.architectures import ARCHITECTURES
from tilewright_nvidia.toolchain.linking import assemble
from tilewright_nvidia.toolchain.resources import processor, usage_of
from tilewright_nvidia.toolchain.sass import disassemble, effect, parse


def figures_of(ptx: str, shared: int) -> Figures:
    """Figures of the one kernel of a PTX text.

    Args:
        shared: bytes of shared memory that a launch asks for besides the kernel's own.

    Raises:
        BackendError: there is no ptxas, or no nvdisasm.
        LoweringError: ptxas rejects the PTX.
    """
    arch = re.search(r"^\.target\s+(sm_\w+)", ptx, re.M)
    entry = re.search(r"^\s*(?:\.visible\s+)?\.entry\s+([\w$]+)", ptx, re.M)
    threads = re.search(r"^\s*\.(?:reqntid|maxntid)\s+(\d+)", ptx, re.M)
    assert arch is not None and entry is not None and threads is not None, "the PTX has no kernel"
    linked = assemble(ptx, arch[1])
    usage = usage_of(linked.log, "ptxas")
    assert usage is not None, "ptxas does not say what registers it took"
    static = re.search(r"(\d+) bytes smem", linked.log)
    taken = shared + (int(static[1]) if static else 0)
    code = parse(disassemble(linked.binary), entry[1])
    room = occupancy(processor(arch[1]), usage.registers, taken, int(threads[1]))
    return Figures(
        registers=usage.registers,
        spilled=usage.stored + usage.loaded,
        stack=usage.stack or 0,
        shared=taken,
        threads=int(threads[1]),
        ctas=room.programs,
        limit=room.limit,
        code=count(code, effect),
        loop=main_loop(code, effect),
    )


def shared_limit(target: str) -> int:
    """Bytes of shared memory that a CTA may have."""
    return ARCHITECTURES[target].shared_memory
