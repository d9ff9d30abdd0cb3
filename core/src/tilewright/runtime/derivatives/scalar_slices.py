"""Scalars of a launch's programs, computed once per combination of the arguments they depend on.

Loops' iterations and extents of grids often follow from scalar arguments and the grid alone. A
kernel that computes them from those is run on the reference, on the host, and its results are kept,
so that later launches with the same scalars neither run it nor wait for the device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

import numpy as np

from tilewright.ir.core import Module, Value
from tilewright.ir.ops.arithmetic import Addptr, NumPrograms, ProgramId
from tilewright.ir.ops.debug import Extern, InlineAsm
from tilewright.ir.ops.shape import Splat
from tilewright.ir.table import Effect, Trait
from tilewright.ir.types import I64, DescriptorType, PointerType
from tilewright.passes.effects import effects_of
from tilewright.reference.interpreter import DescriptorValue
from tilewright.reference.interpreter import run as run_on_reference

#: Combinations of arguments whose results are kept for a kernel.
_MOST_KEPT = 256

Result = TypeVar("Result")


def depends_on_scalars_alone(module: Module, out: str) -> bool:
    """Return whether a kernel computes its results from the grid, numbers and extents alone.

    Args:
        out: the parameter that points to the results.
    """
    kernel = module.kernel
    if any(
        isinstance(argument.type, PointerType) and argument.uses and argument.name != out
        for argument in kernel.arguments
    ):
        return False
    for operation in kernel.walk():
        if isinstance(operation, InlineAsm | Extern):
            return False
        if operation.regions or not effects_of(operation) & Effect.READ:
            continue
        # no other pointer is used: what is not made of this one is made of a descriptor
        if Trait.ACCESS not in operation.spec.traits or not _leads_to(operation.operands[0], out):
            return False
    return True


def _leads_to(address: Value, out: str) -> bool:
    """Return whether an address is computed from a parameter by offsets alone."""
    while (operation := address.definition) is not None:
        if not isinstance(operation, Addptr | Splat):
            return False
        address = operation.operands[0]
    return address.name == out


class ScalarSlice(Generic[Result]):
    """A kernel of scalars whose results are kept for the arguments that they depend on."""

    def __init__(
        self,
        module: Module,
        out: str,
        summarize: Callable[[np.ndarray[Any, Any]], Result],
        *,
        per_program: int = 0,
    ) -> None:
        """Prepare.

        Args:
            module: the kernel, which depends on scalars alone.
            out: its parameter for the results, a pointer to i32 or i64, zero before.
            summarize: computes what is kept from the results.
            per_program: the results of each program; 0 where all programs share one.
        """
        self._module, self._out, self._summarize = module, out, summarize
        self._per_program = per_program
        kernel = module.kernel
        (results,) = (argument for argument in kernel.arguments if argument.name == out)
        assert isinstance(results.type, PointerType)
        self._type = np.int64 if results.type.pointee is I64 else np.int32
        self._read = [
            (argument.name, isinstance(argument.type, DescriptorType))
            for argument in kernel.arguments
            if argument.uses and not isinstance(argument.type, PointerType)
        ]
        self._reads_grid = per_program > 0 or any(
            isinstance(operation, ProgramId | NumPrograms) for operation in kernel.walk()
        )
        self._kept: dict[Any, Result] = {}

    def __call__(self, grid: tuple[int, int, int], named: Mapping[str, Any]) -> Result:
        """Return the summary of a launch.

        Args:
            named: its arguments by the names of the kernel's parameters; unread ones may be absent.
        """
        if not self._reads_grid:
            grid = (1, 1, 1)
        values = [_argument(named, name) for name, _ in self._read]
        key = (
            grid,
            *[
                (tuple(value.shape), tuple(value.strides)) if is_descriptor else value
                for value, (_, is_descriptor) in zip(values, self._read, strict=True)
            ],
        )
        if key not in self._kept:
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            self._kept[key] = self._summarize(self._evaluate(grid, values))
        return self._kept[key]

    def _evaluate(
        self, grid: tuple[int, int, int], values: list[Any]
    ) -> np.ndarray[Any, np.dtype[Any]]:
        """Run the kernel on the reference, and return its results [programs, per_program]."""
        shape = (math.prod(grid), self._per_program) if self._per_program else (1,)
        results = np.zeros(shape, self._type)
        read = dict(zip((name for name, _ in self._read), values, strict=True))
        arguments = []
        for parameter in self._module.kernel.arguments:
            value = read.get(parameter.name, 0)
            if parameter.name == self._out:
                value = results
            elif isinstance(parameter.type, PointerType):
                value = None
            elif isinstance(parameter.type, DescriptorType):
                ones = (1,) * parameter.type.rank
                extents = (value.shape, value.strides) if parameter.name in read else (ones, ones)
                value = DescriptorValue(None, *extents)
            arguments.append(value)
        if 0 not in grid:
            run_on_reference(self._module, arguments, grid)
        return results


def _argument(named: Mapping[str, Any], name: str) -> Any:
    """Return an argument by the name of a parameter: ``t.0`` is an item of the tuple ``t``."""
    if name in named:
        return named[name]
    first, *items = name.split(".")
    value = named[first]
    for item in items:
        value = value[int(item)]
    return value


__all__ = ["ScalarSlice", "depends_on_scalars_alone"]
