"""Elementary functions of floats, and a few of integers, all in ``tilewright.language``, too."""

from __future__ import annotations

from typing import Any

from tilewright.ir import types as ir_types
from tilewright.language import floats
from tilewright.language.binding import builtin
from tilewright.language.value_types.dtypes import float32
from tilewright.language.value_types.tensors import tensor
from tilewright.language.value_types.values import unwrap_if_constexpr


@builtin
def exp(x: Any, _semantic: Any = None) -> tensor:
    """e to the power of the operand.

    Args:
        x: a tensor or a number, of fp32 or fp64.

    Returns:
        A tensor of the same type and shape.

    Raises:
        ValueError: another type.

    Example:
        y = tl.exp(x)
    """
    return floats.operation("exp", x, _semantic)


@builtin
def exp2(x: Any, _semantic: Any = None) -> tensor:
    """2 to the power of the operand.

    Args:
        x: a tensor or a number, of fp32 or fp64.

    Returns:
        A tensor of the same type and shape.

    Raises:
        ValueError: another type.

    Example:
        y = tl.exp2(x)
    """
    return floats.operation("exp2", x, _semantic)


@builtin
def log(x: Any, _semantic: Any = None) -> tensor:
    """The natural logarithm.

    Args:
        x: a tensor or a number, of fp32 or fp64.

    Returns:
        A tensor of the same type and shape.

    Raises:
        ValueError: another type.

    Example:
        y = tl.log(x)
    """
    return floats.operation("log", x, _semantic)


@builtin
def log2(x: Any, _semantic: Any = None) -> tensor:
    """The logarithm to base 2.

    Args:
        x: a tensor or a number, of fp32 or fp64.

    Returns:
        A tensor of the same type and shape.

    Raises:
        ValueError: another type.

    Example:
        y = tl.log2(x)
    """
    return floats.operation("log2", x, _semantic)


@builtin
def sin(x: Any, _semantic: Any = None) -> tensor:
    """The sine of an angle in radians.

    Args:
        x: a tensor or a number, of fp32 or fp64.

    Returns:
        A tensor of the same type and shape.

    Raises:
        ValueError: another type.

    Example:
        y = tl.sin(x)
    """
    return floats.operation("sin", x, _semantic)


@builtin
def cos(x: Any, _semantic: Any = None) -> tensor:
    """The cosine of an angle in radians.

    Args:
        x: a tensor or a number, of fp32 or fp64.

    Returns:
        A tensor of the same type and shape.

    Raises:
        ValueError: another type.

    Example:
        y = tl.cos(x)
    """
    return floats.operation("cos", x, _semantic)


@builtin
def erf(x: Any, _semantic: Any = None) -> tensor:
    """The error function.

    Args:
        x: a tensor or a number, of fp32 or fp64.

    Returns:
        A tensor of the same type and shape.

    Raises:
        ValueError: another type.

    Example:
        gelu = 0.5 * x * (1 + tl.erf(x * 0.7071067811865476))
    """
    return floats.operation("erf", x, _semantic)


@builtin
def sqrt(x: Any, _semantic: Any = None) -> tensor:
    """The square root; fp64 is rounded correctly.

    The error of an fp32 root is up to 2 ULP on targets where this is faster.

    Args:
        x: a tensor or a number, of fp32 or fp64.

    Returns:
        A tensor of the same type and shape.

    Raises:
        ValueError: another type.

    Example:
        y = tl.sqrt(x)
    """
    x = floats.checked(x, _semantic, floats.F32_F64)
    attributes = {"approximate": True} if x.dtype is float32 else {}
    return tensor(_semantic.builder.sqrt(x.handle, **attributes), x.type)


@builtin
def sqrt_rn(x: Any, _semantic: Any = None) -> tensor:
    """The square root of fp32, rounded correctly.

    Args:
        x: a tensor or a number of fp32.

    Returns:
        A tensor of the same shape.

    Raises:
        ValueError: another type.

    Example:
        y = tl.sqrt_rn(x)
    """
    x = floats.checked(x, _semantic, ("fp32",))
    return tensor(_semantic.builder.sqrt(x.handle), x.type)


@builtin
def rsqrt(x: Any, _semantic: Any = None) -> tensor:
    """One over the square root.

    Args:
        x: a tensor or a number, of fp32 or fp64.

    Returns:
        A tensor of the same type and shape.

    Raises:
        ValueError: another type.

    Example:
        y = x * tl.rsqrt(x * x + 1e-5)
    """
    return floats.operation("rsqrt", x, _semantic)


@builtin
def floor(x: Any, _semantic: Any = None) -> tensor:
    """Round down to an integer, as a float.

    Args:
        x: a tensor or a number, of fp32 or fp64.

    Returns:
        A tensor of the same type and shape.

    Raises:
        ValueError: another type.

    Example:
        y = tl.floor(x)
    """
    return floats.operation("floor", x, _semantic)


