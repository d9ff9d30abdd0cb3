"""``tl.extra.cuda``: functions of targets that run PTX.

``num_warps``, ``num_threads`` and the conversions work everywhere; the others are assembly of those targets.
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
def load_im2col(descriptor: Any, offsets: Any, window: Any, pixels: Any, lower: Any, upper: Any, _semantic: Any = None) -> tensor:
    """The channels of ``pixels`` pixels in the order in which a convolution reads them, a tile ``[pixels, channels]``, by the copy engine (``sm_90a`` on).

    ``descriptor`` is a kernel's argument for images ``[N, H, W, C]`` (or of one, or three spatial axes), whose block is ``[1, 1, 1, channels]``. Pixels are
    counted along W, then H, then N, in the box that begins at ``lower`` and ends at ``upper`` from the last pixel of an image (two constants an entry: H, W);
    the first one is at ``offsets``, ``[n, h, w, c]``, a pixel of the box: a kernel that begins elsewhere is ended by the machine (an illegal instruction). Of
    each, the pixel is read that is ``window`` (``[h, w]``, from 0 to 255) further; outside of the image
    it is zero. What the same kernel wrote there is not seen. A convolution of R by S with padding P reads ``window`` = [r, s] in a box from [-P, -P] to
    [P - R + 1, P - S + 1].

    Raises:
        ValueError: the target has no such copies, or the arguments do not fit together.
    """
    target = _semantic.options.target
    if target is not None and target.kind != "cuda":
        raise ValueError(f"load_im2col is for targets of kind 'cuda', not {target.kind!r}")
    handle = descriptor.handle
    if not isinstance(handle.owner, ir.Region) or not isinstance(handle.owner.owner, ir.Function):
        raise ValueError("load_im2col takes a descriptor that is an argument of the kernel")
    groups = [[_semantic.to_tensor(item).handle for item in listed(given)] for given in (offsets, window)]
    numbers = {name: tuple(_semantic.constant(item, name) for item in listed(given)) for name, given in (("lower", lower), ("upper", upper))}
    attributes = {"pixels": _semantic.constant(pixels, "pixels"), **numbers}
    operation = _semantic.builder.create(LoadIm2col.row, [[handle], *groups], attributes)
    return from_memory(_semantic, operation.results[0], descriptor.dtype)


@builtin
def convert_custom_float8(arg: Any, dst_ty: Any, fp_downcast_rounding: Any = None, has_minx2: Any = True, _semantic: Any = None) -> tensor:
    """A conversion from or to fp8e4b15: the same as :func:`~tilewright.language.cast`."""
    return _semantic.convert(arg, unwrap_if_constexpr(dst_ty), unwrap_if_constexpr(fp_downcast_rounding), False)


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
    "load_im2col",
    "num_threads",
    "num_warps",
    "smid",
]
