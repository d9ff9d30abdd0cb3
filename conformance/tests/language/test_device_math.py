"""Functions of ``tl.extra.libdevice`` on CPU, GPU and reference, where the suite's family of them
does not go: inverses by what they invert, and what is too great for a directed rounding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.language.extra import libdevice
from tilewright_conformance.cases.math.libdevice.values import spread

INF, NAN = float("inf"), float("nan")


@tw.jit
def apply(
    x_ptr,
    y_ptr,
    z_ptr,
    out_ptr,
    n,
    FUNCTION: tl.constexpr,
    COUNT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    x = tl.load(x_ptr + at, mask=mask)
    y = tl.load(y_ptr + at, mask=mask)
    operands = (x, y, tl.load(z_ptr + at, mask=mask))
    tl.store(out_ptr + at, FUNCTION(*operands[:COUNT]), mask=mask)


@pytest.fixture
def values(launch: Callable[..., None]) -> Callable[..., Any]:
    """``values(name, *operands)``: what the device gives, which is what the reference gives to
    within 8 ULP."""

    def run(name: str, *operands: Any) -> Any:
        n = len(operands[0])
        result = np.full(n, 77, operands[0].dtype)
        given = [*operands, *(operands[:1] * (3 - len(operands)))]
        bound = 8 * np.finfo(result.dtype).eps
        close = {"rtol": bound, "atol": bound, "exact": True}
        launch(
            apply,
            (-(-n // 64),),
            *given,
            result,
            n,
            FUNCTION=getattr(libdevice, name),
            COUNT=len(operands),
            BLOCK=64,
            **close,
        )
        return result

    return run


def test_order_inverts_erfc(values: Any) -> None:
    mp = pytest.importorskip("mpmath")
    mp.mp.dps = 30
    rng = np.random.default_rng(22)
    q = np.concatenate(
        [10.0 ** rng.uniform(-300, 0, 60), rng.uniform(0, 2, 60), 1 + spread(rng, 30, 1e-12, 0.1)]
    )
    for name, forth in (("erfcinv", mp.erfc), ("normcdfinv", mp.ncdf)):
        p = q if name == "erfcinv" else q / 2
        for y, wanted in zip(values(name, p), p, strict=True):
            exact = mp.findroot(
                lambda t, wanted=wanted: mp.log(forth(t) / mp.mpf(float(wanted))), mp.mpf(float(y))
            )
            assert abs(float(y) - exact) <= 8 * np.spacing(abs(float(y)))


@pytest.mark.parametrize(
    ("mode", "expected"),
    [("rn", INF), ("rz", 3.4028234663852886e38), ("rd", 3.4028234663852886e38), ("ru", INF)],
)
def test_overflow_follows_the_direction(values: Any, mode: str, expected: float) -> None:
    large = np.array([3e38, 3e38, INF, NAN], np.float32)
    np.testing.assert_array_equal(
        values(f"mul_{mode}", large, large), np.array([expected, expected, INF, NAN], np.float32)
    )
    np.testing.assert_array_equal(values(f"add_{mode}", large[:1], -large[:1]), [0.0])
    assert np.signbit(values(f"add_{mode}", large[:1], -large[:1]))[0] == (mode == "rd")


@pytest.mark.parametrize(("name", "sign"), [("add_rd", -1), ("sub_rd", 1), ("fma_rd", -1)])
def test_a_sum_that_is_no_number_is_no_zero(values: Any, name: str, sign: int) -> None:
    """Rounded down a sum that cancels is -0.0; infinities do not cancel."""
    infinite = np.array([INF, -INF, NAN, INF], np.float32)
    operands = (
        (infinite, np.ones(4, np.float32), sign * infinite)
        if name == "fma_rd"
        else (infinite, sign * infinite)
    )
    assert np.isnan(values(name, *operands)).all()


@pytest.mark.parametrize("type_", [np.float32, np.float64])
def test_powers_next_to_the_largest_number_are_finite(values: Any, type_: Any) -> None:
    """The logarithm of the result, rounded, is beyond where the exponential overflows; the result
    is not."""
    mp = pytest.importorskip("mpmath")
    mp.mp.prec = 200
    largest = np.finfo(type_).max
    tops = largest * (1 - np.arange(64).astype(type_) * np.finfo(type_).eps)
    less = type_(1 - 4 * np.finfo(type_).eps)
    x = np.concatenate([tops, -tops, np.sqrt(tops) * less, np.cbrt(tops) * less]).astype(type_)
    y = np.repeat([1, 1, 2, 3], 64).astype(type_)
    found = values("pow", x, y)
    assert np.isfinite(found).all()
    for base, exponent, value in zip(x.tolist(), y.tolist(), found, strict=True):
        exact = mp.mpf(base) ** mp.mpf(exponent)
        assert abs(float(value) - exact) <= mp.mpf(float(largest)) * float(
            np.finfo(type_).eps
        )  # 2 ULP of the largest numbers
    past = np.sqrt(largest) * type_(1 + 4 * np.finfo(type_).eps)
    np.testing.assert_array_equal(
        values("pow", np.array([past, -past, -largest], type_), np.array([2, 3, 1.5], type_)),
        [INF, -INF, NAN],
    )
