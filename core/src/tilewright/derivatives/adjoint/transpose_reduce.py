"""The rule of reductions."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.derivatives.adjoint.adjoint_builder import AdjointBuilder
from tilewright.derivatives.adjoint.combine_slopes import (
    Combination,
    combination_of,
    edge_slope,
    scan_by,
    total,
)
from tilewright.derivatives.adjoint.rules import transposes
from tilewright.derivatives.adjoint.tile_sums import (
    broadcast_along,
    coordinates_along,
    neighbours,
    sum_along,
)
from tilewright.derivatives.analysis.constant_tiles import constant_tile, is_distinct
from tilewright.derivatives.cotangent_types import cotangent_type, is_float
from tilewright.ir.core import Value
from tilewright.ir.ops.arithmetic import Select
from tilewright.ir.ops.control import Reduce
from tilewright.ir.types import shape_of


@transposes(
    Reduce,
    "sum: dy to every element; max and min: dy to those that are the result, in equal parts; else "
    "by the combinations of the elements before and after each",
)
def reduce(builder: AdjointBuilder, operation: Reduce, *cotangents: Value | None) -> None:
    axis, kind = operation.axis, combination_of(operation)
    if len(operation.inputs) > 1 or kind not in ("add", "max", "min"):
        if not _select(builder, operation, cotangents):
            _combine(builder, operation, cotangents)
        return
    (x,), (dy,) = operation.inputs, cotangents
    assert dy is not None
    b, type_ = builder.b, cotangent_type(x.type)
    wide = broadcast_along(b, dy, axis, type_)
    if kind == "add":
        builder.add_cotangent(x, wide)
        return
    result = broadcast_along(b, builder.wide(operation.results[0]), axis, type_)
    here = b.cmp(builder.wide(x), result, predicate="eq")
    one, zero = (b.constant_like(type_, number) for number in (1.0, 0.0))
    count = broadcast_along(b, sum_along(b, b.select(here, one, zero), axis), axis, type_)
    builder.add_cotangent(x, b.select(here, b.div(wide, count), zero))


def _select(builder: AdjointBuilder, operation: Reduce, cotangents: Sequence[Value | None]) -> bool:
    """Transpose the choice of one element together with its index; return whether it is one.

    The cotangent goes to where the index is.
    """
    arguments, last = operation.combine.arguments, operation.combine.last
    assert last is not None
    count, axis, b = len(operation.inputs), operation.axis, builder.b
    conditions = set()
    for i, value in enumerate(last.operands):
        chosen = value.definition
        own = {arguments[i], arguments[count + i]}
        if not isinstance(chosen, Select) or {chosen.a, chosen.b} != own:
            return False
        conditions.add((chosen.condition, chosen.a is arguments[i]))
    if len(conditions) != 1:
        return False
    for index, chosen_index in zip(operation.inputs, operation.results, strict=True):
        known = None if is_float(index) else constant_tile(index)
        if known is None or not is_distinct(known, axis):
            continue
        primal = builder.primal[index]
        found = broadcast_along(b, builder.primal[chosen_index], axis, primal.type)
        here = b.cmp(primal, found, predicate="eq")
        for value, dy in zip(operation.inputs, cotangents, strict=True):
            if dy is not None and is_float(value):
                zero = builder.zero(value.type)
                wide = broadcast_along(b, dy, axis, zero.type)
                builder.add_cotangent(value, b.select(here, wide, zero))
        return True
    return False


def _combine(
    builder: AdjointBuilder, operation: Reduce, cotangents: Sequence[Value | None]
) -> None:
    """Transpose any combination ``f``: the result is ``f(f(before, x), after)`` for each element.

    Its derivative by the element is a product of two of f's, at the combinations of all elements
    before it and of all after it, so that no division occurs.
    """
    b, axis, inputs = builder.b, operation.axis, operation.inputs
    strict = builder.analysis.finiteness.needs_strict(operation)
    p = [builder.wide(value) for value in inputs]
    floats = [k for k, value in enumerate(inputs) if is_float(value)]
    extent = shape_of(p[0].type)[axis]
    functions = builder.analysis.functions
    before, after = (
        [
            neighbours(b, v, axis, 1 if reverse else -1)
            for v in scan_by(b, operation, p, axis, functions, reverse=reverse)
        ]
        for reverse in (False, True)
    )
    index = coordinates_along(b, p[0], axis)
    first, last = (
        b.cmp(index, b.constant_like(index.type, edge), predicate="eq") for edge in (0, extent - 1)
    )
    inner = Combination(b, operation, before, p, functions)
    upto = [b.select(first, x, value) for x, value in zip(p, inner.results, strict=True)]
    outer = Combination(b, operation, upto, after, functions)
    by_inner, by_outer = inner.slopes(), outer.slopes()
    dys = {
        k: broadcast_along(b, dy, axis, p[k].type)
        for k, dy in enumerate(cotangents)
        if dy is not None and k in floats
    }
    known = {}
    for m in floats:
        slopes = {o: edge_slope(b, by_outer[o][m], last, o == m, p[m]) for o in dys}
        part = total(b, dys, slopes, strict=strict)
        if part is not None:
            known[m] = part
    for k in floats:
        slopes = {m: edge_slope(b, by_inner[m][len(p) + k], first, m == k, p[k]) for m in known}
        builder.add_cotangent(inputs[k], total(b, known, slopes, strict=strict))
