"""What the nvidia backend declares about itself. Plain data: no compiler is touched here, and of the driver only its version is asked."""

from __future__ import annotations

from tilewright.plugins.common import every_type, why_disabled
from tilewright.plugins.manifest import Manifest
from tilewright_nvidia import __version__
from tilewright_nvidia.architectures import ARCHITECTURES
from tilewright_nvidia.operations import OPS

CAPABILITIES = every_type({"descriptors", "print", "assert", "inline_asm", "extern_libraries", "dot_scaled", "noinline", "clock", "cooperative"})

#: Launch options of this backend beyond the portable ones.
#:
#: math: ``relaxed`` takes the machine's own f32 exp2 (2.9 ULP), rsqrt (2.2), division (2) and exp (2.9 + 1.173 |x|), whose results below the normal
#: numbers may be zero, and makes tanh and erf of that exp (4); ``strict`` keeps to the shared functions and IEEE division.
#: launch_pdl: the kernel may start before the kernel launched before it has ended (compute capability 9.0 on); it waits for that one before anything else,
#: or where its source says so.
#: asynchronous: multiply by warpgroups (``wgmma``; ``sm_90a``) or into tensor memory (``tcgen05``; ``sm_100a``), and copy whole blocks by the copy engine,
#: where operands allow it.
#: warp_specialize: loads of all pipelined loops on warps of their own, where copies are of blocks; a loop may ask for it itself.
#: extern_libs: name -> path of a bitcode file (clang's ``-emit-llvm`` for this target), whose functions the kernel calls by ``tl.core.extern_elementwise``.
#: line_info: the code says which lines of the source it comes from, for profilers and debuggers; its instructions are the same.
OPTIONS = {"math": "relaxed", "launch_pdl": False, "asynchronous": True, "warp_specialize": False, "line_info": False, "extern_libs": ()}


def manifest() -> Manifest:
    """The backend's manifest. ``TILEWRIGHT_NVIDIA_DISABLE=1`` in the environment keeps the backend out of use."""
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
