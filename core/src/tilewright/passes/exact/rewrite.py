"""The pass: a module on floats becomes one that computes on payloads.

It runs before all others, so that nothing is folded in floats. Operations that have a row compute
on payloads; all others are copied.
"""

from __future__ import annotations

from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Module, Operation, Region, Value
from tilewright.ir.ops.control import For
from tilewright.ir.types import (
    DescriptorType,
    FloatType,
    Type,
)
from tilewright.passes.exact.carried_sums import accumulators_of, loop_of_sums
from tilewright.passes.exact.context import ExactContext, ExactOptions
from tilewright.passes.exact.errors import ExactModeError
from tilewright.passes.exact.float_bits import access_bits, reinterpreted
from tilewright.passes.exact.ring import is_float
from tilewright.passes.exact.rules import is_moved, rule_of, touches_floats
from tilewright.passes.exact.stored_floats import (
    access,
    is_converted,
    pads_with_nan,
    with_nan_outside,
)


def exact(module: Module, options: ExactOptions | None = None) -> bool:
    """Rewrite a module in place; return whether it has any floats.

    Kernel arguments that are floats become unsigned integers: their payloads. Memory that is
    updated atomically in floats holds i64 sums or i32 keys (:mod:`.stored_floats`), and the
    pointers and descriptors of it have those elements. Other memory holds payloads in the floats'
    own width, in their types or, with ``carry="int"``, as unsigned integers.

    Raises:
        ExactModeError: an operation has no meaning over a ring; names it, its location and a
            remedy.
    """
    rewriter = ExactRewriter(module, options or ExactOptions())
    functions = [rewriter.function(function) for function in module.functions.values()]
    module.functions.clear()
    for function in functions:
        module.add(function)
    return rewriter.changed


class ExactRewriter(ExactContext):
    """The rewriting of a module's functions."""

    def function(self, old: Function) -> Function:
        """Return the new function of an old one."""

        def argument_type(argument: Value) -> Type:
            if old.kernel and isinstance(argument.type, FloatType):
                return self.payload_type(argument.type)
            return self.type_of(argument)

        made = Function(
            old.name,
            [argument_type(argument) for argument in old.arguments],
            [self.carried_type(type_) for type_ in old.result_types],
            [argument.name for argument in old.arguments],
            kernel=old.kernel,
            location=old.location,
        )
        made.attributes = dict(old.attributes)
        made.argument_attributes = [
            {name: fact for name, fact in facts.items() if name != "padding"}
            for facts in old.argument_attributes
        ]
        self.builder = Builder.at_end(made.body, old.location)
        for before, after in zip(old.arguments, made.arguments, strict=True):
            self.values[before] = self.carried(before, after) if is_float(before.type) else after
            self.changed |= after.type is not before.type
        self._fill(old.body, made.body)
        return made

    def _fill(self, old: Region, made: Region) -> None:
        with self.builder.at_region(made):
            for operation in old:
                self.append(operation)

    def append(self, operation: Operation) -> None:
        """Append the new form of an operation."""
        self.builder.location = operation.location
        results = self._operation(operation)
        for before, after in zip(operation.results, results, strict=True):
            after.name = after.name or before.name
            self.values[before] = after

    def _operation(self, operation: Operation) -> list[Value]:
        if isinstance(operation, For) and (
            accumulators := accumulators_of(operation, self.options.dot)
        ):
            results = loop_of_sums(self, operation, accumulators, self.append)
        elif is_converted(self, operation) and touches_floats(operation):
            results = access(self, operation)
        elif (own := reinterpreted(self, operation)) is not None:
            results = access_bits(self, operation, own)
        elif rule := rule_of(operation) if touches_floats(operation) else None:
            results = rule.emit(self, operation)
        elif is_moved(operation):
            results = self._copied(operation)
        else:
            raise ExactModeError(
                f"operation {operation.name} computes floats and has no row",
                "add a row for it to a module of tilewright.passes.exact, or the trait BITWISE to "
                "its declaration where it only moves them",
                operation.location,
            )
        if pads_with_nan(self, operation):
            (result,) = results
            payloads = self.bits(result)
            results = [with_nan_outside(self, operation, payloads)]  # type: ignore[arg-type]
        return [
            self.carried(before, after) if is_float(before.type) else after
            for before, after in zip(operation.results, results, strict=True)
        ]

    def _copied(self, operation: Operation) -> list[Value]:
        inner = []
        for region in operation.regions:
            made = Region(
                [self.type_of(argument) for argument in region.arguments],
                [argument.name for argument in region.arguments],
            )
            self.values.update(zip(region.arguments, made.arguments, strict=True))
            inner.append(made)
        attributes = dict(operation.attributes)
        if "padding" in attributes and any(map(_describes_floats, operation.results)):
            attributes["padding"] = "zero"  # loads put NaN's code in
        copied = Operation(
            operation.spec,
            [self.values[value] for value in operation.operands],
            operation.segments,
            attributes,
            [self.type_of(value) for value in operation.results],
            inner,
            operation.location,
        )
        self.builder.insert(copied)
        for region, made in zip(operation.regions, inner, strict=True):
            self._fill(region, made)
        return list(copied.results)


def _describes_floats(value: Value) -> bool:
    return isinstance(value.type, DescriptorType) and isinstance(value.type.element, FloatType)
