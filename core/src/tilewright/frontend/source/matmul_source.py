"""Source of matmuls."""

from __future__ import annotations

from tilewright.frontend.source.expression_text import SourceExpression, atom, call_text
from tilewright.frontend.source.function_writer import SourceWriter
from tilewright.frontend.source.operand_forms import exact, loose
from tilewright.frontend.source.source_rows import unwritable, written
from tilewright.ir.core import Value
from tilewright.ir.ops.linear import Dot, DotScaled
from tilewright.ir.order import ANY
from tilewright.ir.types import F16, F32, FloatType, element_type


@written("dot")
def _dot(writer: SourceWriter, operation: Dot) -> SourceExpression:
    a, b = element_type(operation.a.type), element_type(operation.b.type)
    if a is not b and not (isinstance(a, FloatType) and isinstance(b, FloatType)):
        raise unwritable(operation, f"tl.dot takes operands of one type, not {a} and {b}")
    accumulator = _accumulator(writer, operation.c)
    narrow = accumulator is None and element_type(operation.c.type) is F16
    imprecise = operation.max_imprecise
    keywords = {
        "input_precision": f'"{operation.precision}"'
        if a is F32 and operation.precision != "ieee"
        else None,
        "max_num_imprecise_acc": str(imprecise) if imprecise else None,
        "out_dtype": "tl.float16" if narrow else None,
        "order": None if operation.order == ANY else f'"{operation.order}"',
    }
    operands = [exact(writer, x).text for x in (operation.a, operation.b)]
    operands += [] if accumulator is None else [accumulator]
    return atom(call_text("tl.dot", *operands, **keywords), operation.result.type)


def _accumulator(writer: SourceWriter, value: Value) -> str | None:
    """Return the accumulator; None where it is zero."""
    found = loose(writer, value)
    if found.is_number and str(found.number) in ("0", "0.0"):
        return None
    return exact(writer, value).text


@written("dot_scaled")
def _dot_scaled(writer: SourceWriter, operation: DotScaled) -> SourceExpression:
    def optional(value: Value | None) -> str:
        return "None" if value is None else exact(writer, value).text

    accumulator = _accumulator(writer, operation.c)
    keywords = {
        "acc": accumulator,
        "fast_math": "True" if operation.fast_math else None,
        "lhs_k_pack": None if operation.a_pack_k else "False",
        "rhs_k_pack": None if operation.b_pack_k else "False",
    }
    text = call_text(
        "tl.dot_scaled",
        exact(writer, operation.a).text,
        optional(operation.a_scale),
        f'"{operation.a_format}"',
        exact(writer, operation.b).text,
        optional(operation.b_scale),
        f'"{operation.b_format}"',
        **keywords,
    )
    return atom(text, operation.result.type)
