"""The library of device functions (``tl.extra.libdevice``): the same on every backend.

Floats are fp32 or fp64 throughout; every function raises ValueError for other types. What is an
operation of the IR is here; the rest is written out in :mod:`tilewright.language.device_math`.
"""

from __future__ import annotations

from typing import Any

from tilewright.ir.table import merged
from tilewright.language import floats
from tilewright.language.binding import builtin
from tilewright.language.math import (
    abs as abs,
)
from tilewright.language.math import (
    ceil as ceil,
)
from tilewright.language.math import cos, exp, log, log2, sin
from tilewright.language.math import (
    erf as erf,
)
from tilewright.language.math import (
    exp2 as exp2,
)
from tilewright.language.math import (
    floor as floor,
)
from tilewright.language.math import (
    fma as fma,
)
from tilewright.language.math import (
    rsqrt as rsqrt,
)
from tilewright.language.math import (
    sqrt as sqrt,
)
from tilewright.language.value_types.dtypes import float32, int1, int32, int64
from tilewright.language.value_types.tensors import tensor


def _pair(
    x: Any, y: Any, semantic: Any, names: tuple[str, ...] = floats.F32_F64
) -> tuple[tensor, tensor]:
    """Two operands of one type out of ``names``; a Python number takes the type of the tensor."""
    a, b = semantic.promote(x, y)
    return floats.checked(a, semantic, names), floats.checked(b, semantic, names)


def _as_int32(x: tensor, semantic: Any) -> tensor:
    return semantic.cast(x, int32)


@builtin
def tanh(x: Any, _semantic: Any = None) -> tensor:
    """The hyperbolic tangent."""
    return floats.operation("tanh", x, _semantic)


@builtin
def trunc(x: Any, _semantic: Any = None) -> tensor:
    """``x`` without its fraction, as a float."""
    return floats.operation("trunc", x, _semantic)


@builtin
def rint(x: Any, _semantic: Any = None) -> tensor:
    """The nearest integer, ties to even, as a float."""
    return floats.operation("round_even", x, _semantic)


@builtin
def nearbyint(x: Any, _semantic: Any = None) -> tensor:
    """The nearest integer, ties to even, as a float."""
    return floats.operation("round_even", x, _semantic)


@builtin
def llrint(x: Any, _semantic: Any = None) -> tensor:
    """The nearest integer, ties to even, as int64."""
    return _semantic.cast(floats.operation("round_even", x, _semantic), int64)


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
    a, exponent = floats.checked(x, _semantic, floats.F32_F64), _semantic.to_tensor(y)
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
    x = floats.checked(x, _semantic, ("int32", "int64", "uint32", "uint64"))
    return _as_int32(tensor(_semantic.builder.clz(x.handle), x.type), _semantic)


@builtin
def popc(x: Any, _semantic: Any = None) -> tensor:
    """Bits that are set in a 32 or 64-bit integer, as int32."""
    x = floats.checked(x, _semantic, ("int32", "int64", "uint32", "uint64"))
    return _as_int32(tensor(_semantic.builder.popcount(x.handle), x.type), _semantic)


@builtin
def ffs(x: Any, _semantic: Any = None) -> tensor:
    """The position, from 1, of the lowest set bit of a 32 or 64-bit integer, as int32; 0 for 0."""
    x = floats.checked(x, _semantic, ("int32", "int64", "uint32", "uint64"))
    builder = _semantic.builder
    lowest = builder.and_(x.handle, builder.neg(x.handle))
    # The lowest bit alone has bits - position zeros before it, and 0 has all of them.
    zeros = builder.clz(lowest)
    return _as_int32(
        tensor(builder.sub(builder.constant_like(zeros.type, x.dtype.int_bitwidth), zeros), x.type),
        _semantic,
    )


@builtin
def mulhi(x: Any, y: Any, _semantic: Any = None) -> tensor:
    """The upper half of a double-width multiplication of 32 or 64-bit integers.

    Their own signedness counts.
    """
    a, b = _pair(x, y, _semantic, ("int32", "int64", "uint32", "uint64"))
    return tensor(_semantic.builder.mulhi(a.handle, b.handle), a.type)


