"""Masks as bounds: which lanes of a row a comparison admits, and what a tile is where it admits none."""

from __future__ import annotations

import math

from tilewright.ir.core import Value
from tilewright.ir.ops.arithmetic import Cmp
from tilewright.ir.ops.debug import Hint
from tilewright.ir.ops.shape import Broadcast, ExpandDims, Permute, Reshape, Splat
from tilewright.ir.types import I1, I64, FloatType, IntType, TileType, element_type, shape_of
from tilewright.llvm.casts import emit_cast
from tilewright.passes.rewriter import constant_of
from tilewright.passes.transfer import unit_reshape
from tilewright_cpu.lowering.context import ZERO, Context, Index
from tilewright_cpu.lowering.evaluate import evaluate, scope_of, with_coordinate
from tilewright_cpu.lowering.strides import form

#: For each axis of a value, the axis of the nest it runs along; None for a coordinate that is always 0.
Axes = tuple[int | None, ...]


def operand_axes(value: Value, axes: Axes, number: int) -> Axes:
    """The axes of operand ``number`` of the lazy operation that makes ``value``, for axes of ``value``."""
    operation = value.definition
    assert operation is not None
    operand = operation.operands[number]
    if not isinstance(operand.type, TileType):
        return ()
    match operation:
        case ExpandDims():
            axis = operation.axis
            return (*axes[:axis], *axes[axis + 1 :])
        case Broadcast():
            return tuple(None if extent == 1 else axis for extent, axis in zip(operand.type.shape, axes, strict=True))
        case Permute():
            found: list[int | None] = [None] * len(axes)
            for axis, origin in enumerate(operation.order):
                found[origin] = axes[axis]
            return tuple(found)
        case Reshape():
            assert isinstance(value.type, TileType)
            mapped = unit_reshape(operand.type.shape, value.type.shape)
            assert mapped is not None
            return tuple(axes[mapped[axis]] if axis in mapped else None for axis in range(operand.type.rank))
    return axes


def conjuncts(context: Context, mask: Value, axes: Axes) -> list[tuple[Value, Axes]]:
    """The conditions that ``mask`` is the conjunction of, each with its axes."""
    found: list[tuple[Value, Axes]] = []
    stack = [(mask, axes)]
    while stack:
        value, here = stack.pop()
        if not isinstance(value.type, TileType):
            continue
        value = context.resolve(value)
        operation = value.definition
        if operation is None or value in context.buffers:
            found.append((value, here))
        elif operation.name == "and" or isinstance(operation, ExpandDims | Broadcast | Permute | Hint):
            stack.extend((operand, operand_axes(value, here, number)) for number, operand in enumerate(operation.operands))
        elif isinstance(operation, Splat):
            found.append((value, here))
        elif isinstance(operation, Reshape) and unit_reshape(shape_of(operation.x.type), shape_of(value.type)) is not None:
            stack.append((operation.x, operand_axes(value, here, 0)))
        else:
            found.append((value, here))
    return found


_FLIPPED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}


class Bound:
    """A comparison that holds for the first lanes of a row and for no later one: ``x0 + step * lane < u`` or the like.

    Attributes:
        leaf: the comparison.
        axis: its axis that is the lane axis.
        axes: its axes in the nest.
    """

    __slots__ = ("axes", "axis", "leaf", "moving", "step", "still", "strict")

    def __init__(self, leaf: Value, axes: Axes, axis: int, moving: Value, still: Value, step: int, strict: bool) -> None:
        self.leaf, self.axes, self.axis, self.moving, self.still, self.step, self.strict = leaf, axes, axis, moving, still, step, strict


def bound_of(context: Context, leaf: Value, axes: Axes, lane: int) -> Bound | None:
    """The comparison ``leaf`` as a bound along the nest's axis ``lane``, if it is one."""
    operation = leaf.definition
    if not isinstance(operation, Cmp) or lane not in axes or leaf in context.buffers:
        return None
    axis = axes.index(lane)
    predicate: str = operation.predicate
    if predicate not in _FLIPPED:
        return None
    a, b = operation.a, operation.b
    element = element_type(a.type)
    if not isinstance(element, IntType) or element is I1 or (element.bits == 64 and not element.signed):
        return None
    step, other = form(context, a, axis), form(context, b, axis)
    if step == 0 and other != 0:
        a, b, step, other, predicate = b, a, other, step, _FLIPPED[predicate]
    if other != 0 or not isinstance(step, int) or step == 0:
        return None
    if (step > 0) != (predicate in ("lt", "le")):
        return None
    if not element.signed:
        return None
    return Bound(leaf, axes, axis, a, b, step, predicate in ("lt", "gt"))


