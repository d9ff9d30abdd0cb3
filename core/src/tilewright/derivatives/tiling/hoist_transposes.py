"""Transposed values: transposes of what is computed move up to loads.

The adjoint of ``dot(a, b)`` by b multiplies by the transpose of a. Where a is computed, as the
weights of attention are, its transpose takes a way through shared memory on a GPU. Elementwise
operations may be computed transposed, and ``(a b)ᵀ = bᵀ aᵀ``, so that transposes end at loads,
where they are free. What is read both ways is then computed twice: cheap operations may be.
"""

from __future__ import annotations

from typing import Final

from tilewright.ir.builder import Builder
from tilewright.ir.core import Module, Operation, Value
from tilewright.ir.ops.linear import Dot
from tilewright.ir.ops.memory import Load
from tilewright.ir.ops.shape import Broadcast, ExpandDims, Permute, Splat
from tilewright.ir.table import Effect
from tilewright.ir.types import TileType, element_type, shape_of
from tilewright.passes.clone import clone_module
from tilewright.passes.pipeline import run as run_passes

#: The order of axes of a transpose.
_TRANSPOSE: Final = (1, 0)
#: What an element of a computed tile takes to be transposed through memory, in additions.
_TRANSPOSE_COST: Final = 4


def hoist_transposes(module: Module) -> Module:
    """Return a module whose transposes stand at loads; the same where that costs more."""
    made = clone_module(module)
    transposed = _Transposed()
    for operation in list(made.kernel.walk()):
        if (
            isinstance(operation, Permute)
            and operation.order == _TRANSPOSE
            and operation.x.definition is not None
            and not isinstance(operation.x.definition, Load)
        ):
            operation.result.replace_all_uses(transposed.of(operation.x))
    run_passes(made)
    return made if _cost(made) <= _cost(module) else module


def _cost(module: Module) -> int:
    """Return what matmuls, elementwise operations and transposes take, in additions."""
    return sum(map(_cost_of, module.walk()))


def _cost_of(operation: Operation) -> int:
    if isinstance(operation, Dot):
        inner = shape_of(operation.a.type)[-1]
        return 2 * _elements(operation.result) * inner
    if isinstance(operation, Permute):
        is_computed = not isinstance(operation.x.definition, Load | None)
        return _TRANSPOSE_COST * _elements(operation.result) if is_computed else 0
    if not operation.spec.elementwise or not operation.results:
        return 0
    return operation.spec.cost * _elements(operation.results[0])


def _elements(value: Value) -> int:
    return value.type.numel if isinstance(value.type, TileType) else 1


class _Transposed:
    """Transposes of tiles, each made once, after what it is computed from."""

    def __init__(self) -> None:
        self._known: dict[Value, Value] = {}

    def of(self, value: Value) -> Value:
        """Return the transpose of a tile of rank 2."""
        pending = [value]
        while pending:  # operands first, for expressions may be deep
            current = pending[-1]
            rest = [operand for operand in _sources(current) if operand not in self._known]
            if rest:
                pending += rest
                continue
            pending.pop()
            if current not in self._known:
                self._known[current] = self._make(current)
        return self._known[value]

    def _make(self, value: Value) -> Value:
        operation = value.definition
        if operation is None:
            region = value.owner
            assert not isinstance(region, Operation)
            found: Value = Builder(region, region.first).permute(value, order=_TRANSPOSE)
            return found
        b = Builder(operation.parent, operation.next, operation.location)
        type_ = TileType(shape_of(value.type)[::-1], element_type(value.type))
        operands = [self._known[operand] for operand in _sources(value)]
        match operation:
            case Permute(order=(1, 0)):
                return operation.x
            case Splat():
                found = b.splat(operation.x, result=type_)
            case ExpandDims():
                found = b.expand_dims(operation.x, axis=1 - operation.axis)
            case Dot():
                a, other, c = operands
                made = Operation(
                    operation.spec,
                    [other, a, c],
                    operation.segments,
                    operation.attributes,
                    [type_],
                    (),
                    operation.location,
                )
                found = b.insert(made).result
            case _ if operands:
                made = Operation(
                    operation.spec,
                    operands,
                    operation.segments,
                    operation.attributes,
                    [type_],
                    (),
                    operation.location,
                )
                found = b.insert(made).result
            case _:
                found = b.permute(value, order=_TRANSPOSE)
        found.name = value.name
        return found


def _sources(value: Value) -> list[Value]:
    """Return the tiles whose transposes the transpose of a value is computed from."""
    operation = value.definition
    if operation is None or len(operation.results) != 1:
        return []
    if isinstance(operation, Dot | Broadcast):
        return operation.operands
    is_lanewise = operation.spec.elementwise and operation.spec.effects is Effect.NONE
    if not is_lanewise or operation.spec.forwards or operation.regions:
        return []
    same = all(shape_of(operand.type) == shape_of(value.type) for operand in operation.operands)
    return operation.operands if same else []


__all__ = ["hoist_transposes"]
