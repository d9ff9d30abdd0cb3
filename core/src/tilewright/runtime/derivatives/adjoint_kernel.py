"""``tw.vjp``: adjoint kernels, which compute the cotangents of inputs from those of outputs."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from tilewright.derivatives.plan.adjoint_plan import AdjointPlan
from tilewright.derivatives.plan.grid_extents import LaunchFacts
from tilewright.derivatives.plan.make_plan import make_plan
from tilewright.derivatives.plan.recomputed_values import written_floats
from tilewright.derivatives.refusals import DerivativeError
from tilewright.derivatives.reverse_mode import AdjointRequest, consumed_outputs
from tilewright.errors import DefinitionError, LaunchError, similar, with_help
from tilewright.forks import setting_up
from tilewright.runtime.arguments.array_copies import set_to_zero
from tilewright.runtime.arguments.descriptor import TensorDescriptor
from tilewright.runtime.compiler.compile import build_module
from tilewright.runtime.compiler.selection import Selected
from tilewright.runtime.derivatives.bound_launch import BoundLaunch, converters, launched_value
from tilewright.runtime.derivatives.compiled_plan import (
    CompiledPlan,
    buffer_size,
    programs_at_once,
    selections_of,
)
from tilewright.runtime.derivatives.derivative_arguments import (
    are_apart,
    check_apart,
    copied_like,
    scalars_of,
)
from tilewright.runtime.derivatives.derivative_kernel import (
    DerivativeKernel,
    request_text,
    require_parameter,
)
from tilewright.runtime.derivatives.derived_source import DerivedSource, adjoint_source
from tilewright.runtime.derivatives.explanation import AdjointExplanation, explained
from tilewright.runtime.derivatives.repeated_launch import Repeated, RepeatedLaunch
from tilewright.runtime.derivatives.tangent_kernel import names

#: Combinations of sizes for which the plan is known without its checks.
_MOST_KNOWN = 1024
#: Bytes that the tapes of a launch may take, unless a limit is given.
TAPE_LIMIT = 8 << 30


class AdjointKernel(DerivativeKernel):
    """The adjoint of a kernel; see :func:`vjp`."""

    def __init__(
        self,
        kernel: Any,
        outputs: tuple[str, ...],
        wrt: tuple[str, ...],
        saved: tuple[str, ...],
        *,
        accumulate: bool,
        deterministic: bool,
        tape: bool,
        tape_limit: int,
        disjoint: tuple[str, ...],
        prefix: str,
    ) -> None:
        roles = {"outputs": outputs, "wrt": wrt}
        super().__init__(kernel, "vjp", prefix, roles)
        for name in saved:
            require_parameter(kernel, "saved", name)
        self.outputs, self.wrt, self.saved = outputs, wrt, saved
        self.accumulate, self.deterministic = accumulate, deterministic
        self.tape, self.tape_limit = tape, tape_limit
        for name in disjoint:
            if name not in wrt:
                raise DefinitionError(
                    with_help(
                        f"disjoint names {name!r}, which wrt does not: it is ({', '.join(wrt)})",
                        similar(name, wrt),
                    )
                )
        self.disjoint = disjoint

    def check_addresses(self) -> Callable[[tuple[Any, ...], Mapping[str, Any]], None]:
        """Return the function that checks that a launch's arrays are apart.

        See :func:`.derivative_arguments.check_apart`.
        """
        own = {name: argument for argument, name in self._own_names.items()}
        positions = {name: self._originals[own[name]][0] for name in self.names}
        gradients = [own[name] for name in self.wrt]
        kernel_positions = list(positions.values())

        def check(bound: tuple[Any, ...], values: Mapping[str, Any]) -> None:
            if are_apart([bound[position] for position in kernel_positions]) and (
                len(gradients) == 1 or are_apart([values[name] for name in gradients])
            ):
                return
            originals = {name: bound[position] for name, position in positions.items()}
            check_apart(originals, self.outputs, {name: values[own[name]] for name in self.wrt})

        return check

    @property
    def record_mark(self) -> str:
        return request_text(
            vjp=self.outputs,
            wrt=self.wrt,
            saved=self.saved,
            accumulate=self.accumulate,
            deterministic=self.deterministic,
            disjoint=self.disjoint,
        )

    def plan(self, *args: Any, grid: Any, **keywords: Any) -> AdjointPlan:
        """Return the plan of a launch with these arguments: its kernels, and notes about them.

        Nothing is compiled or launched.

        Raises:
            DerivativeError: the kernel has no derivative, or none that is known.
            LaunchError: an argument is missing or does not fit.
        """
        launch, plans = self.bound_launch(*args, grid=grid, **keywords)
        return self._plans_of(launch, plans).planned(self, launch)[0]

    def stored_inputs(self, *args: Any, grid: Any, **keywords: Any) -> frozenset[str]:
        """Return the inputs whose gradients a launch stores, each element at most once.

        Raises:
            DerivativeError: the kernel has no derivative, or none that is known.
            LaunchError: an argument is missing or does not fit.
        """
        return frozenset(self.plan(*args, grid=grid, **keywords).coverages)

    def memory_sizes(self, *args: Any, grid: Any, **keywords: Any) -> dict[str, int]:
        """Return the bytes of the buffers that a launch allocates, except for tapes, by name.

        Raises:
            DerivativeError: the kernel has no derivative, or none that is known.
            LaunchError: an argument is missing or does not fit.
        """
        launch, plans = self.bound_launch(*args, grid=grid, **keywords)
        plan, facts = self._plans_of(launch, plans).planned(self, launch)
        buffers = (buffer for kernel in plan.kernels for buffer in kernel.scratch.values())
        return {buffer.name: buffer_size(buffer, facts) for buffer in buffers}

    def explain(self, *args: Any, grid: Any, **keywords: Any) -> AdjointExplanation:
        """Explain the adjoint of a launch with these arguments.

        For each input the way in which its gradient is written, for each loop the way in which it
        is walked, the kernels with their grids and memory, conditions on scalars that held or
        failed, and values that are computed again and could be saved. Nothing is compiled or
        launched. ``print()`` shows it, and ``record()`` returns it as JSON has it.

        Raises:
            DerivativeError: the kernel has no derivative, or none that is known.
            LaunchError: an argument is missing or does not fit.
        """
        launch, plans = self.bound_launch(*args, grid=grid, **keywords)
        found = self._plans_of(launch, plans)
        plan, facts = found.planned(self, launch)
        selected = launch.selected
        target = f"{selected.backend.name} {selected.target.arch}"
        forward = [parameter.name for parameter in found.source.kernel.arguments]
        others = found.with_more_saved(self, facts)
        return explained(self.__name__, target, plan, facts, forward, others)

    def _sources(self, launch: BoundLaunch, plans: dict[str, Any]) -> DerivedSource:
        found = self._plans_of(launch, plans)
        plan, facts = found.planned(self, launch)
        return adjoint_source(self, plan, facts, found.consumed)

    def _run(self, launch: BoundLaunch, plans: dict[str, Any], warmup: bool) -> Any:
        found = self._plans_of(launch, plans)
        plan, facts = found.compiled(self, launch)
        if not warmup:
            found.launch(self, launch, plan, facts)
        return plan.kernels[-1].kernel

    def _repeated(self, launch: BoundLaunch, plans: dict[str, Any]) -> Repeated | None:
        return self._plans_of(launch, plans).repeated(self, launch)

    def _plans_of(self, launch: BoundLaunch, plans: dict[str, Any]) -> _AdjointPlans:
        found = plans.get("vjp")
        if found is None:
            found = plans["vjp"] = _AdjointPlans(self, launch)
        return found

    def _selections(self, launch: BoundLaunch, plans: dict[str, Any]) -> list[Selected]:
        found = self._plans_of(launch, plans)
        return selections_of(self, launch, found.planned(self, launch)[0])


class _AdjointPlans:
    """The adjoints of launches with arguments of some kinds.

    A plan serves all launches whose numbers satisfy the conditions that it was made with.

    Attributes:
        consumed: outputs whose cotangents are copied, because the adjoint writes to them.
    """

    def __init__(self, kernel: AdjointKernel, launch: BoundLaunch) -> None:
        parameters = kernel.parameters(launch)
        for name, (value, _) in launch.originals.items():
            if name not in parameters.elements:
                raise LaunchError(
                    f"{name} must be an array of one float, to which the cotangent of the number "
                    f"{value!r} is added"
                )
        selected = launch.selected
        self.source = build_module(selected.specialization, selected.backend, selected.target)
        self.consumed = consumed_outputs(self.source, kernel.outputs)
        self._parallel = programs_at_once(selected.device)
        self._request = AdjointRequest(
            kernel.outputs,
            kernel.wrt,
            kernel.saved,
            {},
            parameters.elements,
            parameters.facts,
            kernel.prefix,
            disjoint=kernel.disjoint,
        )
        self._plans: list[AdjointPlan] = []
        self._compiled: dict[AdjointPlan, CompiledPlan] = {}
        self._known: dict[Any, tuple[AdjointPlan, LaunchFacts]] = {}
        self._lock = threading.RLock()

    def planned(
        self, kernel: AdjointKernel, launch: BoundLaunch
    ) -> tuple[AdjointPlan, LaunchFacts]:
        """Return the plan of a launch, and the facts of the launch that it is about."""
        scalars = {**scalars_of(launch.named), **scalars_of(launch.own)}
        key = (launch.grid, *scalars.values())
        found = self._known.get(key)
        if found is None:
            with setting_up(), self._lock:
                facts = LaunchFacts(launch.grid, scalars, self._parallel)
                plan = next((plan for plan in self._plans if plan.fits(facts)), None)
                if plan is None:
                    plan = make_plan(
                        self.source, self._request, facts, accumulate=kernel.accumulate
                    )
                    self._plans.append(plan)
                if len(self._known) >= _MOST_KNOWN:
                    self._known.clear()
                found = self._known[key] = plan, facts
        if kernel.deterministic:
            _refuse_atomics(found[0])
        return found

    def with_more_saved(
        self, kernel: AdjointKernel, facts: LaunchFacts
    ) -> dict[tuple[str, ...], AdjointPlan]:
        """Return the plans that there would be if more outputs were saved: each, and all."""
        written = [value.name for value in written_floats(self.source)]
        more = [name for name in written if name not in kernel.saved]
        plans = {}
        for names_ in dict.fromkeys([*((name,) for name in more), tuple(more)]) if more else ():
            request = replace(self._request, saved=(*kernel.saved, *names_))
            with contextlib.suppress(DerivativeError):  # it cannot be read
                plans[names_] = make_plan(self.source, request, facts, accumulate=kernel.accumulate)
        return plans

    def compiled(
        self, kernel: AdjointKernel, launch: BoundLaunch
    ) -> tuple[CompiledPlan, LaunchFacts]:
        """Return the compiled plan of a launch."""
        plan, facts = self.planned(kernel, launch)
        found = self._compiled.get(plan)
        if found is None:
            with setting_up(), self._lock:
                found = self._compiled[plan] = CompiledPlan(kernel, launch, plan, self.source)
        return found, facts

    def launch(
        self, kernel: AdjointKernel, launch: BoundLaunch, plan: CompiledPlan, facts: LaunchFacts
    ) -> None:
        """Prepare memory, and launch the adjoint."""
        own: dict[str, Any] = {}
        gradients: dict[str, Any] = {}
        originals: dict[str, Any] = {}
        own_items = zip(kernel.names, launch.own.items(), launch.kinds, strict=True)
        for argument, (name, value), kind in own_items:
            originals[argument] = launch.originals[name][0]
            if argument in kernel.wrt:
                gradients[argument] = value
            elif argument in self.consumed:
                value = copied_like(name, value)
            own[name] = launched_value(value, kind)
        check_apart(originals, kernel.outputs, gradients)
        own.update(plan.memory(launch, facts))
        clear = set_to_zero if launch.workspace is None else launch.workspace.clear
        if not kernel.accumulate:
            for name, value in gradients.items():
                if not plan.covers(name, value, facts):
                    clear(value.base if isinstance(value, TensorDescriptor) else value)
        plan.launch(launch, own, facts)

    def repeated(self, kernel: AdjointKernel, launch: BoundLaunch) -> RepeatedLaunch | None:
        """Return launches like one that was performed; None where each is prepared anew."""
        plan, facts = self.compiled(kernel, launch)
        memory = plan.allocators(facts)
        if memory is None:
            return None
        own = dict(zip(kernel.names, launch.own, strict=True))
        return RepeatedLaunch(
            plan.repeated(facts),
            zeroed=[
                own[name]
                for name in kernel.wrt
                if not kernel.accumulate and not plan.covers(name, launch.own[own[name]], facts)
            ],
            replaced={
                own[name]: partial(copied_like, own[name])
                for name in own
                if name in self.consumed and name not in kernel.wrt
            },
            converted=converters(launch),
            memory=memory,
            check=kernel.check_addresses(),
        )


def _refuse_atomics(plan: AdjointPlan) -> None:
    for name, why in plan.atomic_inputs().items():
        raise DerivativeError(
            f"the gradient of {name} is added to atomically, in any order: {why}",
            f"leave deterministic=False, or let one program alone load each element of {name}",
        )


def vjp(
    kernel: Any,
    *,
    outputs: str | Sequence[str],
    wrt: str | Sequence[str],
    saved: str | Sequence[str] = (),
    accumulate: bool = False,
    deterministic: bool = False,
    tape: bool = True,
    tape_limit: int = TAPE_LIMIT,
    disjoint: str | Sequence[str] = (),
    prefix: str = "d_",
) -> AdjointKernel:
    """Derive the adjoint of a kernel: reverse mode.

        adjoint = tw.vjp(softmax, outputs="out", wrt="x")
        adjoint[grid](x, out, n, BLOCK=1024, d_out=gradient, d_x=dx)

    It is launched with the kernel's grid and arguments; and by keyword, for each output ``y`` with
    ``d_y``, an array of its shape and strides that holds the cotangent of what the kernel writes,
    and for each ``x`` of ``wrt`` with ``d_x``, to which the cotangent of ``x`` is written: an array
    of its shape and strides, or an array of one float for a float. Arrays of cotangents may have
    another type of floats than the originals: pass float32 for the gradient of float16 of which
    many are summed. The adjoint writes to nothing else. Inputs must have the values that the kernel
    read.

    A gradient is stored where the addresses prove that each element of the input is loaded once,
    and added to without atomics where one program alone loads it. Proofs that depend on sizes
    (``stride >= n``) are completed at the launch. Where programs load one element, the adjoint is
    several kernels, of other tiles, so that one program sums up what the others would add, or
    partial sums are added up in a fixed order: the same bits in each run. What is in neither form,
    as an element that a loaded index chooses, is added to atomically, so that its last bits may
    differ from run to run. ``plan`` returns the kernels, and the reasons.

    A loop that carries what has a derivative from one iteration to the next, and does not only add,
    takes memory: what it carries in each iteration of each program. Its iterations are counted
    before the launch: on the host, once per combination of scalar arguments, where they depend on
    those alone, else by a kernel of its own.

    Args:
        kernel: a kernel of ``tilewright.jit``.
        outputs: parameters whose cotangents are given: arrays of floats, or descriptors of them.
        wrt: parameters whose cotangents are wanted: arrays of floats, descriptors, and floats.
        saved: arrays that hold what the kernel wrote to them when the adjoint runs: their values
            are read instead of being computed again, where that is the same.
        accumulate: add to ``d_x`` instead of writing it.
        deterministic: refuse the inputs whose gradients would be added to atomically.
        tape: whether loops may take memory.
        tape_limit: bytes that the loops of a launch may take.
        disjoint: inputs of which no two programs, and no two lanes of one load, load one element,
            as you promise, where addresses do not prove it (loaded indices, permutations): their
            gradients are written without atomics. They are wrong where that does not hold.
        prefix: begins the names of the arguments of cotangents.

    Raises:
        DefinitionError: the kernel has no such parameter.
        DerivativeError: of a launch: the kernel has no derivative, or none that is known; or a
            gradient would be added to atomically though ``deterministic`` is set.
        LaunchError: of a launch: an array of cotangents is missing, or not like the original; or
            loops would take more memory than ``tape_limit``.
    """
    return AdjointKernel(
        kernel,
        names(outputs),
        names(wrt),
        names(saved),
        accumulate=accumulate,
        deterministic=deterministic,
        tape=tape,
        tape_limit=tape_limit,
        disjoint=names(disjoint),
        prefix=prefix,
    )
