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
    """Return the position of this program instance along an axis of the grid.

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
    """Return the number of program instances along an axis of the grid.

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
    """Create a tensor of the consecutive integers from ``start`` to ``end - 1``.

    Args:
        start: a constexpr that fits ``int32``.
        end: a constexpr greater than ``start``; ``end - start`` is a power of two.

    Returns:
        An ``int32`` tensor of shape ``[end - start]``.

    Raises:
        ValueError: a bound is not a constexpr or out of range, or the length is not a power of two.

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
        raise helped(
            ValueError(
                "arange's end argument must be greater than the start argument, got "
                f"{start} and {end}"
            ),
            "a tile has at least one element: if an array has none, return before the launch",
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
    """Create a tensor with one value in all elements.

    Args:
        shape: the extents, constexprs; ``()`` makes a scalar.
        value: a number or a scalar tensor, cast to ``dtype``.
        dtype: the type of the elements, any number type.

    Returns:
        A tensor with the given shape and element type.

    Raises:
        ValueError: ``dtype`` is missing, ``value`` is not a scalar, or the target requires powers
            of two and an extent is not one.

    Example:
        lowest = tl.full((BLOCK,), float("-inf"), dtype=tl.float32)
    """
    type_ = unwrap_if_constexpr(dtype)
    if type_ is None:
        raise ValueError("dtype must be specified when value is not a tensor")
    return _semantic.full(shape_of((shape,)), value, type_)


@builtin
def to_tensor(x: Any, _semantic: Any = None) -> tensor:
    """Convert a number to a scalar tensor.

    Args:
        x: a Python number, a constexpr, or a tensor, which is returned unchanged.

    Returns:
        A scalar. The type of an integer is the first of ``int32``, ``uint32``, ``int64`` and
        ``uint64`` that can hold it. The type of a boolean is ``int1``. The type of a float is
        ``float32``, or ``float64`` if the value is finite, not zero, and outside the range of
        normal fp32 numbers.

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
    """Convert every element to another type.

    Conversions between floats round, and conversions of floats to integers drop the fraction. A
    conversion to ``int1`` returns ``x != 0``. Pointers can be converted to ``int64`` and back.

    If a value is out of the range of a narrower float type, the result is infinity. The 8-bit float
    types saturate instead: if the value is out of range or infinite, the result is the maximum
    finite number of the type, with the sign of the value. With the rounding ``"rtz"``, all narrower
    types saturate for values out of range, but an infinity becomes an infinity, or NaN if the type
    has no infinities. If a float is out of the range of an integer type, the result is the nearest
    integer of the type. A conversion to an 8-bit integer first converts the float to a
    16-bit integer (the nearest one if the float is out of range), and then keeps the low byte of
    this integer. A NaN becomes the integer 0. In conversions from fp64 or to a 64-bit integer,
    however, a NaN becomes the integer of which only the top bit is set, such as ``-2**31`` in a
    conversion from fp64 to int32. The results of conversions are the same on every backend.

    Args:
        input: a tensor or a number of any type.
        dtype: the type of the result.
        fp_downcast_rounding: ``"rtne"`` (to nearest, ties to even; the default) or ``"rtz"``
            (towards zero); only for conversions to a narrower or the same float type.
        bitcast: whether to keep the bits instead of the value; both types must have the same width.

    Returns:
        A tensor of the shape of ``input``.

    Raises:
        ValueError: the conversion does not exist, widths differ in a bitcast, or a rounding mode is
            given for a conversion that does not round.

    Example:
        half = tl.cast(x, tl.float16)
        bits = x.to(tl.int32, bitcast=True)
    """
    return _semantic.convert(input, dtype, fp_downcast_rounding, bitcast)
