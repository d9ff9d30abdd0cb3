"""A new kernel that has the values of another one: what both modes build on."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.derivatives.cotangent_types import cotangent_type, is_float
from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Operation, Region, Value
from tilewright.ir.types import Type


class PrimalReplay:
    """A new kernel that has the values of another one.

    Attributes:
        source: the kernel, with shadows of its addresses.
        function: the new kernel.
        b: appends to it.
        primal: values of the kernel -> the same values in the new one.
    """

    def __init__(self, source: Function, name: str) -> None:
        arguments = source.arguments
        self.source = source
        self.function = Function(
            name,
            [value.type for value in arguments],
            (),
            [value.name for value in arguments],
            location=source.location,
        )
        self.function.argument_attributes = [dict(facts) for facts in source.argument_attributes]
        self.function.attributes = dict(source.attributes)
        self.b = Builder.at_end(self.function.body, source.location)
        self.primal: dict[Value, Value] = dict(zip(arguments, self.function.arguments, strict=True))

    def to(self, value: Value, type_: Type) -> Value:
        """Cast a value of the new kernel to a type, unless it has it."""
        if value.type is type_:
            return value
        found: Value = self.b.cast(value, result=type_)
        return found

    def wide(self, value: Value) -> Value:
        """Return a value of the kernel, floats in the types of their tangents and cotangents."""
        found = self.primal[value]
        return self.to(found, cotangent_type(value.type)) if is_float(value) else found

    def zero(self, type_: Type) -> Value:
        """Return the tangent or cotangent zero of a type of the kernel."""
        return self.b.constant_like(cotangent_type(type_), 0.0)

    def copy(self, operation: Operation, regions: Sequence[Region] = ()) -> Operation:
        """Append a copy of an operation of the kernel, with other regions."""
        copy = Operation(
            operation.spec,
            [self.primal[value] for value in operation.operands],
            operation.segments,
            operation.attributes,
            [value.type for value in operation.results],
            regions,
            operation.location,
        )
        for old, new in zip(operation.results, copy.results, strict=True):
            new.name = old.name
            self.primal[old] = new
        return self.b.insert(copy)

    def region_like(self, region: Region) -> Region:
        """Return an empty region with the arguments of one of the kernel."""
        arguments = region.arguments
        made = Region([value.type for value in arguments], [value.name for value in arguments])
        self.primal.update(zip(arguments, made.arguments, strict=True))
        return made
