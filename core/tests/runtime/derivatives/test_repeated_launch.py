"""Launches like an earlier one: their results, and what they still check."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.runtime.derivatives import adjoint_plans, repeated_launch
from tilewright.runtime.derivatives.derivative_kernel import DerivativeKernel


@tw.jit
def scaled(x_ptr, w_ptr, out_ptr, n, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    inside = columns < n
    x = tl.load(x_ptr + row * stride + columns, mask=inside, other=0.0)
    w = tl.load(w_ptr + columns, mask=inside, other=0.0)
    tl.store(out_ptr + row * stride + columns, x * x * w, mask=inside)


ADJOINT = tw.vjp(scaled, outputs="out_ptr", wrt=("x_ptr", "w_ptr"))


@pytest.fixture
def prepared(monkeypatch):
    """Count the launches that are prepared anew."""
    found = []
    original = DerivativeKernel.launch_of

    def counted(self, *args):
        found.append(self)
        return original(self, *args)

    monkeypatch.setattr(DerivativeKernel, "launch_of", counted)
    return found


def draw(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def launch(x, w, d_out, d_x, d_w, n, rows=None):
    grid = (len(x) if rows is None else rows,)
    stride = x.strides[0] // x.itemsize
    ADJOINT[grid](
        x, w, np.empty_like(x), n, stride, BLOCK=16, d_out_ptr=d_out, d_x_ptr=d_x, d_w_ptr=d_w
    )


def check(x, w, d_out, n, rows=None):
    d_x, d_w = np.full_like(x, np.nan), np.full_like(w, np.nan)
    launch(x, w, d_out, d_x, d_w, n, rows)
    kept = np.zeros_like(x)
    kept[:rows, :n] = 1
    np.testing.assert_allclose(d_x, kept * 2 * x * w * d_out, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(d_w, (kept * x * x * d_out).sum(0), rtol=1e-4, atol=1e-5)


def test_serve_other_arrays_numbers_and_grids(prepared):
    for seed in range(3):
        x, w, d_out = draw(5, 9, seed=seed), draw(9, seed=seed), draw(5, 9, seed=seed + 9)
        check(x, w, d_out, 9)
        check(x, w, d_out, 7)
        check(x, w, d_out, 7, rows=2)
    assert len(prepared) == 3
    check(draw(6, 9), draw(9), draw(6, 9, seed=1), 9)
    assert len(prepared) == 4


def test_set_to_zero_what_is_not_covered(monkeypatch):
    zeroed = []
    for module in (adjoint_plans, repeated_launch):
        original = module.set_to_zero
        monkeypatch.setattr(
            module, "set_to_zero", lambda array, f=original: (zeroed.append(array.shape), f(array))
        )
    x, w, d_out = draw(3, 8), draw(8), draw(3, 8, seed=1)
    for _ in range(2):
        check(x, w, d_out, 8)
        assert zeroed == []
    for _ in range(2):
        check(x, w, d_out, 5)
        assert zeroed == [(3, 8), (8,)]
        zeroed.clear()


def test_check_layouts_and_addresses():
    x, w, d_out = draw(4, 8), draw(8), draw(4, 8, seed=1)
    check(x, w, d_out, 8)
    with pytest.raises(tw.LaunchError, match="d_x_ptr has shape"):
        launch(x, w, d_out, np.empty((4, 16), np.float32)[:, :8], np.empty_like(w), 8)
    same = np.empty(32, np.float32)
    with pytest.raises(tw.LaunchError, match="are one array"):
        launch(x, w, d_out, same.reshape(4, 8), same[:8], 8)
    with pytest.raises(tw.LaunchError, match="x_ptr and out_ptr are one array"):
        ADJOINT[(4,)](
            x, w, x, 8, 8, BLOCK=16, d_out_ptr=d_out, d_x_ptr=np.empty_like(x), d_w_ptr=draw(8)
        )
    check(x, w, d_out, 8)


def test_launches_of_tangents():
    tangents = tw.jvp(scaled, inputs="x_ptr", outputs="out_ptr")
    for seed in range(2):
        x, w, t_x = draw(4, 8, seed=seed), draw(8, seed=seed), draw(4, 8, seed=seed + 5)
        out, t_out = np.empty_like(x), np.empty_like(x)
        tangents[(4,)](x, w, out, 8, 8, BLOCK=16, t_x_ptr=t_x, t_out_ptr=t_out)
        np.testing.assert_allclose(out, x * x * w, rtol=1e-5)
        np.testing.assert_allclose(t_out, 2 * x * w * t_x, rtol=1e-5)


def test_cotangents_that_are_consumed_stay():
    """A cotangent that the adjoint overwrites is copied in each launch, with its strides."""
    adjoint = tw.vjp(replaced, outputs="out_ptr", wrt="x_ptr")
    for seed in range(3):
        x, d_out, d_x = draw(4, 4, seed=seed).T, draw(4, 4, seed=seed + 3).T, draw(4, 4).T
        before = d_out.copy()
        adjoint[(1,)](x, np.empty_like(x), BLOCK=16, d_out_ptr=d_out, d_x_ptr=d_x)
        np.testing.assert_array_equal(d_out, before)
        np.testing.assert_allclose(d_x, 6 * x * d_out, rtol=1e-5)


@tw.jit
def replaced(x_ptr, out_ptr, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + columns)
    tl.store(out_ptr + columns, x)
    tl.store(out_ptr + columns, 3 * x * x)
