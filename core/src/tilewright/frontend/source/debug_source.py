"""Source of prints, checks, hints, and code of the target's own."""

from __future__ import annotations

from tilewright.frontend.source.expression_text import (
    SourceExpression,
    atom,
    call_text,
    dtype_text,
    list_text,
    tuple_text,
)
from tilewright.frontend.source.function_writer import SourceWriter
from tilewright.frontend.source.operand_forms import exact, spread
from tilewright.frontend.source.source_rows import SourceForm, unwritable, written
from tilewright.ir.ops.debug import Assert, Assume, Extern, Hint, InlineAsm, Print

_HINTS = {
    "divisibility": "tl.multiple_of",
    "contiguity": "tl.max_contiguous",
    "constancy": "tl.max_constancy",
}


@written("print", form=SourceForm.STATEMENT)
def _print(writer: SourceWriter, operation: Print) -> None:
    if not (operation.prefix.isascii() and operation.prefix.isprintable()):
        raise unwritable(operation, f"tl.device_print refuses the prefix {operation.prefix!r}")
    values = [exact(writer, x).text for x in operation.values]
    hexadecimal = "True" if operation.hex else None
    writer.line(call_text("tl.device_print", repr(operation.prefix), *values, hex=hexadecimal))


@written("assert", form=SourceForm.STATEMENT)
def _assert(writer: SourceWriter, operation: Assert) -> None:
    condition = exact(writer, operation.condition).text
    mask = operation.mask
    lanes = None if mask is None else spread(writer, mask, operation.condition).text
    writer.line(call_text("tl.device_assert", condition, repr(operation.message), mask=lanes))


@written("assume", form=SourceForm.STATEMENT)
def _assume(writer: SourceWriter, operation: Assume) -> None:
    writer.line(call_text("tl.assume", exact(writer, operation.condition).text))


@written("hint")
def _hint(writer: SourceWriter, operation: Hint) -> SourceExpression:
    found = exact(writer, operation.x)
    for name, function in _HINTS.items():
        values = operation.attribute(name)
        if values:
            found = atom(call_text(function, found.text, list_text(values)), found.type)
    return found


@written("inline_asm")
def _inline_asm(writer: SourceWriter, operation: InlineAsm) -> SourceExpression:
    if not operation.results:
        raise unwritable(operation, "tl.inline_asm_elementwise has results")
    dtypes = [dtype_text(value.type) for value in operation.results]
    text = call_text(
        "tl.inline_asm_elementwise",
        repr(operation.assembly),
        repr(operation.constraints),
        list_text(exact(writer, x).text for x in operation.inputs),
        dtype=tuple_text(dtypes),
        is_pure=str(operation.pure),
        pack=str(operation.pack),
    )
    return atom(text, operation.results[0].type)


@written("extern")
def _extern(writer: SourceWriter, operation: Extern) -> SourceExpression:
    if len(operation.results) != 1:
        raise unwritable(operation, "tl.core.extern_elementwise has one result")
    keys = ", ".join(dtype_text(x.type) for x in operation.inputs)
    trailing = "," if len(operation.inputs) == 1 else ""
    result = dtype_text(operation.result.type)
    # a kernel has no dictionaries of its own, but reads constants of its file
    symbols = f"tl.constexpr({{({keys}{trailing}): ({operation.symbol!r}, {result})}})"
    text = call_text(
        "tl.core.extern_elementwise",
        repr(operation.library),
        '""',
        list_text(exact(writer, x).text for x in operation.inputs),
        writer.module.constant("symbols", symbols),
        is_pure=str(operation.pure),
    )
    return atom(text, operation.result.type)
