"""Underlying objects of pointers: the kernel's arguments that they may point into."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tilewright.ir.core import Function, Operation, Value
from tilewright.ir.ops.arithmetic import Constant
from tilewright.ir.table import Effect
from tilewright.ir.types import PointerType, element_type
from tilewright.simt.analysis.alias import MAKING
from tilewright.simt.dialect.loop_carried import Carried

#: Underlying object of pointers of unknown origin.
ANYWHERE: Final = None


class UnderlyingObjects:
    """Underlying objects of a function's pointers and descriptors.

    Args:
        carried: the function's loop-carried values.
    """

    def __init__(self, function: Function, carried: Mapping[Value, Carried]) -> None:
        self._function, self._carried = function, carried
        self._known: dict[Value, frozenset[Value | None]] = {}

    def of_descriptor(self, descriptor: Value) -> frozenset[Value | None]:
        """Return a descriptor's underlying objects: itself, and its tensor's pointer argument.

        That argument is the first of the descriptor's components, which follow it in the argument
        list. A descriptor made in the kernel has the underlying objects of its base pointer.
        """
        arguments = self._function.arguments
        made = descriptor.definition
        if made is not None:
            assert isinstance(made, MAKING)
            return self.of_pointer(made.base)
        return frozenset(
            (
                descriptor,
                *(
                    arguments[descriptor.index + 1 : descriptor.index + 2]
                    if descriptor.owner is self._function.body
                    else ()
                ),
            )
        )

    def of_pointer(self, pointer: Value) -> frozenset[Value | None]:
        """Return what a pointer or tile of pointers may point to: arguments, or ``ANYWHERE``."""
        found = self._known.get(pointer)
        if found is None:
            found = self._known[pointer] = frozenset(self._reached(pointer))
        return found

    def _reached(self, pointer: Value) -> set[Value | None]:
        found: set[Value | None] = set()
        pending, seen = [pointer], {pointer}
        while pending:
            value = pending.pop()
            known = self._known.get(value)
            if known is not None:
                found |= known
                continue
            sources = self._sources(value, found)
            pending += [source for source in sources if source not in seen]
            seen.update(sources)
        return found

    def _sources(self, value: Value, found: set[Value | None]) -> list[Value]:
        """Pointers that a pointer is computed from; underlying objects are added to ``found``."""
        carried: Carried | None = self._carried.get(value)
        if carried is not None:
            return list(carried.incoming())
        operation = value.definition
        if operation is None:
            found.add(value)  # an argument
            return []
        sources = (
            [operand for operand in operation.operands if _is_pointer(operand)]
            if _passes_on(operation)
            else []
        )
        if not sources and not isinstance(operation, Constant):
            found.add(ANYWHERE)
        return sources


def _passes_on(operation: Operation) -> bool:
    """Return whether pointer results derive from pointer operands, not from memory or integers."""
    return operation.spec.effects is Effect.NONE


def _is_pointer(value: Value) -> bool:
    return isinstance(element_type(value.type), PointerType)


def may_alias(a: frozenset[Value | None], b: frozenset[Value | None]) -> bool:
    """Return whether accesses with these underlying objects may have an address in common."""
    return ANYWHERE in a or ANYWHERE in b or not a.isdisjoint(b)
