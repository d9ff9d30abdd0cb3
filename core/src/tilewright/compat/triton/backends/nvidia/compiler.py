"""``triton.backends.nvidia.compiler``: options and compiler of targets of kind ``"cuda"``."""

from __future__ import annotations

from typing import Any

from tilewright.compat.triton import knobs
from tilewright.compat.triton.backends.kinds import KindOptions, compiler_for
from tilewright.compat.triton.backends.kinds import least_dot as min_dot_size
from tilewright.compat.triton.environment import NvidiaTool
from tilewright.compat.triton.outside import absent


class CUDAOptions(KindOptions):
    """``CUDAOptions(num_warps=8)``: the options of a compilation."""

    kind = "cuda"


def get_ptxas(arch: int) -> NvidiaTool:
    """The assembler for a compute capability (90 for 9.0).

    Raises:
        RuntimeError: it is not installed.
    """
    return knobs.nvidia.ptxas_blackwell if arch >= 100 else knobs.nvidia.ptxas


def __getattr__(name: str) -> Any:
    if name == "CUDABackend":
        return compiler_for("cuda", __name__.removeprefix("tilewright.compat."), name)
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    raise absent(
        "triton.backends.nvidia.compiler",
        name,
        "a part of Triton's compiler. Stages are those of tilewright inspect",
    )


__all__ = ["CUDAOptions", "get_ptxas", "min_dot_size"]
