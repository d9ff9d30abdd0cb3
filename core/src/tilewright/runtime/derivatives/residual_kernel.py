"""Forward kernels that store residuals for their adjoints."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from tilewright.derivatives.store_residuals import (
    ResidualLayout,
    residual_layout,
    store_residuals,
)
from tilewright.errors import DefinitionError, LaunchError
from tilewright.ir.core import Module
from tilewright.ir.types import element_type, shape_of
from tilewright.runtime.arguments.array_checks import layout_of
from tilewright.runtime.arguments.array_protocols import ALIGNMENT, ArrayKind
from tilewright.runtime.arguments.dtypes import IR_TEXT
from tilewright.runtime.compiler.compile import build_module
from tilewright.runtime.compiler.selection import Selected
from tilewright.runtime.derivatives.augmented_kernel import AugmentedKernel
from tilewright.runtime.derivatives.bound_launch import BoundLaunch
from tilewright.runtime.derivatives.derivative_kernel import request_text

#: Begins the names of the arguments of residuals.
RESIDUAL_PREFIX = "r_"


class ResidualKernel(AugmentedKernel):
    """A kernel that also stores some of its variables, to arrays that it takes by keyword.

    See ``residuals`` of :func:`tilewright.vjp`. It is launched with the kernel's grid and
    arguments, and for each variable ``mean`` with ``r_mean``.
    """

    def __init__(self, kernel: Any, variables: tuple[str, ...]) -> None:
        super().__init__(kernel, "forward", RESIDUAL_PREFIX, {})
        self.variables = tuple(dict.fromkeys(variables))
        self._own_names = {
            name: f"forward.shapes(...)[{name!r}]"
            for name in (f"{RESIDUAL_PREFIX}{variable}" for variable in self.variables)
        }
        self._layouts: dict[int, tuple[Selected, ResidualLayout]] = {}
        taken = [name for name in self._own_names if name in self.arg_names]
        if taken:
            raise DefinitionError(f"{self.base_kernel.__name__} has a parameter {taken[0]!r}")
        self.arg_names = [*self.arg_names, *self._own_names]

    @property
    def record_mark(self) -> str:
        return request_text(residuals=self.variables)

    @property
    def heading(self) -> str:
        return f"Stores {', '.join(self.variables)} for the adjoint"

    def shapes(self, *args: Any, grid: Any, **keywords: Any) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the residuals' arrays for a launch, by argument.

        They are those of the grid, the last axis first, and of each program's tile: of the axes
        along which the kernel reads its place.
        """
        absent = dict.fromkeys(self._own_names)
        launch, _ = self.bound_launch(*args, grid=grid, **keywords, **absent)
        return self._shapes(launch)

    def check_own(self, launch: BoundLaunch) -> None:
        self.check_arrays(launch, launch.own)

    def check_arrays(self, launch: BoundLaunch, arrays: Mapping[str, Any]) -> None:
        """Check that arrays hold the residuals of a launch, of this kernel or of its adjoint.

        Raises:
            LaunchError: one does not.
        """
        for name, shape in self._shapes(launch).items():
            found = layout_of(arrays[name])
            if found is None:
                continue
            sizes, strides = found
            wanted = _row_major(shape)
            if tuple(sizes) != shape or any(
                extent > 1 and stride != needed
                for extent, stride, needed in zip(sizes, strides, wanted, strict=True)
            ):
                raise LaunchError(
                    f"{name} must be an array of shape {shape}, row by row, and has shape "
                    f"{tuple(sizes)} and strides {tuple(strides)}"
                )

    def _shapes(self, launch: BoundLaunch) -> dict[str, tuple[int, ...]]:
        selected = launch.selected
        known = self._layouts.get(id(selected))
        if known is None:
            module = build_module(selected.specialization, selected.backend, selected.target)
            layout = residual_layout(module, self.variables)
            known = self._layouts[id(selected)] = selected, layout
        axes, types = known[1]
        programs = tuple(launch.grid[axis] for axis in reversed(axes))
        return {
            f"{RESIDUAL_PREFIX}{name}": (*programs, *shape_of(type_))
            for name, type_ in types.items()
        }

    def selection_of(self, launch: BoundLaunch, *, keep_calls: bool = False) -> Selected:
        facts: dict[str, Mapping[str, Any]] = {}
        elements: dict[str, str] = {}
        for (name, _), kind in zip(launch.own.items(), launch.kinds, strict=True):
            if not isinstance(kind, ArrayKind):
                raise LaunchError(f"{name} must be an array")
            elements[name] = IR_TEXT[kind.dtype]
            if kind.divisible:
                facts[name] = {"divisibility": ALIGNMENT}
        text = request_text(variables=self.variables, facts=facts, elements=elements, k=keep_calls)
        derive = partial(self._derived, facts=facts, elements=elements, keep_calls=keep_calls)
        return self.selection(launch, f"residuals {text}", derive)

    def _derived(
        self,
        module: Module,
        *,
        facts: Mapping[str, Mapping[str, Any]],
        elements: Mapping[str, str],
        keep_calls: bool,
    ) -> Module:
        for name, type_ in residual_layout(module, self.variables).types.items():
            given, wanted = elements[f"{RESIDUAL_PREFIX}{name}"], str(element_type(type_))
            if given != wanted:
                raise LaunchError(
                    f"{RESIDUAL_PREFIX}{name} must be an array of {wanted}, not of {given}"
                )
        return store_residuals(
            module, self.variables, RESIDUAL_PREFIX, facts, keep_calls=keep_calls
        )


def _row_major(shape: tuple[int, ...]) -> list[int]:
    strides: list[int] = []
    step = 1
    for extent in reversed(shape):
        strides.insert(0, step)
        step *= extent
    return strides


__all__ = ["RESIDUAL_PREFIX", "ResidualKernel"]
