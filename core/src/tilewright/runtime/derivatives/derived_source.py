"""Derivatives as source of the language: their kernels, with their origin and their launches."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from tilewright.derivatives.adjoint.loop_tape import TapeParameter
from tilewright.derivatives.plan.adjoint_plan import WAYS, AdjointPlan, PlannedKernel
from tilewright.derivatives.plan.grid_extents import LaunchFacts
from tilewright.ir.core import Module
from tilewright.runtime.compiler.selection import Selected

#: Launch options that derivatives set, or on which the speed of a kernel depends.
_OPTIONS = ("num_warps", "num_stages", "num_ctas", "flush_denormals")


def _sentence(note: str) -> str:
    """Return a note with a capital and a period, unless it begins with the name of a parameter."""
    named = "_" in note.partition(" ")[0]
    text = note if named else note[:1].upper() + note[1:]
    return text if text.endswith(".") else f"{text}."


@dataclass(frozen=True)
class SourceKernel:
    """A kernel of a derivative.

    Attributes:
        module: its module.
        grid: the sizes of its grid.
        notes: lines for its docstring.
        values: parameters -> what they take at the launch, where it is not an argument.
    """

    module: Module
    grid: tuple[int, int, int]
    notes: tuple[str, ...] = ()
    values: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class DerivedSource:
    """The kernels of a derivative, in the order of their launches.

    Attributes:
        head: what it is, without a period.
        kernels: the kernels.
        preparations: what is done before the launches, a line each.
    """

    head: str
    kernels: tuple[SourceKernel, ...]
    preparations: tuple[str, ...] = ()

    def text(self, kernel: Any, selected: Selected) -> str:
        """Return the text of the module.

        Args:
            kernel: the kernel of which it is the derivative.
            selected: its selection for the launch.

        Raises:
            SourceError: the language has no source for an operation.
        """
        from tilewright.frontend.source.module_source import source_of_kernels

        specialization = selected.specialization
        fn = specialization.fn
        place = f"{os.path.basename(fn.file)}:{fn.definition_line}"
        constants = [f"{name} = {value!r}" for name, value in specialization.constants.items()]
        head = f"{self.head}: derived from {kernel.__name__} ({place})."
        fixed = [f"Constants of {kernel.__name__}: {', '.join(constants)}."] if constants else []

        def launches(names: Any) -> list[str]:
            options = "".join(
                f", {name}={specialization.options[name]}"
                for name in _OPTIONS
                if specialization.options.get(name) is not None
            )
            lines = [*self.preparations, "Launches, in this order, for the arguments given:"]
            for name, made in zip(names, self.kernels, strict=True):
                arguments = ", ".join(value.name for value in made.module.kernel.arguments)
                lines.append(f"    {name}[{made.grid}]({arguments}{options})")
                lines += [f"        {own}: {value}" for own, value in made.values.items()]
            return lines

        count = len(self.kernels)
        modules = []
        for index, made in enumerate(self.kernels):
            which = f"Kernel {index + 1} of {count}. " if count > 1 else ""
            first = f"{which}{self.head}."
            notes = [_sentence(note) for note in made.notes]
            modules.append((made.module, [first, "", *notes, *fixed]))
        return source_of_kernels(modules, head, launches)


def adjoint_source(
    kernel: Any, plan: AdjointPlan, facts: LaunchFacts, consumed: Collection[str]
) -> DerivedSource:
    """Return the kernels of an adjoint's plan, to write them as source.

    Args:
        kernel: the adjoint; see :class:`.adjoint_kernel.AdjointKernel`.
        facts: of the launch.
        consumed: outputs whose cotangents are copied before.
    """
    head = f"Gradients of {', '.join(kernel.wrt)}, given those of {', '.join(kernel.outputs)}"
    preparations = []
    if not kernel.accumulate:
        arrays = ", ".join(f"{kernel.prefix}{name}" for name in kernel.wrt)
        preparations.append(f"Fill with zeros before: {arrays}.")
    if consumed:
        arrays = ", ".join(f"{kernel.prefix}{name}" for name in consumed)
        preparations.append(f"Pass copies, to which the kernels write: {arrays}.")
    kernels = tuple(_planned(kernel.prefix, planned, facts) for planned in plan.kernels)
    return DerivedSource(head, kernels, tuple(preparations))


def _planned(prefix: str, planned: PlannedKernel, facts: LaunchFacts) -> SourceKernel:
    notes = [f"{prefix}{name} is {WAYS[way]}." for name, way in planned.writes.items()]
    values = {
        name: f"{facts.value(extent)}, which is {extent}"
        for name, extent in planned.numbers.items()
    }
    for name, buffer in planned.scratch.items():
        sizes = facts.sizes(buffer.grid)
        values[name] = f"memory {buffer.name} of {buffer.type} for each program of a grid {sizes}"
    for argument in planned.module.kernel.arguments:
        tape = TapeParameter.of(argument.name)
        if tape is not None:
            values[argument.name] = (
                f"memory of {tape.elements} elements for each iteration of each program"
            )
    return SourceKernel(
        planned.module, facts.sizes(planned.grid), (*planned.reasons, *notes), values
    )
