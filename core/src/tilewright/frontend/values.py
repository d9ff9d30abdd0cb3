"""Values in scopes: decay on assignment, flattening to IR values, and descriptions of types."""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType
from typing import Any

from tilewright import ir
from tilewright.errors import integer_text
from tilewright.ir import types as ir_types
from tilewright.language.core import base_type, base_value, constexpr, constexpr_type, tensor
from tilewright.language.core import tuple as tl_tuple
from tilewright.language.semantic import Semantic
from tilewright.language.value_types.promotion import scalar_type

_NUMBERS = frozenset((int, float, bool))
_PLAIN = frozenset((int, float, bool, str, type(None)))

#: The remedy where a pointer is asked for its size or shape.
SIZES_ARE_ARGUMENTS = (
    "a pointer knows no sizes: pass them, and the strides, as arguments of the kernel"
)


def lift(value: Any) -> Any:
    """Convert a Python object to a value of a scope.

    Numbers, strings and None become constexprs, tuples and lists become tuples of the language.
    """
    kind = type(value)
    if kind in _PLAIN:
        return constexpr(value)
    if kind is tuple or kind is list or (isinstance(value, tuple) and hasattr(value, "_fields")):
        return tl_tuple(value)
    return value


def decay(semantic: Semantic, value: Any) -> Any:
    """Convert compile-time numbers to scalar tensors, as a plain assignment does.

    Items of tuples decay too; every other value stays as it is.
    """
    kind = type(value)
    if kind is tensor:
        return value
    if kind is constexpr:
        inner = value.value
        if type(inner) in _NUMBERS:
            return semantic.scalar_constant(inner, scalar_type(inner))
        return lift(inner) if isinstance(inner, tuple | list) else value
    if kind is tl_tuple:
        items = [decay(semantic, item) for item in value.values]
        if all(new is old for new, old in zip(items, value.values, strict=True)):
            return value
        return value._with_fields(items)
    return value


def decayed_type(value: Any) -> Any:
    """Return the type of :func:`decay`'s result without emitting anything."""
    if type(value) is constexpr and type(value.value) in _NUMBERS:
        return scalar_type(value.value)
    return type_of(value)


def unwrapped(value: Any) -> Any:
    """Return the Python value of a constexpr; any other value as it is."""
    return value.value if type(value) is constexpr else value


def is_number(value: Any) -> bool:
    """Return whether ``value`` is a number known at compile time."""
    return type(value) is constexpr and type(value.value) in _NUMBERS


def type_of(value: Any) -> base_type:
    """Return the type of any value of a scope.

    A value outside the language has a type of its own, as a constexpr does.
    """
    if isinstance(value, base_value):
        found: base_type = value.type
        return found
    return constexpr_type(value)


def flatten(value: Any) -> list[ir.Value]:
    """Return the IR values that ``value`` consists of."""
    return value.flatten() if isinstance(value, base_value) else []


def unflatten(types: Iterable[base_type], values: Iterable[ir.Value]) -> list[Any]:
    """Rebuild values of ``types`` from flattened IR ``values``."""
    source = iter(values)
    return [type_.unflatten(source) for type_ in types]


def placeholder(builder: ir.Builder, type_: base_type) -> Any:
    """Emit a zero-filled value of ``type_`` that nothing reads.

    Raises:
        TypeError: no constant has such a type (a tensor descriptor).
    """
    return unflatten([type_], [_zero(builder, flat) for flat in type_.flatten()])[0]


def has_placeholder(type_: base_type) -> bool:
    """Return whether :func:`placeholder` has a value of ``type_``."""
    return all(ir_types.element_type(flat).is_scalar for flat in type_.flatten())


def _zero(builder: ir.Builder, type_: ir_types.Type) -> ir.Value:
    element = ir_types.element_type(type_)
    if not element.is_scalar:
        raise TypeError(f"a value of type {type_} cannot depend on control flow")
    return builder.constant_like(type_, 0)


def name_values(value: Any, name: str) -> None:
    """Name the IR values of a variable after it where they have no name yet."""
    kind = type(value)
    if kind is tensor:
        if not value.handle.name:
            value.handle.name = name
    elif kind is tl_tuple:
        for index, item in enumerate(value.values):
            name_values(item, f"{name}.{index}")


def describe(value: Any) -> str:
    """Describe a value for an error message: ``constexpr 2``, ``module math``."""
    if type(value) is constexpr:
        return f"constexpr {_plain_text(value.value)}"
    if isinstance(value, base_value):
        return f"a value of type {value.type}"
    if isinstance(value, ModuleType):
        return f"module {value.__name__}"
    name = getattr(value, "__name__", None)
    if name is None:
        return repr(value)
    return f"class {name}" if isinstance(value, type) else f"function {name}"


def _plain_text(value: Any, text: Any = repr) -> str:
    """Format a compile-time value for a message."""
    return integer_text(value) if type(value) is int else str(text(value))


def describe_type(type_: base_type) -> str:
    """Describe a type for an error message."""
    if isinstance(type_, constexpr_type):
        value = type_.value
        return (
            "constexpr "
            f"{_plain_text(value, str) if not hasattr(value, '__name__') else repr(value.__name__)}"
        )
    return str(type_)
