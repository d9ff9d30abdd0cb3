"""Type rules shared by the families of operations."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.table import RuleError, Shape
from tilewright.ir.types import (
    I1,
    FloatType,
    IntType,
    PointerType,
    TileType,
    Type,
    element_type,
    shape_of,
    with_element,
)


def require(condition: bool, rule: str) -> None:
    """Raise :class:`RuleError` with ``rule`` unless ``condition`` holds."""
    if not condition:
        raise RuleError(rule)


def require_number(type_: Type, what: str) -> None:
    require(
        isinstance(element_type(type_), IntType | FloatType),
        f"{what} must hold numbers, not {type_}",
    )


def require_int(type_: Type, what: str) -> None:
    require(isinstance(element_type(type_), IntType), f"{what} must hold integers, not {type_}")


def require_float(type_: Type, what: str) -> None:
    require(isinstance(element_type(type_), FloatType), f"{what} must hold floats, not {type_}")


def require_tile(type_: Type, what: str) -> TileType:
    if not isinstance(type_, TileType):
        raise RuleError(f"{what} must be a tile, not {type_}")
    return type_


def require_same(types: Sequence[Type], what: str) -> None:
    require(len(set(types)) == 1, f"{what} must have one type, not {' and '.join(map(str, types))}")


def require_axis(axis: int, rank: int) -> None:
    require(0 <= axis < rank, f"axis {axis} is not in 0..{rank - 1}")


def require_mask(mask: Type | None, like: Type) -> None:
    """A mask is i1 of the shape of ``like``."""
    if mask is not None:
        expected = with_element(like, I1)
        require(mask is expected, f"mask must be {expected}, not {mask}")


def pointee_of(type_: Type, what: str = "pointer") -> Type:
    """The element that a pointer, or each pointer of a tile, points to."""
    element = element_type(type_)
    if not isinstance(element, PointerType):
        raise RuleError(f"{what} must be a pointer or a tile of pointers, not {type_}")
    return element.pointee


def accessed_type(pointer: Type) -> Type:
    """The type of the value loaded from or stored to ``pointer``."""
    return with_element(pointer, pointee_of(pointer))


def same_numbers(shape: Shape) -> Sequence[Type]:
    """All operands have one type that holds numbers; so has the result."""
    types = [group[0] for group in shape.groups.values()]
    require_same(types, "operands")
    require_number(types[0], "operands")
    return (types[0],)


def same_ints(shape: Shape) -> Sequence[Type]:
    """All operands have one integer type; so has the result."""
    types = [group[0] for group in shape.groups.values()]
    require_same(types, "operands")
    require_int(types[0], "operands")
    return (types[0],)


def same_floats(shape: Shape) -> Sequence[Type]:
    """All operands have one float type; so has the result."""
    types = [group[0] for group in shape.groups.values()]
    require_same(types, "operands")
    require_float(types[0], "operands")
    return (types[0],)


def require_same_shape(a: Type, b: Type, what: str) -> None:
    require(shape_of(a) == shape_of(b), f"{what} must have one shape, not {a} and {b}")


def nothing(shape: Shape) -> Sequence[Type]:
    """No results."""
    return ()