def emit_limit(context: Context, bound: Bound, index: Index, extent: int) -> str:
    """How many lanes of the row ``index`` a bound admits: an i64 between 0 and ``extent``."""

    own: Index = tuple(ZERO if axis is None else index[axis] for axis in bound.axes)
    row = with_coordinate(own, bound.axis, ZERO)
    key = (bound.leaf, (*row, ZERO._replace(width=-1)))

    scope = scope_of(context, row)
    found = scope.memo.get(key)
    if found is not None:
        return found
    element = element_type(bound.moving.type)
    first, end = evaluate(context, bound.moving, row), evaluate(context, bound.still, row)
    writer = context.writer
    saved = writer.current
    if scope is not context.scopes[-1]:
        writer.current = scope.block
    first, end = (emit_cast(context, text, element, I64, 0) for text in (first, end))
    size = abs(bound.step)
    high, low = (end, first) if bound.step > 0 else (first, end)
    distance = high if low == "0" else writer.emit(f"sub i64 {high}, {low}")
    slack = size - 1 if bound.strict else size
    if slack:
        distance = writer.emit(f"add i64 {distance}, {slack}")
    distance = writer.intrinsic("llvm.smax", "i64", [("i64", distance), ("i64", "0")])
    if size > 1:
        distance = writer.emit(f"udiv i64 {distance}, {size}")
    found = writer.intrinsic("llvm.smin", "i64", [("i64", distance), ("i64", str(extent))])
    writer.current = saved
    scope.memo[key] = found
    return found


class Condition:
    """A check that a fold of dead lanes relies on: ``value PREDICATE number`` in the row at hand (a float; ``finite``: not NaN nor infinite)."""

    __slots__ = ("axes", "number", "predicate", "value")

    def __init__(self, value: Value, axes: Axes, predicate: str, number: float) -> None:
        self.value, self.axes, self.predicate, self.number = value, axes, predicate, number


class DeadLanes:
    """Folds tiles to a number for lanes where the comparison ``leaf`` is false. ``conditions`` gathers what the folds rely on."""

    def __init__(self, context: Context, leaf: Value, lane: int) -> None:
        self.context, self.leaf, self.lane = context, leaf, lane
        self.conditions: list[Condition] = []
        self._memo: dict[tuple[Value, Axes], int | float | bool | None] = {}

    def fold(self, value: Value, axes: Axes) -> int | float | bool | None:
        """The number ``value`` is in dead lanes, None where it is not known."""
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

        if name == "splat":
            return self.fold(operands[0], ())
        if name in ("broadcast", "expand_dims", "permute", "hint"):
            return inner(0)
        if name == "reshape" and unit_reshape(shape_of(operands[0].type), shape_of(value.type)) is not None:
            return inner(0)
        if name == "load":
            if len(operands) < 2 or inner(1) is not False:
                return None
            return inner(2) if len(operands) == 3 else 0
        if name == "and":
            a, b = inner(0), inner(1)
            if element_type(value.type) is I1 and (a is False or b is False):
                return False
            return None
        if name == "select":
            condition = inner(0)
            return None if condition is None else inner(1) if condition else inner(2)
        if not operation.spec.elementwise or not isinstance(element_type(value.type), FloatType):
            return None
        numbers = [inner(number) for number in range(len(operands))]
        if name == "cast":
            return float(numbers[0]) if numbers[0] in (0, math.inf, -math.inf) else None
        if name in ("exp", "exp2"):
            return 0.0 if numbers[0] == -math.inf else 1.0 if numbers[0] == 0 else None
        if name == "neg":
            return None if numbers[0] is None else -numbers[0]
        if name in ("add", "sub", "mul", "div"):
            return self._arithmetic(name, value, axes, numbers)
        return None

    def _arithmetic(self, name: str, value: Value, axes: Axes, numbers: list[int | float | bool | None]) -> float | None:
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
        return self.lane not in axes or form(self.context, value, axes.index(self.lane)) == 0

    def emit_conditions(self, index: Index) -> str | None:
        """All conditions in the row ``index`` as one i1; None where there are none."""

        context, writer = self.context, self.context.writer
        result: str | None = None
        for condition in self.conditions:
            element = element_type(condition.value.type)
            own: Index = tuple(ZERO if axis is None or axis == self.lane else index[axis] for axis in condition.axes)
            text = evaluate(context, condition.value, own)
            if element not in (context_float for context_float in _COMPARABLE):
                from tilewright.ir.types import F32

                text, element = emit_cast(context, text, element, F32, 0), F32
            type_ = context.llvm_type(element)
            if condition.predicate == "finite":
                size = writer.intrinsic("llvm.fabs", type_, [(type_, text)])
                check = writer.emit(f"fcmp olt {type_} {size}, {context.constant(element, math.inf)}")
            else:
                check = writer.emit(f"fcmp {condition.predicate} {type_} {text}, {context.constant(element, condition.number)}")
            result = check if result is None else writer.emit(f"and i1 {result}, {check}")
        return result


def _comparable() -> tuple[object, ...]:
    from tilewright.ir.types import F16, F32, F64

    return F16, F32, F64


_COMPARABLE = _comparable()
