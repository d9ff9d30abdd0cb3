"""Derivatives of kernels within autotuners and heuristics, and derivatives that are tuned."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.compat.triton.runtime import autotuner as triton_tuner
from tilewright.runtime.tuning import tuning_keys

ROWS, COLUMNS = 6, 40


@tw.jit
def scale(x, w, out, n, BLOCK: tl.constexpr, EVEN: tl.constexpr = False):
    """Rows of x times w, which all programs read."""
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = columns < (n if not EVEN else n + 0)
    at = tl.program_id(0) * n + columns
    v = tl.load(x + at, mask=mask)
    tl.store(out + at, tl.sin(v) * tl.load(w + columns, mask=mask), mask=mask)


@pytest.fixture(params=["reference", "cpu"], autouse=True)
def on_backend(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.param == "cpu":
        pytest.importorskip("tilewright_cpu")
    with tw.backend(request.param):
        yield


last_blocks: list[int] = [0]


def grid(meta: Any) -> tuple[int, int]:
    last_blocks[0] = meta["BLOCK"]
    return ROWS, tw.cdiv(meta["n"], meta["BLOCK"])


class Bench:
    """Mock of do_bench: runs each call three times, and finds one block the fastest."""

    def __init__(self, best: int) -> None:
        self.best, self.tried = best, 0

    def __call__(self, call: Callable[[], None], quantiles: Any) -> list[float]:
        for _ in range(3):
            call()
        self.tried += 1
        return [1.0 + abs(last_blocks[0] - self.best)] * len(quantiles)


CONFIGS = [tw.Config({"BLOCK": block}) for block in (8, 16, 32)]


def tuned(kernel: Any, bench: Bench, **options: Any) -> Any:
    return tw.autotune(CONFIGS, ["n"], do_bench=bench, mode="memory", **options)(kernel)


class Case:
    """A launch's arrays, and the gradients in float64."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self.x = rng.normal(size=(ROWS, COLUMNS)).astype("f4")
        self.cotangent = rng.normal(size=(ROWS, COLUMNS)).astype("f4")
        self.w = rng.normal(size=COLUMNS).astype("f4")
        self.out = np.full_like(self.x, 7)
        self.dx, self.dw = np.full_like(self.x, 2), np.full_like(self.w, 3)

    @property
    def arguments(self) -> tuple[Any, ...]:
        return self.x, self.w, self.out, COLUMNS

    @property
    def gradients(self) -> dict[str, np.ndarray]:
        return {"d_out": self.cotangent, "d_x": self.dx, "d_w": self.dw}

    def check(self) -> None:
        """Compare the gradients."""
        wide = self.x.astype("f8")
        np.testing.assert_allclose(self.dx, self.cotangent * np.cos(wide) * self.w, atol=1e-5)
        np.testing.assert_allclose(self.dw, (self.cotangent * np.sin(wide)).sum(0), atol=1e-5)


def blocks_of(adjoint: Any) -> set[int]:
    """The blocks of the adjoints that were compiled."""
    kernels = adjoint._kernels.values()
    return {kernel.specialization.constants["BLOCK"] for kernel in kernels}


def test_the_configuration_of_the_forward_is_taken() -> None:
    case, bench = Case(), Bench(16)
    forward = tuned(scale, bench)
    forward[grid](*case.arguments)
    adjoint = tw.vjp(forward, outputs="out", wrt=("x", "w"))
    adjoint[grid](*case.arguments, **case.gradients)
    case.check()
    assert bench.tried == 3
    assert blocks_of(adjoint) == {16}
    other = Case()  # another key: the forward is tuned, whose output stays as it is
    other.out[:] = 5
    adjoint[grid](
        np.ascontiguousarray(other.x[:, :20]),
        other.w[:20].copy(),
        written := np.full((ROWS, 20), 5, "f4"),
        20,
        d_out=np.ones((ROWS, 20), "f4"),
        d_x=np.empty((ROWS, 20), "f4"),
        d_w=np.empty(20, "f4"),
    )
    assert bench.tried == 6
    assert (written == 5).all()


def test_what_tuning_sets_to_zero_has_its_values_back() -> None:
    case = Case()
    forward = tuned(scale, Bench(8), reset_to_zero=["out"])
    tw.vjp(forward, outputs="out", wrt=("x", "w"))[grid](*case.arguments, **case.gradients)
    case.check()
    assert (case.out == 7).all()


def test_what_the_launch_sets_takes_the_place_of_the_choice() -> None:
    case, bench = Case(), Bench(16)
    adjoint = tw.vjp(tuned(scale, bench), outputs="out", wrt=("x", "w"))
    adjoint[grid](*case.arguments, BLOCK=32, **case.gradients)
    case.check()
    assert bench.tried == 0
    assert blocks_of(adjoint) == {32}


