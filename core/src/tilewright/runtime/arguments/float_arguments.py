"""Type of a kernel argument that is a Python float.

It is fp32, as in Triton, unless every value that it meets in the kernel is fp64: what is computed
in fp64 alone would otherwise be computed from a number of seven digits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.ir.ops.arithmetic import Cast, Constant

if TYPE_CHECKING:
    from tilewright.ir import Module
    from tilewright.ir.core import Value

#: Attribute of an argument: a Python float whose parameter's annotation fixes no type.
UNTYPED = "untyped"


def facts_of_compilation(
    attributes: Mapping[str, Mapping[str, Any]],
) -> dict[str, Mapping[str, Any]]:
    """Return the attributes that the frontend takes: all but this module's own."""
    return {name: facts for name, facts in attributes.items() if UNTYPED not in facts}


def widened(
    module: Module, signature: Mapping[str, Any], attributes: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any] | None:
    """Return the signature with floats that meet only fp64 widened to it; None if there are none.

    Args:
        module: the frontend's output for ``signature``.
        attributes: facts of arguments; items of tuples are named ``t.0``.
    """
    arguments = {value.name: value for value in module.kernel.body.arguments}
    found = [name for name, facts in attributes.items() if UNTYPED in facts and name in arguments]
    before = None
    while found != before:  # one that meets f32 takes along those that it is added to
        before, untyped = found, {arguments[name] for name in found}
        found = [name for name in found if _meets_f64_alone(arguments[name], untyped)]
    if not found:
        return None
    return {name: _replaced(type_, name, found) for name, type_ in signature.items()}


def _replaced(type_: Any, name: str, found: Sequence[str]) -> Any:
    if isinstance(type_, tuple):
        items = [_replaced(item, f"{name}.{number}", found) for number, item in enumerate(type_)]
        return type(type_)(*items) if hasattr(type(type_), "_fields") else tuple(items)
    return "fp64" if name in found else type_


def _meets_f64_alone(argument: Value, untyped: set[Value]) -> bool:
    """Return whether all values derived from an argument end in casts to f64 or comparisons.

    Derived are values computed from the argument, constants and other untyped floats. At least one
    must be cast to f64.
    """
    from tilewright.ir.table import Trait
    from tilewright.ir.types import F32, F64, element_type

    derived, waiting, reached = {argument}, [argument], False
    while waiting:
        value = waiting.pop()
        for user in value.uses:
            if isinstance(user, Cast) and element_type(user.results[0].type) is F64:
                reached = True
                continue
            others = (
                operand
                for operand in user.operands
                if operand not in derived and operand not in untyped
            )
            if (
                isinstance(user, Cast)
                or not user.spec.traits & (Trait.ELEMENTWISE | Trait.SHAPE)
                or not all(_is_constant(other) for other in others)
            ):
                return False
            new = [
                result
                for result in user.results
                if element_type(result.type) is F32 and result not in derived
            ]
            derived.update(new)
            waiting += new
    return reached


def _is_constant(value: Value) -> bool:
    from tilewright.ir.table import Trait

    operation = value.definition
    if operation is not None and operation.spec.traits & Trait.SHAPE:
        return _is_constant(operation.operands[0])
    return operation is not None and isinstance(operation, Constant)
