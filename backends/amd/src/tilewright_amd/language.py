"""``tl.extra.hip``: functions for AMD GPUs. ``num_warps`` works everywhere."""

from __future__ import annotations

from typing import Any, cast

from tilewright.language import libdevice
from tilewright.language.binding import builtin
from tilewright.language.builtin_functions.atomics import clock
from tilewright.language.value_types.tensors import tensor
from tilewright.language.value_types.values import constexpr
from tilewright_amd.architectures import TICK


@builtin
def memrealtime(_semantic: Any = None) -> tensor:
    """Read the device's constant-rate clock of 100 MHz, as int64.

    Raises:
        TypeError: the kernel is compiled for something else than an AMD GPU.
    """
    target = _semantic.options.target
    if target is not None and target.kind != "hip":
        raise TypeError(
            "tl.extra.hip.memrealtime reads a clock of AMD GPUs, and this kernel is compiled for "
            f"{target.backend} ({target.arch})"
        )
    return cast(tensor, _semantic.floordiv(clock(_semantic=_semantic), TICK))


@builtin
def num_warps(_semantic: Any = None) -> constexpr:
    """Return the number of warps of a program, as a constexpr."""
    return constexpr(_semantic.options.num_warps)


__all__ = ["libdevice", "memrealtime", "num_warps"]
