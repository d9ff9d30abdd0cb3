"""Type rules that several families of operations share."""

from __future__ import annotations

from tilewright.ir.table import RuleError, Shape
from tilewright.ir.types import IntType
from tilewright.simt.dialect.types import BarriersType, MemoryType, SlotType


def slot_of(shape: Shape, name: str = "slot") -> MemoryType:
    """The type of a slot; raises :class:`RuleError` for other things."""
    type_ = shape.type(name)
    if not isinstance(type_, SlotType):
        raise RuleError(f"{name} must be a slot, not {type_}")
    return type_


def require_index(shape: Shape) -> None:
    if not isinstance(shape.type("index"), IntType):
        raise RuleError(f"index must be an integer, not {shape.type('index')}")


def require_barrier(shape: Shape) -> None:
    if not isinstance(shape.type("barriers"), BarriersType):
        raise RuleError(f"barriers must be barriers, not {shape.type('barriers')}")
    require_index(shape)
