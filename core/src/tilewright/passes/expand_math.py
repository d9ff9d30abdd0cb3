"""Expansion of math operations and of casts that a target lacks into elementary operations.

For backends that lower operations one by one. A backend that evaluates whole expressions lane by
lane may instead run the bodies of :mod:`tilewright.passes.math.math_library` itself where it meets
the operation.
"""

from __future__ import annotations

from collections.abc import Collection

from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Module, Operation
from tilewright.ir.ops.arithmetic import Cast, Ldexp
from tilewright.ir.types import FloatType, element_type
from tilewright.passes.decompose.decomposition import lifted
from tilewright.passes.math.math_library import cast_function, math_function


def expand_math(module: Module, *, keep: Collection[str] = (), native_ldexp: bool = True) -> bool:
    """Expand math operations and casts of floats to elementary arithmetic, elementwise.

    These are the operations that :func:`math_function` and :func:`cast_function` compute.

    Args:
        keep: names of operations that stay, because the target has them.
        native_ldexp: False where the target has no fast ``ldexp``: exp and exp2 are written
            without, and ``ldexp`` itself is expanded.
    """
    changed = False
    for function in module.functions.values():
        # collected first: what is inserted must not be visited
        for operation in list(function.walk()):
            body = None if operation.name in keep else _body(operation, native_ldexp)
            if body is not None:
                found = lifted(
                    Builder.at(operation), body.body, operation.operands, operation.results[0].type
                )
                assert found is not None  # functions are of elementwise operations
                (value,) = found
                value.name = operation.results[0].name
                operation.results[0].replace_all_uses(value)
                operation.erase()
                changed = True
    return changed


def _body(operation: Operation, native_ldexp: bool) -> Function | None:
    """The scalar function that computes the operation; None where it stays."""
    if len(operation.results) != 1:
        return None
    result = element_type(operation.results[0].type)
    if isinstance(operation, Cast):
        return cast_function(element_type(operation.x.type), result, operation.rounding)
    if not isinstance(result, FloatType) or (isinstance(operation, Ldexp) and native_ldexp):
        return None
    return math_function(operation.name, result, native_ldexp=native_ldexp)


__all__ = ["expand_math"]
