"""The compiled kernels of an adjoint's plan, and their launches."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from tilewright.derivatives.adjoint.loop_tape import TapeParameter
from tilewright.derivatives.plan.adjoint_plan import AdjointPlan, ScratchBuffer
from tilewright.derivatives.plan.grid_extents import LaunchFacts
from tilewright.derivatives.refusals import DerivativeError
from tilewright.derivatives.tile_memory import elements_of
from tilewright.derivatives.trip_counts import TRIPS_OUT, trip_counts
from tilewright.ir.core import Module
from tilewright.ir.printer import print_module
from tilewright.ir.types import byte_size, element_type
from tilewright.passes.clone import clone_module
from tilewright.plugins.manifest import Device
from tilewright.runtime.arguments.array_checks import is_contiguous, layout_of
from tilewright.runtime.compiler.selection import Selected
from tilewright.runtime.derivatives.bound_launch import BoundLaunch, DerivedPlan
from tilewright.runtime.derivatives.derivative_kernel import DerivativeKernel, request_text
from tilewright.runtime.derivatives.repeated_launch import RepeatedKernel
from tilewright.runtime.derivatives.scalar_slices import ScalarSlice, depends_on_scalars_alone
from tilewright.runtime.derivatives.tape_memory import TapeMemory, bytes_like

#: Programs that share the sums of a device without multiprocessors, at least.
_FEWEST_PROGRAMS = 16
#: Programs that a multiprocessor, or a core, takes of those that share sums.
_PROGRAMS_EACH = 2


class CompiledPlan:
    """The compiled kernels of a plan.

    Attributes:
        plan: the plan.
        kernels: its kernels.
    """

    def __init__(self, kernel: Any, launch: BoundLaunch, plan: AdjointPlan, source: Module) -> None:
        """Compile.

        Args:
            kernel: the adjoint; see :class:`.adjoint_kernel.AdjointKernel`.
            source: the kernel that it is derived from.

        Raises:
            DerivativeError: it needs a tape, which the adjoint refuses.
        """
        self.plan = plan
        self.kernels = [
            DerivedPlan(kernel.compiled(selected), launch)
            for selected in selections_of(kernel, launch, plan)
        ]
        self._tape = _tape_memory(kernel, launch, source, self.kernels)
        buffers = (buffer for planned in plan.kernels for buffer in planned.scratch.values())
        self._buffers = {buffer.name: buffer for buffer in buffers}

    def covers(self, name: str, gradient: Any, facts: LaunchFacts) -> bool:
        """Return whether it is known that all elements of an input's gradient are stored to."""
        coverage = self.plan.coverages.get(name)
        if coverage is None or 0 in facts.grid:
            return False
        layout = layout_of(gradient)
        if layout is None or not is_contiguous(*layout):
            return False
        if coverage not in facts.counts:
            facts.counts[coverage] = coverage.count(facts)
        return facts.counts[coverage] == math.prod(layout[0])

    def memory(self, launch: BoundLaunch, facts: LaunchFacts) -> dict[str, Any]:
        """Allocate the memory of a launch; return it by the names of tapes and buffers.

        Raises:
            LaunchError: the arrays' library cannot allocate it, or it is more than the limit.
        """
        if 0 in launch.grid:
            return {}
        like = next(iter(launch.own.values()))
        found = {} if self._tape is None else self._tape.arguments(launch, like)
        given = {} if launch.workspace is None else launch.workspace.memory
        for name, buffer in self._buffers.items():
            size, memory = buffer_size(buffer, facts), given.get(name)
            is_enough = memory is not None and memory.nbytes >= size
            found[name] = memory if is_enough else bytes_like(like, size, zeroed=False)
        return found

    def repeated(self, facts: LaunchFacts) -> list[RepeatedKernel]:
        """Return the kernels of launches that are like one."""
        found = []
        for kernel, planned in zip(self.kernels, self.plan.kernels, strict=True):
            names = tuple(
                planned.scratch[each.name].name if each.name in planned.scratch else each.name
                for each in kernel.own
            )
            numbers = {name: facts.value(extent) for name, extent in planned.numbers.items()}
            found.append(RepeatedKernel(kernel, facts.sizes(planned.grid), names, numbers))
        return found

    def allocators(self, facts: LaunchFacts) -> dict[str, Callable[[Any], Any]] | None:
        """Return functions that allocate the memory of launches like one, beside an array.

        None where they also depend on what is in memory.
        """
        if self._tape is not None:
            return None
        return {
            name: partial(bytes_like, size=buffer_size(buffer, facts), zeroed=False)
            for name, buffer in self._buffers.items()
        }

    def launch(self, launch: BoundLaunch, values: Mapping[str, Any], facts: LaunchFacts) -> None:
        """Launch the kernels, in order.

        Args:
            values: the arguments of cotangents, and the memory, by name.
        """
        if 0 in launch.grid:
            return
        for kernel, planned in zip(self.kernels, self.plan.kernels, strict=True):
            more = {name: facts.value(extent) for name, extent in planned.numbers.items()}
            scratch = {name: values[buffer.name] for name, buffer in planned.scratch.items()}
            kernel(launch, {**values, **more, **scratch}, facts.sizes(planned.grid))


def selections_of(
    kernel: DerivativeKernel, launch: BoundLaunch, plan: AdjointPlan
) -> list[Selected]:
    """Return the selections of a plan's kernels, which are not compiled."""
    found = []
    for planned in plan.kernels:
        text = print_module(planned.module, locations=False)
        name = f"planned {hashlib.sha256(text.encode()).hexdigest()}"
        derive = partial(_copy_of, planned.module)
        found.append(kernel.selection(launch, name, derive))
    return found


def _copy_of(module: Module, _: Module) -> Module:
    return clone_module(module)


def _tape_memory(
    kernel: Any, launch: BoundLaunch, source: Module, kernels: list[DerivedPlan]
) -> TapeMemory | None:
    """Return the memory of the kernels' tapes; None where they have none."""
    parameters = {parameter.name: parameter for made in kernels for parameter in made.own}
    tapes = [tape for name in parameters if (tape := TapeParameter.of(name)) is not None]
    if not tapes:
        return None
    if not kernel.tape:
        raise DerivativeError(
            f"{kernel.base_kernel.__name__} has a loop that carries what has a derivative "
            "from one iteration to the next, and tape=False",
            "let the loop only add to what it carries, or leave tape=True",
        )
    loops = frozenset(tape.loop for tape in tapes)
    derive = partial(trip_counts, loops=loops)
    counted = derive(source)
    count: ScalarSlice[int] | DerivedPlan
    if depends_on_scalars_alone(counted, TRIPS_OUT):
        count = ScalarSlice(counted, TRIPS_OUT, lambda trips: int(trips[0]))
    else:
        name = f"trips {request_text(loops=loops)}"
        count = DerivedPlan(kernel.compiled(kernel.selection(launch, name, derive)), launch)
    return TapeMemory(count, list(parameters.values()), kernel.tape_limit)


def buffer_size(buffer: ScratchBuffer, facts: LaunchFacts) -> int:
    """Return the bytes of a buffer in a launch."""
    each = elements_of(buffer.type) * byte_size(element_type(buffer.type))
    return max(math.prod(facts.sizes(buffer.grid)) * each, 1)


def programs_at_once(device: Device) -> int:
    """Return the number of programs that a device runs well at once."""
    properties = device.properties
    units = properties.get("multiprocessors") or properties.get("cores") or 0
    return max(_FEWEST_PROGRAMS, _PROGRAMS_EACH * int(units))
