"""Plans of adjoints: the kernels that each input gets, their grids, and their gradients."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from plan_launches import Launch, atomics_of, drawn, ways_of

import tilewright as tw
import tilewright.language as tl
from tilewright.derivatives.plan.coverage import StoredElements
from tilewright.derivatives.plan.grid_extents import LaunchFacts, Shares

sys.path.insert(0, str(Path(__file__).resolve().parents[4] / "examples"))

from kernels.attention import attention, attention_kernel
from kernels.layer_norm import layer_norm_kernel
from kernels.matmul import matmul_kernel


@pytest.mark.parametrize("causal", [False, True])
def test_attention_is_row_sums_and_keys_and_queries(causal: bool) -> None:
    heads, length, head = 2, 75, 16
    q, k, v, d_out = (drawn(heads, length, head, seed=n) for n in range(4))
    out, lse = np.empty_like(q), np.empty((heads, length), "f4")
    attention(q, k, v, out, lse, causal, (32, 16))
    adjoint = tw.vjp(
        attention_kernel,
        outputs="out_ptr",
        wrt=("q_ptr", "k_ptr", "v_ptr"),
        saved=("out_ptr", "lse_ptr"),
        deterministic=True,
    )
    scores = q @ k.transpose(0, 2, 1) * head**-0.5
    if causal:
        scores = np.where(np.tril(np.ones((length, length), bool)), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    d_weights = d_out @ v.transpose(0, 2, 1)
    delta = (d_weights * weights).sum(-1, keepdims=True)
    d_scores = weights * (d_weights - delta) * head**-0.5
    plan = Launch(
        adjoint,
        (tw.cdiv(length, 32), heads),
        (q, k, v, out, lse, head**-0.5, length),
        CAUSAL=causal,
        BLOCK_M=32,
        BLOCK_N=16,
        HEAD=head,
        d_out_ptr=d_out,
    ).check(
        {
            "d_q_ptr": d_scores @ k,
            "d_k_ptr": d_scores.transpose(0, 2, 1) @ q,
            "d_v_ptr": weights.transpose(0, 2, 1) @ d_out,
        }
    )
    assert atomics_of(plan) == 0
    assert ways_of(plan) == {"q_ptr": "store", "k_ptr": "loop", "v_ptr": "loop"}
    assert [dict(kernel.writes) for kernel in plan.kernels] == [
        {},
        {"k_ptr": "loop", "v_ptr": "loop"},
        {"q_ptr": "store"},
    ]
    dots = [sum(op.name == "dot" for op in kernel.module.walk()) for kernel in plan.kernels]
    assert dots == [0, 4, 3]
    assert {note.way for note in plan.loops} == {"gauge"}


def test_a_grouped_matmul_is_differentiated_on_a_grid_of_coordinates() -> None:
    m, n, k = 40, 50, 36
    a, b, d_c = drawn(m, k), drawn(k, n), drawn(m, n)
    adjoint = tw.vjp(matmul_kernel, outputs="c_ptr", wrt=("a_ptr", "b_ptr"), deterministic=True)
    d_product = d_c * np.where(a @ b >= 0, 1, 0.01)
    blocks = {"BLOCK_M": 16, "BLOCK_N": 16, "BLOCK_K": 16, "GROUP_M": 2}
    plan = Launch(
        adjoint,
        (tw.cdiv(m, 16) * tw.cdiv(n, 16),),
        (a, b, np.empty_like(d_c), m, n, k, k, 1, n, 1, n, 1),
        **blocks,
        ACTIVATION="leaky_relu",
        d_c_ptr=d_c,
    ).check({"d_a_ptr": d_product @ b.T, "d_b_ptr": a.T @ d_product})
    assert atomics_of(plan) == 0
    assert ways_of(plan) == {"a_ptr": "loop", "b_ptr": "loop"}
    assert len(plan.kernels) == 3  # the derivative of the activation is computed once
    assert "the grid is one of the 2 coordinates that programs compute" in plan.notes


def test_coordinates_that_fill_no_box_keep_their_atomics() -> None:
    m, n, k = 40, 50, 36
    a, b, d_c = drawn(m, k), drawn(k, n), drawn(m, n)
    adjoint = tw.vjp(matmul_kernel, outputs="c_ptr", wrt=("a_ptr", "b_ptr"))
    blocks = {"BLOCK_M": 16, "BLOCK_N": 16, "BLOCK_K": 16, "GROUP_M": 2}
    launch = Launch(
        adjoint,
        (tw.cdiv(m, 16) * tw.cdiv(n, 16) - 1,),  # one program is missing
        (a, b, np.empty_like(d_c), m, n, k, k, 1, n, 1, n, 1),
        **blocks,
        ACTIVATION="",
        d_c_ptr=d_c,
    )
    plan = launch.plan(d_a_ptr=np.empty_like(a), d_b_ptr=np.empty_like(b))
    assert set(ways_of(plan).values()) == {"atomic"}
    assert "the coordinates that programs compute are no bijection onto a box" in plan.notes


def test_a_blocked_norm_sums_weights_over_rows() -> None:
    rows, n = 9, 40
    x, w, bias, d_out = drawn(rows, n), drawn(n), drawn(n, seed=1), drawn(rows, n, seed=2)
    mean, var = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    rstd = 1 / np.sqrt(var + 1e-5)
    scaled, d_scaled = (x - mean) * rstd, d_out * w
    slope = (d_scaled * scaled).mean(-1, keepdims=True)
    d_x = (d_scaled - d_scaled.mean(-1, keepdims=True) - scaled * slope) * rstd
    plan = Launch(
        tw.vjp(
            layer_norm_kernel,
            outputs="out_ptr",
            wrt=("x_ptr", "weight_ptr", "bias_ptr"),
            saved=("mean_ptr", "rstd_ptr"),
            deterministic=True,
        ),
        (rows,),
        (x, np.empty_like(x), w, bias, mean[:, 0].copy(), rstd[:, 0].copy(), n, n, 1e-5),
        BLOCK=16,
        d_out_ptr=d_out,
    ).check({"d_x_ptr": d_x, "d_weight_ptr": (d_out * scaled).sum(0), "d_bias_ptr": d_out.sum(0)})
    assert atomics_of(plan) == 0
    assert ways_of(plan) == {"x_ptr": "add", "weight_ptr": "loop", "bias_ptr": "loop"}


@tw.jit
def scale_kernel(x_ptr, w_ptr, out_ptr, factor, rows, n, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = (row < rows) & (column < n)[None, :]
    x = tl.load(x_ptr + row * n + column[None, :], mask=inside, other=0.0)
    w = tl.load(w_ptr + column, mask=column < n, other=0.0)
    tl.store(out_ptr + row * n + column[None, :], x * w[None, :] * factor, mask=inside)


class Scaled:
    """A launch of the derivative of ``x * w * factor``."""

    def __init__(self, rows: int = 37, n: int = 21, **request: Any) -> None:
        self.x, self.w, self.d_out = drawn(rows, n), drawn(n), drawn(rows, n, seed=1)
        self.launch = Launch(
            tw.vjp(scale_kernel, outputs="out_ptr", wrt=("x_ptr", "w_ptr", "factor"), **request),
            (tw.cdiv(rows, 2), tw.cdiv(n, 8)),
            (self.x, self.w, np.empty_like(self.x), 0.5, rows, n),
            ROWS=2,
            BLOCK=8,
            d_out_ptr=self.d_out,
        )
        self.expected = {
            "d_x_ptr": self.d_out * self.w * 0.5,
            "d_w_ptr": (self.d_out * self.x).sum(0) * 0.5,
            "d_factor": np.array([(self.d_out * self.x * self.w).sum()]),
        }


def test_sums_over_one_axis_and_over_both_are_partial_sums() -> None:
    """The weight is summed over axis 0, and the factor over both, axis after axis."""
    scaled = Scaled(deterministic=True)
    plan = scaled.launch.check(scaled.expected)
    assert atomics_of(plan) == 0
    assert ways_of(plan) == {"x_ptr": "store", "w_ptr": "partial", "factor": "partial"}
    sizes = [tuple(map(str, kernel.grid)) for kernel in plan.kernels]
    assert sizes[0] == ("shares(grid[0])", "grid[1]", "grid[2]")


def test_gradients_are_added_to_what_is_there() -> None:
    scaled = Scaled(accumulate=True)
    gradients = {name: np.ones(value.shape, "f4") for name, value in scaled.expected.items()}
    launch = scaled.launch
    launch.adjoint[launch.grid](*launch.arguments, **launch.keywords, **gradients)
    for name, value in scaled.expected.items():
        np.testing.assert_allclose(gradients[name], value + 1, rtol=1e-4, atol=1e-5, err_msg=name)


def test_a_plan_serves_other_sizes_and_is_made_anew_where_a_condition_fails() -> None:
    scaled = Scaled()
    scaled.launch.check(scaled.expected)
    other = Scaled(30, 19)
    other.launch.adjoint = scaled.launch.adjoint
    other.launch.check(other.expected)
    (plans,) = (kinds for _, kinds in scaled.launch.adjoint._plans.values())
    assert len(plans["vjp"]._plans) == 1
    other.launch.grid = (*other.launch.grid, 2)  # along an axis that the kernel does not read
    plan = other.launch.check({name: 2 * value for name, value in other.expected.items()})
    assert set(ways_of(plan).values()) == {"atomic"}
    assert len(plans["vjp"]._plans) == 2


@tw.jit
def scale_rows_kernel(x_ptr, w_ptr, out_ptr, n, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    offsets = tl.program_id(0) * n + column
    x = tl.load(x_ptr + offsets, mask=column < n, other=0.0)
    w = tl.load(w_ptr + column, mask=column < n, other=0.0)
    tl.store(out_ptr + offsets, x * w, mask=column < n)


@pytest.mark.parametrize(("block", "programs"), [(1024, 4), (256, 1)])
def test_programs_share_the_columns_of_partial_sums(block: int, programs: int) -> None:
    rows, n = 21, block - 40
    x, w, d_out = drawn(rows, n), drawn(n), drawn(rows, n, seed=1)
    plan = Launch(
        tw.vjp(scale_rows_kernel, outputs="out_ptr", wrt=("x_ptr", "w_ptr")),
        (rows,),
        (x, w, np.empty_like(x), n),
        BLOCK=block,
        d_out_ptr=d_out,
    ).check({"d_x_ptr": d_out * w, "d_w_ptr": (d_out * x).sum(0)})
    assert [str(kernel.grid[0]) for kernel in plan.kernels] == ["shares(grid[0])", str(programs)]


@tw.jit
def look_up_kernel(table_ptr, index_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    index = tl.load(index_ptr + offsets, mask=offsets < n, other=0)
    value = tl.load(table_ptr + index, mask=offsets < n)
    tl.store(out_ptr + offsets, value, mask=offsets < n)


def test_what_no_pass_follows_is_atomic_and_refused_where_that_is_wanted() -> None:
    index, d_out = np.array([0, 3, 3, 1, 0], "i4"), drawn(5)
    arguments = (drawn(4), index, np.empty(5, "f4"), 5)
    expected = np.zeros(4, "f4")
    np.add.at(expected, index, d_out)
    wanted = {"outputs": "out_ptr", "wrt": "table_ptr"}
    launch = Launch(tw.vjp(look_up_kernel, **wanted), (2,), arguments, BLOCK=4, d_out_ptr=d_out)
    plan = launch.check({"d_table_ptr": expected})
    assert ways_of(plan) == {"table_ptr": "atomic"}
    launch.adjoint = tw.vjp(look_up_kernel, **wanted, deterministic=True)
    with pytest.raises(tw.DerivativeError) as caught:
        launch.plan(d_table_ptr=np.empty(4, "f4"))
    assert caught.value.reason == (
        "the gradient of table_ptr is added to atomically, in any order: its address is not affine"
    )


@tw.jit
def add_bias(x_ptr, b_ptr, y_ptr, N: tl.constexpr):
    columns = tl.arange(0, N)
    at = tl.program_id(0) * N + columns
    tl.store(y_ptr + at, tl.load(x_ptr + at) + tl.load(b_ptr + columns))


def test_narrow_floats_are_summed_in_f32() -> None:
    rows, n = 1000, 8
    x, y = np.zeros((rows, n), "f2"), np.zeros((rows, n), "f2")
    d_y = np.random.default_rng(3).uniform(0, 1, (rows, n)).astype("f2")
    b, d_b = np.zeros(n, "f2"), np.full(n, np.nan, "f2")
    adjoint = tw.vjp(add_bias, outputs="y_ptr", wrt="b_ptr")
    adjoint[(rows,)](x, b, y, N=n, d_y_ptr=d_y, d_b_ptr=d_b)
    assert (d_b == d_y.sum(axis=0, dtype="f8").astype("f2")).all()
    plan = adjoint.plan(x, b, y, N=n, grid=(rows,), d_y_ptr=d_y, d_b_ptr=d_b)
    assert ways_of(plan) == {"b_ptr": "partial"}


# ---- mutants


def _one_iteration_fewer(facts: LaunchFacts, extent: Any) -> int:
    return iterations(facts, extent) - 1


def _one_program_fewer(facts: LaunchFacts, extent: Any) -> int:
    found = evaluated(facts, extent)
    return max(1, found - 1) if isinstance(extent, Shares) else found


iterations, evaluated = LaunchFacts._iterations, LaunchFacts._evaluated


def test_a_grid_of_one_iteration_fewer_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns of the last iteration get no gradient."""
    monkeypatch.setattr(LaunchFacts, "_iterations", _one_iteration_fewer)
    with pytest.raises(AssertionError, match="d_k_ptr"):
        test_attention_is_row_sums_and_keys_and_queries(causal=False)