@builtin
def ceil(x: Any, _semantic: Any = None) -> tensor:
    """Round up to an integer, as a float.

    Args:
        x: a tensor or a number, of fp32 or fp64.

    Returns:
        A tensor of the same type and shape.

    Raises:
        ValueError: another type.

    Example:
        y = tl.ceil(x)
    """
    return floats.operation("ceil", x, _semantic)


@builtin
def abs(x: Any, _semantic: Any = None) -> tensor:
    """The absolute value. Unsigned integers and booleans are unchanged.

    Args:
        x: a tensor or a number of any number type.

    Returns:
        A tensor of the same type and shape.

    Raises:
        ValueError: pointers.

    Example:
        y = tl.abs(x)
    """
    x = _semantic.to_tensor(x)
    element = x.dtype
    if element.is_floating() or element.is_int_signed():
        return tensor(_semantic.builder.abs(x.handle), x.type)
    if element.is_int_unsigned():
        return x
    raise ValueError(f"Unexpected dtype {element}: abs takes numbers")


@builtin
def fdiv(
    x: Any, y: Any, ieee_rounding: Any = False, approx: Any = False, _semantic: Any = None
) -> tensor:
    """The quotient of floats.

    Args:
        x: a tensor or a number.
        y: the divisor; both are promoted and broadcast. The quotient of fp16 or bf16 is fp32.
        ieee_rounding: whether an fp32 quotient is correctly rounded; if false, its error is up to
            2.5 ULP on targets where this is faster.
        approx: whether an error of 2.5 ULP is acceptable, regardless of ``ieee_rounding``.

    Returns:
        A tensor of the operands' common type and shape.

    Raises:
        TypeError: the operands are integers.

    Example:
        ratio = tl.fdiv(x, y)
    """
    a, b = _semantic.promote(x, y, div_or_mod=True)
    if not a.dtype.is_floating():
        raise TypeError(f"both operands of fdiv must have floating scalar type, got {a.dtype}")
    exact = unwrap_if_constexpr(ieee_rounding) and not unwrap_if_constexpr(approx)
    attributes = (
        {} if a.dtype is not float32 else {"exact": True} if exact else {"approximate": True}
    )
    return tensor(_semantic.builder.div(a.handle, b.handle, **attributes), a.type)


@builtin
def div_rn(x: Any, y: Any, _semantic: Any = None) -> tensor:
    """The quotient of fp32, rounded correctly.

    Args:
        x: a tensor or a number of fp32.
        y: another; the two are broadcast.

    Returns:
        A tensor of the common shape.

    Raises:
        ValueError: another type.

    Example:
        ratio = tl.div_rn(x, y)
    """
    a, b = _semantic.promote(
        floats.checked(x, _semantic, ("fp32",)), floats.checked(y, _semantic, ("fp32",))
    )
    return tensor(_semantic.builder.div(a.handle, b.handle, exact=True), a.type)


@builtin
def umulhi(x: Any, y: Any, _semantic: Any = None) -> tensor:
    """The upper half of the double-width product of two integers that count as unsigned.

    Args:
        x: a tensor or a number, of 32 or 64-bit integers.
        y: the second operand; both are promoted and broadcast.

    Returns:
        A tensor of the operands' common type and shape.

    Raises:
        ValueError: another type.

    Example:
        high = tl.umulhi(offsets, 40503)
    """
    names = ("int32", "int64", "uint32", "uint64")
    a, b = _semantic.promote(
        floats.checked(x, _semantic, names), floats.checked(y, _semantic, names)
    )
    if a.dtype.is_int_unsigned():
        return tensor(_semantic.builder.mulhi(a.handle, b.handle), a.type)
    unsigned = ir_types.with_element(
        a.type.ir_type, ir_types.IntType(a.dtype.int_bitwidth, signed=False)
    )
    high = _semantic.builder.mulhi(
        *(_semantic.builder.bitcast(v.handle, result=unsigned) for v in (a, b))
    )
    return tensor(_semantic.builder.bitcast(high, result=a.type.ir_type), a.type)


@builtin
def fma(x: Any, y: Any, z: Any, _semantic: Any = None) -> tensor:
    """``x * y + z`` of floats, rounded once.

    Args:
        x: a tensor or a number.
        y: another.
        z: a third; all three are promoted to one type and broadcast.

    Returns:
        A tensor of the operands' common type and shape.

    Raises:
        TypeError: the operands are integers.

    Example:
        y = tl.fma(x, x, 1.0)
    """
    a, b = _semantic.promote(x, y)
    c, a = _semantic.promote(z, a)
    c, b = _semantic.promote(c, b)
    a, b, c = _semantic.broadcast_all(a, b, c)
    if not a.dtype.is_floating():
        raise TypeError(f"fma takes floats, got {a.dtype}")
    return tensor(_semantic.builder.fma(a.handle, b.handle, c.handle), a.type)
