"""The amd backend's manifest: plain data, which loads no compiler and no vendor library."""

from __future__ import annotations

import dataclasses

from tilewright.ir.order import SEQUENTIAL, TREE
from tilewright.plugins.common import every_type, why_disabled
from tilewright.plugins.manifest import Capabilities, Manifest
from tilewright_amd import __version__
from tilewright_amd.architectures import ARCHITECTURES

#: The features if an assembler is installed; inline assembly needs one.
CAPABILITIES = every_type(
    {
        "descriptors",
        "assert",
        "print",
        "inline_asm",
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
#: math: ``relaxed`` uses the hardware's f32 exp2, rsqrt, exp and log, divides within 2.5 ULP, and
#: rounds a bf16 fma to f32 first; ``strict`` uses the shared expansions, IEEE division and a single
#: rounding.
#: waves_per_eu: minimum number of waves per SIMD, which limits the registers of a thread; 0 leaves
#: it to LLVM.
#: matrix_instr_nonkdim: rows and columns of the MFMA instruction to use, 16 or 32, if it exists; 0
#: chooses.
#: kpack: 1, or 2 to let a lane hold consecutive elements along K for two MFMA instructions.
#: schedule_hint: LLVM's instruction scheduling strategy. ``attention`` interleaves other
#: instructions, most of all exponentials, with MFMA instructions. ``memory-bound-attention`` is
#: accepted but changes nothing: LLVM's strategy for it aborts the process on some kernels.
#: chiplets: number of chiplets to which the device deals programs in turn along the grid's first
#: axis. Program IDs are remapped so that neighbours run on one chiplet and share its cache. 0 keeps
#: the IDs, as needed by programs that wait for programs with lower IDs.
#: line_info: emit source line information for profilers and debuggers; instructions do not change.
OPTIONS = {
    "math": "relaxed", "waves_per_eu": 0, "matrix_instr_nonkdim": 0, "kpack": 1,
    "schedule_hint": "", "chiplets": 0, "num_stages": 2, "line_info": False,
}  # fmt: skip


def _capabilities() -> Capabilities:
    from tilewright_amd.toolchain.rocm_llvm import missing

    remedy = missing()
    return (
        dataclasses.replace(
            CAPABILITIES,
            features=CAPABILITIES.features - {"inline_asm"},
            remedies={"inline_asm": remedy},
        )
        if remedy
        else CAPABILITIES
    )


def manifest() -> Manifest:
    """Return the backend's manifest. ``TILEWRIGHT_AMD_DISABLE=1`` disables the backend."""
    from tilewright_amd.host.driver import why_not

    def why_no_device() -> str:
        reason = why_not()
        return reason and f"no device is present: {reason}"

    return Manifest(
        name="amd",
        version=__version__,
        summary="AMD GPUs through AMDGPU code",
        device_kinds=("hip",),
        targets=tuple(ARCHITECTURES),
        capabilities=_capabilities(),
        options=OPTIONS,
        language={"hip": "tilewright_amd.language"},
        priority=200,
        status=why_disabled("amd", "amd", why_no_device),
        emulator="tilewright-amd-emulator",
    )
