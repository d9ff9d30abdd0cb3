"""Dependences of a kernel's stores on operations without algebra, and on its arguments' memory.

A forward data-flow analysis over the module on floats: a value depends on its operands, on the
conditions of the control flow around it and, if it is loaded, on all that is stored in memory that
may be the same. Memory counts by argument, not by element, so the dependences of an array are those
of all stores to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tilewright.ir.core import Module, Operation, Region, Value
from tilewright.ir.ops.control import Call, Condition, For, If, While
from tilewright.ir.table import Effect
from tilewright.passes.exact.address_groups import AddressGroups, is_address
from tilewright.passes.exact.report import Uninterpreted, uninterpreted_of


@dataclass(frozen=True, slots=True)
class StoreDependences:
    """Sources that the stores to an argument's memory depend on.

    Attributes:
        operations: the operations of which only the operands are known.
        arguments: the positions of the arguments whose memory is read.
    """

    operations: frozenset[Uninterpreted]
    arguments: frozenset[int]


def store_dependences(module: Module, groups: AddressGroups) -> Mapping[int, StoreDependences]:
    """Return the dependences of the memory of each argument of the kernel that is stored to."""
    return _StoreAnalysis(module, groups).result()


class _StoreAnalysis:
    """Sets of sources, as bits: of operations first, then of arguments.

    Attributes:
        values: of each value.
        memory: of what stores put in each group of addresses.
        around: of the control flow around each function's calls.
    """

    def __init__(self, module: Module, groups: AddressGroups) -> None:
        self._module, self._groups = module, groups
        self._operations: dict[Uninterpreted, int] = {}
        self._bits: dict[Operation, int] = {}
        for operation in module.walk():
            found = uninterpreted_of(operation)
            if found is not None:
                number = self._operations.setdefault(found, len(self._operations))
                self._bits[operation] = 1 << number
        self.values: dict[Value, int] = {}
        self.memory: dict[Value, int] = {}
        self.around: dict[str, int] = {}
        self._arguments: dict[Value, int] = {}
        for position, argument in enumerate(module.kernel.arguments):
            if is_address(argument.type):
                root = groups.root(argument)
                bit = 1 << (len(self._operations) + position)
                self._arguments[root] = self._arguments.get(root, 0) | bit
        self._changed = True
        while self._changed:
            self._changed = False
            for function in module.functions.values():
                self._region(function.body, self.around.get(function.name, 0))

    def result(self) -> dict[int, StoreDependences]:
        """The dependences by the position of an argument of the kernel."""
        operations, found = list(self._operations), {}
        elsewhere = self._elsewhere()
        for position, argument in enumerate(self._module.kernel.arguments):
            if not is_address(argument.type):
                continue
            root = self._groups.root(argument)
            if root not in self.memory and not elsewhere:
                continue
            bits = self.memory.get(root, 0) | elsewhere
            found[position] = StoreDependences(
                frozenset(one for number, one in enumerate(operations) if bits >> number & 1),
                frozenset(
                    number
                    for number in range(len(self._module.kernel.arguments))
                    if bits >> (len(operations) + number) & 1
                ),
            )
        return found

    def _elsewhere(self) -> int:
        """Of stores through addresses that are not made of arguments: they may go anywhere."""
        found = 0
        for root, bits in self.memory.items():
            if root not in self._arguments:
                found |= bits
        return found

    # ---- sets

    def _of(self, values: Iterable[Value]) -> int:
        found = 0
        for value in values:
            found |= self.values.get(value, 0)
        return found

    def _add(self, values: Iterable[Value], bits: int) -> None:
        for value in values:
            before = self.values.get(value, 0)
            if bits | before != before:
                self.values[value] = bits | before
                self._changed = True

    def _join(self, targets: Sequence[Value], *sources: Sequence[Value], bits: int = 0) -> None:
        """Add sources to targets in their places, and bits to all targets."""
        for target, *others in zip(targets, *sources, strict=True):
            self._add([target], self._of(others) | bits)

    def _loaded(self, addresses: Sequence[Value]) -> int:
        found = 0
        for address in addresses:
            root = self._groups.root(address)
            if root in self._arguments:
                found |= self.memory.get(root, 0) | self._arguments[root] | self._elsewhere()
            else:
                for bits in (*self.memory.values(), *self._arguments.values()):
                    found |= bits
        return found

    def _store(self, addresses: Sequence[Value], bits: int) -> None:
        for address in addresses:
            root = self._groups.root(address)
            before = self.memory.get(root)
            if before is None or bits | before != before:
                self.memory[root] = bits | (before or 0)
                self._changed = True

    # ---- operations

    def _region(self, region: Region, around: int) -> None:
        for operation in region:
            self._operation(operation, around)

    def _operation(self, operation: Operation, around: int) -> None:
        own = self._of(operation.operands) | self._bits.get(operation, 0) | around
        if isinstance(operation, For):
            own = self._of((operation.lower, operation.upper, operation.step)) | around
            end = operation.body.last
            assert end is not None
            self._add(operation.body.arguments[:1], own)
            carried = (operation.inits, end.operands)
            self._join(operation.body.arguments[1:], *carried, bits=own)
            self._region(operation.body, own)
            self._join(operation.results, *carried, bits=own)
        elif isinstance(operation, If):
            own = self._of([operation.condition]) | around
            ends = []
            for region in operation.regions:
                self._region(region, own)
                if region.last is not None:
                    ends.append(region.last.operands)
            self._join(operation.results, *ends, bits=own)
        elif isinstance(operation, While):
            condition, end = operation.before.last, operation.after.last
            assert isinstance(condition, Condition) and end is not None
            forwarded = condition.values
            own = self._of([condition.condition]) | around
            carried = (operation.inits, end.operands)
            self._join(operation.before.arguments, *carried, bits=own)
            self._region(operation.before, own)
            self._join(operation.after.arguments, forwarded, bits=own)
            self._region(operation.after, own)
            self._join(operation.results, forwarded, bits=own)
        elif isinstance(operation, Call):
            callee = self._module.functions[operation.callee]
            self._join(callee.body.arguments, operation.arguments)
            before = self.around.get(callee.name, 0)
            if around | before != before:
                self.around[callee.name] = around | before
                self._changed = True
            assert callee.body.last is not None
            self._join(operation.results, callee.body.last.operands, bits=around)
        else:
            self._simple(operation, own)

    def _simple(self, operation: Operation, own: int) -> None:
        addresses = [value for value in operation.operands if is_address(value.type)]
        effects = operation.spec.effects
        if effects & Effect.READ:
            own |= self._loaded(addresses)
        for region in operation.regions:
            self._add(region.arguments, own)
            self._region(region, own)
            if region.last is not None:
                own |= self._of(region.last.operands)
        if effects & Effect.WRITE:
            self._store(addresses, own)
        self._add(operation.results, own)
