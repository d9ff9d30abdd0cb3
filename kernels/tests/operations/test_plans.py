"""Plans: repeated launches on memory that stays allocated."""

import numpy as np
import pytest
from checks import FRAMEWORKS, to_framework, to_numpy

import tilewright as tw
import tilewright.language as tl
import tilewright_kernels as tk
from tilewright_kernels.operations import Array, Launcher, Operation

FRAMEWORKS = [each for each in FRAMEWORKS if each != "jax"]


@tw.jit
def add_kernel(x_ptr, sum_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    total = tl.sum(tl.load(x_ptr + at, mask=at < n, other=0.0), axis=0)
    tl.store(sum_ptr, tl.load(sum_ptr) + total)


@tw.jit
def spread_kernel(sum_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.zeros([BLOCK], tl.float32) + tl.load(sum_ptr), mask=at < n)


def _launch_total(run: Launcher, y, x: Array) -> None:
    total = run.zeros((1,), "float32")
    run(add_kernel, (1,), x, total, x.shape[0], updates=("sum_ptr",), BLOCK=64)
    run(spread_kernel, (1,), total, y, x.shape[0], BLOCK=64)


TOTAL = Operation("plan_total", ("y",), lambda make, x: (make(x.shape, x.dtype),), _launch_total)


def total(x, *, out=None):
    return TOTAL(x, out=out)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_plan_repeats_its_launches_and_zeroes_its_scratch_memory(framework):
    x = to_framework(np.arange(40, dtype=np.float32), framework)
    plan = tk.plan(total, x)
    for factor in (2, 3):
        x[:] = factor
        assert plan.run() is plan.result
        np.testing.assert_array_equal(to_numpy(plan.result), np.full(40, 40.0 * factor))
    other = to_framework(np.full(40, 7, np.float32), framework)
    out = to_framework(np.empty(40, np.float32), framework)
    assert plan.run(other, out=out) is out
    np.testing.assert_array_equal(to_numpy(out), np.full(40, 280.0))
    np.testing.assert_array_equal(to_numpy(plan.result), np.full(40, 120.0))


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_plan_of_views_reads_what_is_in_them_then(framework):
    x = to_framework(np.random.default_rng(0).standard_normal((2, 3, 8)), framework)
    weight = to_framework(np.ones(8), framework)
    plan = tk.plan(tk.rms_norm, x, weight, eps=1e-3)
    x[:] = x + 1
    expected = tk.rms_norm_reference(x, weight, 1e-3)
    np.testing.assert_allclose(to_numpy(plan.run()), to_numpy(expected), rtol=1e-6)


def test_a_plan_refuses_other_arguments_and_copies():
    x = np.ones((4, 8), np.float32)
    plan = tk.plan(tk.rms_norm, x, eps=1e-3)
    with pytest.raises(tk.PlanError, match=r"not as they were planned.*make another plan"):
        plan.run(np.ones((4, 9), np.float32))
    with pytest.raises(tk.PlanError, match="not as they were planned"):
        plan.run(x, eps=1e-2)
    with pytest.raises(tk.PlanError, match="out= goes with arguments"):
        plan.run(out=x)
    with pytest.raises(tk.PlanError, match=r"copied beside the launches.*stride 1"):
        tk.plan(tk.rms_norm, np.ones((8, 4), np.float32).T)
    with pytest.raises(tk.PlanError, match="must lie row by row"):
        tk.plan(tk.rms_norm, x, out=np.ones((8, 4), np.float32).T)
    with pytest.raises(tk.PlanError, match="there is none among the arguments"):
        tk.plan(tk.rms_norm, 3)


def test_a_plan_of_a_function_without_out_takes_no_other_arrays():
    x = np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)
    plan = tk.plan(tk.sort, x)
    x *= -1
    np.testing.assert_array_equal(plan.run(), np.sort(x))
    with pytest.raises(tk.PlanError, match=r"sort has no argument out=.*run\(\) without"):
        plan.run(np.ones_like(x))
