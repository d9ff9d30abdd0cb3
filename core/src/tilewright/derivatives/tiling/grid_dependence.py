"""Values of a kernel that depend on the program's place along an axis of the grid."""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.derivatives.tiling.kernel_memory import NoTilingError
from tilewright.ir.core import Function, Operation, Value
from tilewright.ir.ops.arithmetic import NumPrograms, ProgramId
from tilewright.ir.ops.control import For
from tilewright.ir.ops.linear import DOTS
from tilewright.ir.types import FloatType, element_type


def hoist_grid_queries(function: Function) -> None:
    """Move all reads of the grid to the beginning of a function, one of each kind and axis."""
    anchor = next(op for op in function.body if not isinstance(op, ProgramId | NumPrograms))
    known: dict[tuple[str, int], Value] = {}
    for operation in list(function.walk()):
        if isinstance(operation, ProgramId | NumPrograms):
            first = known.setdefault((operation.name, operation.axis), operation.result)
            if first is operation.result:
                operation.move_before(anchor)
            else:
                operation.result.replace_all_uses(first)
                operation.erase()


def place_along(function: Function, axis: int) -> Value:
    """Return the program's place along an axis, after :func:`hoist_grid_queries`.

    Raises:
        NoTilingError: the kernel does not read it.
    """
    for operation in function.body:
        if isinstance(operation, ProgramId) and operation.axis == axis:
            return operation.result
    raise NoTilingError(f"it does not read program_id({axis})")


def add_dependent(operations: Iterable[Operation], dependent: set[Value]) -> None:
    """Add the results of operations that read dependent values, also in their regions."""
    for operation in operations:
        if depends(operation, dependent):
            dependent.update(operation.results)


def depends(operation: Operation, dependent: set[Value]) -> bool:
    """Return whether an operation reads a dependent value."""
    return any(value in dependent for inner in operation.walk() for value in inner.operands)


def writing_loop(writes: Iterable[Operation]) -> For:
    """Return the loop of a kernel's outermost level that all writes stand in.

    Raises:
        NoTilingError: there is none, or another one writes too.
    """
    loops = {next((outer for outer in reversed(list(write.ancestors()))), None) for write in writes}
    if len(loops) != 1 or not isinstance(loop := loops.pop(), For):
        raise NoTilingError("its writes do not stand in one loop of the kernel's outermost level")
    return loop


def operations_before(function: Function, loop: Operation) -> list[Operation]:
    """Return the operations of a function's outermost level before a loop."""
    found = []
    for operation in function.body:
        if operation is loop:
            break
        found.append(operation)
    return found


def is_heavy(operation: Operation) -> bool:
    """Return whether an operation is not to be repeated for each iteration of another loop."""
    return bool(operation.regions) or isinstance(operation, DOTS)


def is_float_value(value: Value) -> bool:
    """Return whether a value is a float or a tile of floats."""
    return isinstance(element_type(value.type), FloatType)


__all__ = [
    "add_dependent",
    "depends",
    "hoist_grid_queries",
    "is_float_value",
    "is_heavy",
    "operations_before",
    "place_along",
    "writing_loop",
]
