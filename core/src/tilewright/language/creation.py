"""Program ids and new tensors."""

from __future__ import annotations

from typing import Any

from tilewright.language.binding import builtin
from tilewright.language.dtypes import block_type, dtype, int32
from tilewright.language.semantic import shape_of
from tilewright.language.tensors import tensor
from tilewright.language.values import _unwrap_if_constexpr


@builtin
def program_id(axis: Any, _semantic: Any = None) -> tensor:
    """This program's position along ``axis`` (0, 1 or 2) of the grid: an ``int32`` scalar.

    pid = tl.program_id(0)
    """
    return tensor(_semantic.builder.program_id(axis=_axis(axis, "program_id", _semantic)), int32)


@builtin
def num_programs(axis: Any, _semantic: Any = None) -> tensor:
    """The grid's extent along ``axis`` (0, 1 or 2): an ``int32`` scalar.

    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
    """
    return tensor(_semantic.builder.num_programs(axis=_axis(axis, "num_programs", _semantic)), int32)


def _axis(axis: Any, name: str, semantic: Any) -> int:
    axis = semantic.constant(axis, f"{name} axis")
    if axis not in (0, 1, 2):
        raise ValueError(f"{name} axis must be 0, 1, or 2 but got {axis}")
    return int(axis)


@builtin
def arange(start: Any, end: Any, _semantic: Any = None) -> tensor:
    """The integers ``start .. end-1`` as an ``int32`` tensor. Both are constexprs, and ``end - start`` is a power of two.

    offsets = pid * BLOCK + tl.arange(0, BLOCK)
    """
    start, end = _unwrap_if_constexpr(start), _unwrap_if_constexpr(end)
    if type(start) is not int or type(end) is not int:
        raise ValueError("arange's arguments must be of type tl.constexpr")
    if not (-(2**31) <= start < 2**31 and -(2**31) <= end <= 2**31):
        raise ValueError(f"arange must fit in int32, got {start} and {end}")
    length = end - start
    if length <= 0:
        raise ValueError(f"arange's end argument must be greater than the start argument, got {start} and {end}")
    if length & (length - 1):
        raise ValueError(f"arange's range must be a power of 2, got {length}")
    return tensor(_semantic.builder.arange(start=start, end=end), block_type(int32, (length,)))


@builtin
def full(shape: Any, value: Any, dtype: dtype, _semantic: Any = None) -> tensor:
    """A tensor of ``shape`` whose every element is ``value``, a number or a scalar tensor. The shape ``()`` gives a scalar.

    acc = tl.full((BLOCK_M,), float("-inf"), dtype=tl.float32)
    """
    type_ = _unwrap_if_constexpr(dtype)
    if type_ is None:
        raise ValueError("dtype must be specified when value is not a tensor")
    return _semantic.full(shape_of((shape,)), value, type_)


@builtin
def to_tensor(x: Any, _semantic: Any = None) -> tensor:
    """``x`` as a tensor: a number becomes a scalar of its own type (int32, uint32, int64 or uint64 by size; fp32 or fp64; int1)."""
    return _semantic.to_tensor(x)


@builtin
def cast(input: Any, dtype: dtype, fp_downcast_rounding: Any = None, bitcast: Any = False, _semantic: Any = None) -> tensor:
    """Every element as ``dtype``.

    Args:
        fp_downcast_rounding: ``"rtne"`` (to nearest even, the default) or ``"rtz"`` (towards zero); only where a float becomes narrower.
        bitcast: keep the bits instead of the value; both types have one width.

    Floats become integers by dropping the fraction (undefined out of range); numbers become ``int1`` as ``x != 0``; pointers and ``int64``
    convert both ways.

        y = tl.cast(x, tl.float16)        # x.to(tl.float16)
    """
    return _semantic.convert(input, dtype, fp_downcast_rounding, bitcast)
