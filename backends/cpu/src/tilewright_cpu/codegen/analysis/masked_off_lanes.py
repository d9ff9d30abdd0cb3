"""Values of tiles in masked-off lanes, where a comparison does not hold."""

from __future__ import annotations

import math
from typing import Final

from tilewright.ir.core import Value
from tilewright.ir.ops.arithmetic import Cast, Select
from tilewright.ir.ops.debug import Hint
from tilewright.ir.ops.memory import Load
from tilewright.ir.ops.shape import Broadcast, ExpandDims, Permute, Reshape, Splat
from tilewright.ir.types import F16, F32, F64, I1, FloatType, TileType, element_type, shape_of
from tilewright.llvm.emission.casts import emit_cast
from tilewright.passes.analysis.transfer_functions import unit_reshape
from tilewright.passes.rewriter import constant_of
from tilewright_cpu.codegen.analysis.mask_bounds import Axes, operand_axes
from tilewright_cpu.codegen.analysis.strides import stride_along
from tilewright_cpu.codegen.context import ZERO, Context, Index

_COMPARABLE: Final = (F16, F32, F64)


class Condition:
    """Run-time check that a fold of masked-off lanes relies on.

    ``value PREDICATE number`` must hold in the row at hand, for a float; ``finite``: neither NaN
    nor infinite.
    """

    __slots__ = ("axes", "number", "predicate", "value")

    def __init__(self, value: Value, axes: Axes, predicate: str, number: float) -> None:
        self.value, self.axes, self.predicate, self.number = value, axes, predicate, number


class MaskedOffLanes:
    """Folder of tiles to a number, for lanes where the comparison ``leaf`` is false.

    ``conditions`` are the run-time checks that the folds rely on.
    """

    def __init__(self, context: Context, leaf: Value, lane: int) -> None:
        self.context, self.leaf, self.lane = context, leaf, lane
        self.conditions: list[Condition] = []
        self._memo: dict[tuple[Value, Axes], int | float | bool | None] = {}

    def fold(self, value: Value, axes: Axes) -> int | float | bool | None:
        """Number that ``value`` is in masked-off lanes, None where it is not known."""
        if not isinstance(value.type, TileType):
            number: int | float | bool | None = constant_of(value)
            return number
        value = self.context.resolve(value)
        key = (value, axes)
        if key not in self._memo:
            self._memo[key] = None
            self._memo[key] = self._fold(value, axes)
        return self._memo[key]

    def _fold(self, value: Value, axes: Axes) -> int | float | bool | None:
        context = self.context
        if value is self.leaf:
            return False
        partial = context.partial.get(value)
        if partial is not None and partial.leaf is self.leaf and partial.certain:
            return partial.number
        if value in context.buffers:
            return None
        operation = value.definition
        if operation is None:
            return None
        name, operands = operation.name, operation.operands

        def inner(number: int) -> int | float | bool | None:
            return self.fold(operands[number], operand_axes(value, axes, number))

        if isinstance(operation, Splat):
            return self.fold(operands[0], ())
        if isinstance(operation, Broadcast | ExpandDims | Permute | Hint):
            return inner(0)
        if (
            isinstance(operation, Reshape)
            and unit_reshape(shape_of(operands[0].type), shape_of(value.type)) is not None
        ):
            return inner(0)
        if isinstance(operation, Load):
            if len(operands) < 2 or inner(1) is not False:
                return None
            return inner(2) if len(operands) == 3 else 0
        if name == "and":
            a, b = inner(0), inner(1)
            if element_type(value.type) is I1 and (a is False or b is False):
                return False
            return None
        if isinstance(operation, Select):
            condition = inner(0)
            return None if condition is None else inner(1) if condition else inner(2)
        if not operation.spec.elementwise or not isinstance(element_type(value.type), FloatType):
            return None
        numbers = [inner(number) for number in range(len(operands))]
        if isinstance(operation, Cast):
            return float(numbers[0]) if numbers[0] in (0, math.inf, -math.inf) else None
        if name in ("exp", "exp2"):
            return 0.0 if numbers[0] == -math.inf else 1.0 if numbers[0] == 0 else None
        if name == "neg":
            return None if numbers[0] is None else -numbers[0]
        if name in ("add", "sub", "mul", "div"):
            return self._arithmetic(name, value, axes, numbers)
        return None

    def _arithmetic(
        self, name: str, value: Value, axes: Axes, numbers: list[int | float | bool | None]
    ) -> float | None:
        operation = value.definition
        assert operation is not None
        a, b = numbers
        if a is not None and b is not None:
            try:
                exact = {"add": a + b, "sub": a - b, "mul": a * b}.get(name)
            except (OverflowError, ValueError):
                return None
            return float(exact) if exact in (0, 1, math.inf, -math.inf) else None
        at = 1 if a is not None else 0
        known = b if a is None else a
        if known is None or (name == "div" and at == 0):
            return None
        other = operation.operands[at]
        other_axes = operand_axes(value, axes, at)
        if not self._uniform(other, other_axes):
            return None

        def requires(predicate: str, number: float) -> None:
            self.conditions.append(Condition(other, other_axes, predicate, number))

        if known in (math.inf, -math.inf):
            if name == "mul":
                requires("ogt", 0.0)
                return float(known)
            if name == "div":
                return None
            result = -known if name == "sub" and at == 0 else known
            # inf - inf and anything with NaN is NaN
            opposite = known if name == "sub" else -known
            requires("ogt" if opposite < 0 else "olt", float(opposite))
            return float(result)
        if known == 0 and name == "mul":
            requires("finite", 0.0)
            return 0.0
        if known == 0 and name == "div":
            requires("ogt", 0.0)
            return 0.0
        return None

    def _uniform(self, value: Value, axes: Axes) -> bool:
        if not isinstance(value.type, TileType):
            return True
        return (
            self.lane not in axes or stride_along(self.context, value, axes.index(self.lane)) == 0
        )

    def emit_conditions(self, index: Index) -> str | None:
        """All conditions in the row ``index`` as one i1; None where there are none."""

        context, writer = self.context, self.context.writer
        result: str | None = None
        for condition in self.conditions:
            element = element_type(condition.value.type)
            own: Index = tuple(
                ZERO if axis is None or axis == self.lane else index[axis]
                for axis in condition.axes
            )
            text = context.evaluate(condition.value, own)
            if element not in _COMPARABLE:
                text, element = emit_cast(context, text, element, F32, 0), F32
            type_ = context.llvm_type(element)
            if condition.predicate == "finite":
                size = writer.intrinsic("llvm.fabs", type_, [(type_, text)])
                check = writer.emit(
                    f"fcmp olt {type_} {size}, {context.constant(element, math.inf)}"
                )
            else:
                check = writer.emit(
                    f"fcmp {condition.predicate} {type_} {text}, "
                    f"{context.constant(element, condition.number)}"
                )
            result = check if result is None else writer.emit(f"and i1 {result}, {check}")
        return result
