"""Delinearization: a grid of one axis becomes one of the coordinates that programs compute.

A grouped matmul computes ``(pid_m, pid_n)`` from its place by divisions and remainders. All that it
does with its place it does through these *coordinates*. Where the map from the grid to them is a
bijection onto a box, the grid may as well be that box. That it is one is not proved: a launch runs
the coordinates' slice for the whole grid, once for each combination of scalar arguments.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.derivatives.tiling.grid_dependence import hoist_grid_queries, place_along
from tilewright.derivatives.tiling.kernel_memory import NoTilingError, copied_kernel
from tilewright.derivatives.tiling.scalar_slice import evaluate_slice, scalar_slice
from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Module, Operation, Value
from tilewright.ir.ops.arithmetic import Cast, NumPrograms, ProgramId
from tilewright.ir.table import Effect
from tilewright.ir.types import I1, I32, IntType
from tilewright.ir.verifier import verify
from tilewright.passes.dce import dce
from tilewright.passes.pipeline import run as run_passes


@dataclass(frozen=True, slots=True)
class Delinearized:
    """A kernel on a grid of coordinates.

    Attributes:
        module: the kernel.
        coordinates: the slice that stores the coordinates of each program of the old grid.
        rank: the number of coordinates.
    """

    module: Module
    coordinates: Module
    rank: int


def delinearize(module: Module) -> Delinearized:
    """Let each coordinate of a program be its place along an axis of the grid.

    Raises:
        NoTilingError: the grid has more axes, or its place is used as it is.
    """
    source = copied_kernel(module)
    function = source.kernel
    hoist_grid_queries(function)
    if any(isinstance(op, ProgramId) and op.axis for op in function.body):
        raise NoTilingError("its grid has more than one axis")
    place = place_along(function, 0)
    found = _coordinates(function, place)
    if not 2 <= len(found) <= 3:
        raise NoTilingError(f"it uses program_id(0) through {len(found)} scalars, not 2 or 3")
    for value in found:
        if value.type is not I32 or _parent(value) is not function.body:
            raise NoTilingError(
                f"a scalar through which it uses program_id(0), {value.name or value.type}, is no "
                "i32 of its outermost level"
            )
    assert function.body.last is not None
    coordinates = scalar_slice(source, found, function.body.last)
    assert function.body.first is not None
    b = Builder.at(function.body.first)
    for axis, value in enumerate(found):
        value.replace_all_uses(b.program_id(axis=axis))
    dce(source)
    if place.uses:
        raise NoTilingError("it uses program_id(0) beside its coordinates")
    if any(isinstance(operation, NumPrograms) for operation in function.walk()):
        raise NoTilingError("it uses num_programs beside its coordinates")
    run_passes(source)
    verify(source)
    return Delinearized(source, coordinates, len(found))


def coordinate_box(
    found: Delinearized, programs: int, arguments: Mapping[str, Any]
) -> tuple[int, ...] | None:
    """Return the extents of the coordinates; None where they are no bijection onto a box.

    Args:
        programs: the programs of the kernel's grid.
        arguments: the kernel's numbers and descriptors by name.
    """
    if programs <= 0:
        return None
    places = evaluate_slice(found.coordinates, found.rank, (programs, 1, 1), arguments)
    if places.min() < 0:
        return None
    extents = tuple(int(extent) + 1 for extent in places.max(axis=0))
    if math.prod(extents) != programs:
        return None
    numbers = np.ravel_multi_index(tuple(places.T), extents)
    return extents if len(np.unique(numbers)) == programs else None


def _parent(value: Value) -> object:
    return value.definition.parent if value.definition is not None else value.owner


def _coordinates(function: Function, place: Value) -> list[Value]:
    """Return the scalars through which a program uses its place."""
    dependent, used = {place}, dict[Value, None]()
    for operation in function.walk():
        read = [value for value in operation.operands if value in dependent]
        if read and _is_scalar(operation):
            dependent.add(operation.result)
        else:
            used.update(dict.fromkeys(read))
    return list(dict.fromkeys(_source(value, dependent) for value in used))


def _source(value: Value, dependent: set[Value]) -> Value:
    """Return the scalar of which a value is a multiple, moved by the same for all programs."""
    while True:
        operation = value.definition
        assert operation is not None
        moving = [operand for operand in operation.operands if operand in dependent]
        if len(moving) != 1 or not _is_linear(operation) or moving[0].type is I1:
            return value
        value = moving[0]


def _is_linear(operation: Operation) -> bool:
    return (
        isinstance(operation, Cast)
        or bool(operation.spec.forwards)
        or operation.name in ("add", "sub", "mul")
    )


def _is_scalar(operation: Operation) -> bool:
    """Return whether an operation computes a scalar integer from scalars."""
    return (
        operation.spec.elementwise
        and operation.spec.effects is Effect.NONE
        and len(operation.results) == 1
        and isinstance(operation.result.type, IntType)
        and all(isinstance(operand.type, IntType) for operand in operation.operands)
    )


__all__ = ["Delinearized", "coordinate_box", "delinearize"]
