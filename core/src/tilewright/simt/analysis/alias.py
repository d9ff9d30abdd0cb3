"""Alias analysis by underlying objects: the kernel arguments that addresses are based on.

Different arguments are assumed not to alias. A loaded address, or one computed from integers, may
point anywhere, including to the memory of arguments.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from tilewright.ir.core import Function, Operation, Region, Value
from tilewright.ir.ops import memory
from tilewright.ir.ops.arithmetic import Addptr, Bitcast
from tilewright.ir.ops.control import For
from tilewright.ir.table import Effect
from tilewright.ir.types import DescriptorType, PointerType, TileType, Type
from tilewright.passes.effects import clobbers_memory, effects_of
from tilewright.simt.dialect.ops.tensor_maps import MakeTensorMap, Tensor

#: Operations whose result is based on their first operand, besides the ones that move or forward
#: elements.
_PASSING: Final = (Addptr, Bitcast)
#: Operations that make a descriptor of a tensor at their operand ``base``.
MAKING: Final = (memory.MakeDescriptor, MakeTensorMap, Tensor)


def root_of(address: Value) -> Value | None:
    """Return the argument that a pointer or descriptor is based on; None if unknown."""
    value, seen = address, set()
    while value not in seen:
        seen.add(value)
        owner = value.owner
        if isinstance(owner, Region):
            if isinstance(owner.owner, Function):
                return value if is_address(value.type) else None
            if not isinstance(owner.owner, For) or not value.index:
                return None
            # a loop-carried pointer has the underlying object of its initial value
            value = owner.owner.inits[value.index - 1]
        elif isinstance(owner, MAKING):
            value = owner.base
        elif owner.spec.forwards:
            value = owner.forwarded[value.index]
        elif owner.spec.moves or isinstance(owner, _PASSING):
            value, *_ = owner.operands
        else:
            return None
    return None


def is_address(type_: Type) -> bool:
    """Return whether values of a type are pointers or descriptors."""
    return isinstance(
        type_.element if isinstance(type_, TileType) else type_, PointerType | DescriptorType
    )


def reached(operation: Operation, effect: Effect) -> frozenset[Value | None]:
    """Return the underlying objects of the memory that an operation without regions accesses.

    The set contains None if that may be any memory.
    """
    if operation.regions or effect not in effects_of(operation):
        return frozenset()
    roots = [root_of(operand) for operand in operation.operands if is_address(operand.type)]
    # simt operations without addresses access shared memory only
    return frozenset(roots if roots or operation.name.startswith("simt.") else [None])


def may_be_same(one: Value | None, other: Value | None) -> bool:
    """Return whether two underlying objects may alias."""
    return one is None or other is None or one is other


def writer_in(body: Region, roots: Collection[Value | None]) -> Operation | None:
    """Return the first operation of a body that may clobber memory with these underlying objects.

    None if there is none. An atomic operation with an unused result does not order the program
    after writes of other programs: it counts as a store to its own memory.
    """
    return next(
        (
            operation
            for operation in body.walk()
            if not operation.regions and clobbers_memory(operation) and _may_write(operation, roots)
        ),
        None,
    )


def _may_write(operation: Operation, roots: Collection[Value | None]) -> bool:
    """Return whether a clobbering operation may write to memory with these underlying objects."""
    silent = (
        isinstance(operation, memory.AtomicRmw | memory.AtomicCas) and not operation.results[0].uses
    )
    if not (
        silent
        or operation.name.startswith("simt.")
        or isinstance(
            operation,
            memory.Store
            | memory.DescriptorStore
            | memory.DescriptorReduce
            | memory.DescriptorScatter,
        )
    ):
        return True
    return any(
        may_be_same(written, root) for written in reached(operation, Effect.WRITE) for root in roots
    )


def written_arguments(function: Function) -> frozenset[Value] | None:
    """Return the arguments through which a kernel writes.

    None if it may write anywhere, or waits for what others write.
    """
    found: set[Value] = set()
    for operation in function.walk():
        if isinstance(operation, memory.ATOMICS) and any(
            result.uses for result in operation.results
        ):
            return None
        if isinstance(operation, memory.Load) and operation.volatile:
            return None
        if Effect.WRITE not in effects_of(operation) or operation.regions:
            continue
        bases = [root_of(operand) for operand in operation.operands if is_address(operand.type)]
        if not bases or None in bases:
            return None
        found.update(base for base in bases if base is not None)
    return frozenset(found)
