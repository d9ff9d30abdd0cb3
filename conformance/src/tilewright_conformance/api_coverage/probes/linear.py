"""Matmuls."""

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
def matmul(a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, PRECISION: tl.constexpr):
    i, j, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    x = tl.load(a + i[:, None] * K + k[None, :])
    y = tl.load(b + k[:, None] * N + j[None, :])
    acc = tl.load(c + i[:, None] * N + j[None, :])
    tl.store(c + i[:, None] * N + j[None, :], tl.dot(x, y, acc, input_precision=PRECISION))


@probe("tl.dot")
def dot(on: Machine, rng: Any) -> None:
    for dtype, result in (
        (np.float32, np.float32),
        (np.float16, np.float32),
        (np.float64, np.float64),
        (np.int8, np.int32),
    ):
        a, b = (rng.integers(-4, 5, shape).astype(dtype) for shape in ((16, 32), (32, 16)))
        c = rng.integers(-4, 5, (16, 16)).astype(result)
        expected = a.astype(float) @ b.astype(float) + c
        on(matmul)[(1,)](a, b, c, M=16, N=16, K=32, PRECISION="ieee")
        np.testing.assert_array_equal(c, expected)  # small integers: exact in every type


@tw.jit
def batches(a, b, c, B: tl.constexpr, M: tl.constexpr):
    at = (
        tl.arange(0, B)[:, None, None] * M * M
        + tl.arange(0, M)[None, :, None] * M
        + tl.arange(0, M)[None, None, :]
    )
    tl.store(c + at, tl.dot(tl.load(a + at), tl.load(b + at)))


@probe("tl.dot")
def batched_dot(on: Machine, rng: Any) -> None:
    a, b = (rng.standard_normal((4, 16, 16), dtype=np.float32).astype(np.float16) for _ in range(2))
    c = np.zeros((4, 16, 16), np.float32)
    on(batches)[(1,)](a, b, c, B=4, M=16)
    np.testing.assert_allclose(c, a.astype(float) @ b.astype(float), rtol=1e-4, atol=1e-4)


@tw.jit
def scaled_matmul(a, a_scale, b, b_scale, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    i, j, k, half, group = (
        tl.arange(0, M),
        tl.arange(0, N),
        tl.arange(0, K),
        tl.arange(0, K // 2),
        tl.arange(0, K // 32),
    )
    x = tl.load(a + i[:, None] * K + k[None, :])
    y = tl.load(b + half[:, None] * N + j[None, :])
    x_scale = tl.load(a_scale + i[:, None] * (K // 32) + group[None, :])
    y_scale = tl.load(b_scale + j[:, None] * (K // 32) + group[None, :])
    tl.store(c + i[:, None] * N + j[None, :], tl.dot_scaled(x, x_scale, "e4m3", y, y_scale, "e2m1"))


def e4m3(bits: Any) -> Any:
    """The values of fp8 e4m3 without NaN."""
    sign, exponent, mantissa = bits >> 7, (bits >> 3) & 15, bits & 7
    return (1 - 2.0 * sign) * np.where(
        exponent > 0, (1 + mantissa / 8) * 2.0 ** (exponent - 7.0), mantissa / 8 * 2.0**-6
    )


@probe("tl.dot_scaled", feature="dot_scaled")
def dot_scaled(on: Machine, rng: Any) -> None:
    m, n, k = 32, 16, 64
    a = rng.integers(0, 256, (m, k)).astype(np.uint8)
    a[(a & 127) == 127] = 0  # NaN
    b = rng.integers(0, 256, (k // 2, n)).astype(np.uint8)
    a_scale, b_scale = (
        rng.integers(120, 135, (extent, k // 32)).astype(np.uint8) for extent in (m, n)
    )
    c = np.zeros((m, n), np.float32)
    on(scaled_matmul)[(1,)](a, a_scale, b, b_scale, c, M=m, N=n, K=k)
    e2m1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])
    y = np.stack([e2m1[b & 15], e2m1[b >> 4]], axis=1).reshape(k, n)
    x = e4m3(a.astype(int)) * 2.0 ** (np.repeat(a_scale, 32, 1) - 127.0)
    expected = x @ (y * 2.0 ** (np.repeat(b_scale, 32, 1).T - 127.0))
    np.testing.assert_allclose(c, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())
