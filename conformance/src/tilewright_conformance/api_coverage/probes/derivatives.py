"""Derivatives of kernels."""

# Kernels are typed by the compiler, call by call; to Python they are untyped.
# mypy: ignore-errors
# ruff: noqa: N803

from __future__ import annotations

from typing import Any

import numpy as np

import tilewright as tw
import tilewright.language as tl
from tilewright_conformance.api_coverage.machines import Machine
from tilewright_conformance.api_coverage.probe import probe


@tw.jit
def weighted_square(x, w, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n)
    tl.store(out + at, v * v * tl.load(w + at, mask=at < n), mask=at < n)


@tw.jit
def doubled_in_place(x, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    v = tl.load(x + at)
    tl.store(x + at, 2 * v)
    tl.store(out + at, v * v)


@tw.custom_vjp
def rounded(x):
    return tl.floor(x + 0.5)


@tw.jit
def twice_the_cotangent(x, y, dy):
    return 2 * dy


@tw.jit
def rounded_times_constant(x, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    v = tl.load(x + at)
    tl.store(out + at, rounded(v) * tl.stop_gradient(v))


@probe("tl.stop_gradient")
def constants_to_derivatives(on: Machine, rng: Any) -> None:
    x, out = rng.standard_normal(32, dtype=np.float32), np.empty(32, np.float32)
    on(rounded_times_constant)[(1,)](x, out, BLOCK=32)
    np.testing.assert_allclose(out, np.floor(x + 0.5) * x, rtol=1e-5)


@probe("tilewright.custom_vjp", host=True)
def derivatives_of_their_own(on: Machine, rng: Any) -> None:
    x, cotangent = (rng.standard_normal(32, dtype=np.float32) for _ in range(2))
    out, dx = (np.empty_like(x) for _ in range(2))
    rounded.vjp(twice_the_cotangent)  # or as a decorator of the rule: @rounded.vjp
    adjoint = tw.vjp(rounded_times_constant, outputs="out", wrt="x")
    with tw.backend("reference"):
        adjoint[(1,)](x, out, BLOCK=32, d_out=cotangent, d_x=dx)
    np.testing.assert_allclose(dx, 2 * x * cotangent, rtol=1e-5)


@probe("tilewright.vjp", host=True)
def gradients(on: Machine, rng: Any) -> None:
    x, w, cotangent = (rng.standard_normal(100, dtype=np.float32) for _ in range(3))
    out, dx, dw = (np.empty_like(x) for _ in range(3))
    adjoint = tw.vjp(weighted_square, outputs="out", wrt=("x", "w"))
    with tw.backend("reference"):
        adjoint[(4,)](x, w, out, 100, BLOCK=32, d_out=cotangent, d_x=dx, d_w=dw)
    np.testing.assert_allclose(dx, 2 * x * w * cotangent, rtol=1e-5)
    np.testing.assert_allclose(dw, x * x * cotangent, rtol=1e-5)


@probe("tilewright.jvp", host=True)
def tangents(on: Machine, rng: Any) -> None:
    x, w, t_x = (rng.standard_normal(100, dtype=np.float32) for _ in range(3))
    out, t_out = (np.empty_like(x) for _ in range(2))
    forward = tw.jvp(weighted_square, inputs="x", outputs="out")
    with tw.backend("reference"):
        forward[(4,)](x, w, out, 100, BLOCK=32, t_x=t_x, t_out=t_out)
    np.testing.assert_allclose(out, x * x * w, rtol=1e-5)
    np.testing.assert_allclose(t_out, 2 * x * w * t_x, rtol=1e-5)


@probe("tilewright.DerivativeError", host=True)
def kernels_without_a_derivative(on: Machine, rng: Any) -> None:
    x, out, d_out, d_x = (np.ones(32, np.float32) for _ in range(4))
    adjoint = tw.vjp(doubled_in_place, outputs="out", wrt="x")
    try:
        adjoint[(1,)](x, out, BLOCK=32, d_out=d_out, d_x=d_x)
    except tw.DerivativeError as error:
        assert "reads x" in error.reason
        assert "write the result to another array" in error.remedy
    else:
        raise AssertionError("a kernel that reads what it overwrites has no derivative")
