"""Known values and ranges of scalar integers, wherever they are computed; needs no folding pass."""

from __future__ import annotations

from tilewright.ir.core import Value
from tilewright.ir.ops.arithmetic import Cast, Constant, NumPrograms
from tilewright.ir.types import I1, IntType


def known_integer(value: Value) -> int | None:
    """Return the number that an integer is: a constant, or a cast of one to other integer types;
    None for any other value."""
    type_, operation = value.type, value.definition
    if not isinstance(type_, IntType) or type_ is I1:
        return None
    if isinstance(operation, Constant):
        return int(operation.value)
    if isinstance(operation, Cast):
        known = known_integer(operation.x)
        return None if known is None else type_.wrap(known)
    return None


def is_known_positive(value: Value) -> bool:
    """Return whether an integer is positive: a known one, or the number of programs."""
    known = known_integer(value)
    if known is not None:
        return known > 0
    operation = value.definition
    while isinstance(operation, Cast) and _holds_numbers_of_programs(operation.result.type):
        operation = operation.x.definition
    return isinstance(operation, NumPrograms)


def _holds_numbers_of_programs(type_: object) -> bool:
    return isinstance(type_, IntType) and type_.bits >= 32
