"""The target of the kernel as compile-time values.

Inside a kernel the answers come from the target it is compiled for, whichever backend writes the
code and whether or not there is such a device. Called from ordinary Python they come from the
target of the device that a kernel without array arguments would run on.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import tilewright.active_target as active_target
from tilewright.language.binding import mark_builtin
from tilewright.language.value_types.values import constexpr, unwrap_if_constexpr

# vendors: Triton's programs call functions that are named after them


class TargetInfo(NamedTuple):
    """The target of a kernel.

    ``backend`` is the kind of device, ``"cuda"``, ``"hip"``, ``"cpu"`` …; ``arch`` is the backend's
    own term; ``warp_size`` is 1 on a CPU.
    """

    backend: str
    arch: str
    warp_size: int


def _target(semantic: Any) -> TargetInfo | None:
    found = active_target.current() if semantic is None else semantic.options.target
    return None if found is None else TargetInfo(found.kind, found.arch, found.warp_size)


def _answer(value: Any, semantic: Any) -> Any:
    return value if semantic is None else constexpr(value)


@mark_builtin
def current_target(_semantic: Any = None) -> Any:
    """Return the target of the kernel.

    Returns:
        A constexpr :class:`TargetInfo`: ``backend`` (the kind of device: ``"cuda"``, ``"hip"``,
        ``"cpu"`` …), ``arch``, ``warp_size``; outside of a kernel the same as a plain value, or
        None where no backend has a device.

    Example:
        target = tl.target_info.current_target()
    """
    return _answer(_target(_semantic), _semantic)


@mark_builtin
def is_cuda(_semantic: Any = None) -> Any:
    """Return whether kernels are compiled for an NVIDIA GPU.

    Returns:
        A constexpr in a kernel, a bool outside.

    Example:
        on_cuda = tl.target_info.is_cuda()
    """
    target = _target(_semantic)
    return _answer(target is not None and target.backend == "cuda", _semantic)


@mark_builtin
def is_hip(_semantic: Any = None) -> Any:
    """Return whether kernels are compiled for an AMD GPU.

    Returns:
        A constexpr in a kernel, a bool outside.

    Example:
        on_hip = tl.target_info.is_hip()
    """
    target = _target(_semantic)
    return _answer(target is not None and target.backend == "hip", _semantic)


def _is_gfx(semantic: Any, *archs: str) -> Any:
    target = _target(semantic)
    return _answer(
        target is not None and target.backend == "hip" and target.arch.split(":")[0] in archs,
        semantic,
    )


@mark_builtin
def is_hip_cdna3(_semantic: Any = None) -> Any:
    """Return whether kernels are compiled for an AMD CDNA3 GPU.

    Returns:
        A constexpr in a kernel, a bool outside.

    Example:
        on_cdna3 = tl.target_info.is_hip_cdna3()
    """
    return _is_gfx(_semantic, "gfx940", "gfx941", "gfx942")


@mark_builtin
def is_hip_cdna4(_semantic: Any = None) -> Any:
    """Return whether kernels are compiled for an AMD CDNA4 GPU.

    Returns:
        A constexpr in a kernel, a bool outside.

    Example:
        on_cdna4 = tl.target_info.is_hip_cdna4()
    """
    return _is_gfx(_semantic, "gfx950")


@mark_builtin
def is_hip_gfx1250(_semantic: Any = None) -> Any:
    """Return whether kernels are compiled for an AMD gfx1250 GPU.

    Returns:
        A constexpr in a kernel, a bool outside.

    Example:
        on_gfx1250 = tl.target_info.is_hip_gfx1250()
    """
    return _is_gfx(_semantic, "gfx1250")


@mark_builtin
def cuda_capability_geq(major: Any, minor: Any = 0, _semantic: Any = None) -> Any:
    """Return whether the target is an NVIDIA GPU with at least the given compute capability.

    Args:
        major: the capability's first number, a constexpr.
        minor: its second.

    Returns:
        A constexpr in a kernel, a bool outside.

    Example:
        has_bulk_copies = tl.target_info.cuda_capability_geq(9)
    """
    target = _target(_semantic)
    if target is None or target.backend != "cuda":
        return _answer(False, _semantic)
    found = re.search(r"\d+", target.arch)
    number = int(found[0]) if found else 0
    wanted = (unwrap_if_constexpr(major), unwrap_if_constexpr(minor))
    return _answer(divmod(number, 10) >= wanted, _semantic)
