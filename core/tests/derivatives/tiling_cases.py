"""Adjoint kernels with inputs and NumPy gradients, for tests of re-tiling."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import adjoint_kernels as kernels
import numpy as np
from online_softmax_kernels import module_of

from tilewright.ir.core import Module
from tilewright.reference.interpreter import run


class Case:
    """An adjoint kernel with a launch.

    Attributes:
        module: the kernel.
        named: its arguments by name.
        grid: the grid.
        gradients: what it adds to each of its outputs.
    """

    def __init__(
        self,
        module: Module,
        named: dict[str, Any],
        grid: Sequence[int],
        gradients: dict[str, np.ndarray],
    ) -> None:
        self.module, self.grid, self.gradients = module, tuple(grid), gradients
        self.named = {
            name: value.astype(np.float32) if isinstance(value, np.ndarray) else value
            for name, value in named.items()
        }
        self.clear()

    def run(self, module: Module, grid: Sequence[int], **more: Any) -> None:
        """Run a kernel with the case's arguments and more."""
        self.named.update(more)
        values = [self.named[argument.name] for argument in module.kernel.arguments]
        run(module, values, tuple((*grid, 1, 1)[:3]))

    def clear(self) -> None:
        """Set the outputs to zero."""
        for name, gradient in self.gradients.items():
            self.named[name] = np.zeros(gradient.shape, np.float32)

    def check(self, *names: str) -> None:
        """Compare outputs with the gradients."""
        for name in names or self.gradients:
            np.testing.assert_allclose(
                self.named[name], self.gradients[name], rtol=3e-5, atol=3e-5, err_msg=name
            )


def count(module: Module, name: str) -> int:
    """Count the operations of a name."""
    return sum(operation.name == name for operation in module.walk())


def tiles(extent: int, block: int) -> int:
    return -(-extent // block)


def kernel_of(folder: Path, source: str, **constants: Any) -> Module:
    return module_of(folder, source, kernels.ADJOINT_TYPES, constants)


def attention(folder: Path, *, causal: bool, source: str = kernels.ATTENTION_ADJOINT) -> Case:
    """Attention of two heads of 37 rows, 16 rows and 8 columns a tile."""
    module = kernel_of(folder, source, CAUSAL=causal, M=16, N=8, D=8)
    rng = np.random.default_rng(0)
    q, k, v, d_out = (rng.standard_normal((2, 37, 8)) for _ in range(4))
    scores = q @ k.transpose(0, 2, 1) * 0.5
    if causal:
        scores = np.where(np.tril(np.ones((37, 37), bool)), scores, -np.inf)
    weights = np.exp2(scores - scores.max(-1, keepdims=True))
    lse = scores.max(-1) + np.log2(weights.sum(-1))
    weights /= weights.sum(-1, keepdims=True)
    d_weights = d_out @ v.transpose(0, 2, 1)
    delta = (d_weights * weights).sum(-1, keepdims=True)
    d_scores = weights * (d_weights - delta) * np.log(2) * 0.5
    gradients = {
        "d_q_ptr": d_scores @ k,
        "d_k_ptr": d_scores.transpose(0, 2, 1) @ q,
        "d_v_ptr": weights.transpose(0, 2, 1) @ d_out,
    }
    inputs = {"q": q, "k": k, "v": v, "out": weights @ v, "lse": lse, "d_out": d_out}
    named = {f"{name}_ptr": value for name, value in inputs.items()}
    return Case(module, {**named, "scale": 0.5, "length": 37}, (3, 2), gradients)


def matmul(folder: Path, *, group: int = 0) -> Case:
    """silu(a b) of 37 x 19 and 19 x 21; a grid of one axis with a group."""
    source = kernels.GROUPED_ADJOINT if group else kernels.MATMUL_ADJOINT
    constants = {"GROUP": group} if group else {}
    module = kernel_of(folder, source, M=16, N=8, K=8, **constants)
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((37, 19)), rng.standard_normal((19, 21))
    d_c = rng.standard_normal((37, 21))
    s = 1 / (1 + np.exp(-(a @ b)))
    d_acc = d_c * (s + (a @ b) * s * (1 - s))
    named = {"a_ptr": a, "b_ptr": b, "d_c_ptr": d_c, "m": 37, "n": 21, "k": 19}
    gradients = {"d_a_ptr": d_acc @ b.T, "d_b_ptr": a.T @ d_acc}
    grid = (tiles(37, 16), tiles(21, 8))
    return Case(module, named, (grid[0] * grid[1],) if group else grid, gradients)


def norm(folder: Path, source: str = kernels.NORM_ADJOINT) -> Case:
    """A norm of 11 rows of 13."""
    module = kernel_of(folder, source, BLOCK=16)
    rng = np.random.default_rng(2)
    x, d_y, w = rng.standard_normal((11, 13)), rng.standard_normal((11, 13)), rng.random(13)
    rstd = 1 / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5)
    d_h = d_y * w * rstd
    d_x = d_h - x * rstd**2 * (d_h * x).mean(-1, keepdims=True)
    gradients = {"d_x_ptr": d_x, "d_w_ptr": (d_y * x * rstd).sum(0)}
    return Case(module, {"x_ptr": x, "w_ptr": w, "d_y_ptr": d_y, "n": 13}, (11,), gradients)
