"""Arguments that a kernel may load from and store to, by a forward analysis of addresses.

Every argument is a bit. The bits of an address go wherever its number goes: through pointer
arithmetic, selects, loops, branches and calls, into a descriptor, into an integer and what is
computed from it, into memory and back out of it. A store, an atomic, or an operation that may write
anywhere marks the arguments whose bits its address has.

An address that does not come from an argument, such as one that the host wrote into a table of
pointers, has no bit: what it leads to is no argument's memory as far as a kernel can tell.
Functions are analysed once for all their calls, so a function that returns one of the pointers it
is given returns all that any call gave it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tilewright.ir.core import Function, Module, Operation, Value
from tilewright.ir.ops import TABLE
from tilewright.ir.ops.control import Call, Condition, For, If, While
from tilewright.ir.table import Effect, Trait
from tilewright.ir.types import I1, DescriptorType, PointerType, element_type
from tilewright.passes.effects import effects_of


def stored_arguments(module: Module) -> frozenset[int]:
    """Positions of the kernel's pointers and descriptors through which it may write to memory.

    Only what reads an address is looked at, again whenever it may be another argument's.
    """
    return _positions(_flow_of(module).stored)


@dataclass(frozen=True, slots=True)
class ArgumentAccess:
    """An operation that reads or writes memory, and the positions of the kernel's arguments whose
    memory it may be. ``effects`` holds READ, WRITE or both."""

    operation: Operation
    effects: Effect
    arguments: frozenset[int]


def accesses_of(module: Module) -> list[ArgumentAccess]:
    """The accesses of memory in all of a module's functions, in program order; those that no
    argument's address leads to are omitted.

    Impure code of the target's own that is given an address may read and write there, pure code may
    read.
    """
    flow, found = _flow_of(module), []
    for operation in module.walk():
        spec = operation.spec
        if Trait.ACCESS in spec.traits:
            (address, *_), effects = operation.operands, spec.effects
            addresses = [address]
        elif not operation.regions and spec.name not in _RULES and spec.has_attribute("pure"):
            addresses, effects = operation.operands, Effect.READ | effects_of(operation)
        else:
            continue
        arguments = _positions(flow.of(addresses))
        if arguments:
            found.append(
                ArgumentAccess(operation, effects & (Effect.READ | Effect.WRITE), arguments),
            )
    return found


def _flow_of(module: Module) -> _Flow:
    flow = _Flow(module)
    for position, argument in enumerate(module.kernel.arguments):
        if isinstance(argument.type, PointerType | DescriptorType):
            flow.add(argument, 1 << position)
    flow.run()
    return flow


def _positions(bits: int) -> frozenset[int]:
    return frozenset(position for position in range(bits.bit_length()) if bits >> position & 1)


class _Flow:
    """``bits`` of values, of addresses stored in ``memory``, and of addresses ``stored`` to."""

    __slots__ = ("_module", "_pending", "bits", "memory", "stored")

    def __init__(self, module: Module) -> None:
        self._module = module
        self._pending: dict[Operation, None] = {}
        self.bits: dict[Value, int] = {}
        self.memory = self.stored = 0

    def run(self) -> None:
        """To a fixed point."""
        pending = self._pending
        while pending:
            operation, _ = pending.popitem()
            _RULES.get(operation.spec.name, _Flow.other)(self, operation)

    def of(self, values: Iterable[Value]) -> int:
        get, found = self.bits.get, 0
        for value in values:
            found |= get(value, 0)
        return found

    def add(self, value: Value, bits: int) -> None:
        """Add bits to those of a value, and queue its readers to be visited."""
        old = self.bits.get(value, 0)
        if (
            bits | old == old or element_type(value.type) is I1
        ):  # a truth may tell of an address, but is none
            return
        self.bits[value] = bits | old
        for reader in value.uses:
            self._pending[reader] = None

    def move(self, sources: Sequence[Value], targets: Sequence[Value]) -> None:
        for source, target in zip(sources, targets, strict=True):
            bits = self.bits.get(source)
            if bits:
                self.add(target, bits)

    def keep(self, bits: int) -> None:
        """Addresses are put in memory: any load may give them back."""
        if bits | self.memory != self.memory:
            self.memory |= bits
            for operation in self._module.walk():
                if Trait.ACCESS in operation.spec.traits:
                    for result in operation.results:
                        self.add(result, self.memory)

    # ---- what operations do with the bits of their operands

    def other(self, operation: Operation) -> None:
        """Results are computed from any operand.

        A combination's arguments are elements of any operand, its results of what it yields.
        """
        bits = self.of(operation.operands)
        for region in operation.regions:
            for argument in region.arguments:
                self.add(argument, bits)
            if region.last is not None:
                bits |= self.of(region.last.operands)
        if not operation.regions and effects_of(operation) & Effect.WRITE:
            self.stored |= bits
            self.keep(bits)
        for result in operation.results:
            self.add(result, bits)

    def access(self, operation: Operation) -> None:
        if operation.spec.effects & Effect.WRITE:
            address, *written = operation.operands
            self.stored |= self.bits.get(address, 0)
            self.keep(self.of(written))

    def number(self, operation: Operation) -> None:
        """Propagate nothing: numbers read from a descriptor are no addresses."""

    def if_(self, operation: If) -> None:
        for region in (operation.then, operation.else_):
            assert region.last is not None
            self.move(region.last.operands, operation.results)

    def for_(self, operation: For) -> None:
        body = operation.body
        assert body.last is not None
        self.add(body.arguments[0], self.of((operation.lower, operation.upper, operation.step)))
        for values in (operation.inits, body.last.operands):
            self.move(values, body.arguments[1:])
            self.move(values, operation.results)

    def while_(self, operation: While) -> None:
        before, after = operation.before, operation.after
        assert isinstance(before.last, Condition)
        assert after.last is not None
        for values in (operation.inits, after.last.operands):
            self.move(values, before.arguments)
        for targets in (after.arguments, operation.results):
            self.move(before.last.values, targets)

    def call(self, operation: Call) -> None:
        callee = self._module.functions[operation.callee]
        assert callee.body.last is not None
        self.move(operation.arguments, callee.arguments)
        self.move(callee.body.last.operands, operation.results)

    def end(self, operation: Operation) -> None:
        """Revisit the operation around a region, or the calls of a function, at its terminator."""
        assert operation.parent is not None
        owner = operation.parent.owner
        if isinstance(owner, Operation):
            self._pending[owner] = None
        elif isinstance(owner, Function):
            calls = (
                call
                for call in self._module.walk()
                if isinstance(call, Call) and call.callee == owner.name
            )
            self._pending.update(dict.fromkeys(calls))


#: The rules of operations, by name.
_RULES: Final[dict[str, Callable[[_Flow, Any], None]]] = {
    **{spec.name: _Flow.access for spec in TABLE if Trait.ACCESS in spec.traits},
    **dict.fromkeys(("yield", "condition", "return"), _Flow.end),
    **dict.fromkeys(("descriptor_extent", "descriptor_stride"), _Flow.number),
    "if": _Flow.if_,
    "for": _Flow.for_,
    "while": _Flow.while_,
    "call": _Flow.call,
}
