"""``triton.backends.amd.compiler``: options and compiler of targets of kind ``"hip"``."""

from __future__ import annotations

from typing import Any

from tilewright.compat.triton.backends.kinds import KindOptions, compiler_for
from tilewright.compat.triton.backends.kinds import least_dot as get_min_dot_size
from tilewright.compat.triton.outside import absent


class HIPOptions(KindOptions):
    """``HIPOptions(waves_per_eu=2)``: the options of a compilation."""

    kind = "hip"
    warp_size = 64


def __getattr__(name: str) -> Any:
    if name == "HIPBackend":
        return compiler_for("hip", __name__.removeprefix("tilewright.compat."), name)
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    raise absent(
        "triton.backends.amd.compiler",
        name,
        "a part of Triton's compiler. Stages are those of tilewright inspect",
    )


__all__ = ["HIPOptions", "get_min_dot_size"]
