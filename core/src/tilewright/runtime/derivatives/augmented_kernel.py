"""Kernels that compute more than another one does, of which derivatives can be taken."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

from tilewright.runtime.compiler.compile import build_module
from tilewright.runtime.compiler.selection import Selected
from tilewright.runtime.derivatives.augmented_policy import AugmentedPolicy
from tilewright.runtime.derivatives.bound_launch import (
    BoundLaunch,
    DerivedPlan,
    converters,
    launched_value,
)
from tilewright.runtime.derivatives.derivative_arguments import kinds_of_own, taken
from tilewright.runtime.derivatives.derivative_kernel import DerivativeKernel
from tilewright.runtime.derivatives.derived_source import DerivedSource, SourceKernel
from tilewright.runtime.derivatives.repeated_launch import (
    Repeated,
    RepeatedKernel,
    RepeatedLaunch,
)
from tilewright.runtime.derivatives.skipped_hooks import skipped_hooks_named


class AugmentedKernel(DerivativeKernel):
    """A kernel with what another one computes, and more arrays to which it writes.

    Derivatives can be taken of it: it has the kernel's parameters, and those of its own arrays.
    """

    is_base = True

    def __init__(self, kernel: Any, kind: str, prefix: str, roles: Mapping[str, Any]) -> None:
        super().__init__(kernel, kind, prefix, roles)
        self.policy = AugmentedPolicy(self)

    @property
    def params(self) -> Any:
        """The parameters of the innermost kernel."""
        return self.base_kernel.params

    def bind(
        self, *args: Any, **keywords: Any
    ) -> tuple[tuple[Any, ...], tuple[Any, ...], dict[str, Any]]:
        """Bind a launch: (the kernel's arguments and its own arrays, their kinds, other keywords).

        Raises:
            LaunchError: an array is missing.
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

    def _run(self, launch: BoundLaunch, plans: dict[str, Any], warmup: bool) -> Any:
        plan = plans.get("kernel")
        if plan is None:
            with skipped_hooks_named(self.fn, launch):
                plan = plans["kernel"] = self._plan(launch)
        if not warmup:
            own = {
                name: launched_value(value, kind)
                for (name, value), kind in zip(launch.own.items(), launch.kinds, strict=True)
            }
            plan(launch, own)
        return plan.kernel

    def _repeated(self, launch: BoundLaunch, plans: dict[str, Any]) -> Repeated:
        plan = plans["kernel"]
        names_ = tuple(parameter.name for parameter in plan.own)
        kernel = RepeatedKernel(plan, launch.grid, names_, {})
        return RepeatedLaunch([kernel], converted=converters(launch))

    def _sources(self, launch: BoundLaunch, plans: dict[str, Any]) -> DerivedSource:
        selected = self.selection_of(launch)
        with skipped_hooks_named(self.fn, launch):
            module = build_module(selected.specialization, selected.backend, selected.target)
        return DerivedSource(self.heading, (SourceKernel(module, launch.grid),))

    def _selections(self, launch: BoundLaunch, plans: dict[str, Any]) -> list[Selected]:
        return [self.selection_of(launch)]

    def _plan(self, launch: BoundLaunch) -> DerivedPlan:
        return DerivedPlan(self.compiled(self.selection_of(launch)), launch)

    @property
    @abstractmethod
    def heading(self) -> str:
        """The title of the kernel's source."""

    @abstractmethod
    def selection_of(self, launch: BoundLaunch, *, keep_calls: bool = False) -> Selected:
        """Return the selection of a launch's kernel, which is not compiled.

        Args:
            keep_calls: leave calls of functions that have a derivative of their own, where the
                kernel's module has them, for derivatives of it.
        """


__all__ = ["AugmentedKernel"]
