"""Compile-time constants of a kernel (``constexpr``) and their type."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

from tilewright import ir
from tilewright.ir import types as ir_types
from tilewright.language.value_types.base_classes import base_type, base_value


class constexpr_type(base_type):  # noqa: N801
    """The type of a compile-time value: the type contains the value, without any IR value."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = unwrap_if_constexpr(value)

    def flatten(self) -> list[ir_types.Type]:
        return []

    def unflatten(self, values: Iterator[ir.Value]) -> constexpr:
        return constexpr(self.value)

    def mangle(self) -> str:
        return f"c{self.value!r}"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, constexpr_type):
            return False
        mine, theirs = self.value, other.value
        # 1, 1.0 and True are equal in Python and yet different constants; NaN is not equal to
        # itself and yet the same one.
        return mine is theirs or (
            type(mine) is type(theirs)
            and (bool(mine == theirs) or (mine != mine and theirs != theirs))
        )

    def __hash__(self) -> int:
        return hash((constexpr_type, type(self.value), self.value))

    def __repr__(self) -> str:
        return f"constexpr_type[{self.value}]"

    __str__ = __repr__


class constexpr(base_value):  # noqa: N801
    """A value known at compile time; also the annotation of a parameter that takes such a value.

        def kernel(x, n, BLOCK: tl.constexpr): ...

    Arithmetic, comparisons, calls, indexing and iteration work on ``value`` and give constexprs. A
    constexpr of a constexpr is that one.
    """

    __slots__ = ("_type", "value")

    value: Any

    def __init__(self, value: Any) -> None:
        while isinstance(value, constexpr):
            value = value.value
        self.value = value
        self._type: constexpr_type | None = None

    @property
    def type(self) -> constexpr_type:
        if self._type is None:
            self._type = constexpr_type(self.value)
        return self._type

    def flatten(self) -> list[ir.Value]:
        return []

    def __repr__(self) -> str:
        return f"constexpr[{self.value}]"

    def __hash__(self) -> int:
        return hash((type(self.value), self.value))

    def __bool__(self) -> bool:
        return bool(self.value)

    def __index__(self) -> int:
        return operator.index(self.value)

    def __int__(self) -> int:
        return int(self.value)

    def __float__(self) -> float:
        return float(self.value)

    def __len__(self) -> int:
        return len(self.value)

    def __iter__(self) -> Iterator[constexpr]:
        return (constexpr(item) for item in self.value)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.value(*args, **kwargs)

    def __getitem__(self, index: Any) -> constexpr:
        return constexpr(self.value[unwrap_if_constexpr(index)])

    def logical_and(self, other: Any) -> constexpr:
        """``self and other`` as Python means it: one of the two."""
        return constexpr(self.value and unwrap_if_constexpr(other))

    def logical_or(self, other: Any) -> constexpr:
        """``self or other`` as Python means it: one of the two."""
        return constexpr(self.value or unwrap_if_constexpr(other))

    def not_(self) -> constexpr:
        return constexpr(not self.value)

    # Comparison is defined here and not with the table below because Python drops __hash__ where
    # __eq__ comes later.
    def __eq__(self, other: Any) -> Any:
        return constexpr(self.value == unwrap_if_constexpr(other))

    def __ne__(self, other: Any) -> Any:
        return constexpr(self.value != unwrap_if_constexpr(other))


def _forward(apply: Callable[[Any, Any], Any]) -> Callable[[constexpr, Any], constexpr]:
    def method(self: constexpr, other: Any) -> constexpr:
        if isinstance(other, base_value) and not isinstance(other, constexpr):
            return NotImplemented
        return constexpr(apply(self.value, unwrap_if_constexpr(other)))

    return method


def _reflected(apply: Callable[[Any, Any], Any]) -> Callable[[constexpr, Any], constexpr]:
    return lambda self, other: constexpr(apply(unwrap_if_constexpr(other), self.value))


def _unary(apply: Callable[[Any], Any]) -> Callable[[constexpr], constexpr]:
    return lambda self: constexpr(apply(self.value))


#: Bits of the largest integer that a power or a shift of constants may give.
_LARGEST_INTEGER = 1 << 16


def _power(base: Any, exponent: Any) -> Any:
    """``base ** exponent``; an integer that would take long to compute is refused."""
    if isinstance(base, int) and isinstance(exponent, int) and exponent > 0:
        # the minimum number of bits that the result may have: powers of 1, 0 and -1 stay small
        _check_bits((abs(base).bit_length() - 1) * exponent)
    return base**exponent


def _shifted_left(value: Any, distance: Any) -> Any:
    """``value << distance``; an integer that would not fit into memory is refused."""
    if isinstance(value, int) and isinstance(distance, int) and value:
        _check_bits(value.bit_length() + distance)
    return value << distance


def _check_bits(bits: int) -> None:
    if bits > _LARGEST_INTEGER:
        raise OverflowError(
            f"the result is an integer of {bits} bits; constants have {_LARGEST_INTEGER} at most"
        )


#: Python's binary operators by the names :class:`~tilewright.language.semantic.Semantic` uses
#: them.
BINARY_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "truediv": operator.truediv,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "pow": _power,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "lshift": _shifted_left,
    "rshift": operator.rshift,
}
COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")
}
UNARY_OPERATORS: dict[str, Callable[[Any], Any]] = {
    "neg": operator.neg,
    "pos": operator.pos,
    "invert": operator.invert,
    "not": operator.not_,
}

for _name, _apply in BINARY_OPERATORS.items():
    setattr(constexpr, f"__{_name}__", _forward(_apply))
    setattr(constexpr, f"__r{_name}__", _reflected(_apply))
for _name in ("lt", "le", "gt", "ge"):
    setattr(constexpr, f"__{_name}__", _forward(COMPARISONS[_name]))
for _name in ("neg", "pos", "invert"):
    setattr(constexpr, f"__{_name}__", _unary(UNARY_OPERATORS[_name]))

CONSTEXPR_0 = constexpr(0)


def unwrap_iterable(x: Any) -> Any:
    """Return the only item of a sequence, where that is a sequence itself; else ``x``.

    Shapes come as separate arguments, or as one.
    """
    return x[0] if len(x) == 1 and hasattr(type(x[0]), "__iter__") else x


def unwrap_if_constexpr(o: Any) -> Any:
    """Return the plain Python value behind a constexpr.

    Lists and tuples are unwrapped item by item; any other value is returned as it is.
    """
    kind = o.__class__
    if kind is constexpr:
        return o.value
    if kind is list:
        return [unwrap_if_constexpr(item) for item in o]
    if kind is tuple:
        return tuple(unwrap_if_constexpr(item) for item in o)
    if isinstance(o, constexpr):
        return o.value
    return getattr(o, "_unwrapped", _itself)(o)


def _itself(o: Any) -> Any:
    return o


def check_bit_width(value: Any, shift_value: Any) -> None:
    """Warn of a shift by a constant of at least the width: no bit of the operand remains."""
    import warnings

    if isinstance(shift_value, constexpr):
        bits = value.type.scalar.primitive_bitwidth
        if isinstance(shift_value.value, int) and shift_value.value >= bits:
            warnings.warn(
                f"shift by {shift_value.value} of a value of {bits} bits ({value.dtype}) shifts "
                "all of them out",
                stacklevel=2,
            )


def is_negative_zero(x: Any) -> bool:
    """Return whether ``x`` is the float -0.0."""
    import math

    x = unwrap_if_constexpr(x)
    return isinstance(x, float) and x == 0.0 and math.copysign(1.0, x) < 0
