"""The library of device functions, as far as the operations of the IR give them: the same on every backend.

Floats are fp32 or fp64 throughout; every function raises ValueError for other types.
"""

from __future__ import annotations

from typing import Any

from tilewright.language.binding import builtin
from tilewright.language.dtypes import float32, int1, int32, int64
from tilewright.language.math import (
    _F32_F64,
    _checked,
    _elementary,
    abs,
    ceil,
    cos,
    div_rn,
    erf,
    exp,
    exp2,
    floor,
    fma,
    log,
    log2,
    rsqrt,
    sin,
    sqrt,
    sqrt_rn,
)
from tilewright.language.tensors import tensor


def _pair(x: Any, y: Any, semantic: Any, names: tuple[str, ...] = _F32_F64) -> tuple[tensor, tensor]:
    """Two operands of one type out of ``names``; a Python number takes the type of the tensor."""
    a, b = semantic.promote(x, y)
    return _checked(a, semantic, names), _checked(b, semantic, names)


def _as_int32(x: tensor, semantic: Any) -> tensor:
    return semantic.cast(x, int32)


@builtin
def tanh(x: Any, _semantic: Any = None) -> tensor:
    """The hyperbolic tangent."""
    return _elementary("tanh", x, _semantic)


@builtin
def trunc(x: Any, _semantic: Any = None) -> tensor:
    """``x`` without its fraction, as a float."""
    return _elementary("trunc", x, _semantic)


@builtin
def rint(x: Any, _semantic: Any = None) -> tensor:
    """The nearest integer, ties to even, as a float."""
    return _elementary("round_even", x, _semantic)


@builtin
def nearbyint(x: Any, _semantic: Any = None) -> tensor:
    """The nearest integer, ties to even, as a float."""
    return _elementary("round_even", x, _semantic)


@builtin
def llrint(x: Any, _semantic: Any = None) -> tensor:
    """The nearest integer, ties to even, as int64."""
    return _semantic.cast(_elementary("round_even", x, _semantic), int64)


@builtin
def round(x: Any, _semantic: Any = None) -> tensor:
    """The nearest integer, ties away from zero, as a float."""
    x = _checked(x, _semantic, _F32_F64)
    builder = _semantic.builder
    whole = builder.trunc(x.handle)
    # x - trunc(x) is exact.
    fraction = builder.abs(builder.sub(x.handle, whole))
    half, one = builder.constant_like(whole.type, 0.5), builder.constant_like(whole.type, 1.0)
    away = builder.add(whole, builder.copysign(one, x.handle))
    return tensor(builder.select(builder.cmp(fraction, half, predicate="ge"), away, whole), x.type)


@builtin
def fmod(x: Any, y: Any, _semantic: Any = None) -> tensor:
    """The remainder of the division that truncates towards zero; its sign is that of ``x``."""
    a, b = _pair(x, y, _semantic)
    return tensor(_semantic.builder.rem(a.handle, b.handle), a.type)


@builtin
def copysign(x: Any, y: Any, _semantic: Any = None) -> tensor:
    """The magnitude of ``x`` with the sign of ``y``."""
    a, b = _pair(x, y, _semantic)
    return tensor(_semantic.builder.copysign(a.handle, b.handle), a.type)


@builtin
def ldexp(x: Any, y: Any, _semantic: Any = None) -> tensor:
    """``x * 2**y`` with an integer ``y``, rounded once."""
    a, exponent = _checked(x, _semantic, _F32_F64), _semantic.to_tensor(y)
    if not exponent.dtype.is_int():
        raise ValueError(f"the exponent of ldexp is an integer, got {exponent.dtype}")
    a, exponent = _semantic.broadcast_pair(a, _as_int32(exponent, _semantic))
    return tensor(_semantic.builder.ldexp(a.handle, exponent.handle), a.type)


@builtin
def scalbn(x: Any, y: Any, _semantic: Any = None) -> tensor:
    """``x * 2**y`` with an integer ``y``, rounded once."""
    return ldexp(x, y, _semantic=_semantic)


@builtin
def clz(x: Any, _semantic: Any = None) -> tensor:
    """Leading zero bits of a 32 or 64-bit integer, as int32; all of them for 0."""
    x = _checked(x, _semantic, ("int32", "int64", "uint32", "uint64"))
    return _as_int32(tensor(_semantic.builder.clz(x.handle), x.type), _semantic)


