"""Program ids and new tensors."""

from __future__ import annotations

from typing import Any

from tilewright.errors import helped, integer_text, noted
from tilewright.language.binding import builtin
from tilewright.language.builtin_functions.conversion import shape_of
from tilewright.language.value_types.dtypes import block_type, dtype, int32
from tilewright.language.value_types.tensors import tensor
from tilewright.language.value_types.values import unwrap_if_constexpr


@builtin
def program_id(axis: Any, _semantic: Any = None) -> tensor:
    """This program's position in the grid.

    Args:
        axis: 0, 1 or 2, a constexpr.

    Returns:
        An ``int32`` scalar, from 0 to ``num_programs(axis) - 1``.

    Raises:
        ValueError: ``axis`` is another number.

    Example:
        pid = tl.program_id(0)
    """
    return tensor(_semantic.builder.program_id(axis=_axis(axis, "program_id", _semantic)), int32)


@builtin
def num_programs(axis: Any, _semantic: Any = None) -> tensor:
    """The grid's extent: how many programs there are along an axis.

    Args:
        axis: 0, 1 or 2, a constexpr.

    Returns:
        An ``int32`` scalar; 1 along axes that the grid does not have.

    Raises:
        ValueError: ``axis`` is another number.

    Example:
        programs = tl.num_programs(0)
    """
    return tensor(
        _semantic.builder.num_programs(axis=_axis(axis, "num_programs", _semantic)), int32
    )


def _axis(axis: Any, name: str, semantic: Any) -> int:
    axis = semantic.constant(axis, f"{name} axis")
    if axis not in (0, 1, 2):
        raise ValueError(f"{name} axis must be 0, 1, or 2 but got {axis}")
    return int(axis)


@builtin
def arange(start: Any, end: Any, _semantic: Any = None) -> tensor:
    """Consecutive integers from ``start`` up to, but without, ``end``.

    Args:
        start: a constexpr that fits ``int32``.
        end: a constexpr greater than ``start``; ``end - start`` is a power of two.

    Returns:
        An ``int32`` tensor of shape ``[end - start]``.

    Raises:
        ValueError: a bound is no constexpr or does not fit, or the length is no power of two.

    Example:
        offsets = pid * BLOCK + tl.arange(0, BLOCK)
    """
    start, end = unwrap_if_constexpr(start), unwrap_if_constexpr(end)
    if type(start) is not int or type(end) is not int:
        error = ValueError("arange's arguments must be of type tl.constexpr")
        strange = [
            bound
            for bound in (start, end)
            if type(bound) is not int and not isinstance(bound, tensor)
        ]
        raise helped(error, f"its bounds are integers, not {strange[0]!r}") if strange else error
    if not (-(2**31) <= start < 2**31 and -(2**31) <= end <= 2**31):
        raise ValueError(
            f"arange must fit in int32, got {integer_text(start)} and {integer_text(end)}"
        )
    length = end - start
    if length <= 0:
        raise ValueError(
            f"arange's end argument must be greater than the start argument, got {start} and {end}"
        )
    if length & (length - 1):
        above, start_text = (
            1 << length.bit_length(),
            f"{start}, {start + (1 << length.bit_length())}",
        )
        remedy = (
            f"take the next power of two, {above}, and a mask: offsets = "
            f"tl.arange({start_text}), and mask=offsets < {end} in tl.load and tl.store"
        )
        raise helped(
            noted(ValueError("arange's range must be a power of 2"), f"it is {length}"), remedy
        )
    return tensor(_semantic.builder.arange(start=start, end=end), block_type(int32, (length,)))


@builtin
def full(shape: Any, value: Any, dtype: dtype, _semantic: Any = None) -> tensor:
    """A tensor whose every element is one value.

    Args:
        shape: the extents, constexprs; ``()`` makes a scalar.
        value: a number or a scalar tensor, cast to ``dtype``.
        dtype: any number type.

    Returns:
        A tensor of ``shape`` and ``dtype``.

    Raises:
        ValueError: there is no ``dtype``, ``value`` is no scalar, or an extent is no power of two
            where the target needs one.

    Example:
        lowest = tl.full((BLOCK,), float("-inf"), dtype=tl.float32)
    """
    type_ = unwrap_if_constexpr(dtype)
    if type_ is None:
        raise ValueError("dtype must be specified when value is not a tensor")
    return _semantic.full(shape_of((shape,)), value, type_)


@builtin
def to_tensor(x: Any, _semantic: Any = None) -> tensor:
    """A number as a tensor.

    Args:
        x: a number of Python, a constexpr, or a tensor, which is given back.

    Returns:
        A scalar: integers as the first of ``int32``, ``uint32``, ``int64``, ``uint64`` that holds
        them, booleans as ``int1``, floats as ``float32``, or ``float64`` where fp32 has no normal
        number near.

    Example:
        three = tl.to_tensor(3)
    """
    return _semantic.to_tensor(x)


@builtin
def cast(
    input: Any,
    dtype: dtype,
    fp_downcast_rounding: Any = None,
    bitcast: Any = False,
    _semantic: Any = None,
) -> tensor:
    """Every element as another type.

    Floats become narrower floats by rounding, and integers by dropping the fraction; numbers become
    ``int1`` as ``x != 0``; pointers and ``int64`` convert both ways.

    What is too great for a narrower float becomes infinity; the 8-bit formats saturate, so that it
    and infinity become their maximum finite number. Out of range an integer is the end of its
    range that is nearer; of 8 bits it is the low byte of the 16-bit result. NaN becomes 0, or the
    sign bit alone (``-2**31`` as int32, ``2**31`` as uint32) where fp64 or a 64-bit integer takes
    part. It is the same on every backend.

    Args:
        input: a tensor or a number of any type.
        dtype: the type of the result.
        fp_downcast_rounding: ``"rtne"`` (to nearest, ties to even; the default) or ``"rtz"``
            (towards zero); only where a float becomes a narrower one, or stays what it is.
        bitcast: keep the bits instead of the value; both types have one width.

    Returns:
        A tensor of the shape of ``input``.

    Raises:
        ValueError: the conversion does not exist, widths differ in a bitcast, or a rounding is
            stated where nothing is rounded.

    Example:
        half = tl.cast(x, tl.float16)
        bits = x.to(tl.int32, bitcast=True)
    """
    return _semantic.convert(input, dtype, fp_downcast_rounding, bitcast)