@builtin
def isnan(x: Any, _semantic: Any = None) -> tensor:
    """Return whether ``x`` is NaN, as ``int1``."""
    x = floats.checked(x, _semantic, floats.F32_F64)
    return _semantic.compare("ne", x, x)


def _magnitude(x: Any, predicate: str, semantic: Any) -> tensor:
    x = floats.checked(x, semantic, floats.F32_F64)
    infinity = semantic.builder.constant_like(x.handle.type, float("inf"))
    return semantic.wrap(
        semantic.builder.cmp(semantic.builder.abs(x.handle), infinity, predicate=predicate), int1
    )


@builtin
def isinf(x: Any, _semantic: Any = None) -> tensor:
    """Return whether ``x`` is infinite, as ``int1``."""
    return _magnitude(x, "eq", _semantic)


@builtin
def isfinited(x: Any, _semantic: Any = None) -> tensor:
    """Return whether ``x`` is neither infinite nor NaN, as ``int1``."""
    return _magnitude(x, "lt", _semantic)


@builtin
def finitef(x: Any, _semantic: Any = None) -> tensor:
    """Return whether ``x`` is neither infinite nor NaN, as ``int1``."""
    return _magnitude(x, "lt", _semantic)


@builtin
def signbit(x: Any, _semantic: Any = None) -> tensor:
    """1 where the sign bit is set (also of -0.0 and of a NaN), else 0, as int32."""
    x = floats.checked(x, _semantic, floats.F32_F64)
    bits = _semantic.bitcast(x, int32 if x.dtype is float32 else int64)
    return _as_int32(_semantic.compare("lt", bits, 0), _semantic)


@builtin
def fast_dividef(x: Any, y: Any, _semantic: Any = None) -> tensor:
    """``x / y`` by the reciprocal of ``y``.

    fp32 is within 3 ULP of a normal quotient for ``abs(y)`` from 2**-126 to 2**126, beyond which it
    may be 0.

    It is rounded correctly with ``math="strict"``, for fp64, and on backends whose division is as
    fast.
    """
    a, b = _pair(x, y, _semantic)
    attributes = {"fast": True} if a.dtype is float32 else {}
    return tensor(_semantic.builder.div(a.handle, b.handle, **attributes), a.type)


# -- what is written out ---------------------------------------------------------------------------


def _written_out() -> dict[str, Any]:
    """Return the functions of :mod:`~tilewright.language.device_math`.

    They are made at the first use of one, because most programs use none.
    """
    from tilewright.language.device_math import (
        bit_manipulation,
        elementary,
        orders,
        partials,
        rounding,
        special,
    )

    # With ``math="relaxed"`` the exponential is the machine's; the others are as accurate as
    # without ``fast_``.
    made = merged(
        *(module.FUNCTIONS for module in (elementary, special, rounding, bit_manipulation, orders)),
        what="function",
    )
    assert partials.PARTIALS.keys() <= made.keys()
    fast = {
        "fast_sinf": sin,
        "fast_cosf": cos,
        "fast_expf": exp,
        "fast_logf": log,
        "fast_log2f": log2,
        "fast_tanhf": tanh,
        **{f"fast_{name}f": made[name] for name in ("tan", "exp10", "log10", "pow")},
    }
    return merged(made, fast, what="function")


def __getattr__(name: str) -> Any:
    namespace = globals()
    if "__all__" not in namespace and (name == "__all__" or not name.startswith("_")):
        here = {
            found: value
            for found, value in namespace.items()
            if not found.startswith("_") and callable(value) and found not in _NOT_OURS
        }
        functions = merged(here, _written_out(), what="function")
        namespace.update(functions)
        namespace["__all__"] = sorted(functions)
    if name in namespace:
        return namespace[name]
    raise AttributeError(f"module {__name__} has no attribute {name!r}")


def __dir__() -> list[str]:
    __getattr__("__all__")
    return sorted(globals())


_NOT_OURS = frozenset({"Any", "builtin", "merged", "tensor"})
