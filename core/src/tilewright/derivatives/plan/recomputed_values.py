"""Values of the forward pass that an adjoint computes again, and that would be small to save.

They are results of reductions, and of loops, that depend on nothing but what the forward kernel
read, as the statistics of a row. The tiles that they are computed from are at least as large.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from tilewright.derivatives.kernel_arguments import element_of, normalized
from tilewright.derivatives.store_residuals import residual_values
from tilewright.derivatives.tile_memory import elements_of
from tilewright.derivatives.tiling.kernel_memory import (
    KernelMemory,
    NoTilingError,
    place_in_kernel,
)
from tilewright.ir.core import Module, Operation, Region, Value
from tilewright.ir.ops.arithmetic import Extremum
from tilewright.ir.ops.control import For, Reduce
from tilewright.ir.types import FloatType, Type, element_type

#: Operations that combine two elements -> the result of reducing a tile by them.
_REDUCTIONS = {"add": "the sum", "max": "the maximum", "min": "the minimum"}


@dataclass(frozen=True)
class RecomputedValue:
    """A value of the forward pass that an adjoint computes again.

    Attributes:
        name: its name in the kernel, or that of the operation.
        place: its place in the kernel's source.
        operations: the number of operations that compute it.
        type: its type.
        save: the expression to save in its place: the logarithm of a sum with its maximum.
        residuals: variables of the kernel that may be named in ``residuals`` for the same.
    """

    name: str
    place: str
    operations: int
    type: Type
    save: str
    residuals: tuple[str, ...] = ()

    def __str__(self) -> str:
        verb = "are" if " and " in self.name else "is"
        return (
            f"{self.name} ({self.place}) {verb} computed again in {self.operations} operations: "
            f"let the kernel store {self.save}, and name that output in saved"
            + (f", or name {' and '.join(self.residuals)} in residuals" if self.residuals else "")
        )


def recomputed_values(
    module: Module, forward: Collection[str], source: Module | None = None
) -> list[RecomputedValue]:
    """Return the small values that a kernel of an adjoint computes from the forward's arguments.

    Args:
        forward: the parameters of the forward kernel.
        source: the forward kernel, whose variables are proposed as residuals.
    """
    try:
        memory = KernelMemory(module)
    except NoTilingError:
        return []
    replayed = _Replayed(memory, frozenset(forward))
    replayed.visit(module.kernel.body)
    found = []
    for operation in replayed.candidates:
        needed = [value for value in _small_results(operation) if replayed.is_needed(value)]
        if not needed:
            continue
        names = [_name(value) for value in needed]
        found.append(
            RecomputedValue(
                " and ".join(names),
                place_in_kernel(operation),
                sum(1 for _ in _slice(operation)),
                needed[0].type,
                _normalizer(operation, needed) or ("it" if len(needed) == 1 else "them"),
                () if source is None else _variables(needed, source),
            )
        )
    return found


def written_floats(module: Module) -> list[Value]:
    """Return the arrays of floats that a kernel writes to; none where that is not known."""
    kernel = normalized(module)
    try:
        written = KernelMemory(kernel).written()
    except NoTilingError:
        return []
    return [
        value
        for value in kernel.kernel.arguments
        if value.name in written and isinstance(element_of(value), FloatType)
    ]


class _Replayed:
    """The operations of a kernel that depend on the forward's arguments alone.

    Attributes:
        operations: those outside of others among them.
        candidates: reductions and loops whose results are small.
    """

    def __init__(self, memory: KernelMemory, forward: frozenset[str]) -> None:
        self._memory, self._forward = memory, forward
        self._derived: set[Value] = set()
        self.operations: set[Operation] = set()
        self.candidates: list[Operation] = []

    def visit(self, region: Region) -> None:
        """Add the operations of a region."""
        for operation in region:
            if self._is_replayed(operation):
                self.operations.add(operation)
                if _small_results(operation):
                    self.candidates.append(operation)
                continue
            self._derived.update(operation.results)
            for inner in operation.regions:
                carried = inner.arguments[1:] if isinstance(operation, For) else inner.arguments
                self._derived.update(carried)
                self.visit(inner)

    def _is_replayed(self, operation: Operation) -> bool:
        if operation.spec.terminator:
            return False
        return all(
            inner not in self._memory.writes
            and self._memory.reads.get(inner, frozenset()) <= self._forward
            and self._derived.isdisjoint(inner.operands)
            for inner in _nested(operation)
        )

    def is_needed(self, value: Value) -> bool:
        """Return whether the adjoint reads a value, or what is cheap to compute from it."""
        pending, seen = [value], {value}
        while pending:
            for reader in pending.pop().uses:
                user = self._outermost(reader)
                if user is None:
                    return True
                if user in self.candidates:
                    continue
                for result in user.results:
                    if result not in seen:
                        seen.add(result)
                        pending.append(result)
        return False

    def _outermost(self, operation: Operation) -> Operation | None:
        """Return the replayed operation that an operation is, or is in; None if there is none."""
        for around in (operation, *operation.ancestors()):
            if around in self.operations:
                return around
        return None


def _nested(operation: Operation) -> Iterator[Operation]:
    pending = [operation]
    while pending:
        found = pending.pop()
        yield found
        for region in found.regions:
            pending.extend(iter(region))


def _small_results(operation: Operation) -> list[Value]:
    """Return the floats that an operation reduces larger tiles to."""
    floats = [
        result for result in operation.results if isinstance(element_type(result.type), FloatType)
    ]
    if isinstance(operation, Reduce):
        return floats
    if not isinstance(operation, For):
        return []
    inside = [elements_of(result.type) for inner in _nested(operation) for result in inner.results]
    largest = max(inside, default=0)
    return [result for result in floats if 2 * elements_of(result.type) <= largest]


def _slice(operation: Operation) -> Iterator[Operation]:
    """Yield an operation and all that its results are computed from."""
    pending, seen = [operation], {operation}
    while pending:
        for inner in _nested(pending.pop()):
            yield inner
            seen.add(inner)
            for operand in inner.operands:
                made = operand.definition
                if made is not None and made not in seen:
                    seen.add(made)
                    pending.append(made)


def _variables(needed: list[Value], source: Module) -> tuple[str, ...]:
    """Return the kernel's variables that hold values, or what it computes of each alone."""
    known = residual_values(source)
    twins = {(twin.name, twin.location): twin for twin in source.kernel.body}
    found = []
    for value in needed:
        operation = value.definition
        assert operation is not None
        twin = twins.get((operation.name, operation.location))
        current = None if twin is None else twin.results[value.index]
        while current is not None and known.get(current.name) is not current:
            current = _only_result(current)
        if current is None:
            return ()
        found.append(current.name)
    return tuple(found)


