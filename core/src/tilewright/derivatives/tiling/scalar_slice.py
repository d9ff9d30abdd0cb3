"""Scalars of each program of a grid, by a kernel of their own.

A launch runs the slice on the reference, for all programs at once, to learn extents of grids that
the scalars decide.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.derivatives.tiling.kernel_memory import (
    NoTilingError,
    add_parameter,
    copied_kernel,
)
from tilewright.derivatives.tiling.restrict_writes import restrict_writes
from tilewright.derivatives.tiling.scratch_tiles import program_number
from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Module, Operation, Value
from tilewright.ir.table import Effect
from tilewright.ir.types import I32, I64, PointerType
from tilewright.passes.effects import effects_of
from tilewright.reference.interpreter import run as run_on_reference

#: The parameter for the scalars.
SCALARS = "scalars"


def scalar_slice(module: Module, values: Sequence[Value], place: Operation) -> Module:
    """Return the kernel that stores scalars for each program: all of program 0, then of 1, ....

    Args:
        values: scalars of the module's kernel, all i32.
        place: the operation of its outermost level before which they are known.

    Raises:
        NoTilingError: they depend on memory.
    """
    made = copied_kernel(module)
    old = [result for operation in module.kernel.walk() for result in operation.results]
    new = [result for operation in made.kernel.walk() for result in operation.results]
    twins = dict(zip((*module.kernel.arguments, *old), (*made.kernel.arguments, *new), strict=True))
    position = list(module.kernel.body).index(place)
    b = Builder.at(list(made.kernel.body)[position])
    base = add_parameter(made.kernel, PointerType(I32), SCALARS)
    start = b.mul(program_number(b), b.constant_like(I64, len(values)))
    for number, value in enumerate(values):
        at = b.addptr(b.addptr(base, start), b.constant_like(I32, number))
        b.store(at, twins[value])
    made = restrict_writes(made, [base.name])
    if any(effects_of(operation) & Effect.READ for operation in made.kernel.walk()):
        raise NoTilingError("scalars of the grid are read from memory")
    _drop_unread(made.kernel)
    return made


def _drop_unread(function: Function) -> None:
    """Remove the parameters that nothing reads."""
    for argument in list(function.arguments):
        if not argument.uses:
            del function.argument_attributes[argument.index]
            function.arguments.remove(argument)


def evaluate_slice(
    module: Module, count: int, grid: tuple[int, int, int], arguments: Mapping[str, Any]
) -> np.ndarray[Any, np.dtype[np.int32]]:
    """Run a slice on the reference.

    Args:
        count: the number of scalars of a program.
        arguments: the kernel's numbers by name.

    Returns:
        the scalars [programs, count].
    """
    found = np.zeros((math.prod(grid), count), np.int32)
    names = [parameter.name for parameter in module.kernel.arguments]
    values = [found if name == SCALARS else arguments[name] for name in names]
    run_on_reference(module, values, grid)
    return found


__all__ = ["SCALARS", "evaluate_slice", "scalar_slice"]
