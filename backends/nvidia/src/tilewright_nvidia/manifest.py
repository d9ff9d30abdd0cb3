"""What the nvidia backend declares about itself. Plain data: no compiler is touched here, and of the driver only its version is asked."""

from __future__ import annotations

import importlib.util
import os

from tilewright.plugins.manifest import Capabilities, Manifest
from tilewright_nvidia import __version__
from tilewright_nvidia.architectures import ARCHITECTURES

INTEGERS = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")
FLOATS = ("f16", "bf16", "f32", "f64")
FP8 = ("f8e4m3fn", "f8e5m2", "f8e4m3fnuz", "f8e5m2fnuz", "f8e4b15")

_ATOMICS: dict[str, frozenset[str]] = {
    **dict.fromkeys(("i32", "i64", "u32", "u64"), frozenset({"add", "min", "max", "and", "or", "xor", "xchg", "cas"})),
    **dict.fromkeys(("i16", "u16"), frozenset({"xchg", "cas"})),
    **dict.fromkeys(("f32", "f64"), frozenset({"add", "min", "max", "xchg", "cas"})),
    **dict.fromkeys(("f16", "bf16"), frozenset({"add", "min", "max", "xchg", "cas"})),
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
    features=frozenset({"descriptors", "print", "assert", "inline_asm", "dot_scaled", "noinline"}),
)

#: Launch options of this backend beyond the portable ones.
#:
#: math: ``relaxed`` takes the machine's own f32 exp2 (2.9 ULP), rsqrt (2.2), division (2) and exp (2.9 + 1.173 |x|), whose results below the normal
#: numbers may be zero; ``strict`` keeps to the shared functions and IEEE division.
#: launch_pdl: the kernel may start before the kernel launched before it has ended (compute capability 9.0 on); it waits for that one before anything else,
#: or where its source says so.
#: asynchronous: multiply by warpgroups and copy whole blocks (``wgmma`` and the copy engine; ``sm_90a``), where operands allow it.
#: warp_specialize: loads of all pipelined loops on warps of their own, where copies are of blocks; a loop may ask for it itself.
OPTIONS = {"math": "relaxed", "launch_pdl": False, "asynchronous": True, "warp_specialize": False}


def manifest() -> Manifest:
    """The backend's manifest. ``TILEWRIGHT_NVIDIA_DISABLE=1`` in the environment keeps the backend out of use."""
    from tilewright_nvidia.driver import why_not

    if os.environ.get("TILEWRIGHT_NVIDIA_DISABLE") == "1":
        status = "disabled by TILEWRIGHT_NVIDIA_DISABLE=1"
    elif importlib.util.find_spec("llvmlite") is None:
        status = "llvmlite is not installed: pip install tilewright[nvidia]"
    else:
        status = why_not()
    return Manifest(
        name="nvidia",
        version=__version__,
        summary="NVIDIA GPUs through PTX",
        device_kinds=("cuda",),
        targets=tuple(ARCHITECTURES),
        capabilities=CAPABILITIES,
        options=OPTIONS,
        language={"cuda": "tilewright_nvidia.language"},
        priority=200,
        status=status,
    )