def _only_result(value: Value) -> Value | None:
    """Return what the one reader of a value computes of it element by element."""
    if len(value.uses) != 1:
        return None
    (reader,) = value.uses
    if not reader.spec.elementwise or reader.results[0].type is not value.type:
        return None
    return reader.results[0]


def _name(value: Value) -> str:
    """Return a value's name in the kernel, or that of its operation."""
    operation = value.definition
    assert operation is not None
    if value.name:
        return value.name
    if isinstance(operation, For):
        carried = operation.body.arguments[1 + value.index].name
        return carried or f"what the loop carries {value.index}"
    if isinstance(operation, Reduce):
        combined = [inner for inner in operation.regions[0] if not inner.spec.terminator]
        if len(combined) == 1 and combined[0].name in _REDUCTIONS:
            return _REDUCTIONS[combined[0].name]
    return f"the result of {operation.name}"


def _normalizer(operation: Operation, needed: list[Value]) -> str:
    """Return the logarithm of an online softmax's sum, for a loop that carries a maximum and it."""
    if not isinstance(operation, For) or len(needed) != 2:
        return ""
    yielded = list(operation.body)[-1].operands
    highest = [value for value in needed if isinstance(yielded[value.index].definition, Extremum)]
    others = [value for value in needed if value not in highest]
    if len(highest) != 1 or highest[0].type != others[0].type:
        return ""
    inside = {inner.name for inner in _nested(operation)}
    if not inside & {"exp", "exp2"}:
        return ""
    logarithm = "log2" if "exp2" in inside else "log"
    return f"{_name(highest[0])} + {logarithm}({_name(others[0])})"


__all__ = ["RecomputedValue", "recomputed_values", "written_floats"]
