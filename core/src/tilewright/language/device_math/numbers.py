"""Writing elementwise Tile IR as arithmetic, and making builtins of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright import ir
from tilewright.ir import types as ir_types
from tilewright.ir.expressions import Expression
from tilewright.language.binding import builtin
from tilewright.language.dtypes import dtype, float32, float64
from tilewright.language.tensors import tensor

F32_F64 = ("fp32", "fp64")


class Number(Expression):
    """A scalar or tile of the IR with Python's operators."""

    __slots__ = ("builder", "handle")

    def __init__(self, builder: ir.Builder, handle: ir.Value) -> None:
        self.builder, self.handle = builder, handle

    @property
    def element(self) -> ir_types.Type:
        return ir_types.element_type(self.handle.type)

    @property
    def wide(self) -> bool:
        """Whether the elements have 64 bits."""
        return ir_types.bit_width(self.element) == 64

    def like(self, other: Number | float) -> Number:
        return other if isinstance(other, Number) else Number(self.builder, self.builder.constant_like(self.handle.type, other))

    def apply(self, op: str, *others: Number | float, **attributes: Any) -> Number:
        return Number(self.builder, getattr(self.builder, op)(self.handle, *(self.like(other).handle for other in others), **attributes))

    def to(self, element: ir_types.Type, **attributes: Any) -> Number:
        """The values as another type."""
        if element is self.element:
            return self
        return Number(self.builder, self.builder.cast(self.handle, result=ir_types.with_element(self.handle.type, element), **attributes))

    def bits_as(self, element: ir_types.Type) -> Number:
        """The bits as another type."""
        if element is self.element:
            return self
        return Number(self.builder, self.builder.bitcast(self.handle, result=ir_types.with_element(self.handle.type, element)))

    def bits(self) -> Number:
        """A float's bits as a signed integer."""
        return self.bits_as(ir_types.I64 if self.wide else ir_types.I32)

    def __mul__(self, other: Number | float) -> Number:
        """The product. Of floats it is written as a fused operation, whose rounding no backend takes away by fusing it with an addition: methods here rely
        on what each operation rounds."""
        if isinstance(self.element, ir_types.FloatType):
            return self.apply("fma", other, -0.0)
        return super().__mul__(other)

    def inverted(self) -> Number:
        """The negation of a boolean."""
        return self.apply("xor", True)


INFINITY = float("inf")
NAN = float("nan")


def where(condition: Number, a: Number | float, b: Number | float) -> Number:
    """``a`` where the condition holds, ``b`` elsewhere; one of them at least is a Number."""
    if not isinstance(a, Number):
        assert isinstance(b, Number)
        a = b.like(a)
    return Number(condition.builder, condition.builder.select(condition.handle, a.handle, a.like(b).handle))


def fma(a: Number, b: Number | float, c: Number | float) -> Number:
    """``a * b + c``, rounded once."""
    return a.apply("fma", b, c)


def polynomial(x: Number, coefficients: list[float]) -> Number:
    """The polynomial with these coefficients, lowest degree first (Horner)."""
    result = x.like(coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        result = fma(result, x, coefficient)
    return result


def chebyshev(x: Number, coefficients: tuple[float, ...]) -> Number:
    """The Chebyshev series with these coefficients at ``x`` in [-1, 1] (C. Clenshaw, 1955)."""
    twice, last, before = x + x, x.like(coefficients[-1]), x.like(0.0)
    for coefficient in reversed(coefficients[1:-1]):
        last, before = fma(twice, last, coefficient - before), last
    return fma(x, last, coefficients[0] - before)


def two_sum(a: Number, b: Number) -> tuple[Number, Number]:
    """The rounded sum and its error (D. Knuth, The Art of Computer Programming, vol. 2)."""
    total = a + b
    virtual = total - a
    return total, (a - (total - virtual)) + (b - virtual)


def ldexp(x: Number, exponent: Number) -> Number:
    """``x * 2**exponent`` with an i32 exponent, rounded once."""
    return Number(x.builder, x.builder.ldexp(x.handle, exponent.handle))


# -- builtins -----------------------------------------------------------------------------------------------------------------------------------------


def _operands(values: tuple[Any, ...], semantic: Any, names: tuple[str, ...], what: str) -> list[tensor]:
    """The arguments in one of the types ``names`` and one shape; a Python number takes the type of the tensors."""
    found = [semantic.to_tensor(value) if isinstance(value, tensor) or len(values) == 1 else value for value in values]
    common = next((value for value in found if isinstance(value, tensor)), None)
    if common is None:
        common = semantic.to_tensor(found[0])
    for value in found:
        common, _ = semantic.promote(common, value)
    if common.dtype.name not in names:
        raise ValueError(f"{what}: Expected dtype {list(names)} but got {common.dtype.name}")
    made = [semantic.cast(semantic.to_tensor(value), common.dtype) if not isinstance(value, tensor) else semantic.cast(value, common.dtype) for value in found]
    result: list[tensor] = semantic.broadcast_all(*made)
    return result


def function(
    name: str,
    parameters: str,
    meaning: str,
    body: Callable[..., Number],
    *,
    names: tuple[str, ...] = F32_F64,
    through_f64: bool = False,
    result: dtype | None = None,
) -> Any:
    """A builtin of the elementwise ``body``, which gets a Number for each parameter.

    Args:
        parameters: their names, separated by blanks: one to four.
        meaning: what it gives, for its documentation.
        names: the types it takes.
        through_f64: fp32 is computed in fp64 and rounded once.
        result: the type of what it gives; None for that of its arguments.
    """

    def call(*values: Any, _semantic: Any) -> tensor:
        operands = _operands(values, _semantic, names, name)
        builder, own = _semantic.builder, operands[0].dtype
        numbers = [Number(builder, x.handle) for x in operands]
        widened = through_f64 and own is float32
        if widened:
            numbers = [x.to(ir_types.F64) for x in numbers]
        made = body(*numbers)
        if widened and made.element is ir_types.F64:
            made = made.to(ir_types.F32)
        found: tensor = _semantic.wrap(made.handle, result if result is not None else own)
        return found

    return _with_parameters(name, parameters.split(), meaning, call)


def _with_parameters(name: str, parameters: list[str], meaning: str, call: Callable[..., tensor]) -> Any:
    """A builtin with named parameters, which may be passed by keyword."""
    wrapped: Any
    if len(parameters) == 1:

        def wrapped(x: Any, _semantic: Any = None) -> tensor:
            return call(x, _semantic=_semantic)

    elif len(parameters) == 2:

        def wrapped(x: Any, y: Any, _semantic: Any = None) -> tensor:
            return call(x, y, _semantic=_semantic)

    elif len(parameters) == 3:

        def wrapped(x: Any, y: Any, z: Any, _semantic: Any = None) -> tensor:
            return call(x, y, z, _semantic=_semantic)

    else:

        def wrapped(x: Any, y: Any, z: Any, w: Any, _semantic: Any = None) -> tensor:
            return call(x, y, z, w, _semantic=_semantic)

    wrapped.__name__ = wrapped.__qualname__ = name
    wrapped.__doc__ = meaning
    return builtin(wrapped)


__all__ = ["F32_F64", "INFINITY", "NAN", "Number", "chebyshev", "float32", "float64", "fma", "function", "ldexp", "polynomial", "two_sum", "where"]
