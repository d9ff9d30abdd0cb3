"""The memory that a kernel reads and writes, and the refusals of passes that re-tile it."""

from __future__ import annotations

from tilewright.ir.core import Function, Module, Operation, Value
from tilewright.ir.ops.control import Call
from tilewright.ir.ops.debug import Assume
from tilewright.ir.ops.memory import AtomicRmw, Barrier, DescriptorReduce
from tilewright.ir.table import Effect, Trait
from tilewright.ir.types import FloatType, PointerType, Type, element_type
from tilewright.passes.analysis.argument_access import accesses_of
from tilewright.passes.clone import clone_module
from tilewright.passes.effects import effects_of

#: An operation that adds to memory, or to a tensor of a descriptor.
Addition = AtomicRmw | DescriptorReduce


class NoTilingError(Exception):
    """A kernel that a pass does not re-tile.

    Attributes:
        reason: why not, for a report.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def place_in_kernel(operation: Operation) -> str:
    """Return the text of an operation's place in the kernel's own source."""
    if operation.location is None:
        return "an unknown place"
    return str(operation.location.chain()[-1])


def copied_kernel(module: Module) -> Module:
    """Return a copy of a module that has its kernel alone.

    Raises:
        NoTilingError: the kernel calls functions.
    """
    for operation in module.kernel.walk():
        if isinstance(operation, Call):
            raise NoTilingError(f"the call at {place_in_kernel(operation)} is not inlined")
    copy = clone_module(module)
    kernel = copy.kernel
    copy.functions.clear()
    copy.add(kernel)
    return copy


#: Bytes to which scratch memory is aligned.
_SCRATCH_ALIGNMENT = 16


def add_scratch(function: Function, type_: Type, name: str) -> Value:
    """Add a parameter for scratch memory with elements of a type."""
    base = add_parameter(function, PointerType(type_), name)
    function.argument_attributes[-1]["divisibility"] = _SCRATCH_ALIGNMENT
    return base


def add_parameter(function: Function, type_: Type, name: str) -> Value:
    """Add a parameter at the end, under a name that no other has."""
    known = {argument.name for argument in function.arguments}
    number, unique = 0, name
    while unique in known:
        number += 1
        unique = f"{name}_{number}"
    function.argument_attributes.append({})
    return function.body.add_argument(type_, unique)


class KernelMemory:
    """Accesses of a kernel without calls.

    Attributes:
        reads: operations that read memory -> the names of the arguments.
        writes: operations that write to memory -> the name of the argument.

    Raises:
        NoTilingError: an operation may access any memory, or has an effect of another kind.
    """

    def __init__(self, module: Module) -> None:
        self.reads: dict[Operation, frozenset[str]] = {}
        self.writes: dict[Operation, str] = {}
        arguments = module.kernel.arguments
        accesses = {access.operation: access for access in accesses_of(module)}
        for operation in module.kernel.walk():
            effects = Effect.NONE if operation.regions else effects_of(operation)
            if effects is Effect.NONE or isinstance(operation, Assume | Barrier):
                continue
            access = accesses.get(operation)
            if access is None or Trait.ACCESS not in operation.spec.traits:
                raise NoTilingError(
                    f"the {operation.name} at {place_in_kernel(operation)} has effects that are "
                    "not known"
                )
            if effects & Effect.ORDER:
                raise NoTilingError(
                    f"the {operation.name} at {place_in_kernel(operation)} is ordered"
                )
            names = frozenset(arguments[position].name for position in access.arguments)
            if effects & Effect.WRITE:
                if len(names) != 1:
                    raise NoTilingError(
                        f"the {operation.name} at {place_in_kernel(operation)} writes through an "
                        "address that is made of several arguments"
                    )
                (self.writes[operation],) = names
            if effects & Effect.READ and not is_addition(operation):
                self.reads[operation] = names

    def written(self) -> set[str]:
        """Return the arguments that the kernel writes to."""
        return set(self.writes.values())

    def read(self) -> set[str]:
        """Return the arguments that the kernel reads."""
        return {name for names in self.reads.values() for name in names}

    def require_apart(self) -> None:
        """Check that the kernel reads nothing that it writes.

        Raises:
            NoTilingError: it does.
        """
        both = sorted(self.read() & self.written())
        if both:
            raise NoTilingError(f"it reads {both[0]}, to which it writes")


def is_addition(operation: Operation) -> bool:
    """Return whether an operation only adds floats to memory, in any order."""
    if not isinstance(operation, Addition) or operation.kind != "add":
        return False
    is_unread = not any(result.uses for result in operation.results)
    return is_unread and isinstance(element_type(operation.value.type), FloatType)


__all__ = [
    "Addition",
    "KernelMemory",
    "NoTilingError",
    "add_parameter",
    "add_scratch",
    "copied_kernel",
    "is_addition",
    "place_in_kernel",
]
