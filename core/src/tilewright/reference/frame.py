"""A set of programs that run together, and the values they see."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tilewright.errors import KernelError
from tilewright.ir.core import Location, Module, Operation, Region, Value
from tilewright.reference.cooperative_threads import Turns
from tilewright.reference.failures import failure, program_coordinates
from tilewright.reference.memory.memory import ArgumentMemory
from tilewright.reference.numerics import Array
from tilewright.reference.values import Indices, RuntimeValue, Tracked, take


class Watch(Protocol):
    """Interface of the checked mode to operations.

    See :class:`~tilewright.reference.checks.checker.Checker`.
    """

    def access(
        self,
        frame: Frame,
        operation: Operation,
        kind: str,
        addresses: Array,
        mask: Array | None,
        size: int,
        rank: int,
        argument: int | None,
    ) -> Array | None:
        """Check the accesses of an operation; return the mask without the invalid ones."""
        ...

    def decided(self, frame: Frame, operation: Operation, value: Tracked, what: str) -> Array:
        """The array of a value that control flow hangs on."""
        ...


class Run(Protocol):
    """The run of a module that a frame belongs to.

    See :class:`~tilewright.reference.interpreter.Interpreter`.

    Attributes:
        printer: gets each line that the kernel prints.
        checker: what watches the run; None where nothing does.
        turns: the turns that its programs take; None where they run to their ends.
    """

    module: Module
    grid: tuple[int, int, int]
    memory: ArgumentMemory
    printer: Callable[[str], object]
    turns: Turns | None

    @property
    def checker(self) -> Watch | None: ...

    def closed(self, region: Region) -> bool:
        """Return whether a region depends on its arguments alone, not on programs or memory."""
        ...

    def execute(self, frame: Frame, region: Region) -> list[RuntimeValue]:
        """Run a region for the rows of a frame, whose arguments are set; its results are returned.

        The results are the operands of its terminator.
        """
        ...


class Frame:
    """Rows that run in step.

    A row is a program, or, in the regions of ``reduce``, ``scan`` and ``map``, one of many lanes of
    a program.

    A frame made from another one by a choice of rows reads that one's values through the choice
    (``selection``: for each row its row in the parent). ``pids`` has the linear program id of each
    row.
    """

    __slots__ = ("_ids", "call", "parent", "pids", "run", "selection", "values")

    def __init__(
        self,
        run: Run,
        pids: NDArray[np.int64],
        parent: Frame | None = None,
        selection: Indices | None = None,
    ) -> None:
        self.run = run
        self.parent = parent
        self.selection = selection
        self.pids = pids
        self.values: dict[Value, RuntimeValue] = {}
        #: the ``call`` that this frame runs the callee of
        self.call: tuple[Location | None, Frame] | None = None
        self._ids: dict[int, Array] = {}

    @property
    def rows(self) -> int:
        return len(self.pids)

    @property
    def grid(self) -> tuple[int, int, int]:
        return self.run.grid

    @property
    def memory(self) -> ArgumentMemory:
        return self.run.memory

    @property
    def checker(self) -> Watch | None:
        return self.run.checker

    def select(self, selection: Indices) -> Frame:
        """A frame of some of the rows, or of rows repeated."""
        return Frame(self.run, self.pids[selection], self, selection)

    def execute(self, region: Region, arguments: Sequence[RuntimeValue]) -> list[RuntimeValue]:
        """Run a region on values for its arguments; return the operands of its terminator."""
        for argument, value in zip(region.arguments, arguments, strict=True):
            self.values[argument] = value
        return self.run.execute(self, region)

    def get(self, value: Value) -> RuntimeValue:
        """The value of an SSA value for the rows of this frame."""
        found = self.values.get(value)
        if found is None:
            if self.parent is None:
                raise AssertionError(f"{value} has no value: the module is not verified")
            found = self.parent.get(value)
            if self.selection is not None:
                found = take(found, value.type, self.selection)
            self.values[value] = found
        return found

    def program_id(self, axis: int) -> Array:
        """Positions in the grid: one an each row, or a scalar where all agree."""
        found = self._ids.get(axis)
        if found is None:
            x, y, _ = self.grid
            ids = (self.pids % x, self.pids // x % y, self.pids // (x * y))[axis].astype(np.int32)
            found = self._ids[axis] = ids[0] if (ids == ids[0]).all() else ids
        return found

    def coordinates(self, row: int) -> tuple[int, int, int]:
        """The position in the grid of a row's program."""
        return program_coordinates(int(self.pids[row]), self.grid)

    def calls(self) -> list[Location | None]:
        """Where the functions that run now were called from, innermost first."""
        return list(self._calls())

    def _calls(self) -> Iterator[Location | None]:
        frame: Frame | None = self
        while frame is not None:
            if frame.call is not None:
                location, frame = frame.call
                yield location
            else:
                frame = frame.parent

    def failure(
        self,
        operation: Operation,
        message: str,
        row: int | None = None,
        lane: tuple[int, ...] | None = None,
    ) -> KernelError:
        """The exception for an operation that failed in a row, at an index into its tile."""
        return failure(
            operation, message, None if row is None else self.coordinates(row), lane, self.calls()
        )
