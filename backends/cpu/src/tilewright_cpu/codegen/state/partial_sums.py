"""Vector partial sums of a loop, reduced to a scalar after it."""

from __future__ import annotations

from tilewright.ir.types import Type
from tilewright.llvm.emission.registers import constant, register_type, vector_type
from tilewright.llvm.emission.writer import FunctionWriter


class PartialSumState:
    """Partial sums of a loop in vector registers, one vector a group."""

    __slots__ = ("element", "groups", "width")

    def __init__(self, element: Type, width: int, groups: list[str]) -> None:
        self.element, self.width, self.groups = element, width, groups


def reduce_partial_sum(writer: FunctionWriter, state: PartialSumState) -> str:
    """Sum of all lanes of all groups."""
    type_ = vector_type(state.element, state.width)
    total = state.groups[0]
    for group in state.groups[1:]:
        total = writer.emit(f"fadd {type_} {total}, {group}")
    scalar = register_type(state.element)
    return writer.intrinsic(
        "llvm.vector.reduce.fadd",
        scalar,
        [(scalar, constant(state.element, -0.0)), (type_, total)],
        [type_],
        "reassoc",
    )
