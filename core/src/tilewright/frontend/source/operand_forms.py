"""Operands as a kernel's author would write them: without what the language implies.

A splat is a scalar or a number, a broadcast is what is repeated, and a cast to the type in which
the language computes anyway is its operand.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from tilewright.frontend.source.expression_text import (
    Binding,
    SourceExpression,
    atom,
    call_text,
    dtype_text,
    is_plain_number,
    keeps_value,
    list_text,
    number,
    number_text,
    own_type,
)
from tilewright.frontend.source.function_writer import SourceWriter
from tilewright.ir.core import Value
from tilewright.ir.ops.arithmetic import Cast, Constant
from tilewright.ir.ops.shape import Broadcast, Splat
from tilewright.ir.types import (
    F32,
    I32,
    I64,
    FloatType,
    IntType,
    TileType,
    Type,
    element_type,
    shape_of,
    with_element,
)
from tilewright.language.builtin_functions.conversion import common_shape
from tilewright.language.value_types.dtypes import from_ir
from tilewright.language.value_types.promotion import computation_type


def tensor_of_constant(value: float, type_: Type) -> SourceExpression:
    """Return a tensor of one number, of any scalar or tile type."""
    shape = list_text(shape_of(type_)) if shape_of(type_) else "()"
    dtype = dtype_text(type_)
    if isinstance(value, float) and not is_plain_number(value):
        return _nan_by_bits(value, type_)
    is_zero = value == 0 and str(value) in ("0", "0.0") and bool(shape_of(type_))
    if is_zero:
        return atom(call_text("tl.zeros", shape, dtype), type_)
    return atom(call_text("tl.full", shape, number_text(value), dtype), type_)


def _nan_by_bits(value: float, type_: Type) -> SourceExpression:
    """Return a NaN whose sign or payload is not the usual one."""
    element = element_type(type_)
    assert isinstance(element, FloatType)
    (double,) = struct.unpack("<Q", struct.pack("<d", value))
    exponent = (1 << element.exponent) - 1 << element.mantissa
    payload = (double & (1 << 52) - 1) >> 52 - element.mantissa
    sign = double >> 63 << element.bits - 1
    bits = with_element(type_, IntType(element.bits, signed=False))
    whole = tensor_of_constant(sign | exponent | payload, bits)
    return atom(f"{whole.text}.to({dtype_text(element)}, bitcast=True)", type_)


def loose(writer: SourceWriter, value: Value) -> SourceExpression:
    """Return an operand in the smallest form that broadcasts to the value.

    It is a number for a constant, and an expression of fewer axes or of extents of 1 for what is
    repeated.
    """
    definition = value.definition
    if isinstance(definition, Constant):
        found = definition.value
        return (
            number(found, value.type)
            if is_plain_number(found) and isinstance(value.type, IntType | FloatType)
            else exact(writer, value)
        )
    if isinstance(definition, Cast) and value not in writer.names:
        widened = _widened(definition)
        if widened is not None:
            return number(widened, value.type)
    if isinstance(definition, Splat | Broadcast) and value not in writer.names:
        inner = loose(writer, definition.x)
        if inner.is_number:
            element = element_type(value.type)
            return SourceExpression(inner.text, inner.binding, element, inner.number)
        return inner
    return exact(writer, value)


def _widened(cast: Cast) -> int | None:
    """Return the constant integer that a cast widens; None for another cast."""
    constant, target = cast.x.definition, cast.result.type
    if not isinstance(constant, Constant) or not isinstance(target, IntType):
        return None
    found = constant.value
    if isinstance(found, bool | float) or not isinstance(cast.x.type, IntType):
        return None
    return found if target.minimum <= found <= target.maximum else None


def exact(writer: SourceWriter, value: Value) -> SourceExpression:
    """Return a tensor of the value's own type and shape."""
    definition = value.definition
    if value in writer.names or definition is None:
        return atom(writer.name_of(value), value.type)
    if isinstance(definition, Constant):
        return tensor_of_constant(definition.value, value.type)
    if isinstance(definition, Splat | Broadcast):
        inner = loose(writer, definition.x)
        if inner.is_number:
            assert inner.number is not None
            return tensor_of_constant(inner.number, value.type)
        shape = list_text(shape_of(value.type))
        return atom(call_text("tl.broadcast_to", inner.text, shape), value.type)
    return writer.expression(value)


def strong(writer: SourceWriter, value: Value, *, broadcast: bool = True) -> SourceExpression:
    """Return an operand to which a number of the program text brings its own type.

    Args:
        broadcast: whether it is broadcast to where it is read.
    """
    found = loose(writer, value) if broadcast else exact_or_number(writer, value)
    if not found.is_number:
        return found
    assert found.number is not None
    if keeps_value(found.number, element_type(value.type)):
        return found
    return tensor_of_constant(found.number, element_type(value.type) if broadcast else value.type)


def exact_or_number(writer: SourceWriter, value: Value) -> SourceExpression:
    """Return a scalar constant as a number, anything else as it is."""
    definition = value.definition
    if isinstance(definition, Constant):
        return loose(writer, value)
    return exact(writer, value)


