"""Undefined lanes and masked-off lanes, and how operations spread them.

``origins`` are int32 arrays: 0 where a lane is as the program says, the number of the operation
that left it undefined, or the negative number of the load that left it out. None is 0 everywhere. A
rule computes the origins of a result from those of the operands, which come in the op table's
groups as the operands do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.ir.core import Operation
from tilewright.ir.ops.shape import Histogram
from tilewright.ir.table import Trait
from tilewright.ir.types import shape_of
from tilewright.reference.numerics import Array
from tilewright.reference.operations.arithmetic import Meaning

if TYPE_CHECKING:
    from tilewright.reference.frame import Frame

Origins = Any  # an int32 array, None, or a list of these for a variadic group
#: (frame, operation, meaning, operands, origins) -> origins of the result, or of each result; the
#: operation is of the class of its name.
Rule = Callable[["Frame", Any, Meaning, list[Any], list[Origins]], Origins]

_DEFINED = np.int32(0)
_NOT_SETTLED = np.iinfo(np.int32).min


def union(*origins: Origins) -> Origins:
    """Undefined where any of several is; else masked off where any is."""
    result = None
    for part in origins:
        if part is not None:
            result = (
                part
                if result is None
                else np.where((result > 0) | ((result < 0) & (part <= 0)), result, part)
            )
    return result


def _along(origins: Array, axis: int) -> Array:
    """The union along an axis, which is kept with one element."""
    most = origins.max(axis=axis, keepdims=True)
    return np.where(most > 0, most, origins.min(axis=axis, keepdims=True))


def _or_zero(origins: Origins) -> Array:
    return _DEFINED if origins is None else origins


def _elementwise(
    frame: Frame,
    operation: Operation,
    meaning: Meaning,
    operands: list[Any],
    origins: list[Origins],
) -> Origins:
    return union(*origins)


def _moved(
    frame: Frame,
    operation: Operation,
    meaning: Meaning,
    operands: list[Any],
    origins: list[Origins],
) -> Origins:
    """Origins move as the elements do."""
    filled = [
        np.zeros(x.shape, np.int32) if origin is None else origin
        for x, origin in zip(operands, origins, strict=True)
    ]
    return meaning(frame, operation, *filled)


def _select(
    frame: Frame,
    operation: Operation,
    meaning: Meaning,
    operands: list[Any],
    origins: list[Origins],
) -> Origins:
    condition, a, b = origins
    return union(condition, np.where(operands[0], _or_zero(a), _or_zero(b)))


def _absorbing(absorbs: Callable[[Array], Array]) -> Rule:
    """Make the rule of a binary operation whose result one defined operand can settle.

    ``absorbs`` marks the lanes where it does.
    """

    def rule(
        frame: Frame,
        operation: Operation,
        meaning: Meaning,
        operands: list[Any],
        origins: list[Origins],
    ) -> Origins:
        a, b = operands
        a_origin, b_origin = (_or_zero(origin) for origin in origins)
        by_a, by_b = (
            np.where(absorbs(x) & (origin <= 0), origin, _NOT_SETTLED)
            for x, origin in ((a, a_origin), (b, b_origin))
        )
        settled = np.maximum(by_a, by_b)
        return np.where(settled != _NOT_SETTLED, settled, union(a_origin, b_origin))

    return rule


def _all_zero(x: Array) -> Array:
    return ~x if x.dtype.kind == "b" else (x == 0) & (x.dtype.kind != "f")


def _all_ones(x: Array) -> Array:
    return x if x.dtype.kind == "b" else ~x == 0


def _gather(
    frame: Frame,
    operation: Operation,
    meaning: Meaning,
    operands: list[Any],
    origins: list[Origins],
) -> Origins:
    x_origin, index_origin = origins
    moved = None if x_origin is None else meaning(frame, operation, x_origin, operands[1])
    return union(index_origin, moved)


def _dot(
    frame: Frame,
    operation: Operation,
    meaning: Meaning,
    operands: list[Any],
    origins: list[Origins],
) -> Origins:
    a, b, c = origins
    return union(None if a is None else _along(a, -1), None if b is None else _along(b, -2), c)


def _everything(
    frame: Frame,
    operation: Operation,
    meaning: Meaning,
    operands: list[Any],
    origins: list[Origins],
) -> Origins:
    """One undefined lane leaves all of the result undefined."""
    each = [_along(origin.reshape(-1), 0) for origin in origins if origin is not None]
    return np.broadcast_to(union(*each), shape_of(operation.results[0].type))


def _histogram(
    frame: Frame,
    operation: Histogram,
    meaning: Meaning,
    operands: list[Any],
    origins: list[Origins],
) -> Origins:
    counted = union(
        origins[1],
        np.where(True if operands[1] is None else operands[1], _or_zero(origins[0]), _DEFINED),
    )
    return np.broadcast_to(_along(counted, -1), (*counted.shape[:-1], operation.bins))


def _load(
    frame: Frame,
    operation: Operation,
    meaning: Meaning,
    operands: list[Any],
    origins: list[Origins],
) -> Origins:
    """A lane masked off is what ``other`` is."""
    return None if origins[2] is None else np.where(operands[1], _DEFINED, origins[2])


def _settled(
    frame: Frame,
    operation: Operation,
    meaning: Meaning,
    operands: list[Any],
    origins: list[Origins],
) -> Origins:
    """The result is defined: undefined operands were found already."""
    return None


_RULES: dict[str, Rule] = {
    "select": _select,
    "and": _absorbing(_all_zero),
    "or": _absorbing(_all_ones),
    "mul": _absorbing(_all_zero),
    "gather": _gather,
    "dot": _dot,
    "dot_scaled": _everything,
    "histogram": _histogram,
    "load": _load,
    **dict.fromkeys(
        (
            "store",
            "atomic_rmw",
            "atomic_cas",
            "atomic_load",
            "atomic_store",
            "clock",
            "make_descriptor",
            "barrier",
            "print",
            "assert",
            "assume",
        ),
        _settled,
    ),
    **dict.fromkeys(("inline_asm", "extern", "debug.breakpoint"), _settled),
    **dict.fromkeys(
        (
            "descriptor_load",
            "descriptor_store",
            "descriptor_reduce",
            "descriptor_gather",
            "descriptor_scatter",
        ),
        _settled,
    ),
}


def rule_of(operation: Operation) -> Rule:
    """The rule for an operation."""
    found = _RULES.get(operation.name)
    if found is None:
        found = _moved if Trait.SHAPE in operation.spec.traits else _elementwise
    return found
