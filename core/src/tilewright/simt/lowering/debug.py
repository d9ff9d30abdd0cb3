"""Lowering of prints and assertions."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.ir import print_lines
from tilewright.ir.core import Value
from tilewright.ir.ops.debug import Assert, Print
from tilewright.ir.types import (
    F64,
    I1,
    FloatType,
    IntType,
    PointerType,
    TileType,
    Type,
    element_type,
    shape_of,
)
from tilewright.llvm.emission.casts import emit_cast
from tilewright.llvm.emission.registers import register_type
from tilewright.simt.assign_layouts import shape_rules
from tilewright.simt.dialect.op_interface import Interface
from tilewright.simt.dialect.registry import register_interfaces
from tilewright.simt.layouts.linear_layout import axis_shifts
from tilewright.simt.lowering.emission.broadcast import both
from tilewright.simt.lowering.emission.context import SimtContext
from tilewright.simt.lowering.index import element_numbers

# ---- print


def lower_print(context: SimtContext, operation: Print) -> None:
    """Print each element by one of the threads that hold it.

    The first thread prints scalars and bare prefixes, or every thread with ``each_thread``.
    """
    with context.at_entry() as w:
        program = [("i32", context.target.threads.program_id(w, axis)) for axis in range(3)]
    prefix, count = operation.prefix, len(operation.values)
    if not count:
        text = print_lines.message(("%d", "%d", "%d"), prefix.replace("%", "%%"))
        context.target.debugging.print(
            context, f"{text}\n", program, _printer(context, operation, None)
        )
    for position, value in enumerate(operation.values):
        shape = shape_of(value.type)
        printer = _printer(context, operation, value)
        text, convert = _format(element_type(value.type), hexadecimal=operation.hex)
        form = (
            f"{print_lines.program_text(('%d', '%d', '%d'))} "
            f"{print_lines.template(prefix, shape, position, count)}{text}\n"
        )
        for name, index in zip(context.registers[value], _indices(context, value), strict=True):
            context.target.debugging.print(
                context, form, [*program, *index, convert(context, name)], printer
            )


def _printer(context: SimtContext, operation: Print, value: Value | None) -> str | None:
    """Return the condition of the threads that print a value (None for a bare prefix).

    The condition is None if every thread prints.
    """
    if value is not None and shape_of(value.type):
        condition = context.is_owner(context.layout(value))
    else:
        condition = "true" if operation.each_thread else context.is_first_thread()
    return None if condition == "true" else condition


def _indices(context: SimtContext, value: Value) -> list[list[tuple[str, str]]]:
    """Emit the coordinates of each register's element as (type, name)."""
    if not isinstance(value.type, TileType):
        return [[]]
    w, shape = context.writer, value.type.shape
    found = []
    for number in element_numbers(context, context.layout(value)):
        index = []
        for shift, extent in zip(axis_shifts(shape), shape, strict=True):
            moved = w.emit(f"lshr i32 {number}, {shift}") if shift else number
            index.append(("i32", w.emit(f"and i32 {moved}, {extent - 1}")))
        found.append(index)
    return found


#: Converts a value to the argument of a C format: (type, name).
Conversion = Callable[[SimtContext, str], tuple[str, str]]


def _format(element: Type, *, hexadecimal: bool) -> tuple[str, Conversion]:
    """Return the C format of an element, and the conversion to its argument.

    Integers print in decimal, or in hexadecimal of their full width; floats with six decimals;
    booleans as 0 and 1.
    """
    if isinstance(element, PointerType):
        return "0x%016llx", lambda context, name: (
            "i64",
            context.writer.emit(f"ptrtoint ptr {name} to i64"),
        )
    if isinstance(element, FloatType):
        return "%f", lambda context, name: ("double", _double(context, name, element))
    assert isinstance(element, IntType)
    signed = element.signed and not hexadecimal
    long = "ll" if element.bits == 64 else ""
    form = (
        f"0x%0{max(1, element.bits // 4)}{long}x"
        if hexadecimal
        else f"%{long}{'d' if signed or element is I1 else 'u'}"
    )
    wide = max(32, element.bits)

    def convert(context: SimtContext, name: str) -> tuple[str, str]:
        if wide != element.bits:
            name = context.writer.emit(
                f"{'sext' if signed else 'zext'} {register_type(element)} {name} to i32"
            )
        return f"i{wide}", name

    return form, convert


def _double(context: SimtContext, name: str, element: FloatType) -> str:
    """Convert a float to double, with a positive NaN, since C prints the sign of a NaN."""
    w, number = context.writer, emit_cast(context, name, element, F64, 0)
    return w.emit(
        f"select i1 {w.emit(f'fcmp uno double {number}, {number}')}, double 0x7FF8000000000000, "
        f"double {number}"
    )


# ---- assert


def lower_assert(context: SimtContext, operation: Assert) -> None:
    """Fail if some element's condition is false and its mask holds."""
    w, mask = context.writer, operation.mask
    masks = context.registers[mask] if mask is not None else None
    failed = ""
    for i, name in enumerate(context.registers[operation.condition]):
        fails: str | None = w.emit(f"xor i1 {name}, true")
        if masks is not None:
            fails = both(context, fails, masks[i])
        failed = w.emit(f"or i1 {failed}, {fails}") if failed else str(fails)
    place = operation.location
    file, line, function = (
        (place.file, place.line, place.function) if place is not None else ("", 0, "")
    )
    context.target.debugging.fail(context, operation.message, file, line, function, failed)


INTERFACES = register_interfaces(
    {
        "print": Interface(lower_print, shape_rules.each_own),
        "assert": Interface(lower_assert, shape_rules.indifferent),
    }
)
