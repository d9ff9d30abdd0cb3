"""Prints, hints, assembly and functions of other libraries.

``print`` calls the function ``tilewright_print`` once an element, which the runtime exports:

    void tilewright_print(const char *head, const char *element, int32_t x, int32_t y, int32_t z,
                          const int64_t *index, int32_t rank, uint64_t bits, int32_t hexadecimal)

``head`` is the %-format of what stands before the element (see ``ir/print_lines.py``), which its
coordinates fill. ``element`` is the text of the element's IR type; it is empty for a statement
without values, whose ``head`` is then its prefix. ``bits`` are an integer's value widened to 64
bits by its own signedness, or a float's own bits in the low bytes. A scalar has rank 0.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tilewright.errors import LoweringError
from tilewright.ir.core import Value
from tilewright.ir.ops.debug import Assume, Extern, InlineAsm, Print
from tilewright.ir.print_lines import template
from tilewright.ir.types import (
    I1,
    FloatType,
    IntType,
    PointerType,
    TileType,
    Type,
    element_type,
    shape_of,
)
from tilewright.llvm.assembly.assembly_operands import (
    AssemblyOperand,
    from_operands,
    operand_types,
    to_operands,
)
from tilewright.llvm.assembly.assembly_sites import blamed_at, site
from tilewright.llvm.emission.registers import constant, register_type
from tilewright_cpu.codegen.context import Buffer, Context
from tilewright_cpu.codegen.loops.strip_loop import for_each, viewed

PRINT_SYMBOL = "tilewright_print"
_PRINT_PARAMETERS = ("ptr", "ptr", "i32", "i32", "i32", "ptr", "i32", "i64", "i32")


# ---- print


def lower_print(context: Context, operation: Print) -> None:
    """One call an element, in row-major order."""
    w = context.writer
    prefix, count = operation.prefix, len(operation.values)
    hexadecimal = "1" if operation.hex else "0"

    def call(head: str, element: Type | None, index: str, rank: int, text: str) -> None:
        kind = w.module.string(b"" if element is None else str(element).encode())
        bits = text if element is None else _bits64(context, text, element)
        values = (
            w.module.string(head.encode()),
            kind,
            *context.program_ids,
            index,
            str(rank),
            bits,
            hexadecimal,
        )
        w.call(PRINT_SYMBOL, "void", list(zip(_PRINT_PARAMETERS, values, strict=True)))

    if not count:
        call(prefix, None, "null", 0, "0")
    for position, value in enumerate(operation.values):
        head, element = (
            template(prefix, shape_of(value.type), position, count),
            element_type(value.type),
        )
        if isinstance(value.type, TileType):
            coordinates = w.alloca("i64", value.type.rank)
            _each_element(
                context,
                context.materialize(value),
                coordinates,
                functools.partial(call, head, element, coordinates, value.type.rank),
            )
        else:
            call(head, element, "null", 0, context.scalar(value))


def _each_element(
    context: Context, buffer: Buffer, coordinates: str, body: Callable[[str], None]
) -> None:
    """Run ``body`` on every element, with its coordinates in memory."""
    w = context.writer

    def axis(position: int, index: tuple[str, ...]) -> None:
        if position == len(buffer.shape):
            body(context.load_element(buffer, index))
            return

        def step(coordinate: str) -> None:
            w.store("i64", coordinate, w.gep("i64", coordinates, position), 8)
            axis(position + 1, (*index, coordinate))

        for_each(w, buffer.shape[position], step)

    axis(0, ())


def _bits64(context: Context, name: str, element: Type) -> str:
    """A number or pointer in register form as 64 bits."""
    w, type_ = context.writer, register_type(element)
    if isinstance(element, PointerType):
        return w.emit(f"ptrtoint ptr {name} to i64")
    if isinstance(element, FloatType) and type_[0] != "i":
        name, type_ = w.emit(f"bitcast {type_} {name} to i{element.bits}"), f"i{element.bits}"
    if type_ == "i64":
        return name
    signed = isinstance(element, IntType) and element.signed
    return w.emit(f"{'sext' if signed else 'zext'} {type_} {name} to i64")


# ---- hints


def lower_assume(context: Context, operation: Assume) -> None:
    """Tell LLVM that the condition holds; a constant says nothing."""
    condition = context.scalar(operation.condition)
    if condition.startswith("%"):
        context.writer.call("llvm.assume", "void", [("i1", condition)])


# ---- assembly


def lower_inline_asm(context: Context, operation: InlineAsm) -> None:
    """Run inline assembly on every group of ``pack`` elements."""
    pack = operation.pack
    text = _assembly_text(context, operation)

    def run(groups: list[list[str]]) -> list[list[str]]:
        w = context.writer
        arguments: list[AssemblyOperand] = []
        for value, names in zip(operation.inputs, groups, strict=True):
            arguments += to_operands(w, element_type(value.type), names)
        outputs = [operand_types(element_type(value.type), pack) for value in operation.results]
        types = [result.type for group in outputs for result in group]
        listed = ", ".join(f"{operand.type} {operand.name}" for operand in arguments)
        result_type = (
            "void" if not types else types[0] if len(types) == 1 else f"{{ {', '.join(types)} }}"
        )
        call = f"call {result_type} asm {text}({listed}){site(w.module, operation.location)}"
        if not types:
            w.do(call)
            return []
        packed = w.emit(call)
        names = (
            [packed]
            if len(types) == 1
            else [w.emit(f"extractvalue {result_type} {packed}, {i}") for i in range(len(types))]
        )
        results, taken = [], 0
        for value, group in zip(operation.results, outputs, strict=True):
            results.append(
                from_operands(w, element_type(value.type), names[taken : taken + len(group)], pack)
            )
            taken += len(group)
        return results

    _by_groups(context, operation, pack, run)


def _assembly_text(context: Context, operation: InlineAsm) -> str:
    """The flags, assembly and constraints of an ``asm`` call.

    On x86 nearly every instruction changes the condition codes, which nobody writes down.
    """

    def quoted(text: str) -> str:
        return "".join(
            character
            if 32 <= ord(character) < 127 and character not in '"\\'
            else f"\\{ord(character):02X}"
            for character in text
        )

    assembly, constraints = operation.assembly, operation.constraints
    if not (assembly + constraints).isascii():
        raise blamed_at(operation.location, "the text and its constraints must be ASCII")
    flag = "" if operation.pure else "sideeffect "
    listed = [part for part in constraints.replace(" ", "").split(",") if part] + (
        ["~{flags}", "~{fpsr}", "~{dirflag}"] if context.state.hardware.x86 else []
    )
    return f'{flag}"{quoted(assembly)}", "{quoted(",".join(listed))}"'


# ---- functions of other libraries


def lower_extern(context: Context, operation: Extern) -> None:
    """Call a C function for every element. Booleans are passed as bytes."""
    symbol, w = operation.symbol, context.writer
    if len(operation.results) > 1:
        raise LoweringError(
            f"extern function {symbol!r} yields {len(operation.results)} results; a C function "
            f"yields one, at {operation.location}"
        )

    def c_type(value: Value) -> str:
        type_ = register_type(element_type(value.type))
        return "i8" if type_ == "i1" else type_

    def run(groups: list[list[str]]) -> list[list[str]]:
        arguments = []
        for value, (name,) in zip(operation.inputs, groups, strict=True):
            if element_type(value.type) is I1:
                name = w.emit(f"zext i1 {name} to i8")
            arguments.append((c_type(value), name))
        result = w.call(
            symbol, c_type(operation.results[0]) if operation.results else "void", arguments
        )
        if not operation.results:
            return []
        return [
            [
                w.emit(f"trunc i8 {result} to i1")
                if element_type(operation.results[0].type) is I1
                else result
            ]
        ]

    _by_groups(context, operation, 1, run)


# ---- groups of elements


def _flat(buffer: Buffer) -> Buffer:
    return viewed(buffer, buffer.numel)


def _by_groups(
    context: Context,
    operation: InlineAsm | Extern,
    pack: int,
    run: Callable[[list[list[str]]], list[list[str]]],
) -> None:
    """Run code on scalars, or on groups of ``pack`` elements of tiles; bind its results.

    The last group is filled up with zeros.
    """
    w = context.writer
    values = [*operation.inputs, *operation.results]
    tile = next((value.type for value in values if isinstance(value.type, TileType)), None)
    if tile is None:
        groups = [[context.scalar(value), *_zeros(value, pack - 1)] for value in operation.inputs]
        for value, names in zip(operation.results, run(groups), strict=True):
            context.bind_scalar(value, names[0])
        return
    inputs = [_flat(context.materialize(value)) for value in operation.inputs]
    outputs = [
        context.new_buffer(tile.shape, element_type(value.type)) for value in operation.results
    ]

    def group(first: str, count: int) -> None:
        places = [first] + [
            str(int(first) + i) if first.isdigit() else w.emit(f"add nuw nsw i64 {first}, {i}")
            for i in range(1, count)
        ]
        groups = [
            [
                *(context.load_element(buffer, (place,)) for place in places),
                *_zeros(value, pack - count),
            ]
            for value, buffer in zip(operation.inputs, inputs, strict=True)
        ]
        for buffer, names in zip(outputs, run(groups), strict=True):
            for place, name in zip(places, names[:count], strict=True):
                context.store_element(_flat(buffer), (place,), name)

    whole = tile.numel // pack * pack
    if whole:
        with w.loop("0", str(whole), pack, nonempty=True) as loop:
            group(loop.index, pack)
    if whole < tile.numel:
        group(str(whole), tile.numel - whole)
    for value, buffer in zip(operation.results, outputs, strict=True):
        context.bind_buffer(value, buffer)


def _zeros(value: Value, count: int) -> list[str]:
    return [constant(element_type(value.type), 0)] * count


LOWERINGS: dict[str, Callable[[Context, Any], None]] = {
    "print": lower_print,
    "assume": lower_assume,
    "inline_asm": lower_inline_asm,
    "extern": lower_extern,
}
