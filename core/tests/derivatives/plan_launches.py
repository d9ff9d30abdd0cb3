"""Launches of plans, and what tests ask of plans."""

from __future__ import annotations

from typing import Any

import numpy as np

ATOMICS = ("atomic_rmw", "atomic_cas", "descriptor_reduce")


def atomics_of(plan: Any) -> int:
    return sum(op.name in ATOMICS for kernel in plan.kernels for op in kernel.module.walk())


def ways_of(plan: Any) -> dict[str, str]:
    return {name: note.way for name, note in plan.inputs.items()}


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape).astype("f4")


class Launch:
    """A launch of a derivative into poisoned gradients."""

    def __init__(
        self, adjoint: Any, grid: Any, arguments: tuple[Any, ...], **keywords: Any
    ) -> None:
        self.adjoint, self.grid, self.arguments, self.keywords = adjoint, grid, arguments, keywords

    def plan(self, **gradients: np.ndarray) -> Any:
        return self.adjoint.plan(*self.arguments, grid=self.grid, **self.keywords, **gradients)

    def check(self, expected: dict[str, np.ndarray]) -> Any:
        """Launch twice, compare gradients and bits, and return the plan."""
        found = []
        for _ in range(2):
            gradients = {
                name: np.full(value.shape, np.nan, "f4") for name, value in expected.items()
            }
            self.adjoint[self.grid](*self.arguments, **self.keywords, **gradients)
            found.append(gradients)
        for name, value in expected.items():
            np.testing.assert_allclose(found[0][name], value, rtol=2e-4, atol=3e-5, err_msg=name)
            assert (found[0][name] == found[1][name]).all()
        return self.plan(**found[0])
