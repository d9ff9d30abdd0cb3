"""The plan of an adjoint: its kernels in the order of their launches, and notes for reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tilewright.derivatives.analysis.address_digits import ScalarCondition
from tilewright.derivatives.plan.coverage import StoredElements
from tilewright.derivatives.plan.grid_extents import Extent, Grid, LaunchFacts
from tilewright.derivatives.plan.scalar_expressions import ScalarExpression
from tilewright.derivatives.reverse_mode import LoopNote
from tilewright.derivatives.tiling.delinearize import Delinearized
from tilewright.ir.core import Module
from tilewright.ir.types import FloatType, Type

#: The ways in which a kernel writes a gradient -> what each means, for reports.
WAYS: Mapping[str, str] = {
    "store": "stored: one program alone writes each element, once",
    "add": "added without atomics: one program alone writes each element",
    "loop": "summed in a loop over the programs, then stored by one program",
    "partial": "summed by each program, and the partial sums in a fixed order",
    "atomic": "added atomically, in any order",
}


@dataclass(frozen=True, eq=False)
class ScratchBuffer:
    """Memory that a kernel of a plan writes and a later one reads.

    Attributes:
        name: its name in the plan.
        type: the tile, or scalar, of each program.
        grid: the grid whose programs have one each.
    """

    name: str
    type: Type
    grid: Grid


@dataclass(frozen=True, eq=False)
class PlannedKernel:
    """A kernel of a plan.

    Attributes:
        name: the kernel's name.
        module: its module; it has the parameters of the adjoint, then its own.
        grid: the grid on which it is launched.
        numbers: parameters of its own -> the extents that they take.
        scratch: parameters of its own -> the memory.
        writes: inputs -> the way in which it writes their gradients, of :data:`WAYS`; a kernel that
            leaves partial sums to another one writes none of them.
        reasons: why it is a kernel of its own, a line each.
    """

    name: str
    module: Module
    grid: Grid
    numbers: Mapping[str, Extent] = field(default_factory=dict)
    scratch: Mapping[str, ScratchBuffer] = field(default_factory=dict)
    writes: Mapping[str, str] = field(default_factory=dict)
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class InputNote:
    """The way in which the gradient of an input is written.

    Attributes:
        way: one of :data:`WAYS`.
        why: the reason; of ``atomic``, why no other way is known.
    """

    way: str
    why: str


@dataclass(frozen=True, eq=False)
class CheckedConditions:
    """Alternatives of conditions on the numbers of a launch, on which a plan depends.

    Attributes:
        grid, numbers: those of the kernel that the conditions are about.
        alternatives: sets of conditions, one of which has to hold.
        outcome: whether one held at the launch for which the plan was made.
    """

    grid: Grid
    numbers: Mapping[str, Extent]
    alternatives: tuple[tuple[ScalarCondition, ...], ...]
    outcome: bool

    def at(self, launch: LaunchFacts) -> bool:
        """Return whether one of the alternatives holds at a launch."""
        numbers = launch.numbers(self.grid, self.numbers)
        return any(
            all(condition.holds(numbers) for condition in conditions)
            for conditions in self.alternatives
        )


@dataclass(frozen=True, eq=False)
class CheckedBox:
    """A check of whether the coordinates of a grid are a bijection onto a box.

    Attributes:
        found: the kernel on a grid of coordinates.
        outcome: whether they were at the launch for which the plan was made.
    """

    found: Delinearized
    outcome: bool

    def at(self, launch: LaunchFacts) -> bool:
        """Return whether they are at a launch."""
        return launch.box(self.found) is not None


@dataclass(frozen=True, eq=False)
class CheckedFactor:
    """A check of whether values of a narrow type may lack a factor.

    They may where it is within a part of the type's range around 1: 2**-8 .. 2**8 for f16.

    Attributes:
        factor: the factor, in terms of the launch's arguments.
        narrow: the type.
        outcome: whether they might at the launch for which the plan was made.
    """

    factor: ScalarExpression
    narrow: FloatType
    outcome: bool

    def at(self, launch: LaunchFacts) -> bool:
        """Return whether they may at a launch."""
        value = self.factor.at(launch.arguments)
        reach = 2.0 ** (self.narrow.bias / 2 + 0.5)
        return value is not None and 1 / reach <= abs(value) <= reach


@dataclass(frozen=True, eq=False)
class Coverage:
    """The stores that write an input's gradient, each element at most once.

    Attributes:
        stored: the stores.
        grid, numbers: those of their kernel.
    """

    stored: StoredElements
    grid: Grid
    numbers: Mapping[str, Extent]

    def count(self, launch: LaunchFacts) -> int | None:
        """Return the number of elements that are written; None where it is not known."""
        numbers = launch.numbers(self.grid, self.numbers)
        return self.stored.count(launch.sizes(self.grid), numbers)


@dataclass(frozen=True, eq=False)
class AdjointPlan:
    """The kernels that together write the gradients of a kernel's inputs.

    Attributes:
        kernels: in the order of their launches.
        inputs: inputs -> a note of how their gradients are written.
        loops: a note for each loop of the kernel.
        checks: those of the numbers of the launch; the plan is for launches with the same outcomes.
        notes: further lines for a report: passes that refused, and why.
        coverages: inputs whose gradients are stored, and not added to -> the stores.
    """

    kernels: tuple[PlannedKernel, ...]
    inputs: Mapping[str, InputNote]
    loops: tuple[LoopNote, ...]
    checks: tuple[CheckedConditions | CheckedBox | CheckedFactor, ...] = ()
    notes: tuple[str, ...] = ()
    coverages: Mapping[str, Coverage] = field(default_factory=dict)

    def fits(self, launch: LaunchFacts) -> bool:
        """Return whether the plan is for a launch."""
        return all(check.at(launch) == check.outcome for check in self.checks)

    def atomic_inputs(self) -> dict[str, str]:
        """Return the inputs whose gradients are added to atomically, and why."""
        return {name: note.why for name, note in self.inputs.items() if note.way == "atomic"}