def converted(writer: SourceWriter, value: Value, element: Type) -> SourceExpression:
    """Return an operand that is cast to ``element`` and broadcast where it is read."""
    source = uncast(writer, value)
    if source is not None:
        return strong(writer, source)
    found = loose(writer, value)
    if found.is_number:
        assert found.number is not None
        if not keeps_value(found.number, element) and not _casts_to(found.number, element):
            return tensor_of_constant(found.number, element)
    return found


def _casts_to(value: float, element: Type) -> bool:
    """Return whether a number that stands alone becomes the same constant by a cast."""
    if isinstance(element, FloatType):
        # what an 8-bit format does not hold becomes something else by a cast
        held = element.bits > 8 or value in (0.0, 1.0)
        return held and isinstance(value, float) and keeps_value(value, F32) and value == value
    return keeps_value(value, I32) or keeps_value(value, I64)


def uncast(writer: SourceWriter, value: Value) -> Value | None:
    """Return the operand of a cast that is written here alone, as the language would cast it."""
    definition = value.definition
    if not isinstance(definition, Cast) or not writer.is_inlined(value):
        return None
    source, target = element_type(definition.x.type), element_type(value.type)
    if definition.rounding != "rtne":
        return None
    if isinstance(source, IntType) and isinstance(target, IntType) and source.bits == target.bits:
        return None
    return definition.x


def promoted(
    writer: SourceWriter,
    values: Sequence[Value],
    *,
    comparison: bool = False,
    casts: bool = True,
    division: bool = False,
) -> list[SourceExpression]:
    """Return operands of one type, as an operator that promotes and broadcasts takes them.

    Args:
        comparison: numbers of the program text bring their own types.
        casts: leave out the cast of one of two operands where promotion casts it.
        division: the operator divides.
    """
    type_ = values[0].type
    forms = [loose(writer, value) for value in values]
    if comparison:
        forms = [x if _promotes(x, type_) else exact_scalar(x, type_) for x in forms]
    if casts and len(values) == 2:
        forms = _without_cast(writer, values, forms, division)
    needed = [i for i, form in enumerate(forms) if not form.is_number]
    if not needed:
        forms[0] = exact(writer, values[0])
    if _common(forms) != shape_of(type_):
        place = next((i for i in needed if forms[i].type is type_), needed[0] if needed else 0)
        forms[place] = exact(writer, values[place])
    return forms


def _promotes(form: SourceExpression, type_: Type) -> bool:
    """Return whether a number, with a type of its own, becomes a constant of a tensor's type."""
    if form.number is None:
        return True
    own, element = own_type(form.number), element_type(type_)
    same = keeps_value(form.number, own)
    return same and computation_type(from_ir(own), False, from_ir(element), False) is from_ir(
        element
    )


def exact_scalar(form: SourceExpression, type_: Type) -> SourceExpression:
    """Return a number as a scalar tensor; a tensor as it is."""
    if form.number is None:
        return form
    return tensor_of_constant(form.number, element_type(type_))


def _common(forms: Sequence[SourceExpression]) -> tuple[int, ...]:
    """Return the shape to which operands broadcast."""
    shape: tuple[int, ...] = ()
    for form in forms:
        mine = () if form.is_number else shape_of(form.type)
        shape = common_shape(shape, mine) if shape and mine else shape or mine
    return shape


def _without_cast(
    writer: SourceWriter,
    values: Sequence[Value],
    forms: list[SourceExpression],
    division: bool,
) -> list[SourceExpression]:
    """Return the operands without a cast that promotion makes."""
    target = from_ir(element_type(values[0].type))
    for i, j in ((0, 1), (1, 0)):
        source = uncast(writer, values[i])
        if source is None or forms[j].is_number or uncast(writer, values[j]) is not None:
            continue
        own = from_ir(element_type(source.type))
        if own.is_int1() or own.is_fp8() or not _same_kind(own.ir_type, target.ir_type):
            continue
        try:
            found = computation_type(own, False, target, False, division)
        except TypeError:
            continue
        if found is target:
            forms[i] = exact(writer, source)
            return forms
    return forms


def _same_kind(a: Type, b: Type) -> bool:
    """Return whether both are floats, or integers of one signedness."""
    if isinstance(a, IntType) and isinstance(b, IntType):
        return a.signed == b.signed
    return isinstance(a, FloatType) and isinstance(b, FloatType)


def spread(writer: SourceWriter, value: Value, like: Value) -> SourceExpression:
    """Return an operand that is broadcast to the shape of ``like``: a mask, an ``other``."""
    found = strong(writer, value)
    return found if fits(found, like.type) else exact(writer, value)


def fits(form: SourceExpression, type_: Type) -> bool:
    """Return whether an operand broadcasts to the shape of a type."""
    return form.is_number or isinstance(type_, TileType) or not shape_of(form.type)


def infix(
    left: SourceExpression, operator: str, right: SourceExpression, binding: Binding, type_: Type
) -> SourceExpression:
    """Return ``left operator right``, which groups to the left."""
    tighter = Binding(binding + 1)
    first = tighter if binding is Binding.COMPARISON else binding
    text = f"{left.within(first)} {operator} {right.within(tighter)}"
    return SourceExpression(text, binding, type_)
