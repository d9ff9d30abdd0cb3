"""Copies of operations and regions."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.ir.core import Location, Operation, Region, Value

Relocate = Callable[[Location | None], Location | None]


def _same_place(location: Location | None) -> Location | None:
    return location


def clone_operation(operation: Operation, mapping: dict[Value, Value], relocate: Relocate = _same_place) -> Operation:
    """A copy, in no region yet, that reads ``mapping[v]`` in place of each ``v`` found there. Adds what it defines to ``mapping``.

    ``relocate`` gives the copy's location from the original's.
    """
    copy = Operation(
        operation.spec,
        [mapping.get(value, value) for value in operation.operands],
        operation.segments,
        operation.attributes,
        [value.type for value in operation.results],
        location=relocate(operation.location),
    )
    for old, new in zip(operation.results, copy.results, strict=True):
        new.name, new.layout = old.name, old.layout
        mapping[old] = new
    for region in operation.regions:
        inner = clone_region(region, mapping, relocate)
        inner.owner = copy
        copy.regions.append(inner)
    return copy


def clone_region(region: Region, mapping: dict[Value, Value], relocate: Relocate = _same_place) -> Region:
    """A copy of a region and all it holds; as :func:`clone_operation`."""
    copy = Region([value.type for value in region.arguments], [value.name for value in region.arguments])
    for old, new in zip(region.arguments, copy.arguments, strict=True):
        new.layout = old.layout
        mapping[old] = new
    for operation in region:
        copy.append(clone_operation(operation, mapping, relocate))
    return copy
