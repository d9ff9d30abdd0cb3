"""Activations of matmuls whose results are saved: the sums are not computed again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl


@tw.jit
def leaky(x):
    return tl.where(x >= 0, x, 0.25 * x)


@tw.jit
def relu(x):
    return tl.where(x > 0, x, 0.0)


@tw.jit
def relu_of_opposite_order(x):
    return tl.where(x <= 0, 0.0, x)


@tw.jit
def relu_with_zero(x):
    return tl.where(x >= 0, x, 0.0)


@tw.jit
def folded(x):
    return tl.where(x >= 0, x, -0.25 * x)


@tw.jit
def shifted(x):
    return tl.where(x >= 1, x, 0.25 * x)


@tw.jit
def activated(
    a_ptr, b_ptr, c_ptr, m, n, k, ACTIVATION: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    rows = (tl.program_id(0) * M + tl.arange(0, M))[:, None]
    columns = (tl.program_id(1) * N + tl.arange(0, N))[None, :]
    total = tl.zeros((M, N), tl.float32)
    for start in range(0, k, K):
        inner = start + tl.arange(0, K)
        a = tl.load(a_ptr + rows * k + inner[None, :], mask=(rows < m) & (inner < k)[None, :])
        b = tl.load(b_ptr + inner[:, None] * n + columns, mask=(inner < k)[:, None] & (columns < n))
        total = tl.dot(a, b, total)
    c = ACTIVATION(total)
    tl.store(c_ptr + rows * n + columns, c.to(c_ptr.dtype.element_ty), (rows < m) & (columns < n))


SIZES = (40, 24, 36)


@pytest.mark.parametrize(
    ("activation", "is_read"),
    [
        (leaky, True),
        (relu, True),
        (relu_of_opposite_order, True),
        (relu_with_zero, False),  # at zero, too, the slope is 1
        (folded, False),
        (shifted, False),
    ],
)
@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_signs_are_read_off_saved_results(activation: Any, is_read: bool, backend: Any) -> None:
    m, n, k = SIZES
    rng = np.random.default_rng(0)
    a, b, d_c = (rng.normal(size=size).astype(np.float32) for size in ((m, k), (k, n), (m, n)))
    a[3] = 0.0  # a row of zeros: at the kinks
    c, d_a, d_b = np.empty_like(d_c), np.empty_like(a), np.empty_like(b)
    grid = (tw.cdiv(m, 16), tw.cdiv(n, 16))
    constants = {"ACTIVATION": activation, "M": 16, "N": 16, "K": 16}
    adjoint = tw.vjp(activated, outputs="c_ptr", wrt=("a_ptr", "b_ptr"), saved="c_ptr")
    own = {"d_c_ptr": d_c, "d_a_ptr": d_a, "d_b_ptr": d_b}
    with tw.backend(backend):
        activated[grid](a, b, c, m, n, k, **constants)
        plan = adjoint.plan(a, b, c, m, n, k, grid=grid, **constants, **own)
        adjoint[grid](a, b, c, m, n, k, **constants, **own)
    x = a @ b
    names = {operation.name for operation in plan.kernels[0].module.kernel.walk()}
    assert ("dot" not in names) == is_read
    assert len(plan.kernels) == 3
    slopes = {
        leaky: np.where(x >= 0, 1, 0.25),
        folded: np.where(x >= 0, 1, -0.25),
        shifted: np.where(x >= 1, 1, 0.25),
        relu_with_zero: x >= 0,
    }
    d_x = d_c * slopes.get(activation, x > 0)
    np.testing.assert_allclose(d_a, d_x @ b.T, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(d_b, a.T @ d_x, rtol=1e-4, atol=1e-4)


@tw.jit
def scaled(x_ptr, y_ptr, ACTIVATION: tl.constexpr):
    lanes = tl.arange(0, 8)
    y = ACTIVATION(tl.dot(tl.load(x_ptr + lanes[:, None] * 8 + lanes[None, :]), identity(lanes)))
    tl.store(y_ptr + lanes[:, None] * 8 + lanes[None, :], y.to(tl.float16))


@tw.jit
def identity(lanes):
    return (lanes[:, None] == lanes[None, :]).to(tl.float32)


@tw.jit
def leaky_of_negative(x):
    return tl.where(x < 0, 0.25 * x, x)


@pytest.mark.parametrize("activation", [leaky, leaky_of_negative])
@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_signs_are_read_off_results_that_round_to_zero(activation: Any, backend: Any) -> None:
    x = np.diag([-1e-9, 1e-9, 0.0, -1e-30, 2.0, -3.0, -1e-7, -1.0]).astype(np.float32)
    y, d_y, d_x = np.empty_like(x, np.float16), np.ones_like(x), np.empty_like(x)
    adjoint = tw.vjp(scaled, outputs="y_ptr", wrt="x_ptr", saved="y_ptr")
    with tw.backend(backend):
        scaled[1,](x, y, ACTIVATION=activation)
        adjoint[1,](x, y, ACTIVATION=activation, d_y_ptr=d_y.astype(np.float16), d_x_ptr=d_x)
    np.testing.assert_array_equal(d_x, np.where(x >= 0, 1, 0.25))


def test_the_cotangent_of_a_matmul_is_kept_where_it_is_computed_from_two_tiles() -> None:
    m, n, k = SIZES
    a, b, c = (np.zeros(size, np.float16) for size in ((m, k), (k, n), (m, n)))
    adjoint = tw.vjp(activated, outputs="c_ptr", wrt=("a_ptr", "b_ptr"), saved="c_ptr")
    own = {"d_c_ptr": c, "d_a_ptr": a, "d_b_ptr": b}
    constants = {"ACTIVATION": leaky, "M": 16, "N": 16, "K": 16}
    plan = adjoint.plan(a, b, c, m, n, k, grid=(3, 2), **constants, **own)
    first, *others = plan.kernels
    assert [str(buffer.type) for buffer in first.scratch.values()] == ["tile<16x16xf16>"]
    for kernel in others:
        loop = next(op for op in kernel.module.kernel.walk() if op.name == "for")
        assert sum(operation.name == "load" for operation in loop.walk()) == 2
