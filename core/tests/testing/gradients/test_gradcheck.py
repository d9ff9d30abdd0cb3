"""Checks of gradients: what is right passes, and what is wrong is blamed on its element."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.testing.gradients.derivative_launches import DerivativeLaunches

RNG = np.random.default_rng(0)


@tw.jit
def scaled(x, y, out, n, factor, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    v = tl.sin(tl.load(x + at, mask=inside)) * tl.load(y + at, mask=inside)
    tl.store(out + at, v * factor, mask=inside)


@tw.jit
def rounded(x, out, TYPE: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.exp(tl.load(x + at).to(TYPE).to(tl.float32)))


@tw.jit
def blocks(x, out):
    tile = x.load([0, 0])
    out.store([0, 0], tile * tile)


def arrays(*shape: int, type_: Any = np.float32) -> list[np.ndarray]:
    return [RNG.normal(size=shape).astype(type_) for _ in range(3)]


@pytest.mark.parametrize("type_", [np.float16, np.float32, np.float64])
def test_arrays_of_any_float_type_are_checked_in_double_precision(type_: Any) -> None:
    x, y, out = arrays(70, type_=type_)
    before = x.copy(), y.copy(), out.copy()
    check = tw.testing.assert_gradients(
        scaled, (3,), x, y, out, 70, 0.5, BLOCK=32, outputs="out", wrt=("x", "y")
    )
    assert check.type == "f64"
    assert check.difference < 1e-8
    assert check.dot < 1e-14
    for array, kept in zip((x, y, out), before, strict=True):
        assert np.array_equal(array, kept)


def test_numbers_strided_arrays_and_arguments_by_name() -> None:
    x, y, out = (array[:, ::2] for array in arrays(1, 140))
    x[0, 3] = np.inf
    keywords = {"y": y, "out": out, "n": 70, "factor": 0.5, "BLOCK": 32}
    check = tw.testing.gradcheck(
        scaled, (3,), x, **keywords, outputs="out", wrt=("y", "factor"), directions=2
    )
    assert check.type == "f64"


@tw.jit
def multiplied(x, factor, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at) * tl.load(factor))


def test_an_array_without_axes() -> None:
    x, out, _ = arrays(16)
    factor = np.array(0.5, np.float32)
    check = tw.testing.gradcheck(
        multiplied, (1,), x, factor, out, BLOCK=16, outputs="out", wrt=("x", "factor")
    )
    assert check, check
    assert check.dot > 0 or check.difference > 0


def test_descriptors() -> None:
    x, out, _ = (tw.TensorDescriptor(array, [8, 16], [16, 1], [8, 16]) for array in arrays(8, 16))
    assert tw.testing.gradcheck(blocks, (1,), x, out, outputs="out", wrt="x").type == "f64"


@pytest.mark.parametrize(("type_", "name"), [(tl.float32, "f32"), (tl.bfloat16, "bf16")])
def test_tolerances_follow_from_the_types_of_casts(type_: Any, name: str) -> None:
    x, out, _ = arrays(64)
    check = tw.testing.gradcheck(
        rounded, (1,), x, out, TYPE=type_, BLOCK=64, outputs="out", wrt="x"
    )
    assert check, check
    assert check.type == name
    strict = tw.testing.gradcheck(
        rounded, (1,), x, out, TYPE=type_, BLOCK=64, outputs="out", wrt="x", tolerance=1e-12
    )
    assert strict.difference == check.difference


def test_forward_mode_is_blamed_on_an_output_and_an_input() -> None:
    x, _, out = arrays(70)
    # one array as two parameters, of which the derivative is by one
    check = tw.testing.gradcheck(scaled, (3,), x, x, out, 70, 0.5, BLOCK=32, outputs="out", wrt="x")
    assert not check
    blame = check.wrong[0]
    assert (blame.mode, blame.input, blame.output) == ("forward", "x", ("out", blame.index))
    v = float(x[blame.index])
    assert blame.found == pytest.approx(0.5 * np.cos(v) * v)
    assert blame.expected == pytest.approx(0.5 * (np.cos(v) * v + np.sin(v)), rel=1e-6)
    assert f"d out[{blame.index[0]}] / d x[{blame.index[0]}] is" in str(check)


@tw.jit
def magnitudes(x, out, SLOPE: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    v = tl.load(x + at)
    tl.store(out + at, tl.where(v > 0, v, SLOPE * v))


def test_a_derivative_at_a_kink_is_one_of_either_side() -> None:
    x, out, _ = arrays(64, type_=np.float64)
    x[[3, 40, 41, 42, 60]] = 1e-9, -1e-9, 1e-9, 0.0, 1e-9
    check = tw.testing.gradcheck(magnitudes, (1,), x, out, -1.0, 64, outputs="out", wrt="x")
    assert check, check
    assert check.difference < 1e-6


def test_reverse_mode_is_blamed_on_each_element(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(launches: DerivativeLaunches, cotangents: Any) -> Any:
        found = gradients(launches, cotangents)
        found["y"][[5, 60]] += 1e-3
        return found

    gradients = DerivativeLaunches.gradients
    monkeypatch.setattr(DerivativeLaunches, "gradients", wrong)
    x, y, out = arrays(70)
    with pytest.raises(AssertionError, match="wrong derivatives") as failure:
        tw.testing.assert_gradients(
            scaled, (3,), x, y, out, 70, 0.5, BLOCK=32, outputs="out", wrt=("x", "y")
        )
    lines = str(failure.value).splitlines()[1:]
    assert sorted(line.split(" is ")[0].strip() for line in lines) == [
        "the cotangent of y[5]",
        "the cotangent of y[60]",
    ]


def test_an_integer_has_no_derivative() -> None:
    x, y, out = arrays(70)
    with pytest.raises(tw.TilewrightError, match="no float of the kernel depends on n"):
        tw.testing.gradcheck(scaled, (3,), x, y, out, 70, 0.5, BLOCK=32, outputs="out", wrt="n")


def test_what_has_no_derivative_is_refused() -> None:
    @tw.jit
    def bits(x, out, BLOCK: tl.constexpr):
        at = tl.arange(0, BLOCK)
        tl.store(out + at, tl.load(x + at).to(tl.int64, bitcast=True).to(tl.float64))

    x, out, _ = arrays(16)
    with pytest.raises(tw.DerivativeError, match="bits"):
        tw.testing.gradcheck(bits, (1,), x, out, BLOCK=16, outputs="out", wrt="x")
