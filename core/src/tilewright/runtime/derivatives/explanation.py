"""Explanations of adjoints: the decisions of a plan, as text and as data."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.derivatives.adjoint.loop_tape import TapeParameter
from tilewright.derivatives.analysis.address_digits import ScalarCondition
from tilewright.derivatives.plan.adjoint_plan import (
    WAYS,
    AdjointPlan,
    CheckedBox,
    CheckedConditions,
    CheckedFactor,
    PlannedKernel,
)
from tilewright.derivatives.plan.grid_extents import Grid, LaunchFacts
from tilewright.derivatives.plan.recomputed_values import RecomputedValue, recomputed_values
from tilewright.derivatives.tile_memory import elements_of
from tilewright.ir.core import Module
from tilewright.ir.types import PointerType, Type, byte_size, element_type
from tilewright.runtime.derivatives.tape_memory import size_text

#: Ways in which an adjoint walks a loop -> what each means.
_LOOPS = {
    "free": "walked forward",
    "gauge": "walked forward, as a plain sum",
    "tape": "walked backward, from a tape",
}


@dataclass(frozen=True)
class KernelNote:
    """A kernel of a plan at a launch.

    Attributes:
        name: the kernel's name.
        grid: the number of programs along each axis.
        rule: the same in terms of the launch.
        writes: inputs -> how it writes their gradients.
        scratch: its names of buffers that it shares with other kernels.
        reasons: why it is a kernel of its own.
    """

    name: str
    grid: tuple[int, int, int]
    rule: str
    writes: Mapping[str, str]
    scratch: tuple[str, ...]
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class MemoryNote:
    """Memory that a launch allocates.

    Attributes:
        name: the name of the buffer or tape.
        type: the type of what a program keeps there, of a tape in each iteration.
        programs: the programs that have one each.
        bytes: the size; of a tape that of one iteration.
    """

    name: str
    type: str
    programs: int
    bytes: int


@dataclass(frozen=True)
class ConditionNote:
    """A condition on the scalars of a launch that the plan depends on.

    Attributes:
        text: the condition in words.
        values: the same with the launch's numbers.
        holds: whether it holds.
    """

    text: str
    values: str
    holds: bool

    @property
    def is_of_use(self) -> bool:
        """Return whether a reader learns from it: not that a grid has no axis that is not read."""
        return not (self.holds and self.text.startswith("1 >= num_programs"))

    def __str__(self) -> str:
        return f"{self.text}: {self.values} {'holds' if self.holds else 'does not hold'}"


@dataclass(frozen=True)
class SavedOutputs:
    """Outputs that the adjoint could read instead of computing them again.

    Attributes:
        names: the outputs.
        before, after: the operations of all kernels, without and with them.
    """

    names: tuple[str, ...]
    before: int
    after: int

    def __str__(self) -> str:
        counts = f"{self.after} of {self.before} operations"
        if len(self.names) == 1:
            return f"{self.names[0]} is computed again: named in saved, it leaves {counts}"
        names = " and ".join(self.names)
        return f"{names} are computed again: named in saved, they leave {counts}"


@dataclass(frozen=True)
class AdjointExplanation:
    """The decisions of an adjoint for a launch; see :meth:`AdjointKernel.explain`.

    ``print()`` shows a text, and :meth:`record` returns the same as JSON has it.

    Attributes:
        kernel, target: its name, and the backend and architecture that it is compiled for.
        inputs: inputs -> how the gradient is written, and why.
        loops: place, way and reason of each loop.
        kernels: the kernels, in the order of their launches.
        scratch, tapes: the memory of a launch.
        conditions: those on scalars that held or failed.
        notes: passes that refused, and why.
        savings: outputs that could be named in ``saved``.
        proposals: values that are computed again, and could be stored as outputs.
    """

    kernel: str
    target: str
    inputs: Mapping[str, tuple[str, str]]
    loops: tuple[tuple[str, str, str], ...]
    kernels: tuple[KernelNote, ...]
    scratch: tuple[MemoryNote, ...]
    tapes: tuple[MemoryNote, ...]
    conditions: tuple[ConditionNote, ...]
    notes: tuple[str, ...]
    savings: tuple[SavedOutputs, ...]
    proposals: tuple[RecomputedValue, ...]

    def __str__(self) -> str:
        width = max(map(len, self.inputs), default=0)
        lines = [
            f"{self.kernel} for {self.target}",
            "gradients:",
            *(
                f"  {name:<{width}}  {WAYS[way]} ({why})"
                for name, (way, why) in self.inputs.items()
            ),
        ]
        lines += _section(
            "loops", [f"{place}: {_LOOPS[way]}: {why}" for place, way, why in self.loops]
        )
        lines.append("kernels:")
        for one in self.kernels:
            lines.append(f"  {one.name}, grid {one.grid} of {one.rule}: {_writes_text(one)}")
            lines += [f"    {reason}" for reason in one.reasons]
        lines += _section("scratch", [_memory_text(one, "") for one in self.scratch])
        lines += _section("tapes", [_memory_text(one, " an iteration") for one in self.tapes])
        lines += _section("conditions", [str(one) for one in self.conditions if one.is_of_use])
        lines += _section("notes", self.notes)
        lines += _section("residuals", map(str, (*self.savings, *self.proposals)))
        return "\n".join(re.sub(r"[^\s(]*[/\\](?=[^/\\]+:\d)", "", line) for line in lines)

    def record(self) -> dict[str, Any]:
        """Return the same facts as JSON has them."""
        return {
            "kernel": self.kernel,
            "target": self.target,
            "gradients": {
                name: {"way": way, "why": why} for name, (way, why) in self.inputs.items()
            },
            "loops": [{"place": place, "way": way, "why": why} for place, way, why in self.loops],
            "kernels": [
                {
                    "name": one.name,
                    "grid": list(one.grid),
                    "rule": one.rule,
                    "writes": dict(one.writes),
                    "scratch": list(one.scratch),
                    "reasons": list(one.reasons),
                }
                for one in self.kernels
            ],
            "scratch": [vars(one).copy() for one in self.scratch],
            "tapes": [vars(one).copy() for one in self.tapes],
            "conditions": [vars(one).copy() for one in self.conditions],
            "notes": list(self.notes),
            "savings": [vars(one).copy() for one in self.savings],
            "residuals": [
                {
                    "value": one.name,
                    "place": one.place,
                    "operations": one.operations,
                    "type": str(one.type),
                    "save": one.save,
                    "variables": list(one.residuals),
                }
                for one in self.proposals
            ],
        }


def explained(
    name: str,
    target: str,
    plan: AdjointPlan,
    facts: LaunchFacts,
    forward: Sequence[str],
    others: Mapping[tuple[str, ...], AdjointPlan],
    source: Module,
) -> AdjointExplanation:
    """Explain a plan at a launch.

    Args:
        forward: the parameters of the forward kernel.
        source: its module.
        others: outputs -> the plan that there would be if they were saved.
    """
    buffers = {buffer.name: buffer for kernel in plan.kernels for buffer in kernel.scratch.values()}
    programs = math.prod(facts.grid)
    tapes = {
        parameter.name: _tape_note(parameter.name, parameter.type, programs)
        for kernel in plan.kernels
        for parameter in kernel.module.kernel.arguments
        if TapeParameter.of(parameter.name) is not None
    }
    proposals = {
        (value.name, value.place): value
        for kernel in plan.kernels
        for value in recomputed_values(kernel.module, forward, source)
    }
    return AdjointExplanation(
        name,
        target,
        {name: (note.way, note.why) for name, note in plan.inputs.items()},
        tuple((note.location, note.way, note.why) for note in plan.loops),
        tuple(_kernel_note(kernel, facts) for kernel in plan.kernels),
        tuple(
            _memory_note(name, buffer.type, math.prod(facts.sizes(buffer.grid)))
            for name, buffer in buffers.items()
        ),
        tuple(tapes.values()),
        tuple(_conditions(plan, facts)),
        plan.notes,
        tuple(_savings(plan, others)),
        tuple(proposals.values()),
    )


def _savings(
    plan: AdjointPlan, others: Mapping[tuple[str, ...], AdjointPlan]
) -> list[SavedOutputs]:
    """Return the outputs whose values would spare operations, those that spare most first."""
    before = _operations(plan)
    found = [SavedOutputs(names, before, _operations(other)) for names, other in others.items()]
    sparing = [one for one in found if one.after < before]
    return sorted(sparing, key=lambda one: (one.after, len(one.names)))


def _operations(plan: AdjointPlan) -> int:
    return sum(1 for kernel in plan.kernels for _ in kernel.module.kernel.walk())


def _kernel_note(kernel: PlannedKernel, facts: LaunchFacts) -> KernelNote:
    return KernelNote(
        kernel.name,
        facts.sizes(kernel.grid),
        _grid_text(kernel.grid, facts.sizes(kernel.grid)),
        dict(kernel.writes),
        tuple(buffer.name for buffer in kernel.scratch.values()),
        kernel.reasons,
    )


def _grid_text(grid: Grid, sizes: tuple[int, int, int]) -> str:
    texts = [str(extent) for extent in grid]
    while len(texts) > 1 and sizes[len(texts) - 1] == 1:
        texts.pop()
    return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"


def _memory_note(name: str, type_: Type, programs: int) -> MemoryNote:
    size = elements_of(type_) * byte_size(element_type(type_))
    return MemoryNote(name, str(type_), programs, programs * size)


def _tape_note(name: str, pointer: Type, programs: int) -> MemoryNote:
    tape = TapeParameter.of(name)
    assert tape is not None and isinstance(pointer, PointerType)
    size = tape.elements * byte_size(pointer.pointee)
    return MemoryNote(name, f"{tape.elements} of {pointer.pointee}", programs, programs * size)


def _conditions(plan: AdjointPlan, facts: LaunchFacts) -> list[ConditionNote]:
    """Return the conditions of a plan's checks, each once."""
    found: dict[str, ConditionNote] = {}
    for check in plan.checks:
        if isinstance(check, CheckedBox):
            text = "the coordinates that programs compute are a bijection onto a box"
            box = facts.box(check.found)
            values = "the grid" if box is None else f"the box {box}"
            found.setdefault(text, ConditionNote(text, values, box is not None))
            continue
        if isinstance(check, CheckedFactor):
            continue  # the gradients are the same but for the rounding of a narrow type
        for condition in _decisive(check, facts):
            note = _condition_note(condition, check, facts)
            found.setdefault(note.text, note)
    return list(found.values())


