"""Launches of a kernel and of its derivatives on copies of the arguments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.errors import CompilationError
from tilewright.ir.core import Module
from tilewright.runtime.compiler.compile import build_module
from tilewright.runtime.derivatives.adjoint_kernel import vjp
from tilewright.runtime.derivatives.tangent_kernel import jvp
from tilewright.runtime.devices import backend_choice
from tilewright.testing.gradients.check_precision import Precision, precision_of
from tilewright.testing.gradients.wide_arguments import WideArguments, empty_like

Array = NDArray[np.float64]
_BACKEND = "reference"


class DerivativeLaunches:
    """A kernel with the arguments of a launch, and its derivatives.

    Attributes:
        wrt: the parameters by which derivatives are taken.
        precision: of the kernel.
    """

    def __init__(
        self,
        kernel: Any,
        grid: Any,
        args: Sequence[Any],
        keywords: Mapping[str, Any],
        outputs: tuple[str, ...],
        wrt: tuple[str, ...],
        saved: tuple[str, ...],
    ) -> None:
        self._kernel, self._grid, self._outputs, self.wrt = kernel, grid, outputs, wrt
        names = kernel.arg_names
        given = dict(zip(names, args, strict=False))
        given.update((name, value) for name, value in keywords.items() if name in names)
        self._options = {name: value for name, value in keywords.items() if name not in names}
        self._adjoint = vjp(kernel, outputs=outputs, wrt=wrt, saved=saved)
        self._tangents = {name: jvp(kernel, inputs=name, outputs=outputs) for name in wrt}
        self._arguments = WideArguments(given)
        try:
            module = self._module()
        except CompilationError:  # a loop carries a type that the kernel's text fixes
            self._arguments = WideArguments(given, widen=False)
            module = self._module()
        self._arguments.clear_nonfinite(outputs)
        self.precision: Precision = precision_of(module, wrt)

    def _module(self) -> Module:
        """Return the module that derivatives are made of."""
        arguments = self._arguments
        own = {name: arguments[name] for name in (*self._outputs, *self.wrt)}
        with backend_choice.backend(_BACKEND):
            launch, _ = self._adjoint.bound_launch(
                grid=self._grid,
                **arguments.values,
                **self._cotangents(arguments, own),
                **self._options,
            )
        selected = launch.selected
        return build_module(selected.specialization, selected.backend, selected.target)

    def magnitude(self, name: str) -> float:
        """Return the magnitude of an input, to which steps are relative."""
        value = np.abs(np.asarray(self._arguments[name], dtype=np.float64))
        return float(value[np.isfinite(value)].max(initial=0.0)) or 1.0

    def direction(self, name: str, rng: np.random.Generator) -> Array:
        """Draw a direction of an input; elements that are infinite or NaN have none."""
        value = np.asarray(self._arguments[name], dtype=np.float64)
        drawn = rng.uniform(0.25, 1.0, value.shape) * rng.choice((-1.0, 1.0), value.shape)
        return np.where(np.isfinite(value), drawn, 0.0)

    def values(
        self, direction: Mapping[str, Array] = MappingProxyType({}), step: float = 0.0
    ) -> dict[str, Array]:
        """Return the outputs of the kernel, with inputs moved along a direction."""
        arguments = self._arguments.copy()
        arguments.move(direction, step)
        self._launch(self._kernel, arguments)
        return {output: arguments[output].astype(np.float64) for output in self._outputs}

    def saved_values(self, names: Iterable[str]) -> dict[str, Array]:
        """Return what the kernel writes to other arrays than its outputs."""
        arguments = self._arguments.copy()
        self._launch(self._kernel, arguments)
        return {name: arguments[name] for name in names}

    def differences(
        self, direction: Mapping[str, Array], relative: float, magnitude: float
    ) -> dict[str, Array]:
        """Return central differences of the outputs, of a step relative to a magnitude."""
        step = relative * magnitude
        high, low = (self.values(direction, sign * step) for sign in (1, -1))
        return {output: (high[output] - low[output]) / (2 * step) for output in high}

    def tangents(self, name: str, along: Array) -> dict[str, Array]:
        """Return the tangents of the outputs along a direction of one input."""
        arguments = self._arguments.copy()
        own = {f"t_{output}": empty_like(arguments[output]) for output in self._outputs}
        is_array = isinstance(arguments[name], np.ndarray)
        moved: Any = None if is_array else float(along)
        if is_array:
            moved = empty_like(arguments[name])
            moved[...] = along
        passed = {
            one: arguments.like(one.removeprefix("t_"), array)
            for one, array in {f"t_{name}": moved, **own}.items()
        }
        self._launch(self._tangents[name], arguments, **passed)
        return {output: own[f"t_{output}"] for output in self._outputs}

    def gradients(self, cotangents: Mapping[str, Array]) -> dict[str, Array]:
        """Return the cotangents of the inputs for those of the outputs."""
        arguments = self._arguments.copy()
        self._launch(self._kernel, arguments)
        own: dict[str, Array] = {}
        for output, cotangent in cotangents.items():
            own[output] = empty_like(arguments[output])
            own[output][...] = cotangent
        for name in self.wrt:
            value = arguments[name]
            own[name] = empty_like(value) if isinstance(value, np.ndarray) else np.zeros(1)
            own[name][...] = np.nan  # which the adjoint overwrites
        self._launch(self._adjoint, arguments, **self._cotangents(arguments, own))
        return {name: own[name].reshape(arguments.shape(name)) for name in self.wrt}

    def _cotangents(self, arguments: WideArguments, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """Return the adjoint's own arguments."""
        return {f"d_{name}": arguments.like(name, array) for name, array in arrays.items()}

    def _launch(self, kernel: Any, arguments: WideArguments, **own: Any) -> None:
        with backend_choice.backend(_BACKEND), np.errstate(all="ignore"):
            kernel[self._grid](**arguments.values, **own, **self._options)
