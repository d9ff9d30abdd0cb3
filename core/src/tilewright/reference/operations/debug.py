"""The meaning of prints, asserts and hints."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tilewright.ir import print_lines
from tilewright.ir.ops.debug import Assert, Assume, Extern, Hint, InlineAsm, Print
from tilewright.ir.types import element_type, shape_of
from tilewright.reference.numerics import Array, number
from tilewright.reference.values import expanded

if TYPE_CHECKING:
    from tilewright.reference.frame import Frame
    from tilewright.reference.operations.arithmetic import Meaning


def print_values(frame: Frame, operation: Print, values: list[Array]) -> None:
    prefix, hexadecimal = operation.prefix, operation.hex
    arrays = [
        expanded(value, shape_of(operand.type), frame.rows)
        for value, operand in zip(values, operation.values, strict=True)
    ]
    count = len(arrays)
    heads = [
        print_lines.template(prefix, shape_of(operand.type), position, count)
        for position, operand in enumerate(operation.values)
    ]
    for row in range(frame.rows):
        program = frame.coordinates(row)
        if not arrays:
            frame.run.printer(print_lines.message(program, prefix))
        for array, operand, head in zip(arrays, operation.values, heads, strict=True):
            element = element_type(operand.type)
            for index in np.ndindex(array.shape[1:]):
                text = print_lines.element_text(
                    number(array[(row, *index)], element), element, hexadecimal=hexadecimal
                )
                frame.run.printer(print_lines.line(program, head, index, text))


def assert_(frame: Frame, operation: Assert, condition: Array, mask: Array | None) -> None:
    failed = ~condition if mask is None else ~condition & mask
    if failed.any():
        full = expanded(failed, shape_of(operation.condition.type), frame.rows)
        row, *lane = (int(i) for i in np.argwhere(full)[0])
        raise frame.failure(
            operation, f"device-side assertion failed: {operation.message}", row, tuple(lane)
        )


def assume(frame: Frame, operation: Assume, condition: Array) -> None:
    """A promise to compilers; the checked mode holds the kernel to it."""


def hint(frame: Frame, operation: Hint, x: Array) -> Array:
    """A promise to compilers; the checked mode holds the kernel to it."""
    return x


def inline_asm(frame: Frame, operation: InlineAsm, inputs: list[Array]) -> None:
    raise frame.failure(
        operation,
        f"the reference runs no code of a target's own: inline_asm {operation.assembly!r}",
    )


def extern(frame: Frame, operation: Extern, inputs: list[Array]) -> None:
    raise frame.failure(
        operation,
        f"the reference runs no code of a target's own: extern function {operation.symbol!r}",
    )


MEANINGS: dict[str, Meaning] = {
    "print": print_values,
    "assert": assert_,
    "assume": assume,
    "hint": hint,
    "inline_asm": inline_asm,
    "extern": extern,
}
