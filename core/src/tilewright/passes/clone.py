"""Copies of operations, regions and modules."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.ir.core import Function, Location, Module, Operation, Region, Value

Relocate = Callable[[Location | None], Location | None]


def _same_place(location: Location | None) -> Location | None:
    return location


def clone_operation(
    operation: Operation, mapping: dict[Value, Value], relocate: Relocate = _same_place
) -> Operation:
    """Clone an operation outside of any region, with operands replaced by ``mapping``.

    Add its results and block arguments to ``mapping``. ``relocate`` maps the original's location to
    the clone's.
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


def clone_region(
    region: Region, mapping: dict[Value, Value], relocate: Relocate = _same_place
) -> Region:
    """Clone a region and its operations, like :func:`clone_operation`."""
    copy = Region(
        [value.type for value in region.arguments], [value.name for value in region.arguments]
    )
    for old, new in zip(region.arguments, copy.arguments, strict=True):
        new.layout = old.layout
        mapping[old] = new
    for operation in region:
        copy.append(clone_operation(operation, mapping, relocate))
    return copy


def clone_module(module: Module) -> Module:
    """Return a deep copy of a module."""
    copy = Module(module.version)
    copy.attributes = dict(module.attributes)
    for function in module.functions.values():
        made = Function(
            function.name,
            [argument.type for argument in function.arguments],
            function.result_types,
            [argument.name for argument in function.arguments],
            kernel=function.kernel,
            location=function.location,
        )
        made.attributes = dict(function.attributes)
        made.argument_attributes = [dict(facts) for facts in function.argument_attributes]
        mapping: dict[Value, Value] = dict(zip(function.arguments, made.arguments, strict=True))
        for operation in function.body:
            made.body.append(clone_operation(operation, mapping))
        copy.add(made)
    return copy
