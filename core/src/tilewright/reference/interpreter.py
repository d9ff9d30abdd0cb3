"""Running a module over a grid on NumPy.

All programs of the grid run in step where that is right, in batches that bound memory; else one
after the other, in the order of their ids, or, in a cooperative launch, in turns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.errors import KernelError, LaunchError
from tilewright.ir.breakpoint import Breakpoint
from tilewright.ir.core import Module, Operation, Region, Value
from tilewright.ir.table import Kind
from tilewright.ir.types import (
    DescriptorType,
    FloatType,
    IntType,
    PointerType,
    TileType,
    Type,
    byte_size,
    element_type,
)
from tilewright.recursion import deep_recursion
from tilewright.reference import provenance
from tilewright.reference.checks.checked_mode import CheckedOptions
from tilewright.reference.cooperative_threads import Turns
from tilewright.reference.frame import Frame
from tilewright.reference.memory.buffers import ArgumentBuffer, describe
from tilewright.reference.memory.memory import ArgumentMemory
from tilewright.reference.numerics import numpy_dtype
from tilewright.reference.operations.arithmetic import constant_array
from tilewright.reference.operations.regions import CONTROL, is_closed
from tilewright.reference.operations.semantics import MEANINGS
from tilewright.reference.values import Descriptor, RuntimeValue

if TYPE_CHECKING:
    from tilewright.reference.checks.checker import Checker

__all__ = ["CheckedOptions", "DescriptorValue", "Interpreter", "run"]

#: Bytes that the values of the programs of one batch may take together.
BATCH_BYTES = 1 << 25


class DescriptorValue:
    """A tensor descriptor as a kernel's argument.

    ``shape`` and ``strides`` count elements; ``padding`` is ``zero`` or ``nan``.
    """

    __slots__ = ("base", "padding", "shape", "strides")

    def __init__(
        self, base: object, shape: Sequence[int], strides: Sequence[int], padding: str = "zero"
    ) -> None:
        self.base, self.shape, self.strides, self.padding = (
            base,
            tuple(shape),
            tuple(strides),
            padding,
        )


#: One operation made ready: its meaning (None where it is a control operation), the operation, its
#: operands by group, its results.
_Step = tuple[Callable[..., Any], bool, Operation, tuple[Any, ...], list[Value]]


class Interpreter:
    """One run of a module: its memory, its grid, and what has been made ready of its regions."""

    def __init__(
        self,
        module: Module,
        grid: tuple[int, int, int],
        memory: ArgumentMemory,
        printer: Callable[[str], object],
        checker: Checker | None,
        turns: Turns | None = None,
    ) -> None:
        self.module, self.grid, self.memory, self.printer, self.checker = (
            module,
            grid,
            memory,
            printer,
            checker,
        )
        self.turns = turns
        self._plans: dict[Region, tuple[list[_Step], list[Value]]] = {}
        self._closed: dict[Region, bool] = {}

    def closed(self, region: Region) -> bool:
        """Return whether a region depends on its arguments alone, not on programs or memory."""
        found = self._closed.get(region)
        if found is None:
            found = self._closed[region] = is_closed(region)
        return found

    def execute(self, frame: Frame, region: Region) -> list[RuntimeValue]:
        """Run a region for the rows of a frame, whose arguments are set; its results are returned.

        The results are the operands of its terminator.
        """
        plan = self._plans.get(region)
        if plan is None:
            plan = self._plans[region] = self._plan(region)
        values, get = frame.values, frame.get
        for function, control, operation, groups, results in plan[0]:
            if control:
                for result, out in zip(results, function(frame, operation), strict=True):
                    values[result] = out
                continue
            operands = [
                get(group)
                if group.__class__ is Value
                else None
                if group is None
                else [get(value) for value in group]
                for group in groups
            ]
            if self.checker is None:
                out = function(frame, operation, *operands)
            else:
                out = self.checker.run(frame, operation, function, operands)
            if len(results) == 1:
                values[results[0]] = out
            elif results:
                values.update(zip(results, out, strict=True))
        return [get(value) for value in plan[1]]

    def _plan(self, region: Region) -> tuple[list[_Step], list[Value]]:
        steps: list[_Step] = []
        for operation in region:
            if operation.spec.terminator:
                return steps, operation.operands
            if operation.name in CONTROL:
                steps.append((CONTROL[operation.name], True, operation, (), operation.results))
            elif operation.name in MEANINGS:
                steps.append(
                    (
                        MEANINGS[operation.name],
                        False,
                        operation,
                        _groups(operation),
                        operation.results,
                    )
                )
            else:
                raise KernelError(
                    f"{operation.location or operation.name}: the reference has no meaning for the "
                    f"operation {operation.name!r}"
                )
        raise AssertionError("a region has no terminator: the module is not verified")


def _groups(operation: Operation) -> tuple[Any, ...]:
    """Operands by group: a value, None, or a list of values."""
    if operation.spec.simple_operands:
        return tuple(operation.operands)
    groups: list[Any] = []
    start = 0
    for declared, size in zip(operation.spec.operands, operation.segments, strict=True):
        values = operation.operands[start : start + size]
        groups.append(values if declared.kind is Kind.VARIADIC else values[0] if values else None)
        start += size
    return tuple(groups)


@deep_recursion()
def run(
    module: Module,
    arguments: Sequence[Any],
    grid: tuple[int, int, int],
    *,
    checked: CheckedOptions | None = None,
    printer: Callable[[str], object] = print,
    cooperative: bool = False,
) -> None:
    """Run a module's kernel over ``grid``; arrays among the arguments are changed in place.

    ``arguments`` are in the order of the kernel's: for a pointer an array (see
    :func:`tilewright.reference.memory.buffers.describe`), for a number a Python or NumPy number,
    for a descriptor a :class:`DescriptorValue` or anything with ``base``, ``shape`` and
    ``strides``. ``checked`` turns on the checked mode. ``printer`` gets each line that the kernel
    prints. ``cooperative`` has all programs begin before any has to end, so that they may wait for
    each other.

    Raises:
        LaunchError: the arguments do not fit the kernel.
        ResidencyError: there are more programs than can take turns.
        KernelError: the kernel failed: an access outside all memory it was given, a failed assert,
            a finding of the checked mode.
    """
    kernel = module.kernel
    if len(arguments) != len(kernel.arguments):
        raise LaunchError(
            f"@{kernel.name} takes {len(kernel.arguments)} arguments, not {len(arguments)}"
        )
    if len(grid) != 3 or any(extent < 0 for extent in grid):
        raise LaunchError(f"a grid has three extents that are not negative, not {grid}")
    names = [argument.name or f"#{index}" for index, argument in enumerate(kernel.arguments)]
    values, buffers = _bind(kernel.arguments, names, arguments)
    programs = grid[0] * grid[1] * grid[2]
    if not programs:
        return

    memory_names, memory_buffers = [names[index] for index in buffers], list(buffers.values())
    checker = None
    if checked is not None:
        from tilewright.reference.checks.checker import Checker

        memory_names += [f"buffer {index}" for index in range(len(checked.buffers))]
        memory_buffers += [describe(buffer) for buffer in checked.buffers]
    raw = checked is None and provenance.loads_pointers(module)
    memory = ArgumentMemory(memory_buffers, memory_names, checked=checked is not None, raw=raw)
    sequential = _sequential(module, buffers)
    if checked is not None:
        checker = Checker(checked, module, grid, memory, buffers, names, in_turns=cooperative)
        sequential = sequential or checker.synchronizes
    turns = Turns() if cooperative and programs > 1 else None
    interpreter = Interpreter(module, grid, memory, printer, checker, turns)

    def execute(first: int, count: int) -> None:
        frame = Frame(interpreter, np.arange(first, first + count))
        frame.values.update(zip(kernel.arguments, values, strict=True))
        with np.errstate(all="ignore"):
            interpreter.execute(frame, kernel.body)

    batch = 1 if sequential else max(1, BATCH_BYTES // _bytes_of_one_program(module))
    try:
        if turns is not None:
            turns.run(kernel.name, grid, lambda number: execute(number, 1))
        else:
            for first in range(0, programs, batch):
                execute(first, min(batch, programs - first))
    finally:
        memory.close()
    if checker is not None:
        checker.finish()


def _bind(
    parameters: Sequence[Value], names: Sequence[str], arguments: Sequence[Any]
) -> tuple[list[RuntimeValue], dict[int, ArgumentBuffer]]:
    """The value of each argument, and the memory behind those that have some, by position."""
    values: list[RuntimeValue] = []
    buffers: dict[int, ArgumentBuffer] = {}
    for index, (parameter, name, argument) in enumerate(
        zip(parameters, names, arguments, strict=True)
    ):
        try:
            values.append(_value(parameter.type, argument, index, buffers))
        except (LaunchError, TypeError, ValueError, AttributeError) as error:
            raise LaunchError(f"argument {name} of type {parameter.type}: {error}") from error
    return values, buffers


def _value(
    type_: Type,
    argument: Any,
    index: int,
    buffers: dict[int, ArgumentBuffer],
) -> RuntimeValue:
    if isinstance(type_, PointerType):
        buffers[index] = describe(argument)
        return np.int64(type_wrap(buffers[index].address))
    if isinstance(type_, DescriptorType):
        buffers[index] = describe(argument.base)
        shape, strides = tuple(argument.shape), tuple(argument.strides)
        if len(shape) != type_.rank or len(strides) != type_.rank:
            raise LaunchError(f"shape {shape} and strides {strides} must have {type_.rank} entries")
        return Descriptor(
            np.int64(buffers[index].address),
            tuple(np.int64(extent) for extent in shape),
            tuple(np.int64(stride) for stride in strides),
            np.bool_(getattr(argument, "padding", "zero") == "nan"),
            index,
        )
    if isinstance(type_, IntType):
        return numpy_dtype(type_).type(
            bool(argument) if type_.bits == 1 else type_.wrap(int(argument))
        )
    if isinstance(type_, FloatType):
        return constant_array(type_, float(argument))
    raise LaunchError(f"an argument cannot have type {type_}")


def type_wrap(address: int) -> int:
    """An address as a signed 64-bit integer, as pointers are kept."""
    return address - (1 << 64) if address >= 1 << 63 else address


def _sequential(module: Module, buffers: dict[int, ArgumentBuffer]) -> bool:
    """Return whether programs must run one after the other."""
    if any(isinstance(operation, Breakpoint) for operation in module.walk()):
        return True  # who steps through a kernel follows one program to its end
    order = provenance.order_of(module)
    if order.sequential:
        return True
    if order.awaited is not None and not order.awaited:
        return False
    if order.written is not None and not order.written:
        return False
    if order.awaited is None or order.written is None:
        return True
    extents = [
        [buffers[index].allocation for index in roots if index in buffers]
        for roots in (order.awaited, order.written)
    ]
    return any(
        low < other_high and other_low < high
        for low, high in extents[0]
        for other_low, other_high in extents[1]
    )


def _bytes_of_one_program(module: Module) -> int:
    """About what the values of one program take."""
    total = 64
    for operation in module.walk():
        for result in operation.results:
            if isinstance(result.type, TileType):
                total += result.type.numel * byte_size(element_type(result.type))
    return total
