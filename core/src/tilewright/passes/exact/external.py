"""Code of the target's own, of which nothing is known but its operands."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from tilewright.ir.core import Operation, Value
from tilewright.ir.expressions import Number
from tilewright.ir.ops.debug import Extern, InlineAsm
from tilewright.ir.types import IntType, PointerType, Type, element_type
from tilewright.passes.exact.algebra import add, multiply
from tilewright.passes.exact.analytic import opaque
from tilewright.passes.exact.conversion import between_rings, of_integer, to_integer
from tilewright.passes.exact.errors import ExactModeError
from tilewright.passes.exact.ring import is_float, ring, ring_of
from tilewright.passes.exact.rules import Meaning, whole

if TYPE_CHECKING:
    from tilewright.passes.exact.context import ExactContext


def _refuse(operation: Operation, what: str) -> ExactModeError:
    return ExactModeError(
        f"{operation.name} with floats {what}, and exact mode cannot see into it",
        "replace it by functions of the language for the check",
        operation.location,
    )


def _opaque(rewriter: ExactContext, operation: Operation, name: str) -> list[Value]:
    """A function of the operands, by its name: a cubic of a combination of them."""
    number = zlib.crc32(name.encode()) % 65521
    target = ring(32)
    types = [element_type(value.type) for value in operation.operands]
    if any(isinstance(type_, PointerType) for type_ in types):
        raise _refuse(operation, "and pointers")

    def written(*numbers: Number, position: int, result: Type) -> Number:
        total = None
        for place, (type_, x) in enumerate(zip(types, numbers, strict=True)):
            lifted = (
                between_rings(ring_of(type_), target, x)
                if is_float(type_)
                else of_integer(target, x)
            )
            term = multiply(target, lifted, lifted.like(number + 3 * place + 1))
            total = term if total is None else add(target, total, term)
        assert total is not None
        value = opaque(target, total, 6 + number + position)
        if isinstance(result, IntType):
            return to_integer(target, value, result)
        return between_rings(target, ring_of(result), value)

    payloads, found = rewriter.payloads(operation.operands), []
    for position, value in enumerate(operation.results):
        result = element_type(value.type)
        found.append(
            rewriter.formula(
                (operation.name, name, position, result, *types),
                lambda *x, position=position, result=result: written(
                    *x, position=position, result=result
                ),
                payloads,
                rewriter.payload_type(result),
            )
        )
    return found


@whole(
    "extern",
    "a cubic of its own, by the function's name",
    meaning=Meaning.UNINTERPRETED,
    digitwise=False,
)
def extern(rewriter: ExactContext, operation: Extern) -> list[Value]:
    if not operation.pure:
        raise _refuse(operation, "has effects")
    if not operation.inputs:
        raise _refuse(operation, "has no operands")
    return _opaque(rewriter, operation, operation.symbol)


@whole(
    "inline_asm",
    "a cubic of its own, by the text of the assembly",
    meaning=Meaning.UNINTERPRETED,
    digitwise=False,
)
def inline_asm(rewriter: ExactContext, operation: InlineAsm) -> list[Value]:
    if not operation.pure:
        raise _refuse(operation, "has effects")
    if operation.pack != 1:
        raise _refuse(operation, "combines several elements")
    if not operation.inputs:
        raise _refuse(operation, "has no operands")
    return _opaque(rewriter, operation, operation.assembly)
