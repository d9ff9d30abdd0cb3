"""What the CPU backend declares about itself. Plain data: no compiler is touched here."""

from __future__ import annotations

import importlib.util
import os

from tilewright.plugins.manifest import Capabilities, Manifest
from tilewright_cpu import __version__

INTEGERS = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")
FLOATS = ("f16", "bf16", "f32", "f64")
FP8 = ("f8e4m3fn", "f8e5m2", "f8e4m3fnuz", "f8e5m2fnuz", "f8e4b15")

_ATOMICS: dict[str, frozenset[str]] = {
    **dict.fromkeys(("i32", "i64", "u32", "u64"), frozenset({"add", "min", "max", "and", "or", "xor", "xchg", "cas"})),
    **dict.fromkeys(("i16", "u16"), frozenset({"xchg", "cas"})),
    **dict.fromkeys(("f32", "f64"), frozenset({"add", "min", "max", "xchg", "cas"})),
    **dict.fromkeys(("f16", "bf16"), frozenset({"add", "xchg", "cas"})),
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
    # Every precision is computed as IEEE: the others permit less, they do not ask for it.
    dot_precisions=("ieee", "tf32", "tf32x3", "bf16x3", "bf16x6"),
    min_dot=(1, 1, 1),
    atomics=_ATOMICS,
    power_of_two=False,
    features=frozenset({"descriptors", "print", "assert", "inline_asm", "extern", "dot_scaled", "noinline"}),
)

#: Launch options of this backend beyond the portable ones.
#:
#: num_threads: threads that run the grid; 0 is as many as the process may use (see ``tilewright_cpu.pool``).
OPTIONS = {"num_threads": 0}


def manifest() -> Manifest:
    """The backend's manifest. ``TILEWRIGHT_CPU_DISABLE=1`` in the environment keeps the backend out of use."""
    status = ""
    if importlib.util.find_spec("llvmlite") is None:
        status = "llvmlite is not installed: pip install tilewright[cpu]"
    elif os.environ.get("TILEWRIGHT_CPU_DISABLE") == "1":
        status = "disabled by TILEWRIGHT_CPU_DISABLE=1"
    return Manifest(
        name="cpu",
        version=__version__,
        summary="fused vector loops through LLVM on the host's cores",
        device_kinds=("cpu",),
        targets=("x86-64", "aarch64"),
        capabilities=CAPABILITIES,
        options=OPTIONS,
        language={"cpu": "tilewright_cpu.language"},
        priority=100,
        status=status,
    )
