"""How a tile changes along one of its axes: not at all, by a constant step, or in no known way.

Index arithmetic is taken not to overflow within a tile where it is signed: an ``i32`` offset that grows by one a lane keeps growing by one when
it is widened to 64 bits. Unsigned arithmetic may wrap around, so widening it keeps only what is uniform.
"""

from __future__ import annotations

from typing import Final

from tilewright.ir.core import Value
from tilewright.ir.types import I1, IntType, PointerType, TileType, element_type
from tilewright.llvm.registers import storage_size
from tilewright_cpu.lowering.analysis import unit_reshape
from tilewright_cpu.lowering.context import Context


class _Symbolic:
    """A constant step that is only known when the kernel runs."""

    def __repr__(self) -> str:
        return "SYMBOLIC"


SYMBOLIC: Final = _Symbolic()
#: A step from one lane to the next (bytes for pointers), SYMBOLIC, or None for anything else.
Form = int | _Symbolic | None


def form(context: Context, value: Value, axis: int) -> Form:
    """The step of ``value`` along ``axis``, all other coordinates fixed."""
    type_ = value.type
    if not isinstance(type_, TileType) or type_.shape[axis] == 1:
        return 0
    value = context.resolve(value)
    if value in context.analysis.deep:
        return None  # it is in memory, and what it is made of may be any number of operations away
    key = (value, axis)
    try:
        return context.forms[key]
    except KeyError:
        pass
    found = context.forms[key] = 1 if value in context.consecutive and value in context.assumed else _form(context, value, axis)
    return found


def is_uniform(context: Context, value: Value, axis: int) -> bool:
    return form(context, value, axis) == 0


def constant_value(value: Value) -> int | float | bool | None:
    """The number that a scalar constant, or every element of a tile made from one, has."""
    operation = value.definition
    while operation is not None:
        if operation.name == "constant":
            return operation.attribute("value")
        if operation.name not in ("splat", "broadcast", "expand_dims", "reshape", "permute", "hint"):
            return None
        operation = operation.operands[0].definition
    return None


def _sum(a: Form, b: Form, sign: int = 1) -> Form:
    if a is None or b is None:
        return None
    if isinstance(a, int) and isinstance(b, int):
        return a + sign * b
    return SYMBOLIC


def _form(context: Context, value: Value, axis: int) -> Form:
    operation = value.definition
    if operation is None:
        return None
    name, operands = operation.name, operation.operands
    match name:
        case "splat":
            return 0
        case "arange":
            return 1
        case "expand_dims":
            return form(context, operands[0], axis - 1 if axis > operation.attribute("axis") else axis)
        case "broadcast":
            return form(context, operands[0], axis)
        case "permute":
            return form(context, operands[0], operation.attribute("order")[axis])
        case "reshape":
            source, result = operands[0].type, value.type
            assert isinstance(source, TileType) and isinstance(result, TileType)
            axes = unit_reshape(source.shape, result.shape)
            if axes is not None:
                return form(context, operands[0], axes.index(axis))
            return 0 if all(form(context, operands[0], k) == 0 for k in range(source.rank)) else None
        case "hint":
            return form(context, operands[0], axis)
        case "addptr":
            pointer, offset = form(context, operands[0], axis), form(context, operands[1], axis)
            kind = element_type(operands[1].type)
            assert isinstance(kind, IntType)
            if offset != 0 and not kind.signed and kind.bits < 64:
                return None
            pointee = element_type(value.type)
            assert isinstance(pointee, PointerType)
            return _sum(pointer, offset * storage_size(pointee.pointee) if isinstance(offset, int) else offset)
        case "load":
            return 0 if all(form(context, operand, axis) == 0 for operand in operands) and not operation.attribute("volatile") else None
    if not operation.spec.elementwise:
        return None
    forms = [form(context, operand, axis) for operand in operands]
    if all(found == 0 for found in forms):
        return 0
    element = element_type(value.type)
    if not isinstance(element, IntType | PointerType) or element is I1:
        return None
    match name:
        case "add":
            return _sum(forms[0], forms[1])
        case "sub":
            return _sum(forms[0], forms[1], -1)
        case "neg":
            return -forms[0] if isinstance(forms[0], int) else forms[0]
        case "mul" if 0 in forms and None not in forms:
            at = forms.index(0)
            step, factor = forms[1 - at], constant_value(operands[at])
            return step * int(factor) if isinstance(step, int) and factor is not None else SYMBOLIC
        case "shl" if forms[1] == 0 and forms[0] is not None:
            shift = constant_value(operands[1])
            return forms[0] << int(shift) if isinstance(forms[0], int) and shift is not None and 0 <= shift < 64 else SYMBOLIC
        case "cast":
            source = element_type(operands[0].type)
            if not isinstance(source, IntType) or not isinstance(element, IntType) or element.bits < 32:
                return None
            return forms[0] if source.signed or source.bits == element.bits else None
        case "bitcast":
            source = element_type(operands[0].type)
            return forms[0] if isinstance(source, PointerType | IntType) else None
        case "select" if forms[0] == 0 and forms[1] is not None and forms[1] == forms[2]:
            return forms[1] if isinstance(forms[1], int) else None
    return None
