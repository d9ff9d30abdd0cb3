"""What machines that scale the operands of matmuls themselves have in common: the matmuls that they
take, and what those ask of layouts.

They multiply fp8 and e2m1, two of which are packed into a byte along K, by scales that are powers
of two, one for 32 elements along K.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tilewright.ir.ops.linear import DotScaled
from tilewright.ir.types import U8, TileType, element_type
from tilewright.simt.assign_layouts.solver import Origin
from tilewright.simt.dialect.attributes import layout_of, warps_of
from tilewright.simt.dialect.op_interface import Interface, Lower, Reader, Statement
from tilewright.simt.layouts.linear_layout import LinearLayout
from tilewright.simt.target.simt_target import SimtTarget

#: Elements along K that share a scale.
GROUP: Final = 32
#: Formats of operands, and how many elements of each a byte holds.
PER_BYTE: Final = {"e4m3": 1, "e5m2": 1, "e2m1": 2}
_OPERANDS: Final = ("a", "a_scale", "b", "b_scale", "c")


@dataclass(frozen=True, kw_only=True)
class ScaledLayouts:
    """How a matmul is computed, as far as layouts go.

    Attributes:
        a, b, a_scale, b_scale, c: layouts of the operands, and of c and the result.
    """

    a: LinearLayout
    b: LinearLayout
    a_scale: LinearLayout
    b_scale: LinearLayout
    c: LinearLayout

    @property
    @abstractmethod
    def name(self) -> str:
        """The instruction."""

    def operand(self, name: str) -> LinearLayout:
        """The layout of an operand of the operation."""
        found: LinearLayout = getattr(self, name)
        return found


def is_known(operation: DotScaled, name: str) -> bool:
    """Return whether an operand (``a`` or ``b``) of a ``dot_scaled`` has a format of
    :data:`PER_BYTE`, packed along K, and such scales or none. A scale of fp8 has a sign, which the
    instructions do not read."""
    format_, scale = operation.attribute(f"{name}_format"), operation.operand(f"{name}_scale")
    return format_ in PER_BYTE and (format_ != "e2m1" or operation.attribute(f"{name}_pack_k")) and (scale is None or element_type(scale.type) is U8)


def extents(operation: DotScaled) -> tuple[tuple[int, ...], int]:
    """The shape of the result, and the elements of a sum."""
    a, c = operation.a, operation.c
    assert isinstance(a.type, TileType) and isinstance(c.type, TileType)
    return c.type.shape, a.type.shape[-1] * PER_BYTE[operation.a_format]


def scaled_interface(lower: Lower, plan_of: Callable[[DotScaled, SimtTarget, int], ScaledLayouts]) -> Interface:
    """The interface of ``dot_scaled`` for a machine that computes it by ``plan_of`` (operation,
    target, warps)."""

    def layouts(statement: Statement, operation: DotScaled) -> None:
        plan = plan_of(operation, statement.target, statement.num_warps)
        statement.reads[operation] = [plan.operand(name) for name in _OPERANDS if operation.operand(name) is not None]
        statement.origins[operation.results[0]] = Origin(plan.c)

    def check(operation: DotScaled, target: SimtTarget) -> str:
        plan = plan_of(operation, target, warps_of(operation))
        if layout_of(operation.results[0]) != plan.c:
            return "the result's layout must be the instruction's"
        for name in _OPERANDS:
            operand = operation.operand(name)
            if operand is not None and layout_of(operand) != plan.operand(name):
                return f"the layout of {name} must be the instruction's"
        return ""

    def describe(report: Reader, operation: DotScaled) -> list[str]:
        return [f"by {plan_of(operation, report.target, warps_of(operation)).name}"]

    return Interface(lower, layouts, check, describe=describe)
