"""A worklist engine for local rewrites.

A rewrite looks at one operation and what is around it. The engine visits every operation once in
program order, then again those whose operands or readers changed, until none matches.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Operation, Region, Value
from tilewright.ir.ops.arithmetic import Constant
from tilewright.ir.ops.shape import Splat
from tilewright.ir.types import Type
from tilewright.passes.effects import is_removable, kept_for

_Class = TypeVar("_Class", bound=Operation)

#: What a rewrite returns that changed the graph itself instead of naming replacements.
DONE: Final = object()


@dataclass(frozen=True, slots=True)
class Rewrite:
    """One law.

    ``apply(operation, rewriter)`` yields values for the operation's results, :data:`DONE`, or None
    where the law does not apply.
    """

    operations: tuple[str, ...]
    law: str
    apply: Callable[[Any, Rewriter], Any]  # the operation is of a class of those named


def by_operation(rewrites: Iterable[Rewrite]) -> dict[str, tuple[Rewrite, ...]]:
    """The rewrites of each operation, in order."""
    found: dict[str, tuple[Rewrite, ...]] = {}
    for rewrite in rewrites:
        for name in rewrite.operations:
            found[name] = (*found.get(name, ()), rewrite)
    return found


class Rewriter(Builder):
    """Applies rewrites to a function.

    Inside a rewrite it is a builder that inserts before the operation at hand.
    """

    __slots__ = ("_kept", "_pending", "_queue", "_rewrites")

    def __init__(self, rewrites: Mapping[str, Sequence[Rewrite]]) -> None:
        super().__init__()
        self._rewrites = rewrites
        self._queue: deque[Operation] = deque()
        self._pending: set[Operation] = set()
        #: operations with regions -> what there they have to stay for, found once for all levels of
        #: a deep nest
        self._kept: dict[Operation, Operation] = {}

    def run(self, function: Function) -> bool:
        """Rewrite to a fixed point; whether anything changed."""
        changed = False
        queue, pending = self._queue, self._pending
        queue.extend(function.walk())
        pending.update(queue)
        while queue:
            operation = queue.popleft()
            if operation not in pending:  # erased since, maybe with an operation around it
                continue
            pending.discard(operation)
            if operation.spec.terminator:
                continue
            changed |= self._visit(operation)
        return changed

    def _visit(self, operation: Operation) -> bool:
        if not _is_read(operation) and self._is_removable(operation):
            self.erase(operation)
            return True
        for rewrite in self._rewrites.get(operation.name, ()):
            self.region, self.before, self.location = (
                operation.parent,
                operation,
                operation.location,
            )
            found = rewrite.apply(operation, self)
            if found is None:
                continue
            if found is not DONE:
                self.replace(operation, found if isinstance(found, Sequence) else (found,))
            return True
        return False

    def _is_removable(self, operation: Operation) -> bool:
        if not operation.regions:
            return is_removable(operation)
        known = self._kept.get(operation)
        if known is not None and operation in known.ancestors():
            return False
        inner = kept_for(operation)
        if inner is None:
            return True
        for around in inner.ancestors():
            self._kept[around] = inner
            if around is operation:
                break
        return False

    def insert(self, operation: Operation) -> Operation:
        self.revisit(operation)
        return super().insert(operation)

    def revisit(self, operation: Operation) -> None:
        """Look at ``operation`` (again)."""
        if operation not in self._pending:
            self._pending.add(operation)
            self._queue.append(operation)

    def revisit_readers(self, value: Value) -> None:
        for reader in value.uses:
            self.revisit(reader)
            if (
                reader.spec.terminator
                and reader.parent is not None
                and isinstance(reader.parent.owner, Operation)
            ):
                self.revisit(reader.parent.owner)

    def replace_value(self, old: Value, new: Value) -> None:
        """Let the readers of ``old`` read ``new``."""
        self.revisit_readers(old)
        if not new.name:
            new.name = old.name
        old.replace_all_uses(new)

    def replace(self, operation: Operation, values: Sequence[Value]) -> None:
        """Let the readers of the operation's results read ``values``, and erase it."""
        for old, new in zip(operation.results, values, strict=True):
            self.replace_value(old, new)
        self.erase(operation)

    def erase(self, operation: Operation) -> None:
        """Erase the operation; what it read may have become dead, or single-use."""
        erased = list(operation.walk())
        for inner in erased:
            for operand in inner.operands:
                if isinstance(operand.owner, Operation):
                    self.revisit(operand.owner)
        operation.erase()
        self._pending.difference_update(erased)

    def update(self, operation: Operation) -> Any:
        """Note that the operation was changed in place."""
        self.revisit(operation)
        for result in operation.results:
            self.revisit_readers(result)
        return DONE

    def splice(self, region: Region, arguments: Sequence[Value], anchor: Operation) -> list[Value]:
        """Move the region's operations before ``anchor``, reading ``arguments`` for its own; return
        what its terminator holds."""
        for argument, value in zip(region.arguments, arguments, strict=True):
            self.replace_value(argument, value)
        terminator = region.last
        assert terminator is not None
        for operation in region:
            if operation is not terminator:
                operation.move_before(anchor)
                self.revisit(operation)
        values = list(terminator.operands)
        terminator.erase()
        return values


def _is_read(operation: Operation) -> bool:
    return any(result.uses for result in operation.results)


def defined_by(value: Value, op_class: type[_Class], name: str = "") -> _Class | None:
    """The operation of a class that made ``value``, if one did; ``name`` says which of a class that
    several share."""
    owner = value.owner
    return owner if isinstance(owner, op_class) and name in ("", owner.name) else None


def constant_of(value: Value) -> Any:
    """The number that ``value``, or each of its elements, is known to be; None where unknown."""
    owner = value.owner
    if isinstance(owner, Splat):
        owner = owner.x.owner
    return owner.value if isinstance(owner, Constant) else None


def is_positive_zero(value: Any) -> bool:
    return isinstance(value, float) and value == 0 and math.copysign(1.0, value) > 0


def is_negative_zero(value: Any) -> bool:
    return isinstance(value, float) and value == 0 and math.copysign(1.0, value) < 0


def scalar_type(value: Value) -> Type:
    """The type of one element of ``value``."""
    return getattr(value.type, "element", value.type)