def _decisive(check: CheckedConditions, facts: LaunchFacts) -> tuple[ScalarCondition, ...]:
    """Return the alternative that holds; the first one where none does."""
    numbers = facts.numbers(check.grid, check.numbers)
    for conditions in check.alternatives:
        if all(condition.holds(numbers) for condition in conditions):
            return conditions
    return check.alternatives[0]


def _condition_note(
    condition: ScalarCondition, check: CheckedConditions, facts: LaunchFacts
) -> ConditionNote:
    numbers = facts.numbers(check.grid, check.numbers)
    values = re.sub(
        r"num_programs\(\d\)|[A-Za-z_][\w.]*",
        lambda name: str(numbers.get(name[0], name[0])),
        condition.text,
    )
    return ConditionNote(condition.text, values, condition.holds(numbers))


def _writes_text(kernel: KernelNote) -> str:
    parts = [f"writes the gradient of {name} ({way})" for name, way in kernel.writes.items()]
    parts += [f"uses {', '.join(kernel.scratch)}"] if kernel.scratch else []
    return ", ".join(parts) or "writes nothing"


def _memory_text(memory: MemoryNote, unit: str) -> str:
    size = size_text(memory.bytes)
    return f"{memory.name}: {memory.type} of each of {memory.programs} programs, {size}{unit}"


def _section(title: str, lines: Any) -> list[str]:
    found = [f"  {line}" for line in lines]
    return [f"{title}:", *found] if found else []


__all__ = ["AdjointExplanation", "explained"]
