"""Which memory a pointer or a descriptor leads to: that of an argument of the kernel, or any.

Different arguments are different memory. An address that was loaded, or made of numbers, may lead
anywhere, to the memory of arguments as well.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from tilewright.ir.core import Function, Operation, Region, Value
from tilewright.ir.ops import memory
from tilewright.ir.ops.control import For
from tilewright.ir.table import Effect
from tilewright.ir.types import DescriptorType, PointerType, TileType, Type
from tilewright.passes.effects import clobbers_memory, effects_of
from tilewright.simt.dialect.ops.tensor_maps import MakeDescriptor, Tensor

#: Operations whose result leads where their first operand does, beside those that move or forward
#: elements.
_PASSING: Final = frozenset({"addptr", "bitcast"})
#: Operations that make a descriptor of a tensor at their operand ``base``.
MAKING: Final = (memory.MakeDescriptor, MakeDescriptor, Tensor)


def root_of(address: Value) -> Value | None:
    """The argument that a pointer, a tile of them, or a descriptor is made of; None where it may
    lead anywhere."""
    value, seen = address, set()
    while value not in seen:
        seen.add(value)
        owner = value.owner
        if isinstance(owner, Region):
            if isinstance(owner.owner, Function):
                return value if is_address(value.type) else None
            if not isinstance(owner.owner, For) or not value.index:
                return None
            # what a loop carries begins outside, if it stays in the same memory
            value = owner.owner.inits[value.index - 1]
        elif isinstance(owner, MAKING):
            value = owner.base
        elif owner.spec.forwards:
            value = owner.forwarded[value.index]
        elif owner.spec.moves or owner.name in _PASSING:
            value, *_ = owner.operands
        else:
            return None
    return None


def is_address(type_: Type) -> bool:
    """Return whether values of a type lead to memory."""
    return isinstance(type_.element if isinstance(type_, TileType) else type_, PointerType | DescriptorType)


def reached(operation: Operation, effect: Effect) -> frozenset[Value | None]:
    """The memory that an operation with no regions has an effect on: the roots of its addresses, or
    None where it may be any."""
    if operation.regions or effect not in effects_of(operation):
        return frozenset()
    roots = [root_of(operand) for operand in operation.operands if is_address(operand.type)]
    # the toolkit's own operations that have none are about shared memory
    return frozenset(roots if roots or operation.name.startswith("simt.") else [None])


def may_be_same(one: Value | None, other: Value | None) -> bool:
    """Return whether two roots may be of the same memory."""
    return one is None or other is None or one is other


def writer_in(body: Region, roots: Collection[Value | None]) -> Operation | None:
    """The first operation of a body, or in its regions, after which a load of memory with these
    roots may see other values than before it; None where there is none. An atomic operation whose
    result nobody reads tells the program nothing of what others wrote: it is a store of its own
    memory."""
    return next((operation for operation in body.walk() if not operation.regions and clobbers_memory(operation) and _may_write(operation, roots)), None)


def _may_write(operation: Operation, roots: Collection[Value | None]) -> bool:
    """Return whether an operation that writes, or orders accesses, is not known to write to other
    memory alone."""
    silent = isinstance(operation, memory.AtomicRmw | memory.AtomicCas) and not operation.results[0].uses
    if not (silent or isinstance(operation, memory.Store | memory.DescriptorStore | memory.DescriptorReduce | memory.DescriptorScatter)):
        return True
    return any(may_be_same(written, root) for written in reached(operation, Effect.WRITE) for root in roots)
