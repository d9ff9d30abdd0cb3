"""Philox against an implementation in Python integers, NumPy's own, and the test vectors of its
authors' Random123 library."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import tilewright.language as tl
from tilewright.language.definitions.callable import device_function as jit
from tilewright.language.options import Options

CONSTANTS = {
    32: (0xD2511F53, 0xCD9E8D57, 0x9E3779B9, 0xBB67AE85),
    64: (0xD2E7470EE14C6C93, 0xCA5A826395121157, 0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B),
}


def philox(
    counter: Sequence[int], key: Sequence[int], bits: int = 32, rounds: int = 10
) -> list[int]:
    """Philox-4x as its paper defines it."""
    mask = (1 << bits) - 1
    ma, mb, wa, wb = CONSTANTS[bits]
    (c0, c1, c2, c3), (k0, k1) = counter, key
    for _ in range(rounds):
        a, b = ma * c0, mb * c2
        c0, c1, c2, c3 = (b >> bits) ^ c1 ^ k0, b & mask, (a >> bits) ^ c3 ^ k1, a & mask
        k0, k1 = (k0 + wa) & mask, (k1 + wb) & mask
    return [c0, c1, c2, c3]


# counter, key, output: from the known-answer tests of Random123.
VECTORS = [
    ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    (
        [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
        [0xA4093822, 0x299F31D0],
        [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
    ),
]


@jit
def philox_kernel(counter, key, out, ROUNDS: tl.constexpr):
    c0, c1, c2, c3 = (
        tl.load(counter),
        tl.load(counter + 1),
        tl.load(counter + 2),
        tl.load(counter + 3),
    )
    r0, r1, r2, r3 = tl.philox_impl(c0, c1, c2, c3, tl.load(key), tl.load(key + 1), ROUNDS)
    tl.store(out, r0)
    tl.store(out + 1, r1)
    tl.store(out + 2, r2)
    tl.store(out + 3, r3)


@pytest.mark.parametrize(("counter", "key", "expected"), VECTORS)
def test_published_vectors(
    run: Callable[..., None], counter: list[int], key: list[int], expected: list[int]
) -> None:
    assert philox(counter, key) == expected
    out = np.zeros(4, np.uint32)
    run(philox_kernel, np.array(counter, np.uint32), np.array(key, np.uint32), out, ROUNDS=10)
    assert list(out) == expected


@pytest.mark.parametrize("rounds", [1, 6, 10])
def test_64_bit_words(run: Callable[..., None], rounds: int) -> None:
    rng = np.random.default_rng(rounds)
    counter, key = (
        rng.integers(0, 2**64, 4, dtype=np.uint64),
        rng.integers(0, 2**64, 2, dtype=np.uint64),
    )
    out = np.zeros(4, np.uint64)
    run(philox_kernel, counter, key, out, ROUNDS=rounds)
    words = philox([int(c) for c in counter], [int(k) for k in key], 64, rounds)
    assert [int(word) for word in out] == words
    if rounds == 10:
        # NumPy's generator takes the counter one on.
        start = (sum(int(c) << (64 * i) for i, c in enumerate(counter)) - 1) % (1 << 256)
        generator = np.random.Philox(counter=start, key=int(key[0]) | int(key[1]) << 64)
        assert list(generator.random_raw(4)) == words


@jit
def words_kernel(out, seed, offset, N: tl.constexpr, ROUNDS: tl.constexpr):
    i = tl.arange(0, N)
    a, b, c, d = tl.randint4x(seed, offset + i, ROUNDS)
    tl.store(out + i * 4, a)
    tl.store(out + i * 4 + 1, b)
    tl.store(out + i * 4 + 2, c)
    tl.store(out + i * 4 + 3, d)
    tl.static_assert(a.dtype == tl.uint32)


@pytest.mark.each_value
@pytest.mark.parametrize("rounds", [10, 7])
@pytest.mark.parametrize("seed", [0, 42, -1, 2**31 - 1, (0xDEAD << 32) + 0xBEEF, -(2**63)])
@pytest.mark.parametrize("offset", [0, 1000, -8, 2**31 - 16, 2**40 + 7, -(2**62)])
def test_words_of_seeds_and_offsets(
    run: Callable[..., None], seed: int, offset: int, rounds: int
) -> None:
    out = np.zeros((16, 4), np.uint32)
    run(words_kernel, out, seed, offset, N=16, ROUNDS=rounds)
    mask = 0xFFFFFFFF
    for i in range(16):
        place = offset + i
        high = (place >> 32) & mask if not -(2**31) <= offset < 2**31 else 0
        assert [int(word) for word in out[i]] == philox(
            [place & mask, high, 0, 0], [seed & mask, (seed >> 32) & mask], rounds=rounds
        )


@jit
def floats_kernel(out, seed, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, tl.rand(seed, i))
    tl.store(out + N + i, tl.randn(seed, i))
    tl.store(out + 2 * N + i, tl.rand4x(seed, i)[1])
    tl.store(out + 3 * N + i, tl.randn4x(seed, i)[3])
    tl.store(out + 4 * N + i, tl.uint_to_uniform_float(tl.randint(seed, i)))


def uniform(words: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    signed = words.astype(np.uint32).view(np.int32)
    return np.where(signed < 0, ~signed, signed).astype(np.float32) * np.float32(4.6566127342e-10)


def normal(u1: np.ndarray[Any, Any], u2: np.ndarray[Any, Any]) -> tuple[Any, Any]:
    radius = np.sqrt(-2.0 * np.log(np.maximum(u1.astype(np.float64), 1e-7)))
    return radius * np.cos(2 * np.pi * u2.astype(np.float64)), radius * np.sin(
        2 * np.pi * u2.astype(np.float64)
    )


def test_floats_are_bit_exact_functions_of_the_words(run: Callable[..., None]) -> None:
    n = 1024
    out = np.zeros((5, n), np.float32)
    run(floats_kernel, out, 1234, N=n)
    words = np.array([philox([i, 0, 0, 0], [1234, 0]) for i in range(n)])
    u = [uniform(words[:, i]) for i in range(4)]
    assert np.array_equal(out[0], u[0])
    assert np.array_equal(out[2], u[1])
    assert np.array_equal(out[4], u[0])
    assert np.allclose(out[1], normal(u[0], u[1])[0], rtol=1e-5, atol=2e-6)
    assert np.allclose(out[3], normal(u[2], u[3])[1], rtol=1e-5, atol=2e-6)
    assert out[0].min() >= 0 and out[0].max() < 1
    assert abs(out[0].mean() - 0.5) < 0.03
    assert abs(out[1].mean()) < 0.1 and abs(out[1].std() - 1) < 0.1


@jit
def extremes_kernel(x, out, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, tl.uint_to_uniform_float(tl.load(x + i)))


@pytest.mark.parametrize("dtype", ["uint32", "int32", "uint64", "int64"])
def test_uniform_floats_stay_below_one(run: Callable[..., None], dtype: str) -> None:
    bits = np.iinfo(dtype).bits
    patterns = [
        0,
        1,
        (1 << (bits - 1)) - 1,
        1 << (bits - 1),
        (1 << bits) - 1,
        (1 << (bits - 1)) + 1,
        3,
        (1 << (bits - 1)) - 64,
    ]
    x = np.array(patterns, f"uint{bits}").view(dtype)
    out = np.full(8, -1, np.float32)
    run(extremes_kernel, x, out, N=8)
    assert (out >= 0).all()
    assert (out < 1).all()
    assert out.max() > 0.999


@jit
def constant_seed_kernel(out, SEED: tl.constexpr):
    tl.store(out + tl.arange(0, 4), tl.randint(SEED, tl.arange(0, 4)))


def test_constant_seeds(run: Callable[..., None]) -> None:
    out = np.zeros(4, np.uint32)
    run(constant_seed_kernel, out, SEED=(7 << 32) + 5)
    assert [int(word) for word in out] == [philox([i, 0, 0, 0], [5, 7])[0] for i in range(4)]


@jit
def narrow_counter_kernel(x):
    tl.philox(1, tl.load(x), 0, 0, 0)


def test_narrow_counters_are_refused(run: Callable[..., None]) -> None:
    from tilewright.errors import CompilationError

    with pytest.raises(CompilationError, match="philox works on 32 or 64-bit counters"):
        run(narrow_counter_kernel, np.zeros(1, np.int16))


@jit
def every_draw_kernel(out, seed, N: tl.constexpr):
    offsets = tl.arange(0, N)
    tl.store(
        out + offsets,
        tl.rand(seed, offsets)
        + tl.randn(seed, offsets)
        + tl.rand(seed, offsets.to(tl.int64) * 1000003),
    )


def test_the_check_for_overflow_leaves_philox_alone(run: Callable[..., None]) -> None:
    plain, checked = np.zeros(64, np.float32), np.zeros(64, np.float32)
    run(every_draw_kernel, plain, 2**31 - 5, N=64)
    run(every_draw_kernel, checked, 2**31 - 5, N=64, options=Options(debug=True))
    np.testing.assert_array_equal(checked, plain)
