"""Residuals: variables of a kernel that its forward launch stores, and its adjoint reads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl

ROWS, N = 5, 50


@tw.jit
def standardize(x, w, out, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0) * n
    columns = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], x.dtype.element_ty)
    for start in range(0, n, BLOCK):
        total += tl.load(x + row + start + columns, mask=start + columns < n, other=0.0)
    mean = tl.sum(total, axis=0) / n
    squares = tl.zeros([BLOCK], x.dtype.element_ty)
    for start in range(0, n, BLOCK):
        inside = start + columns < n
        centered = tl.load(x + row + start + columns, mask=inside, other=0.0) - mean
        squares += tl.where(inside, centered * centered, 0.0)
    rstd = tl.rsqrt(tl.sum(squares, axis=0) / n + eps)
    for start in range(0, n, BLOCK):
        inside = start + columns < n
        value = tl.load(x + row + start + columns, mask=inside, other=0.0)
        weight = tl.load(w + start + columns, mask=inside, other=0.0)
        tl.store(out + row + start + columns, (value - mean) * rstd * weight, mask=inside)


@tw.jit
def pooled(q, k, v, out, length, B: tl.constexpr, S: tl.constexpr, D: tl.constexpr):
    """Attention of a head, by online softmax."""
    rows, dims = tl.program_id(0) * B + tl.arange(0, B), tl.arange(0, D)
    own = rows[:, None] * D + dims[None, :]
    a = tl.load(q + own, mask=(rows < length)[:, None], other=0.0)
    highest = tl.full([B], -float("inf"), tl.float32)
    total, acc = tl.zeros([B], tl.float32), tl.zeros([B, D], tl.float32)
    for start in range(0, length, S):
        columns = start + tl.arange(0, S)
        places, fits = columns[:, None] * D + dims[None, :], (columns < length)[:, None]
        b, c = tl.load(k + places, fits, 0.0), tl.load(v + places, fits, 0.0)
        scores = tl.dot(a, tl.trans(b), input_precision="ieee")
        scores = tl.where((columns < length)[None, :], scores, -float("inf"))
        new = tl.maximum(highest, tl.max(scores, axis=1))
        fade, weights = tl.exp(highest - new), tl.exp(scores - new[:, None])
        total = total * fade + tl.sum(weights, axis=1)
        acc = tl.dot(weights, c, acc * fade[:, None], input_precision="ieee")
        highest = new
    lse = highest + tl.log(total)
    normalized = acc / total[:, None]
    tl.store(out + own, normalized + 0.0 * lse[:, None], mask=(rows < length)[:, None])


@tw.jit
def lengths(x, y, out, BLOCK: tl.constexpr):
    offsets = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    length = tl.extra.libdevice.hypot(tl.load(x + offsets), tl.load(y + offsets))
    tl.store(out + offsets, length * length * length)


class Case:
    """A kernel with the arguments of a launch."""

    def __init__(self, kernel: Any, grid: Any, wrt: dict[str, Any], shape: Any, *rest: Any) -> None:
        self.kernel, self.grid, self.wrt, self.rest = kernel, grid, wrt, rest
        self.out = np.empty(shape, "f4")
        self.d_out = np.random.default_rng(7).normal(size=shape).astype("f4")

    def gradients(self, backend: Any, **request: Any) -> tuple[Any, dict[str, Any], Any]:
        """Return the gradients, the residuals and the plan."""
        adjoint = tw.vjp(self.kernel, outputs="out", wrt=tuple(self.wrt), **request)
        arguments = (*self.wrt.values(), self.out, *self.rest)
        own = {f"d_{name}": np.full_like(value, np.nan) for name, value in self.wrt.items()}
        with tw.backend(backend):
            stored = {}
            if request.get("residuals"):
                shapes = adjoint.forward.shapes(*arguments, grid=self.grid)
                stored = {name: np.full(shape, np.nan, "f4") for name, shape in shapes.items()}
            adjoint.forward[self.grid](*arguments, **stored)
            adjoint[self.grid](*arguments, **stored, d_out=self.d_out, **own)
            plan = adjoint.plan(*arguments, grid=self.grid, **stored, d_out=self.d_out, **own)
        return own, stored, plan


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype("f4")


def norms() -> Case:
    wrt = {"x": drawn(ROWS, N), "w": drawn(N, seed=1)}
    return Case(standardize, (ROWS,), wrt, (ROWS, N), N, 1e-5, 16)


def attention() -> Case:
    wrt = {name: drawn(40, 16, seed=seed) for seed, name in enumerate("qkv")}
    return Case(pooled, (3,), wrt, (40, 16), 40, 16, 16, 16)


def operations(plan: Any) -> int:
    return sum(1 for kernel in plan.kernels for _ in kernel.module.walk())


@pytest.mark.parametrize(
    ("backend", "case", "residuals"),
    [
        ("reference", norms, ("mean", "rstd")),
        ("cpu", norms, ("mean", "rstd")),
        ("reference", norms, ("rstd",)),
        ("reference", attention, ("highest", "total")),
        ("reference", attention, ("lse",)),
        ("reference", attention, ("normalized", "lse")),
    ],
)
def test_gradients_are_those_without_residuals(
    backend: Any, case: Any, residuals: tuple[str, ...]
) -> None:
    made = case()
    expected, _, whole = made.gradients(backend)
    found, stored, plan = made.gradients(backend, residuals=residuals)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=2e-4, atol=2e-5, err_msg=name)
    assert set(stored) == {f"r_{name}" for name in residuals}
    assert operations(plan) <= operations(whole)
    if case is norms and len(residuals) == 2:
        x = made.wrt["x"]
        np.testing.assert_allclose(stored["r_mean"], x.mean(1), atol=1e-6)
        np.testing.assert_allclose(stored["r_rstd"], 1 / np.sqrt(x.var(1) + 1e-5), rtol=1e-5)
        assert operations(plan) < 0.75 * operations(whole)


def test_what_is_stored_is_read() -> None:
    """Gradients of poisoned residuals are poisoned."""
    made = norms()
    adjoint = tw.vjp(standardize, outputs="out", wrt="x", residuals="rstd")
    arguments = (*made.wrt.values(), made.out, *made.rest)
    gradient, poison = np.zeros_like(made.out), np.full(ROWS, np.nan, "f4")
    adjoint[(ROWS,)](*arguments, r_rstd=poison, d_out=made.d_out, d_x=gradient)
    assert np.isnan(gradient).all()


def test_rules_of_functions_stay_where_residuals_are_stored() -> None:
    """hypot has no derivative but by its rule; the grid is read along axis 1."""
    x, y, out = drawn(32), drawn(32, seed=1), np.empty(32, "f4")
    adjoint = tw.vjp(lengths, outputs="out", wrt="x", residuals="length")
    shapes = adjoint.forward.shapes(x, y, out, 8, grid=(1, 4))
    assert shapes == {"r_length": (4, 8)}
    stored, gradient = np.full((4, 8), np.nan, "f4"), np.full_like(x, np.nan)
    adjoint.forward[(1, 4)](x, y, out, 8, r_length=stored)
    np.testing.assert_allclose(stored.reshape(-1), np.hypot(x, y), rtol=1e-6)
    ones = np.ones_like(x)
    adjoint[(1, 4)](x, y, out, 8, r_length=stored, d_out=ones, d_x=gradient)
    np.testing.assert_allclose(gradient, 3 * np.hypot(x, y) * x, rtol=1e-5)


def test_kernels_within_autotuners_store_residuals() -> None:
    made = norms()
    expected, _, _ = made.gradients("reference")
    tuned = tw.autotune([tw.Config({"BLOCK": 16})], key=["n"])(standardize)
    made.kernel, made.rest = tuned, made.rest[:2]
    found, _, _ = made.gradients("reference", residuals=("mean", "rstd"))
    np.testing.assert_allclose(found["d_x"], expected["d_x"], rtol=1e-5, atol=1e-6)


def test_explanations_name_the_variables() -> None:
    made = norms()
    adjoint = tw.vjp(standardize, outputs="out", wrt="x")
    arguments = (*made.wrt.values(), made.out, *made.rest)
    found = adjoint.explain(*arguments, grid=(ROWS,), d_out=made.d_out, d_x=made.d_out.copy())
    assert [value.residuals for value in found.proposals] == [("mean",), ("rstd",)]
    assert str(found.proposals[0]).endswith(", or name mean in residuals")
    assert found.record()["residuals"][1]["variables"] == ["rstd"]


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros(ROWS, "f8"), "r_mean must be an array of f32, not of f64"),
        (np.zeros(ROWS + 1, "f4"), r"r_mean must be an array of shape \(5,\), row by row"),
        (np.zeros(2 * ROWS, "f4")[::2], r"has shape \(5,\) and strides \(2,\)"),
        (None, "r_mean must be an array"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(array: Any, message: str) -> None:
    made = norms()
    forward = tw.vjp(standardize, outputs="out", wrt="x", residuals="mean").forward
    with pytest.raises(tw.LaunchError, match=message):
        forward[(ROWS,)](*made.wrt.values(), made.out, *made.rest, r_mean=array)


def test_an_adjoint_refuses_residuals_of_another_grid() -> None:
    made = norms()
    adjoint = tw.vjp(standardize, outputs="out", wrt="x", residuals="mean")
    arguments = (*made.wrt.values(), made.out, *made.rest)
    short, own = np.zeros(ROWS - 1, "f4"), {"d_out": made.d_out, "d_x": made.d_out.copy()}
    with pytest.raises(tw.LaunchError, match=r"r_mean must be an array of shape \(5,\)"):
        adjoint[(ROWS,)](*arguments, r_mean=short, **own)


def test_a_missing_array_and_a_missing_variable_are_refused() -> None:
    made = norms()
    arguments = (*made.wrt.values(), made.out, *made.rest)
    forward = tw.vjp(standardize, outputs="out", wrt="x", residuals="mean").forward
    with pytest.raises(tw.LaunchError, match="takes 'r_mean' by keyword"):
        forward[(ROWS,)](*arguments)
    forward = tw.vjp(standardize, outputs="out", wrt="x", residuals="rst").forward
    for call in (
        lambda: forward[(ROWS,)](*arguments, r_rst=np.zeros(ROWS, "f4")),
        lambda: forward.shapes(*arguments, grid=(ROWS,)),
    ):
        with pytest.raises(tw.DerivativeError) as caught:
            call()
        assert (
            caught.value.reason == "the kernel computes no float rst outside of loops and branches"
        )
        assert caught.value.remedy == "did you mean rstd?"
