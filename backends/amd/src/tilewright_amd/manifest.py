"""What the amd backend declares about itself. Plain data: no compiler and no library of the vendor is touched here."""

from __future__ import annotations

import importlib.util
import os

from tilewright.plugins.manifest import Capabilities, Manifest
from tilewright_amd import __version__
from tilewright_amd.architectures import ARCHITECTURES

INTEGERS = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")
FLOATS = ("f16", "bf16", "f32", "f64")
FP8 = ("f8e4m3fn", "f8e5m2", "f8e4m3fnuz", "f8e5m2fnuz", "f8e4b15")

_ATOMICS: dict[str, frozenset[str]] = {
    **dict.fromkeys(("i32", "i64", "u32", "u64"), frozenset({"add", "min", "max", "and", "or", "xor", "xchg", "cas"})),
    **dict.fromkeys(("i16", "u16"), frozenset({"xchg", "cas"})),
    **dict.fromkeys(("f32", "f64", "f16", "bf16"), frozenset({"add", "min", "max", "xchg", "cas"})),
}

CAPABILITIES = Capabilities(
    dtypes=frozenset(("i1", *INTEGERS, *FLOATS, *FP8)),
    dot={
        "bf16": ("f32",),
        **dict.fromkeys(("f16", *FP8), ("f32", "f16")),
        "f32": ("f32",),
        "f64": ("f64",),
        **dict.fromkeys(("i8", "u8"), ("i32",)),
    },
    dot_precisions=("ieee", "tf32", "tf32x3", "bf16x3", "bf16x6"),
    min_dot=(1, 1, 1),
    atomics=_ATOMICS,
    power_of_two=True,
    features=frozenset({"descriptors", "assert", "inline_asm", "dot_scaled", "noinline"}),
)

#: Launch options of this backend beyond the portable ones.
#:
#: math: ``relaxed`` takes the machine's own f32 exp2, rsqrt and exp, and divides within 2.5 ULP; ``strict`` keeps to the shared functions and IEEE division.
#: waves_per_eu: so many waves at least are to fit each SIMD, for which a thread gets fewer registers; 0 leaves it to the code generator.
#: matrix_instr_nonkdim: rows and columns of the MFMA instruction to take, 16 or 32, where there is one; 0 chooses.
OPTIONS = {"math": "relaxed", "waves_per_eu": 0, "matrix_instr_nonkdim": 0, "num_stages": 2}


def manifest() -> Manifest:
    """The backend's manifest. ``TILEWRIGHT_AMD_DISABLE=1`` in the environment keeps the backend out of use."""
    from tilewright_amd.driver import why_not

    if os.environ.get("TILEWRIGHT_AMD_DISABLE") == "1":
        status = "disabled by TILEWRIGHT_AMD_DISABLE=1"
    elif importlib.util.find_spec("llvmlite") is None:
        status = "llvmlite is not installed: pip install tilewright[llvm]"
    else:
        reason = why_not()
        status = f"no device is present: {reason}" if reason else ""
    return Manifest(
        name="amd",
        version=__version__,
        summary="AMD GPUs through AMDGPU code",
        device_kinds=("hip",),
        targets=tuple(ARCHITECTURES),
        capabilities=CAPABILITIES,
        options=OPTIONS,
        language={"hip": "tilewright_amd.language"},
        priority=200,
        status=status,
    )
