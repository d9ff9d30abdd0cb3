"""The rule of scans."""

from __future__ import annotations

from tilewright.derivatives.adjoint.adjoint_builder import AdjointBuilder
from tilewright.derivatives.adjoint.combine_slopes import (
    Combination,
    combination_of,
    edge_slope,
    total,
)
from tilewright.derivatives.adjoint.rules import transposes
from tilewright.derivatives.adjoint.tile_sums import combine_along, coordinates_along, neighbours
from tilewright.derivatives.cotangent_types import is_float
from tilewright.ir.builder import Builder
from tilewright.ir.core import Region, Value
from tilewright.ir.ops.control import Scan
from tilewright.ir.types import element_type, shape_of


@transposes(
    Scan,
    "sum: the sum of dy from the other end; else a scan of affine maps from the other end",
)
def scan(builder: AdjointBuilder, operation: Scan, *cotangents: Value | None) -> None:
    """Transpose ``y_i = f(y_i-1, x_i)``.

    What reaches y_i is ``t_i = dy_i + A_i+1' t_i+1``, where A_i is the derivative of y_i by y_i-1:
    a scan of affine maps, from the last element to the first. x_i gets the derivative of y_i by x_i
    times t_i.
    """
    b, axis, inputs = builder.b, operation.axis, operation.inputs
    backward = not operation.reverse
    if combination_of(operation) == "add":
        (dy,) = cotangents
        assert dy is not None
        builder.add_cotangent(
            inputs[0], combine_along(b, "scan", dy, axis, "add", reverse=backward)
        )
        return
    p, y = ([builder.wide(v) for v in values] for values in (inputs, operation.results))
    floats = [k for k, value in enumerate(inputs) if is_float(value)]
    step = 1 if operation.reverse else -1
    previous = [neighbours(b, value, axis, step) for value in y]
    strict = builder.analysis.finiteness.needs_strict(operation)
    slopes = Combination(b, operation, previous, p, builder.analysis.functions).slopes()
    index, extent = coordinates_along(b, p[0], axis), shape_of(p[0].type)[axis]
    low, high = (
        b.cmp(index, b.constant_like(index.type, edge), predicate="eq") for edge in (0, extent - 1)
    )
    first, final = (high, low) if operation.reverse else (low, high)
    following = []
    for k in floats:
        for o in floats:
            slope = slopes[o][k]
            zero = b.constant_like(p[k].type, 0.0)
            following.append(
                zero if slope is None else b.select(final, zero, neighbours(b, slope, axis, -step))
            )
    dys = [builder.or_zero(cotangents[k], inputs[k]) for k in floats]
    reaching = _affine_scan(b, following, dys, axis, reverse=backward)
    found = dict(zip(floats, reaching, strict=True))
    for k in floats:
        by_input = {o: edge_slope(b, slopes[o][len(p) + k], first, o == k, p[k]) for o in floats}
        builder.add_cotangent(inputs[k], total(b, found, by_input, strict=strict))


def _affine_scan(
    b: Builder, maps: list[Value], offsets: list[Value], axis: int, *, reverse: bool
) -> list[Value]:
    """Append the scan of ``t -> A t + c``; return the offsets of the composed maps.

    Args:
        maps: the elements of A by row.
        offsets: the elements of c.
    """
    n = len(offsets)
    elements = [element_type(value.type) for value in (*maps, *offsets)]
    region = Region(elements * 2)
    earlier, later = region.arguments[: n * n + n], region.arguments[n * n + n :]
    with b.at_region(region):

        def times(row: int, column: list[Value]) -> Value:
            found: Value = b.mul(later[row * n], column[0])
            for k in range(1, n):
                found = b.add(found, b.mul(later[row * n + k], column[k]))
            return found

        columns = [earlier[c : n * n : n] for c in range(n)]
        composed = [times(row, columns[column]) for row in range(n) for column in range(n)]
        moved = [b.add(later[n * n + row], times(row, earlier[n * n :])) for row in range(n)]
        b.yield_([*composed, *moved])
    inputs = [*maps, *offsets]
    return b.region_op("scan", inputs, regions=[region], axis=axis, reverse=reverse).results[
        n * n :
    ]
