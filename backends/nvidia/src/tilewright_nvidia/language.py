"""``tl.extra.cuda``: functions of targets that run PTX.

``num_warps``, ``num_threads`` and the conversions work on every target; the others are PTX.
"""

from __future__ import annotations

from typing import Any

from tilewright import ir
from tilewright.language import libdevice
from tilewright.language.binding import builtin
from tilewright.language.builtin_functions.memory import from_memory
from tilewright.language.core import inline_asm_elementwise
from tilewright.language.value_types.dtypes import int32, int64
from tilewright.language.value_types.tensors import tensor
from tilewright.language.value_types.tuples import listed
from tilewright.language.value_types.values import constexpr, unwrap_if_constexpr
from tilewright_nvidia.operations import LoadIm2col

#: Threads of a warp, on every target that this language is for.
_LANES = 32


@builtin
def globaltimer(_semantic: Any = None) -> tensor:
    """Read the device's global timer in nanoseconds, as int64."""
    return inline_asm_elementwise(
        "mov.u64 $0, %globaltimer;", "=l", [], int64, False, 1, _semantic=_semantic
    )


@builtin
def smid(_semantic: Any = None) -> tensor:
    """Return the index of the SM that runs the program, as int32."""
    return inline_asm_elementwise(
        "mov.u32 $0, %smid;", "=r", [], int32, True, 1, _semantic=_semantic
    )


@builtin
def num_warps(_semantic: Any = None) -> constexpr:
    """Return the number of warps of a program, as a constexpr."""
    return constexpr(_semantic.options.num_warps)


@builtin
def num_threads(_semantic: Any = None) -> constexpr:
    """Return the number of threads of a program, as a constexpr."""
    return constexpr(_semantic.options.num_warps * _LANES)


@builtin
def gdc_wait(_semantic: Any = None) -> None:
    """Wait until the kernels that this one depends on have finished and their memory is visible.

    This is ``griddepcontrol.wait`` of programmatic dependent launch.
    """
    inline_asm_elementwise(
        "griddepcontrol.wait; // dummy $0", "=r", [], int32, False, 1, _semantic=_semantic
    )


@builtin
def gdc_launch_dependents(_semantic: Any = None) -> None:
    """Allow dependent kernels to start (programmatic dependent launch)."""
    inline_asm_elementwise(
        "griddepcontrol.launch_dependents; // dummy $0",
        "=r",
        [],
        int32,
        False,
        1,
        _semantic=_semantic,
    )


@builtin
def load_im2col(
    descriptor: Any,
    offsets: Any,
    window: Any,
    pixels: Any,
    lower: Any,
    upper: Any,
    _semantic: Any = None,
) -> tensor:
    """Load ``pixels`` pixels in a convolution's order by TMA, as a tile ``[pixels, channels]``.

    ``descriptor`` is a kernel argument for images ``[N, H, W, C]`` (or with one or three spatial
    axes), whose block is ``[1, 1, 1, channels]``. Base pixels run along W, then H, then N, in the
    bounding box from ``lower``, relative to an image's first pixel, to ``upper``, relative to its
    last (constants, one for each of H and W). The first base pixel is at ``offsets``, ``[n, h, w,
    c]``, which must lie in the box: the hardware ends other kernels with an illegal instruction.
    The pixel that is loaded lies ``window`` (``[h, w]``, from 0 to 255) after the base pixel, and
    is zero outside the image. The load does not see writes of the same kernel. A convolution of R
    by S with padding P uses ``window`` = [r, s] and a box from [-P, -P] to [P - R + 1, P - S + 1].
    The target must be ``sm_90a`` or newer.

    Raises:
        ValueError: the target has no im2col copies, or the arguments do not fit together.
    """
    target = _semantic.options.target
    if target is not None and target.kind != "cuda":
        raise ValueError(f"load_im2col is for targets of kind 'cuda', not {target.kind!r}")
    handle = descriptor.handle
    if not isinstance(handle.owner, ir.Region) or not isinstance(handle.owner.owner, ir.Function):
        raise ValueError("load_im2col takes a descriptor that is an argument of the kernel")
    groups = [
        [_semantic.to_tensor(item).handle for item in listed(given)] for given in (offsets, window)
    ]
    numbers = {
        name: tuple(_semantic.constant(item, name) for item in listed(given))
        for name, given in (("lower", lower), ("upper", upper))
    }
    attributes = {"pixels": _semantic.constant(pixels, "pixels"), **numbers}
    operation = _semantic.builder.create(LoadIm2col.row, [[handle], *groups], attributes)
    return from_memory(_semantic, operation.results[0], descriptor.dtype)


@builtin
def convert_custom_float8(
    arg: Any,
    dst_ty: Any,
    fp_downcast_rounding: Any = None,
    has_minx2: Any = True,
    _semantic: Any = None,
) -> tensor:
    """Convert from or to fp8e4b15; equivalent to :func:`~tilewright.language.cast`."""
    return _semantic.convert(
        arg, unwrap_if_constexpr(dst_ty), unwrap_if_constexpr(fp_downcast_rounding), False
    )


@builtin
def convert_custom_float8_sm80(
    arg: Any, dst_ty: Any, fp_downcast_rounding: Any = None, _semantic: Any = None
) -> tensor:
    """See :func:`convert_custom_float8`."""
    return convert_custom_float8(arg, dst_ty, fp_downcast_rounding, _semantic=_semantic)


@builtin
def convert_custom_float8_sm70(
    arg: Any, dst_ty: Any, fp_downcast_rounding: Any = None, _semantic: Any = None
) -> tensor:
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
    "load_im2col",
    "num_threads",
    "num_warps",
    "smid",
]
