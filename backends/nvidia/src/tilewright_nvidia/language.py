"""``tl.extra.cuda``: functions of targets that run PTX.

``num_warps``, ``num_threads`` and the conversions work everywhere; the others are assembly of those targets.
"""

from __future__ import annotations

from typing import Any

from tilewright.language import libdevice
from tilewright.language.binding import builtin
from tilewright.language.core import inline_asm_elementwise
from tilewright.language.dtypes import int32, int64
from tilewright.language.tensors import tensor
from tilewright.language.values import _unwrap_if_constexpr, constexpr

#: Threads of a warp, on every target that this language is for.
_LANES = 32


@builtin
def globaltimer(_semantic: Any = None) -> tensor:
    """The global timer of the device, in nanoseconds, as int64."""
    return inline_asm_elementwise("mov.u64 $0, %globaltimer;", "=l", [], int64, False, 1, _semantic=_semantic)


@builtin
def smid(_semantic: Any = None) -> tensor:
    """The number of the multiprocessor that runs the program, as int32."""
    return inline_asm_elementwise("mov.u32 $0, %smid;", "=r", [], int32, True, 1, _semantic=_semantic)


@builtin
def num_warps(_semantic: Any = None) -> constexpr:
    """The warps that run a program, a constexpr."""
    return constexpr(_semantic.options.num_warps)


@builtin
def num_threads(_semantic: Any = None) -> constexpr:
    """The threads that run a program, a constexpr."""
    return constexpr(_semantic.options.num_warps * _LANES)


@builtin
def gdc_wait(_semantic: Any = None) -> None:
    """Wait until the kernels this one depends on have finished and their memory is visible (programmatic dependent launch)."""
    inline_asm_elementwise("griddepcontrol.wait; // dummy $0", "=r", [], int32, False, 1, _semantic=_semantic)


@builtin
def gdc_launch_dependents(_semantic: Any = None) -> None:
    """Let the kernels that depend on this one start (programmatic dependent launch)."""
    inline_asm_elementwise("griddepcontrol.launch_dependents; // dummy $0", "=r", [], int32, False, 1, _semantic=_semantic)


@builtin
def convert_custom_float8(arg: Any, dst_ty: Any, fp_downcast_rounding: Any = None, has_minx2: Any = True, _semantic: Any = None) -> tensor:
    """A conversion from or to fp8e4b15: the same as :func:`~tilewright.language.cast`."""
    return _semantic.convert(arg, _unwrap_if_constexpr(dst_ty), _unwrap_if_constexpr(fp_downcast_rounding), False)


@builtin
def convert_custom_float8_sm80(arg: Any, dst_ty: Any, fp_downcast_rounding: Any = None, _semantic: Any = None) -> tensor:
    """See :func:`convert_custom_float8`."""
    return convert_custom_float8(arg, dst_ty, fp_downcast_rounding, _semantic=_semantic)


@builtin
def convert_custom_float8_sm70(arg: Any, dst_ty: Any, fp_downcast_rounding: Any = None, _semantic: Any = None) -> tensor:
    """See :func:`convert_custom_float8`."""
    return convert_custom_float8(arg, dst_ty, fp_downcast_rounding, _semantic=_semantic)


__all__ = [
    "convert_custom_float8",
    "convert_custom_float8_sm70",
    "convert_custom_float8_sm80",
    "gdc_launch_dependents",
    "gdc_wait",
    "globaltimer",
    "libdevice",
    "num_threads",
    "num_warps",
    "smid",
]
