"""Expanding math operations, and conversions of formats the target lacks, into elementary operations.

For backends that lower operations one by one. A backend that evaluates whole expressions lane by lane may instead run the bodies of
:mod:`tilewright.passes.math_library` itself where it meets the operation.
"""

from __future__ import annotations

from collections.abc import Collection

from tilewright.ir.core import Function, Module, Operation, Value
from tilewright.ir.ops import TABLE
from tilewright.ir.types import FloatType, TileType, element_type, with_element
from tilewright.passes.math_library import cast_function, math_function


def expand_math(module: Module, *, keep: Collection[str] = (), native_ldexp: bool = True) -> bool:
    """Replace every operation that :func:`math_function` or :func:`cast_function` computes by its body, elementwise over tiles.

    Args:
        keep: names of operations that stay, because the target has them.
        native_ldexp: False where the target has no fast ``ldexp``: exp and exp2 are written without, and ``ldexp`` itself is expanded.
    """
    changed = False
    for function in module.functions.values():
        # collected first: what is inserted must not be visited
        for operation in list(function.walk()):
            body = None if operation.name in keep else _body(operation, native_ldexp)
            if body is not None:
                _inline(operation, body)
                changed = True
    return changed


def _body(operation: Operation, native_ldexp: bool) -> Function | None:
    """The scalar function that computes the operation; None where it stays."""
    if len(operation.results) != 1:
        return None
    result = element_type(operation.results[0].type)
    if operation.name == "cast":
        return cast_function(element_type(operation.operands[0].type), result, operation.attribute("rounding"))
    if not isinstance(result, FloatType) or (operation.name == "ldexp" and native_ldexp):
        return None
    return math_function(operation.name, result, native_ldexp=native_ldexp)


def _inline(operation: Operation, body: Function) -> None:
    """Put the function's body before the operation, over the shape of its result, and let its readers read that."""
    region, shape, location = operation.parent, operation.results[0].type, operation.location
    assert region is not None
    values: dict[Value, Value] = dict(zip(body.arguments, operation.operands, strict=True))
    for source in body.body:
        if source.spec.terminator:
            (returned,) = source.operands
            values[returned].name = operation.results[0].name
            operation.results[0].replace_all_uses(values[returned])
            break
        copied = source.name == "constant"
        types = [result.type if copied else with_element(shape, result.type) for result in source.results]
        made = Operation(source.spec, [values[operand] for operand in source.operands], source.segments, source.attributes, types, (), location)
        region.insert_before(made, operation)
        if copied and isinstance(shape, TileType):
            made = Operation(TABLE["splat"], made.results, (1,), {}, [with_element(shape, made.results[0].type)], (), location)
            region.insert_before(made, operation)
        values.update(zip(source.results, made.results, strict=True))
    operation.erase()


__all__ = ["expand_math"]
