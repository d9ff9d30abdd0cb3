"""Partial sums of a scalar beside those of a row that many programs add up: counted once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl


@tw.jit
def dynamic(x, y, alpha, gamma, N: tl.constexpr, BLOCK: tl.constexpr):
    column = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = column < N
    row = tl.program_id(1).to(tl.int64)
    x += row * N
    y += row * N
    a = tl.load(alpha).to(tl.float32)
    g = tl.load(gamma + column, mask=inside, other=0.0).to(tl.float32)
    v = tl.load(x + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(y + column, tl.sin(a * v) * g, mask=inside)


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_a_scalar_is_summed_once_beside_a_wide_row(backend: Any) -> None:
    rows, n = 4, 96
    rng = np.random.default_rng(0)
    x, d_y = (rng.normal(size=(rows, n)).astype(np.float32) for _ in range(2))
    gamma, alpha = rng.normal(size=n).astype(np.float32), np.array([0.7], np.float32)
    d_alpha, d_gamma = np.empty_like(alpha), np.empty_like(gamma)
    adjoint = tw.vjp(dynamic, outputs="y", wrt=("alpha", "gamma"))
    with tw.backend(backend):
        adjoint[(1, rows)](
            x, np.empty_like(x), alpha, gamma, N=n, BLOCK=512, d_y=d_y, d_alpha=d_alpha,
            d_gamma=d_gamma,
        )  # fmt: skip
    np.testing.assert_allclose(d_gamma, (d_y * np.sin(0.7 * x)).sum(0), rtol=1e-4, atol=1e-5)
    expected = (d_y * gamma * x * np.cos(0.7 * x)).sum()
    np.testing.assert_allclose(d_alpha, expected, rtol=1e-4)
