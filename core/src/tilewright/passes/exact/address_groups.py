"""Addresses that may be one memory, and the representation of floats there.

Pointers and descriptors made of each other form a group. Where a group's floats are added to
atomically, its memory holds sums of residues; where they are compared atomically, keys.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence

from tilewright.ir.core import Module, Operation, Value
from tilewright.ir.ops.arithmetic import Bitcast
from tilewright.ir.ops.control import Call, Condition, For, If, While
from tilewright.ir.ops.memory import AtomicRmw, DescriptorReduce, MakeDescriptor
from tilewright.ir.table import Trait
from tilewright.ir.types import I32, I64, DescriptorType, IntType, PointerType, Type, element_type
from tilewright.passes.exact.errors import ExactModeError
from tilewright.passes.exact.ring import is_float


class Storage(enum.Enum):
    """The representation of floats in memory."""

    PAYLOADS = "payloads, in the floats' own width"
    SUMS = "64-bit sums of residues, for atomic additions"
    MINIMA = "32-bit keys, for atomic minima"
    MAXIMA = "32-bit keys, for atomic maxima"

    @property
    def element(self) -> IntType:
        """The element type of memory with sums or keys."""
        return I64 if self is Storage.SUMS else I32


_OF_KIND = {"add": Storage.SUMS, "min": Storage.MINIMA, "max": Storage.MAXIMA}


def is_address(type_: Type) -> bool:
    """Return whether a type is a pointer, a tile of pointers or a descriptor."""
    return isinstance(element_type(type_), PointerType | DescriptorType)


def element_at(type_: Type) -> Type:
    """The type of what lies at an address."""
    element = element_type(type_)
    if isinstance(element, DescriptorType):
        return element.element
    assert isinstance(element, PointerType)
    return element.pointee


class AddressGroups:
    """The groups of a module's addresses.

    Raises:
        ExactModeError: memory is updated atomically in ways that no one representation serves.
    """

    def __init__(self, module: Module) -> None:
        self._module = module
        self._parents: dict[Value, Value] = {}
        self._storage: dict[Value, Storage] = {}
        self._padding: dict[Value, set[str]] = {}
        for operation in module.walk():
            for values in self._rows(operation):
                self._join([value for value in values if is_address(value.type)])
        updates = [
            operation
            for operation in module.walk()
            if isinstance(operation, AtomicRmw | DescriptorReduce)
            and is_float(operation.value.type)
        ]
        for operation in updates:
            self._update(operation)
        if updates:
            for operation in module.walk():
                self._check_origin(operation)
        self._collect_paddings()
        self._origins: dict[Value, set[Type]] = {}
        for argument in module.kernel.arguments:
            if is_address(argument.type):
                types = self._origins.setdefault(self.root(argument), set())
                types.add(element_at(argument.type))

    def storage(self, address: Value) -> Storage:
        """The representation of floats at an address."""
        return self._storage.get(self.root(address), Storage.PAYLOADS)

    def root(self, address: Value) -> Value:
        """The address that stands for the group of another."""
        while (parent := self._parents.get(address)) is not None:
            address = parent
        return address

    def origin(self, address: Value) -> Type | None:
        """The type of the elements of the arguments that an address is made of.

        None where there are none, or several types.
        """
        found = self._origins.get(self.root(address), set())
        return next(iter(found)) if len(found) == 1 else None

    def paddings(self, descriptor: Value) -> set[str]:
        """The paddings that a descriptor may have."""
        return self._padding.get(self.root(descriptor), set())

    def _rows(self, operation: Operation) -> Iterable[Sequence[Value]]:
        """Values that are one another, or made of one another, in an operation."""
        if isinstance(operation, For):
            assert operation.body.last is not None
            return zip(
                operation.inits,
                operation.body.arguments[1:],
                operation.body.last.operands,
                operation.results,
                strict=True,
            )
        if isinstance(operation, If):
            ends = [region.last for region in (operation.then, operation.else_)]
            return zip(
                operation.results, *(end.operands for end in ends if end is not None), strict=True
            )
        if isinstance(operation, While):
            condition, end = operation.before.last, operation.after.last
            assert isinstance(condition, Condition) and end is not None
            carried = zip(operation.inits, operation.before.arguments, end.operands, strict=True)
            forwarded = zip(
                condition.values, operation.after.arguments, operation.results, strict=True
            )
            return [*carried, *forwarded]
        if isinstance(operation, Call):
            callee = self._module.functions[operation.callee]
            assert callee.body.last is not None
            arguments = zip(operation.arguments, callee.arguments, strict=True)
            results = zip(operation.results, callee.body.last.operands, strict=True)
            return [*arguments, *results]
        if Trait.ACCESS in operation.spec.traits:
            return ()
        inner = [value for region in operation.regions for value in region.arguments]
        yielded = [
            value
            for region in operation.regions
            if region.last is not None
            for value in region.last.operands
        ]
        if not any(is_address(value.type) for value in (*operation.results, *inner)):
            return ()
        return [[*operation.operands, *operation.results, *inner, *yielded]]

    def _join(self, values: Sequence[Value]) -> None:
        for value in values[1:]:
            first, other = self.root(values[0]), self.root(value)
            if first is not other:
                self._parents[other] = first

    def _update(self, operation: AtomicRmw | DescriptorReduce) -> None:
        wanted = _OF_KIND.get(operation.kind)
        if wanted is None:  # an exchange moves what there is
            return
        address, *_ = operation.operands
        root = self.root(address)
        found = self._storage.setdefault(root, wanted)
        if found is not wanted:
            raise ExactModeError(
                f"an atomic {operation.kind} of floats in memory that another atomic operation "
                f"updates as {found.value}",
                "use one kind of atomic operation for each array",
                operation.location,
            )

    def _check_origin(self, operation: Operation) -> None:
        """Refuse memory in another representation whose address is not traced to an argument."""
        for value in operation.results:
            if not is_address(value.type) or self.storage(value) is Storage.PAYLOADS:
                continue
            loaded = Trait.ACCESS in operation.spec.traits
            recast = isinstance(operation, Bitcast) and (
                not is_address(operation.x.type)
                or element_at(operation.x.type) is not element_at(value.type)
            )
            if loaded or recast:
                raise ExactModeError(
                    "floats are updated atomically at an address that "
                    + ("is loaded from memory" if loaded else "was cast from another type"),
                    "pass the array as an argument of its own float type",
                    operation.location,
                )
        if (
            isinstance(operation, Bitcast)
            and is_address(operation.x.type)
            and not is_address(operation.result.type)
            and self.storage(operation.x) is not Storage.PAYLOADS
        ):
            raise ExactModeError(
                "the address of floats that are updated atomically is cast to an integer",
                "access the array through pointers to its own float type",
                operation.location,
            )

    def _collect_paddings(self) -> None:
        for function in self._module.functions.values():
            for argument, facts in zip(
                function.arguments, function.argument_attributes, strict=True
            ):
                if isinstance(argument.type, DescriptorType) and function.kernel:
                    self._pad(argument, str(facts.get("padding", "zero")))
        for operation in self._module.walk():
            if isinstance(operation, MakeDescriptor):
                self._pad(operation.result, operation.padding)

    def _pad(self, descriptor: Value, padding: str) -> None:
        self._padding.setdefault(self.root(descriptor), set()).add(padding)
