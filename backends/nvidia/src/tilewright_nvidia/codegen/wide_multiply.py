"""``mul.wide``: both halves of a 32-bit product, for ``a * b`` beside ``umulhi(a, b)``."""

from __future__ import annotations

from tilewright.ir.core import Operation
from tilewright.ir.ops.arithmetic import Binary
from tilewright.ir.types import I32, U32, Type
from tilewright.simt.lowering.emission.context import SimtContext
from tilewright_nvidia.codegen.inline_ptx import call_asm

_OTHER = {"mul": "mulhi", "mulhi": "mul"}


class WideProducts:
    """The wide products of a kernel: names of the factors -> (low half, high half)."""

    def __init__(self) -> None:
        self._halves: dict[tuple[str, ...], tuple[str, str]] = {}

    def emit(
        self, context: SimtContext, name: str, operands: list[str], element: Type
    ) -> str | None:
        """Return the half that operation ``name`` computes; None if only one half is needed."""
        if (
            name not in _OTHER
            or element not in (I32, U32)
            or not _has_partner(context.operation, name)
        ):
            return None
        key = tuple(sorted(operands))
        halves = self._halves.get(key)
        if halves is None:
            w = context.writer
            kind = "u32" if element is U32 else "s32"
            (whole,) = call_asm(
                w,
                f"mul.wide.{kind} $0, $1, $2;",
                ["i64"],
                [("i32", operand) for operand in operands],
                effects=False,
            )
            low = w.emit(f"trunc i64 {whole} to i32")
            halves = self._halves[key] = (
                low,
                w.emit(f"trunc i64 {w.emit(f'lshr i64 {whole}, 32')} to i32"),
            )
        return halves[name == "mulhi"]


def _has_partner(operation: Operation | None, name: str) -> bool:
    """Return whether an operation of the same block computes the product's other half."""
    if not isinstance(operation, Binary) or operation.name != name:
        return False
    factors = {operation.a, operation.b}
    candidates = [other for other in operation.a.uses if other.name == _OTHER[name]]
    return any(
        other.parent is operation.parent and set(other.operands) == factors for other in candidates
    )
