"""Atomic updates: many programs, one place."""

# Kernels are typed by the compiler, call by call; to Python they are untyped.
# mypy: ignore-errors
# ruff: noqa: N803

from __future__ import annotations

from typing import Any

import numpy as np

import tilewright as tw
import tilewright.language as tl
from tilewright.errors import LoweringError
from tilewright_conformance.api_coverage.machines import Machine
from tilewright_conformance.api_coverage.probe import probe


@tw.jit
def column_totals(x, total, members, N: tl.constexpr):
    at = tl.arange(0, N)
    value = tl.load(x + tl.program_id(0) * N + at)
    tl.atomic_add(total + at, value, mask=value > 0, sem="relaxed", scope="gpu")
    (members + at).atomic_add(value)


@probe("tl.atomic_add", "tensor.atomic_add")
def atomic_add(on: Machine, rng: Any) -> None:
    x, total, members = (
        rng.integers(-99, 99, (37, 32)),
        np.zeros(32, np.int64),
        np.zeros(32, np.int64),
    )
    on(column_totals)[(37,)](x, total, members, N=32)
    np.testing.assert_array_equal(total, np.where(x > 0, x, 0).sum(0))
    np.testing.assert_array_equal(members, x.sum(0))


@tw.jit
def column_extrema(x, low, high, members, N: tl.constexpr):
    at = tl.arange(0, N)
    value = tl.load(x + tl.program_id(0) * N + at)
    tl.atomic_min(low + at, value)
    tl.atomic_max(high + at, value, sem="acquire", scope="sys")
    (members + at).atomic_min(value)
    (members + N + at).atomic_max(value)


@probe("tl.atomic_max", "tl.atomic_min", "tensor.atomic_max", "tensor.atomic_min")
def atomic_extrema(on: Machine, rng: Any) -> None:
    x = rng.standard_normal((37, 32), dtype=np.float32)
    low, high = np.full(32, np.inf, np.float32), np.full(32, -np.inf, np.float32)
    members = np.stack([low, high])
    on(column_extrema)[(37,)](x, low, high, members, N=32)
    np.testing.assert_array_equal([low, high], [x.min(0), x.max(0)])
    np.testing.assert_array_equal(members, [x.min(0), x.max(0)])


@tw.jit
def column_bits(x, both, either, odd, N: tl.constexpr):
    at = tl.arange(0, N)
    value = tl.load(x + tl.program_id(0) * N + at)
    tl.atomic_and(both + at, value)
    tl.atomic_or(either + at, value, sem="release")
    tl.atomic_xor(odd + at, value, scope="gpu")
    (both + N + at).atomic_and(value)
    (either + N + at).atomic_or(value)
    (odd + N + at).atomic_xor(value)


@probe(
    "tl.atomic_and",
    "tl.atomic_or",
    "tl.atomic_xor",
    "tensor.atomic_and",
    "tensor.atomic_or",
    "tensor.atomic_xor",
)
def atomic_bits(on: Machine, rng: Any) -> None:
    x = rng.integers(0, 2**31, (37, 32)).astype(np.int32)
    both, either, odd = (
        np.full((2, 32), -1, np.int32),
        np.zeros((2, 32), np.int32),
        np.zeros((2, 32), np.int32),
    )
    on(column_bits)[(37,)](x, both, either, odd, N=32)
    np.testing.assert_array_equal(both, [np.bitwise_and.reduce(x)] * 2)
    np.testing.assert_array_equal(either, [np.bitwise_or.reduce(x)] * 2)
    np.testing.assert_array_equal(odd, [np.bitwise_xor.reduce(x)] * 2)


@tw.jit
def hand_over(place, seen, member):
    tl.store(seen + tl.program_id(0), tl.atomic_xchg(place, tl.program_id(0)))
    member.atomic_xchg(tl.program_id(0))


@probe("tl.atomic_xchg", "tensor.atomic_xchg")
def atomic_xchg(on: Machine, rng: Any) -> None:
    place, seen, member = np.full(1, 50, np.int32), np.zeros(50, np.int32), np.full(1, -1, np.int32)
    on(hand_over)[(50,)](place, seen, member)
    # Every program's number is seen once: by the next one, or at the place at the end.
    np.testing.assert_array_equal(np.sort(np.append(seen, place)), np.arange(51))
    assert 0 <= member[0] < 50


@tw.jit
def count_under_a_lock(lock, counter, member):
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(counter, tl.load(counter) + 1)
    tl.atomic_xchg(lock, 0)
    member.atomic_cas(0, 5, sem="acq_rel")


@probe("tl.atomic_cas", "tensor.atomic_cas")
def atomic_cas(on: Machine, rng: Any) -> None:
    lock, counter, member = np.zeros(1, np.int32), np.zeros(1, np.int32), np.zeros(1, np.int32)
    on(count_under_a_lock)[(20,)](lock, counter, member)
    assert (lock[0], counter[0], member[0]) == (0, 20, 5)


@tw.jit
def signals(flag, out, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.atomic_store(flag + at, at * 3, mask=at < N - 1)
    tl.store(out + at, tl.atomic_load(flag + at, sem="acquire", scope="gpu"))
    (flag + at).atomic_store(at + 7, sem="relaxed")
    tl.store(out + N + at, (flag + at).atomic_load())
    tl.store(out + 2 * N, tl.atomic_poll(flag, 7))
    tl.store(out + 2 * N + 1, flag.atomic_poll(7))


@probe(
    "tl.atomic_load",
    "tl.atomic_store",
    "tl.atomic_poll",
    "tensor.atomic_load",
    "tensor.atomic_store",
    "tensor.atomic_poll",
)
def atomic_signals(on: Machine, rng: Any) -> None:
    flag, out = np.full(16, -1, np.int32), np.zeros(34, np.int32)
    on(signals)[(1,)](flag, out, N=16)
    i = np.arange(16)
    np.testing.assert_array_equal(out[:16], np.where(i < 15, 3 * i, -1))
    np.testing.assert_array_equal(out[16:32], i + 7)
    np.testing.assert_array_equal(out[32:], [1, 1])


@tw.jit
def waiting(flag, out):
    tl.store(out, tl.atomic_poll(flag, 7, timeout_ns=1000))
    tl.store(out + 1, flag.atomic_poll(8, timeout_ns=1000))


def _refuses_time_limits(on: Machine, rng: Any) -> None:
    try:
        on(waiting)[(1,)](np.full(1, 7, np.int32), np.zeros(2, np.int32))
    except LoweringError as error:
        assert "does not declare feature 'clock'" in str(error)
        return
    raise AssertionError("a time limit was accepted by a backend that does not declare a clock")


@probe("tl.atomic_poll", "tensor.atomic_poll", feature="clock", otherwise=_refuses_time_limits)
def time_limits(on: Machine, rng: Any) -> None:
    flag, out = np.full(1, 7, np.int32), np.zeros(2, np.int32)
    on(waiting)[(1,)](flag, out)
    np.testing.assert_array_equal(out, [1, 0])  # it was there; it did not come in time
