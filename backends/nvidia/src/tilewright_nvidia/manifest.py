"""The nvidia backend's manifest: plain data, which loads no compiler.

Of the driver, it only queries the version.
"""

from __future__ import annotations

from tilewright.ir.order import SEQUENTIAL, TREE
from tilewright.plugins.common import every_type, why_disabled
from tilewright.plugins.manifest import Manifest
from tilewright_nvidia import __version__
from tilewright_nvidia.architectures import ARCHITECTURES
from tilewright_nvidia.operations import OPS

CAPABILITIES = every_type(
    {
        "descriptors",
        "print",
        "assert",
        "inline_asm",
        "extern_libraries",
        "dot_scaled",
        "noinline",
        "clock",
        "cooperative",
    },
    orders={
        **{name: frozenset((TREE, SEQUENTIAL)) for name in ("reduce", "scan")},
        "dot": frozenset((SEQUENTIAL,)),
    },
)

#: Launch options of this backend beyond the portable ones.
#:
#: math: ``relaxed`` uses the hardware's f32 exp2 (2.9 ULP), rsqrt (2.2), division (2) and exp (2.9
#: + 1.173 |x|), whose results below the normal range may be zero, and computes tanh and erf from
#: that exp (4); ``strict`` uses the shared expansions and IEEE division.
#: launch_pdl: programmatic dependent launch: the kernel may start before the preceding kernel ends
#: (compute capability 9.0 on). It waits for that kernel at its entry, or where its source says so.
#: asynchronous: use ``wgmma`` (``sm_90a``) or ``tcgen05`` (``sm_100a``) for matmuls and TMA for
#: block copies, where operands allow it.
#: warp_specialize: move the loads of all pipelined loops to producer warps, if TMA copies them; a
#: loop may also request it itself.
#: extern_libs: name -> path of a bitcode file (clang's ``-emit-llvm`` for this target), whose
#: functions the kernel calls through ``tl.core.extern_elementwise``.
#: line_info: emit source line information for profilers and debuggers; instructions do not change.
OPTIONS = {
    "math": "relaxed",
    "launch_pdl": False,
    "asynchronous": True,
    "warp_specialize": False,
    "line_info": False,
    "extern_libs": (),
}


def manifest() -> Manifest:
    """Return the backend's manifest. ``TILEWRIGHT_NVIDIA_DISABLE=1`` disables the backend."""
    from tilewright_nvidia.toolchain.installation import why_not

    return Manifest(
        name="nvidia",
        version=__version__,
        summary="NVIDIA GPUs through PTX",
        device_kinds=("cuda",),
        targets=tuple(ARCHITECTURES),
        capabilities=CAPABILITIES,
        options=OPTIONS,
        ops=tuple(OPS),
        language={"cuda": "tilewright_nvidia.language"},
        priority=200,
        status=why_disabled("nvidia", "nvidia", why_not),
    )
