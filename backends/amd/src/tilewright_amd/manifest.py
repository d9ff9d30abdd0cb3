"""The amd backend's manifest: plain data, which loads no compiler and no vendor library."""

from __future__ import annotations

import dataclasses

from tilewright.plugins.common import every_type, why_disabled
from tilewright.plugins.manifest import Capabilities, Manifest
from tilewright_amd import __version__
from tilewright_amd.architectures import ARCHITECTURES

#: The features if an assembler is installed; inline assembly needs one.
CAPABILITIES = every_type({"descriptors", "assert", "print", "inline_asm", "dot_scaled", "noinline", "clock", "cooperative"})

#: Launch options of this backend beyond the portable ones.
#:
#: math: ``relaxed`` takes the machine's own f32 exp2, rsqrt, exp and log, divides within 2.5 ULP, and rounds an fma of bf16 to f32 first; ``strict`` keeps to
#: the shared functions, IEEE division and one rounding.
#: waves_per_eu: so many waves at least are to fit each SIMD, for which a thread gets fewer registers; 0 leaves it to the code generator.
#: matrix_instr_nonkdim: rows and columns of the MFMA instruction to take, 16 or 32, where there is one; 0 chooses.
#: kpack: elements of a product's operands that a lane holds side by side along k, for one MFMA instruction or, with 2, for two of them.
#: schedule_hint: how the code generator orders instructions. ``attention`` has those beside MFMA instructions go between these, most of all exponentials;
#: ``memory-bound-attention`` is taken, and changes nothing: the strategy that LLVM has for it ends the process for some kernels.
#: chiplets: the device has so many, to which it deals programs out in turn along the first axis of the grid; programs get their numbers so that neighbours are
#: on one chiplet, and share its cache. 0 leaves the numbers as they are: programs that wait for those of lower numbers need that.
#: line_info: the code says which lines of the source it comes from, for profilers and debuggers; its instructions are the same.
OPTIONS = {
    "math": "relaxed", "waves_per_eu": 0, "matrix_instr_nonkdim": 0, "kpack": 1, "schedule_hint": "", "chiplets": 0, "num_stages": 2, "line_info": False,
}  # fmt: skip


def _capabilities() -> Capabilities:
    from tilewright_amd.toolchain.rocm_llvm import missing

    remedy = missing()
    return dataclasses.replace(CAPABILITIES, features=CAPABILITIES.features - {"inline_asm"}, remedies={"inline_asm": remedy}) if remedy else CAPABILITIES


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
    )
