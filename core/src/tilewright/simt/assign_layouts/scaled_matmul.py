"""Layout constraints shared by targets with block-scaled matrix instructions.

These multiply fp8 and e2m1 (packed in pairs along K) by power-of-two scales, one per 32 elements
along K.
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
    """Layouts of a block-scaled matmul.

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
        """Name of the instruction."""

    def operand(self, name: str) -> LinearLayout:
        """Return the layout of an operand."""
        found: LinearLayout = getattr(self, name)
        return found


def is_known(operation: DotScaled, name: str) -> bool:
    """Return whether a ``dot_scaled`` operand has a format and scales that the instructions take.

    ``name`` is ``a`` or ``b``. Formats are those of :data:`PER_BYTE`, packed along K. An fp8 scale
    has a sign, which the instructions do not read.
    """
    format_, scale = operation.attribute(f"{name}_format"), operation.operand(f"{name}_scale")
    return (
        format_ in PER_BYTE
        and (format_ != "e2m1" or operation.attribute(f"{name}_pack_k"))
        and (scale is None or element_type(scale.type) is U8)
    )


def extents(operation: DotScaled) -> tuple[tuple[int, ...], int]:
    """Return the shape of the result, and the extent along K."""
    a, c = operation.a, operation.c
    assert isinstance(a.type, TileType) and isinstance(c.type, TileType)
    return c.type.shape, a.type.shape[-1] * PER_BYTE[operation.a_format]


def scaled_interface(
    lower: Lower, plan_of: Callable[[DotScaled, SimtTarget, int], ScaledLayouts]
) -> Interface:
    """Return the interface of ``dot_scaled`` for a target with such an instruction.

    ``plan_of`` (operation, target, warps) returns its plan.
    """

    def layouts(statement: Statement, operation: DotScaled) -> None:
        plan = plan_of(operation, statement.target, statement.num_warps)
        statement.reads[operation] = [
            plan.operand(name) for name in _OPERANDS if operation.operand(name) is not None
        ]
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
