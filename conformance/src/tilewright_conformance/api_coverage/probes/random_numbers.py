"""Random numbers: Philox-4x32 of the paper, in NumPy, bit by bit."""

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


def philox_words(seed: int, counter: Any, rounds: int = 10) -> Any:
    """The four words for each 64-bit counter, ``[4, n]`` uint32 (J. Salmon et al., SC 2011)."""
    mask = np.uint64(0xFFFFFFFF)
    wide = np.asarray(counter).astype(np.uint64)
    c = [wide & mask, wide >> np.uint64(32), np.zeros_like(wide), np.zeros_like(wide)]
    key = [seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF]
    for _ in range(rounds):
        a, b = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [
            (b >> np.uint64(32)) ^ c[1] ^ np.uint64(key[0]),
            b & mask,
            (a >> np.uint64(32)) ^ c[3] ^ np.uint64(key[1]),
            a & mask,
        ]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return np.stack(c).astype(np.uint32)


def uniform(words: Any) -> Any:
    """fp32 in [0, 1) of 32 random bits."""
    bits = words.astype(np.int32)
    return np.where(bits < 0, -bits - 1, bits).astype(np.float32) * np.float32(4.6566127342e-10)


def normal_pair(u1: Any, u2: Any) -> Any:
    """Two standard normal numbers of two uniform ones, in float64."""
    radius = np.sqrt(-2 * np.log(np.maximum(1e-7, u1.astype(float))))
    return radius * np.cos(2 * np.pi * u2), radius * np.sin(2 * np.pi * u2)


@tw.jit
def integers(out, seed, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, tl.randint(seed, at))
    a, b, c, d = tl.randint4x(seed, at.to(tl.int64) + 5000000000)
    tl.store(out + N + at, a)
    tl.store(out + 2 * N + at, b)
    tl.store(out + 3 * N + at, c)
    tl.store(out + 4 * N + at, d)


@probe("tl.randint", "tl.randint4x")
def randint(on: Machine, rng: Any) -> None:
    out, seed = np.zeros((5, 64), np.uint32), int(rng.integers(2**40))
    on(integers)[(1,)](out, seed, N=64)
    np.testing.assert_array_equal(out[0], philox_words(seed, np.arange(64))[0])
    np.testing.assert_array_equal(out[1:], philox_words(seed, np.arange(64) + 5000000000))


@tw.jit
def uniforms(out, seed, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, tl.rand(seed, at))
    a, b, c, d = tl.rand4x(seed, at)
    tl.store(out + N + at, a)
    tl.store(out + 2 * N + at, b)
    tl.store(out + 3 * N + at, c)
    tl.store(out + 4 * N + at, tl.uint_to_uniform_float(tl.randint4x(seed, at)[3]))
    tl.device_assert(d >= 0.0)


@probe("tl.rand", "tl.rand4x", "tl.uint_to_uniform_float")
def rand(on: Machine, rng: Any) -> None:
    out = np.zeros((5, 64), np.float32)
    on(uniforms)[(1,)](out, 1234, N=64)
    expected = uniform(philox_words(1234, np.arange(64)))
    np.testing.assert_array_equal(out, [expected[0], *expected])


@tw.jit
def normals(out, seed, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, tl.randn(seed, at))
    a, b, c, d = tl.randn4x(seed, at)
    tl.store(out + N + at, a)
    tl.store(out + 2 * N + at, b)
    tl.store(out + 3 * N + at, c)
    tl.store(out + 4 * N + at, d)
    u, v, _w, _x = tl.rand4x(seed, at)
    first, second = tl.pair_uniform_to_normal(u, v)
    tl.store(out + 5 * N + at, first)
    tl.store(out + 6 * N + at, second)


@probe("tl.randn", "tl.randn4x", "tl.pair_uniform_to_normal")
def randn(on: Machine, rng: Any) -> None:
    out = np.zeros((7, 64), np.float32)
    on(normals)[(1,)](out, 99, N=64)
    u = uniform(philox_words(99, np.arange(64)))
    a, b = normal_pair(u[0], u[1])
    c, d = normal_pair(u[2], u[3])
    np.testing.assert_allclose(out, [a, a, b, c, d, a, b], rtol=1e-5, atol=1e-5)


@tw.jit
def words(out, seed, N: tl.constexpr):
    at = tl.arange(0, N)
    zero = at * 0
    a, _b, _c, d = tl.philox(seed, at, zero, zero, zero)
    tl.store(out + at, a)
    tl.store(out + N + at, d)
    key = tl.full((N,), seed, tl.uint32)
    none = zero.to(tl.uint32)
    e, _f, _g, h = tl.philox_impl(at.to(tl.uint32), none, none, none, key, none, 6)
    tl.store(out + 2 * N + at, e)
    tl.store(out + 3 * N + at, h)


@probe("tl.philox", "tl.philox_impl")
def philox(on: Machine, rng: Any) -> None:
    out, seed = np.zeros((4, 64), np.uint32), int(rng.integers(2**31))
    on(words)[(1,)](out, seed, N=64)
    np.testing.assert_array_equal(out[:2], philox_words(seed, np.arange(64))[[0, 3]])
    np.testing.assert_array_equal(out[2:], philox_words(seed, np.arange(64), 6)[[0, 3]])
