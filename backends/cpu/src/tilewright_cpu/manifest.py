"""The CPU backend's manifest: plain data, no compiler is touched here."""

from __future__ import annotations

from tilewright.ir.ops.debug import IMPLIED_ASSERTS
from tilewright.ir.order import SEQUENTIAL, TREE
from tilewright.plugins.common import every_type, why_disabled
from tilewright.plugins.manifest import Manifest
from tilewright_cpu import __version__
from tilewright_cpu.hardware import NAMED

#: Every precision of matmuls may be asked for: where the hardware has nothing quicker, all are
#: computed as IEEE.
CAPABILITIES = every_type(
    {
        "descriptors",
        "print",
        "assert",
        IMPLIED_ASSERTS,
        "inline_asm",
        "extern",
        "dot_scaled",
        "noinline",
        "clock",
        "cooperative",
    },
    power_of_two=False,
    narrow_floats=("add",),
    orders={
        "reduce": frozenset((TREE, SEQUENTIAL)),
        "scan": frozenset((TREE, SEQUENTIAL)),
        "dot": frozenset((SEQUENTIAL,)),
    },
)

#: Launch options of this backend beyond the portable ones.
#:
#: num_threads: threads that run the grid; 0 is as many as the process may use (see
#: ``tilewright_cpu.threading.pool``). line_info: the code says which lines of the source it comes
#: from, for profilers and debuggers; its instructions are the same. What a long kernel calls, once
#: it is cut into functions, has none. flush_denormals: denormal operands and results count as zero,
#: as arithmetic with them is up to a hundred times as slow; None does so in derivatives alone.
OPTIONS = {"num_threads": 0, "line_info": False, "flush_denormals": None}


#: Launch options that are for GPUs.
IGNORED = frozenset({"num_warps", "num_stages", "num_ctas", "maxnreg"})


def manifest() -> Manifest:
    """The backend's manifest.

    ``TILEWRIGHT_CPU_DISABLE=1`` in the environment keeps the backend out of use.
    """
    return Manifest(
        name="cpu",
        version=__version__,
        summary="fused vector loops through LLVM on the host's cores",
        device_kinds=("cpu",),
        targets=tuple(NAMED),
        capabilities=CAPABILITIES,
        options=OPTIONS,
        ignored=IGNORED,
        language={"cpu": "tilewright_cpu.language"},
        host="tilewright_cpu.host",
        priority=100,
        status=why_disabled("cpu", "cpu"),
    )