def test_heuristics_compute_constants_of_the_derivative() -> None:
    case, bench = Case(), Bench(32)
    forward = tw.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})(scale)
    both = tuned(tw.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})(scale), bench)
    for kernel, block in ((forward, {"BLOCK": 8}), (both, {})):
        case = Case()
        adjoint = tw.vjp(kernel, outputs="out", wrt=("x", "w"))
        adjoint[grid](*case.arguments, **block, **case.gradients)
        case.check()
        compiled = next(iter(adjoint._kernels.values()))
        assert compiled.specialization.constants["EVEN"] is (kernel is forward)


def test_tangents_of_a_tuned_kernel() -> None:
    case, bench = Case(), Bench(16)
    double = tw.jvp(tuned(scale, bench), inputs="x", outputs="out")
    found = np.empty_like(case.out)
    double[grid](*case.arguments, t_x=case.cotangent, t_out=found)
    np.testing.assert_allclose(found, np.cos(case.x) * case.w * case.cotangent, atol=1e-5)


@pytest.mark.parametrize("accumulate", [False, True])
def test_a_derivative_is_tuned_with_blocks_of_its_own(accumulate: bool) -> None:
    """No configuration that is tried adds to the gradients."""
    case, bench = Case(), Bench(8)
    inner = Bench(16)
    derived = tw.vjp(tuned(scale, inner), outputs="out", wrt=("x", "w"), accumulate=accumulate)
    adjoint = tuned(derived, bench)
    for launches in (1, 2):
        adjoint[grid](*case.arguments, **case.gradients)
        assert bench.tried == 3
        if accumulate:
            before = 2 - (launches - 1) * (gradient := case.cotangent * np.cos(case.x) * case.w)
            np.testing.assert_allclose(
                case.dx - gradient * 2 * (launches - 1) - before, gradient, atol=1e-5
            )
        else:
            case.check()
    assert inner.tried == 0  # the derivative sets what the forward would have chosen
    assert adjoint.best_config.kwargs == {"BLOCK": 8}
    assert blocks_of(derived) == {8, 16, 32}
    assert (case.out == 7).all()


def test_records_of_derivatives_are_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    case, keys = Case(), []
    before = tuning_keys.RecordKey._replace

    def noted(self: Any, **changes: Any) -> Any:
        keys.append(changes["key"])
        return before(self, **changes)

    monkeypatch.setattr(tuning_keys.RecordKey, "_replace", noted)
    for options in ({}, {"accumulate": True}, {"saved": "out"}):
        derived = tw.vjp(scale, outputs="out", wrt=("x", "w"), **options)
        adjoint = tw.autotune(CONFIGS[:2], ["n"], do_bench=Bench(8), mode="memory")(derived)
        adjoint[grid](*case.arguments, **case.gradients)
    assert len(set(keys)) == 3
    assert all("vjp=('out',) wrt=('x', 'w')" in key for key in keys)


def test_autotuners_of_the_shim() -> None:
    case, bench = Case(), Bench(16)
    forward = triton_tuner.autotune(CONFIGS, ["n"], do_bench=bench)(scale)
    adjoint = tw.vjp(forward, outputs="out", wrt=("x", "w"))
    adjoint[grid](*case.arguments, **case.gradients)
    case.check()
    assert blocks_of(adjoint) == {16}
    own = triton_tuner.autotune(CONFIGS, ["n"], do_bench=Bench(32))(adjoint)
    case = Case()
    own[grid](*case.arguments, **case.gradients)
    case.check()
    assert own.best_config.kwargs == {"BLOCK": 32}


@tw.jit
def double_blocks(x, out, BLOCK: tl.constexpr):
    """Write twice the block of x that a program has; host descriptors have the blocks' shape."""
    at = tl.program_id(0) * BLOCK
    out.store([at], 2 * x.load([at]) + tl.zeros((BLOCK,), tl.float32))


def set_blocks(arguments: dict[str, Any]) -> None:
    for name in ("x", "out"):
        arguments[name].block_shape = [arguments["BLOCK"]]


def described(value: float, block: int) -> Any:
    return tw.TensorDescriptor(np.full(64, value, np.float32), [64], [1], [block])


@pytest.mark.parametrize("adjoint", [True, False])
def test_an_error_names_the_hook_that_would_have_set_the_blocks(adjoint: bool) -> None:
    tuned = tw.autotune([tw.Config({"BLOCK": 16}, pre_hook=set_blocks)], key=[])(double_blocks)
    derived: Any = (
        tw.vjp(tuned, outputs="out", wrt="x", prefix="t_")
        if adjoint
        else tw.jvp(tuned, inputs="x", outputs="out")
    )

    def tangents(block: int) -> dict[str, Any]:
        return {"t_x": described(0 if adjoint else 3, block), "t_out": described(3, block)}

    with pytest.raises(tw.CompilationError) as error:
        derived[(4,)](described(1, 1), described(0, 1), **tangents(1))
    help_, see = error.value.__notes__
    assert help_.startswith("  help: derivatives do not call the pre_hook of a tw.Config")
    assert "block_shape of x, out: " in help_ and see.startswith("  see: tilewright help ")
    # what the remedy says
    own = tangents(16)
    derived[(4,)](described(1, 16), described(0, 16), BLOCK=16, **own)
    assert (own["t_x" if adjoint else "t_out"].base == 6).all()
