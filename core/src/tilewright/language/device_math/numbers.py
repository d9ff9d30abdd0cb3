"""Writing elementwise Tile IR as arithmetic, and making builtins of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

from tilewright.ir import expressions
from tilewright.ir import types as ir_types
from tilewright.ir.expressions import fma
from tilewright.language.binding import builtin
from tilewright.language.value_types.dtypes import dtype, float32
from tilewright.language.value_types.tensors import tensor

F32_F64 = ("fp32", "fp64")


class MathValue(expressions.Number):
    """A scalar or tile of the IR with Python's operators."""

    __slots__ = ()

    @property
    def wide(self) -> bool:
        """Return whether the elements have 64 bits."""
        return ir_types.bit_width(self.element) == 64

    # Methods here rely on what each operation rounds. A backend may contract a multiplication and
    # an addition into one rounding, also a caller's multiplication and an addition here; a fused
    # operation is not contracted any further.

    def __add__(self, other: Self | float) -> Self:
        """The sum, of floats as ``self * 1 + other``."""
        if isinstance(self.element, ir_types.FloatType):
            return self.apply("fma", 1.0, other)
        return super().__add__(other)

    def __sub__(self, other: Self | float) -> Self:
        """The difference, of floats as ``other * -1 + self``."""
        if isinstance(self.element, ir_types.FloatType):
            return self.like(other).apply("fma", -1.0, self)
        return super().__sub__(other)

    def __mul__(self, other: Self | float) -> Self:
        """Multiply; floats as ``self * other - 0``."""
        if isinstance(self.element, ir_types.FloatType):
            return self.apply("fma", other, -0.0)
        return super().__mul__(other)

    def inverted(self) -> Self:
        """The negation of a boolean."""
        return self.apply("xor", True)


INFINITY = float("inf")
NAN = float("nan")


def polynomial(x: MathValue, coefficients: list[float]) -> MathValue:
    """The polynomial with these coefficients, lowest degree first (Horner)."""
    result = x.like(coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        result = fma(result, x, coefficient)
    return result


def chebyshev(x: MathValue, coefficients: tuple[float, ...]) -> MathValue:
    """The Chebyshev series with these coefficients at ``x`` in [-1, 1] (C. Clenshaw, 1955)."""
    twice, last, before = x + x, x.like(coefficients[-1]), x.like(0.0)
    for coefficient in reversed(coefficients[1:-1]):
        last, before = fma(twice, last, coefficient - before), last
    return fma(x, last, coefficients[0] - before)


def two_sum(a: MathValue, b: MathValue) -> tuple[MathValue, MathValue]:
    """The rounded sum and its error (D. Knuth, The Art of Computer Programming, vol. 2)."""
    total = a + b
    virtual = total - a
    return total, (a - (total - virtual)) + (b - virtual)


#: Functions that have derivatives of their own -> what appends a call of one in kernels that are
#: differentiated, as ``partials`` sets it.
DIFFERENTIABLE: dict[str, Callable[..., tensor]] = {}


# -- builtins --------------------------------------------------------------------------------------


def _operands(
    values: tuple[Any, ...], semantic: Any, names: tuple[str, ...], what: str
) -> list[tensor]:
    """Return the arguments in one of the types ``names`` and in one shape.

    A Python number takes the type of the tensors.
    """
    found = [
        semantic.to_tensor(value) if isinstance(value, tensor) or len(values) == 1 else value
        for value in values
    ]
    common = next((value for value in found if isinstance(value, tensor)), None)
    if common is None:
        common = semantic.to_tensor(found[0])
    for value in found:
        common, _ = semantic.promote(common, value)
    if common.dtype.name not in names:
        raise ValueError(f"{what}: Expected dtype {list(names)} but got {common.dtype.name}")
    made = [
        semantic.cast(semantic.to_tensor(value), common.dtype)
        if not isinstance(value, tensor)
        else semantic.cast(value, common.dtype)
        for value in found
    ]
    result: list[tensor] = semantic.broadcast_all(*made)
    return result


def function(
    name: str,
    parameters: str,
    meaning: str,
    body: Callable[..., MathValue],
    *,
    names: tuple[str, ...] = F32_F64,
    through_f64: bool = False,
    result: dtype | None = None,
) -> Any:
    """Make a builtin of the elementwise ``body``, which gets a MathValue for each parameter.

    Args:
        parameters: their names, separated by blanks: one to four.
        meaning: its result, for its documentation.
        names: the types it takes.
        through_f64: fp32 is computed in fp64 and rounded once.
        result: the type of its result; None for that of its arguments.
    """

    def call(*values: Any, _semantic: Any) -> tensor:
        operands = _operands(values, _semantic, names, name)
        if name in DIFFERENTIABLE and _semantic.options.differentiated:
            return DIFFERENTIABLE[name](
                parameters.split(),
                operands,
                lambda inputs: compute(inputs, _semantic),
                _semantic,
                through_f64=through_f64,
            )
        return compute(operands, _semantic)

    def compute(operands: Sequence[tensor], _semantic: Any) -> tensor:
        builder, own = _semantic.builder, operands[0].dtype
        numbers = [MathValue(builder, x.handle) for x in operands]
        widened = through_f64 and own is float32
        if widened:
            numbers = [x.cast(ir_types.F64) for x in numbers]
        made = body(*numbers)
        if widened and made.element is ir_types.F64:
            made = made.cast(ir_types.F32)
        found: tensor = _semantic.wrap(made.value, result if result is not None else own)
        return found

    return _with_parameters(name, parameters.split(), meaning, call)


def _with_parameters(
    name: str, parameters: list[str], meaning: str, call: Callable[..., tensor]
) -> Any:
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
