"""Inputs that several loops of a kernel read: each loop's sum is a kernel's, without atomics."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from plan_launches import Launch, atomics_of, drawn, ways_of

import tilewright as tw
import tilewright.language as tl
from tilewright.derivatives.plan import make_plan
from tilewright.runtime.arguments.descriptor import TensorDescriptor


@tw.jit
def weighted_rows(
    x, w, out, n, FIRST: tl.constexpr, SECOND: tl.constexpr, B: tl.constexpr, S: tl.constexpr
):
    """Sums of sines over two ranges of columns, of different rows, and one beside the loops."""
    program = tl.program_id(0)
    rows = program * B + tl.arange(0, B)
    v = tl.load(x + rows, mask=rows < n, other=0.0)
    total = v
    for KIND in tl.static_range(2):
        RANGE: tl.constexpr = SECOND if KIND else FIRST
        if RANGE == "left":
            low, high = 0, program * B
        elif RANGE == "diagonal":
            low, high = program * B, program * B + B
        elif RANGE == "diagonal, inside":
            low, high = program * B, tl.minimum(program * B + B, n)
        elif RANGE == "all":
            low, high = 0, n
        elif RANGE == "half":
            low, high = 0, n // 2
        else:
            low, high = 0, 0
        if RANGE == "beside":
            columns = tl.arange(0, S)
            u = tl.load(w + columns, mask=columns < n, other=0.0)
            total += tl.sum(tl.sin(u[None, :] * v[:, None]), axis=1)
        for start in range(low, high, S):
            columns = start + tl.arange(0, S)
            u = tl.load(w + columns, mask=columns < n, other=0.0)
            total += (KIND + 1) * tl.sum(tl.sin(u[None, :] * v[:, None]), axis=1)
    tl.store(out + rows, total, mask=rows < n)


RANGES = ("left", "diagonal", "diagonal, inside", "all", "half", "beside")


def expected_of(
    x: np.ndarray, w: np.ndarray, d_out: np.ndarray, ranges: tuple[str, str], b: int, s: int
) -> dict[str, np.ndarray]:
    n = len(x)
    counts = np.zeros((n, n))
    for number, kind in enumerate(ranges):
        for first in range(0, n, b):
            low, high = {
                "left": (0, first),
                "diagonal": (first, first + b),
                "diagonal, inside": (first, min(first + b, n)),
                "all": (0, n),
                "half": (0, n // 2),
                "beside": (0, s),
            }[kind]
            high = low - (low - high) // s * s
            counts[first : first + b, low:high] += 1 if kind == "beside" else number + 1
    slopes = counts * np.cos(np.outer(x.astype("f8"), w)) * d_out[:, None]
    return {"d_x": d_out + (slopes * w).sum(1), "d_w": (slopes * x[:, None]).sum(0)}


def launch(ranges: tuple[str, str], n: int, b: int, s: int, **request: Any) -> tuple[Launch, Any]:
    x, w, d_out = (drawn(n, seed=seed) for seed in range(3))
    adjoint = tw.vjp(weighted_rows, outputs="out", wrt=("x", "w"), **request)
    named = {"FIRST": ranges[0], "SECOND": ranges[1], "B": b, "S": s, "d_out": d_out}
    made = Launch(adjoint, (tw.cdiv(n, b),), (x, w, np.empty_like(x), n), **named)
    return made, expected_of(x, w, d_out, ranges, b, s)


@pytest.mark.parametrize(
    ("ranges", "kernels"),
    [
        (("left", "diagonal"), 3),
        (("left", "diagonal, inside"), 3),
        (("all", "half"), 3),
        (("beside", "all"), 4),
    ],
)
def test_two_loops_over_an_input_are_kernels_of_their_own(
    ranges: tuple[str, str], kernels: int
) -> None:
    made, expected = launch(ranges, 75, 16, 4, deterministic=True)
    plan = made.check(expected)
    assert atomics_of(plan) == 0
    assert len(plan.kernels) == kernels
    ways = [kernel.writes["w"] for kernel in plan.kernels if "w" in kernel.writes]
    assert len(ways) == 2
    assert ways_of(plan)["x"] == "store"


def check(seed: int) -> int:
    """Check a random pair of ranges, and return the number of atomics."""
    rng = random.Random(seed)
    ranges = rng.choice(RANGES), rng.choice(RANGES)
    n, (b, s) = rng.randint(1, 40), rng.choice([(8, 4), (8, 8), (4, 4), (4, 8), (16, 4)])
    made, expected = launch(ranges, n, b, s, accumulate=rng.random() < 0.3)
    found = {name: np.ones(value.shape, "f4") for name, value in expected.items()}
    made.adjoint[made.grid](*made.arguments, **made.keywords, **found)
    for name, value in expected.items():
        start = 1 if made.adjoint.accumulate else 0
        error = f"{name} of {ranges}, n={n}, B={b}, S={s}"
        np.testing.assert_allclose(found[name], value + start, 3e-4, 3e-5, err_msg=error)
    return atomics_of(made.plan(**found))


def test_random_ranges() -> None:
    atomics = [check(seed) for seed in range(8)]
    assert atomics.count(0) >= 5


@pytest.mark.full
def test_hundreds_of_random_ranges() -> None:
    for seed in range(8, 200):
        check(seed)


@tw.jit
def weighted_blocks(x, w, out, n, CAUSAL: tl.constexpr, B: tl.constexpr, S: tl.constexpr):
    """The columns of whole blocks, then the rest of them, as kernels of attention divide them."""
    program = tl.program_id(0)
    if not isinstance(w, tl.tensor_descriptor):
        w = tl.make_tensor_descriptor(w, [n], [1], [S])
    rows = program * B + tl.arange(0, B)
    v = tl.load(x + rows, mask=rows < n, other=0.0)
    if CAUSAL:
        whole = program * B // S * S
        end = tl.minimum(program * B + B, n)
    else:
        whole = n // S * S
        end = n
    total = tl.zeros([B], tl.float32)
    for start in range(0, whole, S):
        total += tl.sum(tl.sin(w.load([start])[None, :] * v[:, None]), axis=1)
    for start in range(whole, end, S):
        columns = start + tl.arange(0, S)
        inside = (columns <= rows[:, None]) if CAUSAL else (columns < n)[None, :]
        total += tl.sum(
            tl.where(inside, tl.sin(w.load([start])[None, :] * v[:, None]), 0.0), axis=1
        )
    tl.store(out + rows, total, mask=rows < n)


@pytest.mark.parametrize("on_host", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_blocks_of_descriptors_in_two_loops_are_added_without_atomics(
    causal: bool, on_host: bool
) -> None:
    n, b, s = 75, 16, 4
    x, w, d_out = (drawn(n, seed=seed) for seed in range(3))
    d_x, d_w = np.full_like(x, np.nan), np.full_like(w, np.nan)
    both = [TensorDescriptor(array, [n], [1], [s]) if on_host else array for array in (w, d_w)]
    made = tw.vjp(weighted_blocks, outputs="out", wrt=("x", "w"), deterministic=True)
    arguments = (x, both[0], np.empty_like(x), n)
    named = {"CAUSAL": causal, "B": b, "S": s, "d_out": d_out, "d_x": d_x, "d_w": both[1]}
    made[(tw.cdiv(n, b),)](*arguments, **named)
    slopes = np.cos(np.outer(x.astype("f8"), w)) * d_out[:, None]
    slopes = np.tril(slopes) if causal else slopes
    np.testing.assert_allclose(d_x, (slopes * w).sum(1), 2e-4, 3e-5)
    np.testing.assert_allclose(d_w, (slopes * x[:, None]).sum(0), 2e-4, 3e-5)


def test_what_a_second_kernel_stores_over_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second loop's kernel adds to what the first has stored."""
    written = make_plan._Planner._written
    monkeypatch.setattr(
        make_plan._Planner, "_written", lambda self, mode, continued=False: written(self, mode)
    )
    with pytest.raises(AssertionError, match="d_w"):
        test_two_loops_over_an_input_are_kernels_of_their_own(("left", "diagonal"), 3)
