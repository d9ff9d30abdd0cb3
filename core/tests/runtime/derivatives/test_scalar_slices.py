"""Iterations that are counted on the host: once per combination of scalars, and within a limit."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.runtime.derivatives import scalar_slices


@pytest.fixture
def evaluations(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int, int]]:
    """Grids of the slices that were run."""
    grids = []

    def run(module, arguments, grid):
        grids.append(grid)
        return before(module, arguments, grid)

    before = scalar_slices.run_on_reference
    monkeypatch.setattr(scalar_slices, "run_on_reference", run)
    return grids


@tw.jit
def recurrence(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    h = tl.zeros([BLOCK], tl.float32)
    for i in range(n):
        h = tl.sin(h * 0.7 + tl.load(x + i * 64 + at))
    tl.store(out + at, h)


@tw.jit
def triangle(x, out, sizes, BLOCK: tl.constexpr):
    """Later programs run more iterations; sizes are a tuple."""
    program = tl.program_id(0)
    at = program * BLOCK + tl.arange(0, BLOCK)
    h = tl.zeros([BLOCK], tl.float32)
    for i in range(tl.minimum(sizes[1], 2 * program + 1)):
        h = tl.sin(h * 0.7 + tl.load(x + i * 64 + at))
    tl.store(out + at, h)


@tw.jit
def rows(x, out, BLOCK: tl.constexpr):
    """The rows of a descriptor."""
    h = tl.zeros([1, BLOCK], tl.float32)
    for i in range(x.shape[0]):
        h = tl.sin(h * 0.7 + x.load([i, 0]))
    tl.store(out + tl.arange(0, BLOCK)[None, :], h)


@tw.jit
def counted_in_memory(x, out, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    h = tl.zeros([BLOCK], tl.float32)
    for i in range(tl.load(count)):
        h = tl.sin(h * 0.7 + tl.load(x + i * 64 + at))
    tl.store(out + at, h)


def gradient_of(x: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The gradient of the sum of the recurrence's last values; each column has a length."""
    wide = x.astype("f8")
    states = [np.zeros(x.shape[1])]
    for row in wide:
        states.append(np.sin(states[-1] * 0.7 + row))
    found, cotangent = np.zeros_like(wide), np.zeros(x.shape[1])
    for i in reversed(range(len(x))):
        cotangent = np.where(lengths == i + 1, 1.0, cotangent)
        found[i] = cotangent * np.cos(states[i] * 0.7 + wide[i])
        cotangent = found[i] * 0.7
    return found


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype("f4")


ONES = np.ones(64, "f4")


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_iterations_are_counted_once_per_combination_of_scalars(backend, evaluations) -> None:
    if backend == "cpu":
        pytest.importorskip("tilewright_cpu")
    x, out = drawn(6, 64), np.zeros(64, "f4")
    adjoint = tw.vjp(recurrence, outputs="out", wrt="x")
    with tw.backend(backend):
        for n in (6, 6, 4, 6, 4):
            dx = np.full_like(x, np.nan)
            adjoint[(2,)](x, out, n, BLOCK=32, d_out=ONES, d_x=dx)
            np.testing.assert_allclose(dx, gradient_of(x, np.full(64, n)), atol=1e-6)
    assert evaluations == [(1, 1, 1)] * 2  # which program it is does not matter


def test_programs_may_run_different_iterations(evaluations) -> None:
    x, out = drawn(6, 64), np.zeros(64, "f4")
    adjoint = tw.vjp(triangle, outputs="out", wrt="x")
    for longest in (4, 6, 4):
        dx = np.full_like(x, np.nan)
        adjoint[(4,)](x, out, (8, longest), BLOCK=16, d_out=ONES, d_x=dx)
        lengths = np.repeat(np.minimum([1, 3, 5, 7], longest), 16)
        np.testing.assert_allclose(dx, gradient_of(x, lengths), atol=1e-6)
    assert evaluations == [(4, 1, 1)] * 2


def test_extents_of_descriptors_are_scalars_too(evaluations) -> None:
    adjoint = tw.vjp(rows, outputs="out", wrt="x")
    for count in (3, 5, 3):
        x, out = drawn(count, 64), np.zeros(64, "f4")
        dx = np.full_like(x, np.nan)
        described = [tw.TensorDescriptor(array, [count, 64], [64, 1], [1, 64]) for array in (x, dx)]
        adjoint[(1,)](described[0], out, BLOCK=64, d_out=ONES, d_x=described[1])
        np.testing.assert_allclose(dx, gradient_of(x, np.full(64, count)), atol=1e-6)
    assert evaluations == [(1, 1, 1)] * 2


def test_a_count_in_memory_is_read_at_each_launch(evaluations) -> None:
    x, out, count = drawn(6, 64), np.zeros(64, "f4"), np.zeros(1, "i4")
    adjoint = tw.vjp(counted_in_memory, outputs="out", wrt="x")
    for n in (6, 2, 5):
        dx, count[0] = np.full_like(x, np.nan), n
        adjoint[(2,)](x, out, count, BLOCK=32, d_out=ONES, d_x=dx)
        np.testing.assert_allclose(dx, gradient_of(x, np.full(64, n)), atol=1e-6)
    assert not evaluations


def test_a_tape_over_the_limit_is_refused() -> None:
    x, out, dx = drawn(6, 64), np.zeros(64, "f4"), np.full((6, 64), 7, "f4")
    for limit in (1535, 1536):
        adjoint = tw.vjp(recurrence, outputs="out", wrt="x", tape_limit=limit)
        if limit == 1536:
            adjoint[(2,)](x, out, 6, BLOCK=32, d_out=ONES, d_x=dx)
            continue
        with pytest.raises(tw.LaunchError) as caught:
            adjoint[(2,)](x, out, 6, BLOCK=32, d_out=ONES, d_x=dx)
        assert str(caught.value) == (
            "a tape of 1.5 KiB is needed, over the limit of 1.5 KiB: 2 programs record 6 "
            "iterations of 128 bytes\n"
            "  help: raise tape_limit, or carry fewer elements through the loop"
        )
    huge = tw.vjp(recurrence, outputs="out", wrt="x")
    with pytest.raises(tw.LaunchError, match=r"a tape of 29\.8 GiB is needed, over the limit of 8"):
        huge[(2,)](x, out, 125_000_000, BLOCK=32, d_out=ONES, d_x=dx)