def test_any_number_of_programs_shares_the_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LaunchFacts, "_evaluated", _one_program_fewer)
    scaled = Scaled()
    scaled.launch.check(scaled.expected)


def test_stores_that_are_counted_twice_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """An array that is taken for written as a whole keeps the poison in the rest."""
    monkeypatch.setattr(LaunchFacts, "_iterations", _one_iteration_fewer)
    monkeypatch.setattr(StoredElements, "count", lambda self, sizes, numbers: 2 * 75 * 16)
    with pytest.raises(AssertionError, match="nan"):
        test_attention_is_row_sums_and_keys_and_queries(causal=False)


@tw.jit
def exponentials_of_split_maxima(x_ptr, out_ptr, N: tl.constexpr):
    """Half of the maxima of rows are subtracted, after a split of them."""
    rows, columns = tl.arange(0, 4), tl.arange(0, N)
    x = tl.load(x_ptr + rows[:, None] * N + columns[None, :])
    even, odd = tl.split(tl.reshape(tl.max(x, axis=1), (2, 2)))
    half = tl.arange(0, 2)
    tl.store(out_ptr + half, tl.exp(even - odd) + odd)


def test_maxima_that_are_split_have_gradients() -> None:
    x, out = drawn(4, 8), np.zeros(2, "f4")
    d_out, d_x = np.array([1.0, 2.0], "f4"), np.full_like(x, np.nan)
    adjoint = tw.vjp(exponentials_of_split_maxima, outputs="out_ptr", wrt="x_ptr")
    adjoint[(1,)](x, out, N=8, d_out_ptr=d_out, d_x_ptr=d_x)
    expected = np.zeros_like(x)
    highest = x.argmax(axis=1)
    for pair in range(2):
        slope = d_out[pair] * np.exp(x[2 * pair].max() - x[2 * pair + 1].max())
        expected[2 * pair, highest[2 * pair]] = slope
        expected[2 * pair + 1, highest[2 * pair + 1]] = d_out[pair] - slope
    np.testing.assert_allclose(d_x, expected, rtol=1e-5, atol=1e-6)
