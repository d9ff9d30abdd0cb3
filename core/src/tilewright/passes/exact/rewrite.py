"""The pass: a module on floats becomes one that computes on payloads.

It runs before all others, so that nothing is folded in floats. Operations that have a row compute
on payloads; all others are copied.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Module, Operation, Region, Value
from tilewright.ir.expressions import Number
from tilewright.ir.ops.control import For
from tilewright.ir.types import (
    DescriptorType,
    FloatType,
    IntType,
    PointerType,
    TileType,
    Type,
    element_type,
    with_element,
)
from tilewright.passes.exact.address_groups import AddressGroups, Storage, is_address
from tilewright.passes.exact.carried_sums import accumulators_of, loop_of_sums
from tilewright.passes.exact.context import ExactOptions
from tilewright.passes.exact.errors import ExactModeError
from tilewright.passes.exact.float_bits import access_bits, reinterpreted
from tilewright.passes.exact.ring import is_float
from tilewright.passes.exact.rules import Formulas, is_moved, rule_of, touches_floats
from tilewright.passes.exact.stored_floats import (
    access,
    element_of,
    is_converted,
    pads_with_nan,
    with_nan_outside,
)

#: Scalar functions that were written, by row and types; they are in no module.
_FORMULAS = Formulas()


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


class ExactRewriter:
    """A module being rewritten.

    Attributes:
        options: of the pass.
        groups: the module's addresses.
        values: each value that was rewritten -> the new one.
        builder: appends to the new module.
        changed: whether anything but types was.
    """

    def __init__(self, module: Module, options: ExactOptions) -> None:
        self.options, self.groups = options, AddressGroups(module)
        self.values: dict[Value, Value] = {}
        self.changed = False
        self.builder = Builder()
        #: payloads of values that operations with a row made
        self._payloads: dict[Value, Value] = {}

    # ---- types

    def payload_type(self, type_: Type) -> Type:
        """A float type as that of its payloads; others as they are, tiles element by element."""
        element = element_type(type_)
        if isinstance(element, FloatType):
            return with_element(type_, IntType(element.bits, signed=False))
        return type_

    def type_of(self, value: Value) -> Type:
        """The type of a value in the new module."""
        if is_address(value.type):
            storage = self.groups.storage(value)
            if storage is not Storage.PAYLOADS:
                return _pointing_to(value.type, element_of(storage))
        return self._carried(value.type)

    def _carried(self, type_: Type) -> Type:
        if self.options.carry == "float":
            return type_
        if isinstance(type_, TileType):
            return TileType(type_.shape, self._carried(type_.element))
        if isinstance(type_, PointerType):
            return PointerType(self._carried(type_.pointee), type_.space)
        if isinstance(type_, DescriptorType):
            return DescriptorType(type_.block_shape, self._carried(type_.element))
        return self.payload_type(type_)

    # ---- functions and regions

    def function(self, old: Function) -> Function:
        """Return the new function of an old one."""

        def argument_type(argument: Value) -> Type:
            if old.kernel and isinstance(argument.type, FloatType):
                return self.payload_type(argument.type)
            return self.type_of(argument)

        made = Function(
            old.name,
            [argument_type(argument) for argument in old.arguments],
            [self._carried(type_) for type_ in old.result_types],
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
            self.values[before] = self._as(before, after) if is_float(before.type) else after
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
            results = loop_of_sums(self, operation, accumulators)
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
            payloads = self._bits(result)
            results = [with_nan_outside(self, operation, payloads)]  # type: ignore[arg-type]
        return [
            self._as(before, after) if is_float(before.type) else after
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

    # ---- payloads

    def _as(self, old: Value, new: Value) -> Value:
        """Return payloads as values of the type that the old value's have."""
        wanted = self.type_of(old)
        if new.type is wanted:
            return new
        self.changed = True
        carried: Value = self.builder.bitcast(new, result=wanted)
        self._payloads[carried] = new
        return carried

    def _bits(self, value: Value) -> Value:
        known = self._payloads.get(value)
        if known is not None:
            return known
        wanted = self.payload_type(value.type)
        if value.type is wanted:
            return value
        bits: Value = self.builder.bitcast(value, result=wanted)
        return bits

    def payloads(self, operands: Sequence[Value]) -> list[Value]:
        """The payloads of old values; integers as they are."""
        return [self._bits(self.values[value]) for value in operands]

    def formula(
        self,
        key: tuple[Any, ...],
        write: Callable[..., Number],
        payloads: list[Value],
        result: Type,
    ) -> Value:
        """Append a scalar function for each element of new values.

        Args:
            key: identifies ``write``, beside the types of ``payloads``.
            result: the element type of what it returns.
        """
        self.changed = True
        return _FORMULAS.applied(self.builder, key, write, payloads, payloads[0].type, result)

    def applied(
        self,
        key: tuple[Any, ...],
        write: Callable[..., Number],
        operands: Sequence[Value],
        result: Type,
    ) -> list[Value]:
        """As :meth:`formula`, for old values, and an old type of the result."""
        element = element_type(self.payload_type(result))
        return [self.formula(key, write, self.payloads(operands), element)]


def _pointing_to(type_: Type, element: Type) -> Type:
    inner = element_type(type_)
    if isinstance(inner, DescriptorType):
        return DescriptorType(inner.block_shape, element)
    assert isinstance(inner, PointerType)
    return with_element(type_, PointerType(element, inner.space))


def _describes_floats(value: Value) -> bool:
    return isinstance(value.type, DescriptorType) and isinstance(value.type.element, FloatType)
