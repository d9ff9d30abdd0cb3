"""Rules of users that are not finite in masked-off lanes do not spoil gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.derivatives import masked_off_rules

ROWS, COLUMNS, R, C = 3, 5, 4, 8


@tw.custom_vjp
def scaled_log(x, w):
    return tl.log(x) * w


@scaled_log.vjp
def scaled_log_vjp(x, w, y, dy):
    return dy * w / x, dy * tl.log(x)


@scaled_log.jvp
def scaled_log_jvp(x, w, y, dx, dw):
    return dx * w / x + dw * tl.log(x)


@tw.custom_vjp
def normalized(x, w):
    """Divide rows by their sums."""
    return x * w / tl.expand_dims(tl.sum(x, axis=1), 1)


@normalized.vjp
def normalized_vjp(x, w, y, dy):
    total = tl.expand_dims(tl.sum(x, axis=1), 1)
    inner = tl.expand_dims(tl.sum(dy * y, axis=1), 1)
    return (dy * w - inner) / total, dy * x / total


@tw.custom_vjp
def mirrored(x, w):
    return tl.flip(x * w, 1)


@mirrored.vjp
def mirrored_vjp(x, w, y, dy):
    back = tl.flip(dy, 1)
    return back * w * x / x, back * x * x / x


@tw.custom_vjp
def pulled(x, w):
    return x * w


@pulled.vjp
def pulled_vjp(x, w, y, dy):
    """Not linear in ``dy``: pulls x to zero."""
    return dy * w + 0.1 * x + 0.0 / (1 + x * x), dy * x / (x * x + 1e-30)


@tw.custom_vjp
def root(x, w):
    return tl.sqrt(x) * w


@root.jvp
def root_jvp(x, w, y, dx, dw):
    return dx * w / (2 * tl.sqrt(x)) + dw * tl.sqrt(x)


@tw.jit
def kernel(
    x, w, out, rows, columns, F: tl.constexpr, SUM: tl.constexpr, R: tl.constexpr, C: tl.constexpr
):
    row = tl.program_id(0) * R + tl.arange(0, R)[:, None]
    column = tl.arange(0, C)[None, :]
    mask = (row < rows) & (column < columns)
    value = tl.load(x + row * columns + column, mask=mask, other=0.0)
    weight = tl.broadcast_to(tl.load(w), (R, C))
    y = F(value, weight)
    if SUM:
        tl.store(out + row, tl.expand_dims(tl.sum(y, axis=1), 1), mask=row < rows)
    else:
        tl.store(out + row * columns + column, y, mask=mask)


def gradients(function: Any, programs: int = 1) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(0)
    x, d_out = (rng.uniform(0.5, 2, (ROWS, COLUMNS)) for _ in range(2))
    w, d_w, d_x = np.array([1.5]), np.full(1, np.nan), np.full_like(x, np.nan)
    adjoint = tw.vjp(kernel, outputs="out", wrt=("x", "w"))
    arguments = (x, w, np.empty_like(x), ROWS, COLUMNS, function, False, R, C)
    with tw.backend("reference"), np.errstate(all="ignore"):
        adjoint[(programs,)](*arguments, d_out=d_out, d_x=d_x, d_w=d_w)
    return x, d_out, d_x, d_w


def check_log() -> None:
    x, d_out, d_x, d_w = gradients(scaled_log)
    np.testing.assert_allclose(d_x, d_out * 1.5 / x, rtol=1e-12)
    np.testing.assert_allclose(d_w, (d_out * np.log(x)).sum(), rtol=1e-12)


def test_a_lane_is_zero_where_its_cotangents_are() -> None:
    check_log()


def test_a_row_is_zero_where_the_cotangents_of_the_row_are() -> None:
    """The columns that are masked off in the other rows have finite cotangents of their own."""
    x, d_out, d_x, d_w = gradients(normalized)
    total = x.sum(1, keepdims=True)
    inner = (d_out * x * 1.5 / total).sum(1, keepdims=True)
    np.testing.assert_allclose(d_x, (d_out * 1.5 - inner) / total, rtol=1e-12)
    np.testing.assert_allclose(d_w, (d_out * x / total).sum(), rtol=1e-12)


def test_a_program_without_cotangents_is_zero_whatever_mixes_its_lanes() -> None:
    """The second program's lanes are masked off; the first has some of them, which spoil it."""
    *_, d_w = gradients(mirrored)
    assert np.isnan(d_w).all()
    x = np.ones((R, C))
    d_w, d_x = np.full(1, np.nan), np.full_like(x, np.nan)
    adjoint = tw.vjp(kernel, outputs="out", wrt=("x", "w"))
    with tw.backend("reference"), np.errstate(all="ignore"):
        arguments = (x, np.array([1.5]), np.empty_like(x), R, C, mirrored, False, R, C)
        adjoint[(2,)](*arguments, d_out=np.ones_like(x), d_x=d_x, d_w=d_w)
    np.testing.assert_allclose(d_x, 1.5)
    np.testing.assert_allclose(d_w, R * C)


def test_finite_derivatives_stay_where_cotangents_are_zero() -> None:
    x = np.ones((ROWS, COLUMNS))
    d_x, d_w = np.full_like(x, np.nan), np.full(1, np.nan)
    adjoint = tw.vjp(kernel, outputs="out", wrt=("x", "w"))
    with tw.backend("reference"):
        arguments = (x, np.array([1.5]), np.empty_like(x), ROWS, COLUMNS, pulled, False, R, C)
        adjoint[(1,)](*arguments, d_out=np.zeros_like(x), d_x=d_x, d_w=d_w)
    np.testing.assert_allclose(d_x, 0.1)


def test_tangents_are_zero_in_masked_off_lanes() -> None:
    """The root of zero is zero, and its slope infinite: the sum over the row is finite."""
    x = np.random.default_rng(1).uniform(0.5, 2, (ROWS, COLUMNS))
    tangent, along = np.empty(ROWS), np.ones_like(x)
    forward = tw.jvp(kernel, inputs="x", outputs="out")
    with tw.backend("reference"), np.errstate(all="ignore"):
        arguments = (x, np.array([1.5]), np.empty(ROWS), ROWS, COLUMNS, root, True, R, C)
        forward[(1,)](*arguments, t_x=along, t_out=tangent)
    np.testing.assert_allclose(tangent, (0.75 / np.sqrt(x)).sum(1), rtol=1e-12)


def test_rules_that_are_taken_as_they_are_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masked_off_rules, "_strict", lambda b, value, is_zero: value)
    with pytest.raises(AssertionError, match="nan"):
        check_log()


def test_lanes_that_a_rule_sums_over_are_not_taken_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients of lanes without a cotangent are not zero, but infinite as the row's are."""
    lanes = masked_off_rules._DependentLanes
    x, cotangent = np.zeros((R, C)), np.zeros((R, C))
    cotangent[:, 0] = 1.0

    def slope() -> np.ndarray:
        d_x = np.full_like(x, np.nan)
        adjoint = tw.vjp(kernel, outputs="out", wrt="x")
        with tw.backend("reference"), np.errstate(all="ignore"):
            arguments = (x, np.ones(1), np.empty_like(x), R, C, normalized, False, R, C)
            adjoint[(1,)](*arguments, d_out=cotangent, d_x=d_x)
        return d_x

    assert not np.isfinite(slope()).any()
    monkeypatch.setattr(
        lanes, "of", classmethod(lambda cls, *functions: lanes((R, C), frozenset()))
    )
    assert np.isfinite(slope()).any()
