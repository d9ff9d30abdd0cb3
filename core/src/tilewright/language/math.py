"""Elementary functions of floats, and a few of integers. Everything here is also in ``tilewright.language`` itself."""

from __future__ import annotations

from typing import Any

from tilewright.ir import types as ir_types
from tilewright.language.binding import builtin
from tilewright.language.dtypes import float32
from tilewright.language.tensors import tensor
from tilewright.language.values import _unwrap_if_constexpr

_F32_F64 = ("fp32", "fp64")


def _checked(x: Any, semantic: Any, names: tuple[str, ...]) -> tensor:
    """``x`` as a tensor whose element is one of ``names``."""
    x = semantic.to_tensor(x)
    if x.dtype.name not in names:
        raise ValueError(f"Expected dtype {list(names)} but got {x.dtype.name}")
    return x


def _elementary(op: str, x: Any, semantic: Any, **attributes: Any) -> tensor:
    x = _checked(x, semantic, _F32_F64)
    return tensor(getattr(semantic.builder, op)(x.handle, **attributes), x.type)


@builtin
def exp(x: Any, _semantic: Any = None) -> tensor:
    """e to the ``x``, of fp32 or fp64.

    y = tl.exp(x)
    """
    return _elementary("exp", x, _semantic)


@builtin
def exp2(x: Any, _semantic: Any = None) -> tensor:
    """2 to the ``x``, of fp32 or fp64.

    y = tl.exp2(x * 1.4426950408889634)
    """
    return _elementary("exp2", x, _semantic)


@builtin
def log(x: Any, _semantic: Any = None) -> tensor:
    """The natural logarithm, of fp32 or fp64.

    y = tl.log(x)
    """
    return _elementary("log", x, _semantic)


@builtin
def log2(x: Any, _semantic: Any = None) -> tensor:
    """The logarithm to base 2, of fp32 or fp64.

    y = tl.log2(x)
    """
    return _elementary("log2", x, _semantic)


@builtin
def sin(x: Any, _semantic: Any = None) -> tensor:
    """The sine of ``x`` radians, of fp32 or fp64.

    y = tl.sin(x)
    """
    return _elementary("sin", x, _semantic)


@builtin
def cos(x: Any, _semantic: Any = None) -> tensor:
    """The cosine of ``x`` radians, of fp32 or fp64.

    y = tl.cos(x)
    """
    return _elementary("cos", x, _semantic)


@builtin
def erf(x: Any, _semantic: Any = None) -> tensor:
    """The error function, of fp32 or fp64.

    gelu = 0.5 * x * (1 + tl.erf(x * 0.7071067811865476))
    """
    return _elementary("erf", x, _semantic)


@builtin
def sqrt(x: Any, _semantic: Any = None) -> tensor:
    """The square root, of fp32 (within 2 ULP where the target is faster so) or fp64 (correctly rounded).

    y = tl.sqrt(x)
    """
    x = _checked(x, _semantic, _F32_F64)
    attributes = {"approximate": True} if x.dtype is float32 else {}
    return tensor(_semantic.builder.sqrt(x.handle, **attributes), x.type)


@builtin
def sqrt_rn(x: Any, _semantic: Any = None) -> tensor:
    """The correctly rounded square root of fp32.

    y = tl.sqrt_rn(x)
    """
    x = _checked(x, _semantic, ("fp32",))
    return tensor(_semantic.builder.sqrt(x.handle), x.type)


@builtin
def rsqrt(x: Any, _semantic: Any = None) -> tensor:
    """``1 / sqrt(x)``, of fp32 or fp64.

    y = x * tl.rsqrt(variance + eps)
    """
    return _elementary("rsqrt", x, _semantic)


@builtin
def floor(x: Any, _semantic: Any = None) -> tensor:
    """The greatest integer not above ``x``, as a float; of fp32 or fp64.

    y = tl.floor(x)
    """
    return _elementary("floor", x, _semantic)


@builtin
def ceil(x: Any, _semantic: Any = None) -> tensor:
    """The least integer not below ``x``, as a float; of fp32 or fp64.

    y = tl.ceil(x)
    """
    return _elementary("ceil", x, _semantic)


@builtin
def abs(x: Any, _semantic: Any = None) -> tensor:
    """The absolute value of integers and floats of any width. Unsigned integers and booleans are unchanged.

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
def fdiv(x: Any, y: Any, ieee_rounding: Any = False, approx: Any = False, _semantic: Any = None) -> tensor:
    """``x / y`` of floats; fp16 and bf16 give fp32.

    Args:
        ieee_rounding: round correctly; otherwise fp32 may be within 2 ULP where the target is faster so.
        approx: within 2 ULP is enough, whatever ``ieee_rounding`` says.

        y = tl.fdiv(x, z)
    """
    a, b = _semantic.promote(x, y, div_or_mod=True)
    if not a.dtype.is_floating():
        raise TypeError(f"both operands of fdiv must have floating scalar type, got {a.dtype}")
    exact = _unwrap_if_constexpr(ieee_rounding) and not _unwrap_if_constexpr(approx)
    attributes = {} if exact or a.dtype is not float32 else {"approximate": True}
    return tensor(_semantic.builder.div(a.handle, b.handle, **attributes), a.type)


@builtin
def div_rn(x: Any, y: Any, _semantic: Any = None) -> tensor:
    """The correctly rounded quotient of fp32.

    y = tl.div_rn(x, z)
    """
    a, b = _semantic.promote(_checked(x, _semantic, ("fp32",)), _checked(y, _semantic, ("fp32",)))
    return tensor(_semantic.builder.div(a.handle, b.handle), a.type)


@builtin
def umulhi(x: Any, y: Any, _semantic: Any = None) -> tensor:
    """The upper half of the double-width product of 32 or 64-bit integers, taken as unsigned.

    high = tl.umulhi(a, b)
    """
    names = ("int32", "int64", "uint32", "uint64")
    a, b = _semantic.promote(_checked(x, _semantic, names), _checked(y, _semantic, names))
    if a.dtype.is_int_unsigned():
        return tensor(_semantic.builder.mulhi(a.handle, b.handle), a.type)
    unsigned = ir_types.with_element(a.type.ir_type, ir_types.IntType(a.dtype.int_bitwidth, signed=False))
    high = _semantic.builder.mulhi(*(_semantic.builder.bitcast(v.handle, result=unsigned) for v in (a, b)))
    return tensor(_semantic.builder.bitcast(high, result=a.type.ir_type), a.type)


@builtin
def fma(x: Any, y: Any, z: Any, _semantic: Any = None) -> tensor:
    """``x * y + z`` of floats, rounded once. The operands are promoted and broadcast like those of ``x * y + z``.

    acc = tl.fma(a, b, acc)
    """
    a, b = _semantic.promote(x, y)
    c, a = _semantic.promote(z, a)
    c, b = _semantic.promote(c, b)
    a, b, c = _semantic.broadcast_all(a, b, c)
    if not a.dtype.is_floating():
        raise TypeError(f"fma takes floats, got {a.dtype}")
    return tensor(_semantic.builder.fma(a.handle, b.handle, c.handle), a.type)
