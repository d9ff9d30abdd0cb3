"""The plans of an adjoint for launches with arguments of some kinds, and their launches."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from tilewright.derivatives.plan.adjoint_plan import AdjointPlan
from tilewright.derivatives.plan.grid_extents import LaunchFacts
from tilewright.derivatives.plan.make_plan import make_plan
from tilewright.derivatives.plan.recomputed_values import written_floats
from tilewright.derivatives.refusals import DerivativeError
from tilewright.derivatives.reverse_mode import AdjointRequest, consumed_outputs
from tilewright.errors import LaunchError
from tilewright.forks import setting_up
from tilewright.runtime.arguments.array_copies import set_to_zero
from tilewright.runtime.arguments.descriptor import TensorDescriptor
from tilewright.runtime.compiler.compile import build_module
from tilewright.runtime.derivatives.bound_launch import BoundLaunch, converters, launched_value
from tilewright.runtime.derivatives.compiled_plan import CompiledPlan, programs_at_once
from tilewright.runtime.derivatives.derivative_arguments import check_apart, copied_like, scalars_of
from tilewright.runtime.derivatives.repeated_launch import RepeatedLaunch

if TYPE_CHECKING:
    from tilewright.runtime.derivatives.adjoint_kernel import AdjointKernel

#: Combinations of sizes for which the plan is known without its checks.
_MOST_KNOWN = 1024


class AdjointPlans:
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
