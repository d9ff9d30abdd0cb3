"""Source of reductions, scans and maps, whose regions become functions."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.frontend.source.expression_text import (
    SourceExpression,
    atom,
    call_text,
    tuple_text,
)
from tilewright.frontend.source.function_writer import SourceWriter
from tilewright.frontend.source.operand_forms import exact
from tilewright.frontend.source.source_rows import written
from tilewright.ir.core import Operation, Region
from tilewright.ir.ops.arithmetic import Binary, Extremum
from tilewright.ir.ops.control import Map, Reduce, Scan
from tilewright.ir.order import ANY
from tilewright.ir.types import Type, element_type
from tilewright.language.standard.result_types import (
    accumulator_dtype,
    cumprod_dtype,
    extremum_dtype,
    prefix_dtype,
    sum_dtype,
)
from tilewright.language.value_types.dtypes import dtype, from_ir

#: operation that combines two elements -> the function that reduces by it
_REDUCTIONS = {"add": "tl.sum", "max": "tl.max", "min": "tl.min", "xor": "tl.xor_sum"}
_SCANS = {"add": "tl.cumsum", "mul": "tl.cumprod"}
#: function -> whether it computes in a type
_KEEPS: dict[str, Callable[[dtype], bool]] = {
    "tl.sum": lambda own: sum_dtype(own, None) is own and accumulator_dtype(own) is own,
    "tl.max": lambda own: extremum_dtype(own, False) is own,
    "tl.min": lambda own: extremum_dtype(own, False) is own,
    "tl.xor_sum": dtype.is_int,
    "tl.cumsum": lambda own: prefix_dtype(own, None) is own,
    "tl.cumprod": lambda own: cumprod_dtype(own, None) is own,
}


def combination(region: Region) -> Operation | None:
    """Return the operation on its two arguments that is all of a combine region; else None."""
    first, last = region.first, region.terminator
    if first is None or first.next is not last or len(region.arguments) != 2:
        return None
    assert last is not None
    whole = list(last.operands) == first.results and list(first.operands) == region.arguments
    if not whole or not isinstance(first, Binary):
        return None
    return None if isinstance(first, Extremum) and first.nan != "ignore" else first


def _keeps_type(function: str, element: Type) -> bool:
    """Return whether a function that reduces or scans computes in the type of its operand."""
    own = from_ir(element)
    return _KEEPS[function](own)


@written("reduce")
def _reduce(writer: SourceWriter, operation: Reduce) -> SourceExpression:
    found = combination(operation.combine)
    type_ = operation.results[0].type
    order = None if operation.order == ANY else f'"{operation.order}"'
    inputs = [exact(writer, x).text for x in operation.inputs]
    known = _REDUCTIONS.get(found.name) if found is not None else None
    ordered = order is None or known == "tl.sum"
    if known is not None and ordered and _keeps_type(known, element_type(operation.inputs[0].type)):
        return atom(call_text(known, *inputs, axis=str(operation.axis), order=order), type_)
    function = writer.module.function_of(operation.combine, "combine")
    text = call_text("tl.reduce", tuple_text(inputs), str(operation.axis), function, order=order)
    return atom(text, type_)


@written("scan")
def _scan(writer: SourceWriter, operation: Scan) -> SourceExpression:
    found = combination(operation.combine)
    type_ = operation.results[0].type
    keywords = {
        "reverse": "True" if operation.reverse else None,
        "order": None if operation.order == ANY else f'"{operation.order}"',
    }
    inputs = [exact(writer, x).text for x in operation.inputs]
    known = _SCANS.get(found.name) if found is not None else None
    if known is not None and _keeps_type(known, element_type(operation.inputs[0].type)):
        return atom(call_text(known, *inputs, axis=str(operation.axis), **keywords), type_)
    function = writer.module.function_of(operation.combine, "combine")
    arguments = (tuple_text(inputs), str(operation.axis), function)
    return atom(call_text("tl.associative_scan", *arguments, **keywords), type_)


@written("map")
def _map(writer: SourceWriter, operation: Map) -> SourceExpression:
    function = writer.module.function_of(operation.body, "each")
    pack = str(operation.pack) if operation.pack != 1 else None
    inputs = [exact(writer, x).text for x in operation.inputs]
    text = call_text("tl.map_elementwise", function, *inputs, pack=pack)
    return atom(text, operation.results[0].type)
