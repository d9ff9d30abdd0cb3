"""``tw.jvp``: kernels that compute tangents beside values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from tilewright.derivatives.forward_mode import TangentRequest
from tilewright.derivatives.forward_mode import jvp as tangents_of
from tilewright.errors import LaunchError
from tilewright.runtime.compiler.compile import build_module
from tilewright.runtime.compiler.selection import Selected
from tilewright.runtime.derivatives.bound_launch import (
    BoundLaunch,
    DerivedPlan,
    converters,
    launched_value,
)
from tilewright.runtime.derivatives.derivative_arguments import kinds_of_own, taken
from tilewright.runtime.derivatives.derivative_kernel import DerivativeKernel, request_text
from tilewright.runtime.derivatives.derived_source import DerivedSource, SourceKernel
from tilewright.runtime.derivatives.repeated_launch import (
    Repeated,
    RepeatedKernel,
    RepeatedLaunch,
)
from tilewright.runtime.derivatives.tangent_policy import TangentPolicy


class TangentKernel(DerivativeKernel):
    """The kernel that computes tangents beside values; see :func:`jvp`.

    Derivatives can be taken of it: it has the kernel's parameters, and those of the tangents.
    """

    is_base = True

    def __init__(
        self, kernel: Any, inputs: tuple[str, ...], outputs: tuple[str, ...], prefix: str
    ) -> None:
        super().__init__(kernel, "jvp", prefix, {"inputs": inputs, "outputs": outputs})
        self.inputs, self.outputs = inputs, outputs
        self.policy = TangentPolicy(self)

    @property
    def params(self) -> Any:
        """The parameters of the innermost kernel."""
        return self.base_kernel.params

    def bind(
        self, *args: Any, **keywords: Any
    ) -> tuple[tuple[Any, ...], tuple[Any, ...], dict[str, Any]]:
        """Bind a launch: (the kernel's arguments and the tangents, their kinds, other keywords).

        Raises:
            LaunchError: a tangent is missing.
        """
        own = taken(keywords, self.prefix, self._own_names, self.__name__)
        bound, kinds, options = self.base_kernel.bind(*args, **keywords)
        return (*bound, *own.values()), (*kinds, *kinds_of_own(own)), options

    def chosen_keywords(
        self, grid: Any, args: tuple[Any, ...], keywords: Mapping[str, Any]
    ) -> dict[str, Any]:
        given = dict(keywords)
        own = taken(given, self.prefix, self._own_names, self.__name__)
        return {**super().chosen_keywords(grid, args, given), **own}

    @property
    def record_mark(self) -> str:
        return request_text(jvp=self.outputs, inputs=self.inputs)

    def _run(self, launch: BoundLaunch, plans: dict[str, Any], warmup: bool) -> Any:
        plan = plans.get("jvp")
        if plan is None:
            plan = plans["jvp"] = self._plan(launch)
        if not warmup:
            own = {
                name: launched_value(value, kind)
                for (name, value), kind in zip(launch.own.items(), launch.kinds, strict=True)
            }
            plan(launch, own)
        return plan.kernel

    def _repeated(self, launch: BoundLaunch, plans: dict[str, Any]) -> Repeated:
        plan = plans["jvp"]
        names_ = tuple(parameter.name for parameter in plan.own)
        kernel = RepeatedKernel(plan, launch.grid, names_, {})
        return RepeatedLaunch([kernel], converted=converters(launch))

    def _sources(self, launch: BoundLaunch, plans: dict[str, Any]) -> DerivedSource:
        selected = self.selection_of(launch)
        module = build_module(selected.specialization, selected.backend, selected.target)
        head = f"Tangents of {', '.join(self.outputs)}, given those of {', '.join(self.inputs)}"
        return DerivedSource(head, (SourceKernel(module, launch.grid),))

    def _selections(self, launch: BoundLaunch, plans: dict[str, Any]) -> list[Selected]:
        return [self.selection_of(launch)]

    def _plan(self, launch: BoundLaunch) -> DerivedPlan:
        return DerivedPlan(self.compiled(self.selection_of(launch)), launch)

    def selection_of(self, launch: BoundLaunch) -> Selected:
        """Return the selection of a launch's tangent kernel, which is not compiled."""
        parameters = self.parameters(launch)
        for name, (value, _) in launch.originals.items():
            if isinstance(value, int | float) and name in parameters.elements:
                raise LaunchError(f"{name} must be a float: the argument is a number")
        request = TangentRequest(
            self.inputs, self.outputs, parameters.elements, parameters.facts, self.prefix
        )
        text = request_text(
            inputs=self.inputs,
            outputs=self.outputs,
            elements=parameters.elements,
            facts=parameters.facts,
            prefix=self.prefix,
        )
        derive = partial(tangents_of, request=request)
        return self.selection(launch, f"jvp {text}", derive)


def jvp(
    kernel: Any,
    *,
    inputs: str | Sequence[str],
    outputs: str | Sequence[str],
    prefix: str = "t_",
) -> TangentKernel:
    """Derive the kernel that computes tangents beside values: forward mode.

        double = tw.jvp(scale, inputs=("x", "factor"), outputs="out")
        double[grid](x, out, factor, n, BLOCK=256, t_x=tx, t_factor=1.0, t_out=t_out)

    It is launched with the kernel's grid and arguments, and writes what the kernel writes; and for
    each input and output ``x`` by keyword with ``t_x``: an array of the same shape and strides, or
    a float for a float. The tangents of inputs are read, those of outputs are written where the
    kernel writes: ``t_out`` is the derivative of ``out`` along ``t_x``. Arrays of tangents may have
    another type of floats than the originals.

    Args:
        kernel: a kernel of ``tilewright.jit``, or a tangent kernel, for second derivatives.
        inputs: parameters that have tangents: arrays of floats, descriptors of them, and floats.
        outputs: parameters whose tangents are wanted: arrays of floats.
        prefix: begins the names of the arguments of tangents.

    Raises:
        DefinitionError: the kernel has no such parameter.
        DerivativeError: of a launch: the kernel has no derivative, or none that is known.
        LaunchError: of a launch: an array of tangents is missing, or not like the original.
    """
    return TangentKernel(kernel, names(inputs), names(outputs), prefix)


def names(given: str | Sequence[str]) -> tuple[str, ...]:
    """Return one name, or several, as a tuple."""
    return (given,) if isinstance(given, str) else tuple(given)
