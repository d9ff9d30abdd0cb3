"""Tiles of integers that are known when a kernel is compiled, as arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilewright.derivatives.tile_memory import tile_at
from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Module, Value
from tilewright.ir.ops.arithmetic import NumPrograms, ProgramId
from tilewright.ir.table import Effect
from tilewright.ir.types import I1, I64, IntType, PointerType, TileType, element_type
from tilewright.passes.clone import clone_operation

if TYPE_CHECKING:
    from numpy.typing import NDArray


def constant_tile(value: Value) -> NDArray[Any] | None:
    """Return a tile of integers that depends on nothing, evaluated; None for another value."""
    element = element_type(value.type)
    if not isinstance(value.type, TileType) or not isinstance(element, IntType) or element is I1:
        return None
    module = Module()
    function = module.add(Function("tile", [PointerType(element)], (), ["out"]))
    b = Builder.at_end(function.body)
    mapping: dict[Value, Value] = {}
    if not _copied(value, b, mapping):
        return None
    b.store(tile_at(b, function.arguments[0], b.constant_like(I64, 0), value.type), mapping[value])
    b.return_([])
    import numpy as np

    from tilewright.reference.interpreter import run

    out = np.zeros(value.type.shape, f"{'' if element.signed else 'u'}int{element.bits}")
    run(module, [out], (1, 1, 1))
    return out


def _copied(value: Value, b: Builder, mapping: dict[Value, Value]) -> bool:
    """Copy what a value is computed from; return whether all of it is known."""
    if value in mapping:
        return True
    operation = value.definition
    if (
        operation is None
        or operation.regions
        or operation.spec.effects is not Effect.NONE
        or isinstance(operation, ProgramId | NumPrograms)
        or not all(_copied(operand, b, mapping) for operand in operation.operands)
    ):
        return False
    b.insert(clone_operation(operation, mapping))
    return True


def is_distinct(array: NDArray[Any], axis: int) -> bool:
    """Return whether no number stands twice along an axis."""
    import numpy as np

    return bool((np.diff(np.sort(array, axis), axis=axis) != 0).all())


def is_involution(index: NDArray[Any], axis: int, extent: int) -> bool:
    """Return whether gathering by an index twice returns every element."""
    import numpy as np

    if index.shape[axis] != extent or index.min() < 0 or index.max() >= extent:
        return False
    return bool((np.take_along_axis(index, index, axis) == np.indices(index.shape)[axis]).all())
