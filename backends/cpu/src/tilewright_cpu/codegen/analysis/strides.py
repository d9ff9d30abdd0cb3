"""Strides of tiles along each axis: zero, constant, symbolic or unknown.

Index arithmetic is assumed not to overflow within a tile where it is signed: an ``i32`` offset that
grows by one a lane keeps growing by one when it is widened to 64 bits. Unsigned arithmetic may wrap
around, so widening it keeps only what is uniform.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

from tilewright.ir.core import Operation, Value
from tilewright.ir.ops.arithmetic import Addptr, Arange, Binary, Bitcast, Cast, Select
from tilewright.ir.ops.debug import Hint
from tilewright.ir.ops.memory import Load
from tilewright.ir.ops.shape import Moved
from tilewright.ir.types import I1, IntType, PointerType, TileType, element_type
from tilewright.llvm.emission.registers import storage_size
from tilewright.passes.analysis.transfer_functions import TRANSFER, Domain, Rule, moved_axes
from tilewright.passes.rewriter import constant_of
from tilewright_cpu.codegen.context import Context


class _Symbolic:
    """A constant step that is only known when the kernel runs."""

    def __repr__(self) -> str:
        return "SYMBOLIC"


SYMBOLIC: Final = _Symbolic()
#: A step from one lane to the next (bytes for pointers), SYMBOLIC, or None for anything else.
AxisStride = int | _Symbolic | None
#: A step for each axis.
AxisStrides = tuple[AxisStride, ...]


def stride_along(context: Context, value: Value, axis: int) -> AxisStride:
    """Stride of ``value`` along ``axis``, all other coordinates fixed."""
    type_ = value.type
    if not isinstance(type_, TileType) or type_.shape[axis] == 1:
        return 0
    return _axis_strides(context, value, type_)[axis]


def _axis_strides(context: Context, value: Value, type_: TileType) -> AxisStrides:
    value = context.resolve(value)
    known = context.axis_strides.get(value)
    if known is not None:
        return known
    operation = value.definition
    found: AxisStrides = (None,) * type_.rank
    if context.analysis.is_deep(value):
        pass  # it is in memory, and what it is made of may be any number of operations away
    elif value in context.consecutive and value in context.assumed:
        found = (1,)
    elif operation is not None and (operation.name in _STRIDES.rules or operation.spec.elementwise):
        operands = [
            _axis_strides(context, operand, operand.type)
            if isinstance(operand.type, TileType)
            else ()
            for operand in operation.operands
        ]
        found = _STRIDES.transfer(operation, operands)
    found = tuple(
        [0 if extent == 1 else step for step, extent in zip(found, type_.shape, strict=True)]
    )
    context.axis_strides[value] = found
    return found


class _Strides(Domain[AxisStrides]):
    def transfer(self, operation: Operation, facts: Sequence[AxisStrides]) -> AxisStrides:
        if not operation.spec.elementwise or isinstance(operation, Hint):
            return super().transfer(operation, facts)
        equal = self.opaque(operation, facts)
        element = element_type(operation.result.type)
        if (
            not any(step is None for step in equal)
            or not isinstance(element, IntType | PointerType)
            or element is I1
        ):
            return equal
        return tuple(
            [
                0 if same == 0 else step
                for same, step in zip(equal, super().transfer(operation, facts), strict=True)
            ]
        )

    def opaque(self, operation: Operation, facts: Sequence[AxisStrides]) -> AxisStrides:
        """Equal operands give equal results."""
        return tuple(
            [0 if all(step == 0 for step in steps) else None for steps in zip(*facts, strict=True)]
        )

    def arange(self, operation: Arange) -> AxisStrides:
        return (1,)

    def sum(
        self, operation: Binary | Addptr, a: AxisStrides, b: AxisStrides, sign: int
    ) -> AxisStrides:
        if not isinstance(operation, Addptr):
            return tuple([_plus(left, right, sign) for left, right in zip(a, b, strict=True)])
        kind, pointer = (element_type(operation.offset.type), element_type(operation.result.type))
        assert isinstance(kind, IntType) and isinstance(pointer, PointerType)
        size, wraps = storage_size(pointer.pointee), not kind.signed and kind.bits < 64
        return tuple(
            [
                _plus(left, None if wraps and right != 0 else _times(right, size), 1)
                for left, right in zip(a, b, strict=True)
            ]
        )

    def multiple(self, operation: Operation, x: AxisStrides, factor: int) -> AxisStrides:
        return tuple([_times(step, factor) for step in x])

    def product(self, operation: Binary, a: AxisStrides, b: AxisStrides) -> AxisStrides:
        factors = [constant_of(operand) for operand in (operation.a, operation.b)]
        return tuple(
            [
                _times(left, factors[1])
                if right == 0
                else _times(right, factors[0])
                if left == 0
                else None
                for left, right in zip(a, b, strict=True)
            ]
        )

    def shift(self, operation: Binary, x: AxisStrides, amount: AxisStrides) -> AxisStrides:
        return tuple(
            [_times(step, None) if by == 0 else None for step, by in zip(x, amount, strict=True)]
        )

    def choice(
        self, operation: Select, condition: AxisStrides, a: AxisStrides, b: AxisStrides
    ) -> AxisStrides:
        known = [
            same == 0 and isinstance(left, int) and left == right
            for same, left, right in zip(condition, a, b, strict=True)
        ]
        return tuple([step if one else None for step, one in zip(a, known, strict=True)])

    def cast(self, operation: Cast, x: AxisStrides) -> AxisStrides:
        source, element = element_type(operation.x.type), element_type(operation.result.type)
        if not isinstance(source, IntType) or not isinstance(element, IntType) or element.bits < 32:
            return self.opaque(operation, (x,))
        return x if source.signed or source.bits == element.bits else self.opaque(operation, (x,))

    def bitcast(self, operation: Bitcast, x: AxisStrides) -> AxisStrides:
        return (
            x
            if isinstance(element_type(operation.x.type), PointerType | IntType)
            else self.opaque(operation, (x,))
        )

    def moved(self, operation: Moved, x: AxisStrides) -> AxisStrides:
        type_ = operation.result.type
        assert isinstance(type_, TileType)
        if not x or all(step == 0 for step in x):
            return (0,) * type_.rank
        axes = moved_axes(operation, in_order=True)
        if axes is None:
            return (None,) * type_.rank
        found: list[AxisStride] = [0] * type_.rank
        source = operation.x.type
        assert isinstance(source, TileType)
        for axis, step in enumerate(x):
            if source.shape[axis] > 1:
                found[axes(axis)] = step
        return tuple(found)

    def hinted(self, operation: Hint, x: AxisStrides) -> AxisStrides:
        return x

    def load(self, operation: Load, facts: Sequence[AxisStrides]) -> AxisStrides:
        found = self.opaque(operation, facts)
        return (None,) * len(found) if operation.volatile else found

    rules: ClassVar[Mapping[str, Rule]] = {
        **TRANSFER,
        "load": lambda strides, operation, facts: strides.load(operation, facts),
    }


_STRIDES: Final = _Strides()


def _plus(a: AxisStride, b: AxisStride, sign: int) -> AxisStride:
    if a is None or b is None:
        return None
    return a + sign * b if isinstance(a, int) and isinstance(b, int) else SYMBOLIC


def _times(step: AxisStride, factor: int | float | bool | None) -> AxisStride:
    """The step times a uniform number, which is not known where it is None."""
    if step is None:
        return None
    return step * int(factor) if isinstance(step, int) and factor is not None else SYMBOLIC
