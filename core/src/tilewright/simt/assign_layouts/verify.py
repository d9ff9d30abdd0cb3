"""Verifier of the layout constraints of a whole function."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.core import Function, Operation, Region, Value
from tilewright.ir.ops.control import Condition, For, If, While, Yield
from tilewright.ir.types import TileType
from tilewright.simt.dialect.attributes import layout_of
from tilewright.simt.dialect.layout_rules import (
    SHAPE_OPERATIONS,
    LayoutError,
    one_layout,
    shape_rule,
    tile_layouts,
)
from tilewright.simt.dialect.loop_carried import CARRIERS
from tilewright.simt.dialect.registry import interface_of
from tilewright.simt.layouts.linear_layout import span
from tilewright.simt.target.simt_target import SimtTarget


def check(function: Function, target: SimtTarget) -> None:
    """Check that all tiles have layouts and all operations support their operands' layouts.

    Raises:
        LayoutError: naming operation and rule.
    """
    for argument in function.arguments:
        _check_value(argument, function.name)
    for operation in function.walk():
        for value in (
            *operation.results,
            *(argument for region in operation.regions for argument in region.arguments),
        ):
            _check_value(value, operation.name)
        _check_operation(operation, target)


def _check_value(value: Value, where: str) -> None:
    if not isinstance(value.type, TileType):
        return
    if value.layout is None:
        raise LayoutError(f"{where}: {value} has no layout")
    layout = layout_of(value)
    if layout.shape != value.type.shape:
        raise LayoutError(f"{where}: {value} has a layout of shape {layout.shape}")
    if len(set(span(layout.registers))) != layout.register_count:
        raise LayoutError(f"{where}: {value} has an element twice in a thread: {layout}")
    if not layout.covers:
        raise LayoutError(f"{where}: {value} has elements that no thread holds: {layout}")


def _check_operation(operation: Operation, target: SimtTarget) -> None:
    name = operation.name
    interface = interface_of(target, name)
    rule = ""
    if isinstance(operation, CARRIERS):
        _check_carriers(operation)
    elif interface is not None:
        rule = interface.check(operation, target) if interface.check is not None else ""
    elif operation.spec.elementwise:
        rule = one_layout(operation, target)
    if not rule and name in SHAPE_OPERATIONS and isinstance(operation.results[0].type, TileType):
        rule = shape_rule(operation)
    if rule:
        raise LayoutError(
            f"{name} at {operation.location}: {rule}: "
            f"{'; '.join(map(str, tile_layouts(operation)))}"
        )


def _check_carriers(operation: Operation) -> None:
    if isinstance(operation, For):
        _check_carried(
            operation.inits,
            operation.body.arguments[1:],
            _given(operation.body),
            operation.results,
            operation,
        )
    elif isinstance(operation, While):
        before, after = operation.before, operation.after
        _check_carried(
            operation.inits, before.arguments, _given(after), before.arguments, operation
        )
        _check_carried(
            _given(before), after.arguments, operation.results, operation.results, operation
        )
    else:
        assert isinstance(operation, If)
        values = _given(operation.then)
        _check_carried(values, values, _given(operation.else_), operation.results, operation)


def _check_carried(
    a: Sequence[Value],
    b: Sequence[Value],
    c: Sequence[Value],
    d: Sequence[Value],
    operation: Operation,
) -> None:
    if not len(a) == len(b) == len(c) == len(d):
        raise LayoutError(
            f"{operation.name} at {operation.location}: counts of carried values differ: {len(a)}, "
            f"{len(b)}, {len(c)}, {len(d)}"
        )
    for values in zip(a, b, c, d, strict=True):
        if len({value.layout for value in values}) > 1:
            text = "; ".join(str(value.layout) for value in values)
            raise LayoutError(
                f"{operation.name} at {operation.location}: a carried value changes its "
                f"layout: {text}"
            )


def _given(region: Region) -> list[Value]:
    """Operands of a region's terminator."""
    last = region.terminator
    assert isinstance(last, Yield | Condition)
    return last.values