@builtin
def popc(x: Any, _semantic: Any = None) -> tensor:
    """Bits that are set in a 32 or 64-bit integer, as int32."""
    x = _checked(x, _semantic, ("int32", "int64", "uint32", "uint64"))
    return _as_int32(tensor(_semantic.builder.popcount(x.handle), x.type), _semantic)


@builtin
def ffs(x: Any, _semantic: Any = None) -> tensor:
    """The position, from 1, of the lowest bit that is set in a 32 or 64-bit integer, as int32; 0 for 0."""
    x = _checked(x, _semantic, ("int32", "int64", "uint32", "uint64"))
    builder = _semantic.builder
    lowest = builder.and_(x.handle, builder.neg(x.handle))
    # The lowest bit alone has bits - position zeros before it, and 0 has all of them.
    zeros = builder.clz(lowest)
    return _as_int32(tensor(builder.sub(builder.constant_like(zeros.type, x.dtype.int_bitwidth), zeros), x.type), _semantic)


@builtin
def mulhi(x: Any, y: Any, _semantic: Any = None) -> tensor:
    """The upper half of the double-width product of 32 or 64-bit integers, by their own signedness."""
    a, b = _pair(x, y, _semantic, ("int32", "int64", "uint32", "uint64"))
    return tensor(_semantic.builder.mulhi(a.handle, b.handle), a.type)


def _rounded(op: str, name: str, meaning: str) -> Any:
    def function(x: Any, y: Any, _semantic: Any = None) -> tensor:
        a, b = _pair(x, y, _semantic)
        return tensor(getattr(_semantic.builder, op)(a.handle, b.handle), a.type)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"``x {meaning} y``, rounded to nearest even."
    return builtin(function)


add_rn = _rounded("add", "add_rn", "+")
sub_rn = _rounded("sub", "sub_rn", "-")
mul_rn = _rounded("mul", "mul_rn", "*")


@builtin
def fma_rn(x: Any, y: Any, z: Any, _semantic: Any = None) -> tensor:
    """``x * y + z``, rounded once."""
    return fma(x, y, z, _semantic=_semantic)


@builtin
def isnan(x: Any, _semantic: Any = None) -> tensor:
    """Whether ``x`` is NaN, as ``int1``."""
    x = _checked(x, _semantic, _F32_F64)
    return _semantic.compare("ne", x, x)


def _magnitude(x: Any, predicate: str, semantic: Any) -> tensor:
    x = _checked(x, semantic, _F32_F64)
    infinity = semantic.builder.constant_like(x.handle.type, float("inf"))
    return semantic.wrap(semantic.builder.cmp(semantic.builder.abs(x.handle), infinity, predicate=predicate), int1)


@builtin
def isinf(x: Any, _semantic: Any = None) -> tensor:
    """Whether ``x`` is infinite, as ``int1``."""
    return _magnitude(x, "eq", _semantic)


@builtin
def isfinited(x: Any, _semantic: Any = None) -> tensor:
    """Whether ``x`` is neither infinite nor NaN, as ``int1``."""
    return _magnitude(x, "lt", _semantic)


@builtin
def finitef(x: Any, _semantic: Any = None) -> tensor:
    """Whether ``x`` is neither infinite nor NaN, as ``int1``."""
    return _magnitude(x, "lt", _semantic)


@builtin
def signbit(x: Any, _semantic: Any = None) -> tensor:
    """1 where the sign bit is set (also of -0.0 and of a NaN), else 0, as int32."""
    x = _checked(x, _semantic, _F32_F64)
    bits = _semantic.bitcast(x, int32 if x.dtype is float32 else int64)
    return _as_int32(_semantic.compare("lt", bits, 0), _semantic)


__all__ = [
    "abs",
    "add_rn",
    "ceil",
    "clz",
    "copysign",
    "cos",
    "div_rn",
    "erf",
    "exp",
    "exp2",
    "ffs",
    "finitef",
    "floor",
    "fma",
    "fma_rn",
    "fmod",
    "isfinited",
    "isinf",
    "isnan",
    "ldexp",
    "llrint",
    "log",
    "log2",
    "mul_rn",
    "mulhi",
    "nearbyint",
    "popc",
    "rint",
    "round",
    "rsqrt",
    "scalbn",
    "signbit",
    "sin",
    "sqrt",
    "sqrt_rn",
    "sub_rn",
    "tanh",
    "trunc",
]
