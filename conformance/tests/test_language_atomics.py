"""Atomic updates, reads and writes on CPU and GPU: every kind and type, masks, orders and scopes, programs that meet, locks and messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl

Run = Callable[..., None]

WIDE = ["int32", "uint32", "int64", "uint64"]
TYPES = {
    "add": [*WIDE, "float16", "bfloat16", "float32", "float64"],
    "max": [*WIDE, "float32", "float64"],
    "min": [*WIDE, "float32", "float64"],
    "and": WIDE,
    "or": WIDE,
    "xor": WIDE,
}
COMBINE: dict[str, Any] = {"add": np.add, "max": np.maximum, "min": np.minimum, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
ORDERS = [None, "acquire", "release", "acq_rel", "relaxed"]
SCOPES = [None, "gpu", "cta", "sys"]


def numbers(dtype: str, *shape: int, seed: int = 0) -> Any:
    """Small whole numbers, whose sums are exact in every type and in any order."""
    low = 0 if dtype[0] == "u" else -9
    values = np.random.default_rng(seed).integers(low, 9, shape)
    return values.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


@tw.jit
def update(target, values, old, count, KIND: tl.constexpr, SEM: tl.constexpr, SCOPE: tl.constexpr, BLOCK: tl.constexpr):
    """Every program adds its row to the targets, each of which many programs share; program 0 of each also keeps what it found."""
    at = tl.arange(0, BLOCK)
    pid = tl.program_id(0)
    x = tl.load(values + pid * BLOCK + at)
    mask = at < count
    if KIND == "add":
        tl.atomic_add(target + at, x, mask, SEM, SCOPE)
    elif KIND == "max":
        tl.atomic_max(target + at, x, mask, sem=SEM, scope=SCOPE)
    elif KIND == "min":
        tl.atomic_min(target + at, x, mask, sem=SEM, scope=SCOPE)
    elif KIND == "and":
        tl.atomic_and(target + at, x, mask, sem=SEM, scope=SCOPE)
    elif KIND == "or":
        tl.atomic_or(target + at, x, mask, sem=SEM, scope=SCOPE)
    else:
        tl.atomic_xor(target + at, x, mask, sem=SEM, scope=SCOPE)
    # A row of its own, whose old values are known.
    found = tl.atomic_add(old + pid * BLOCK + at, 1, mask, SEM, SCOPE)
    tl.atomic_xchg(old + pid * BLOCK + at, found + 40, mask)


@pytest.mark.parametrize(("kind", "dtype"), [(kind, dtype) for kind, dtypes in TYPES.items() for dtype in dtypes])
def test_programs_update_one_row(launch: Run, kind: str, dtype: str) -> None:
    programs, block, count = 7, 32, 27
    index = list(TYPES).index(kind) + TYPES[kind].index(dtype)
    target, values = numbers(dtype, block, seed=index), numbers(dtype, programs, block, seed=index + 50)
    wanted = target.copy()
    wanted[:count] = COMBINE[kind].reduce(np.concatenate([target[None], values]).astype(np.float64 if "float" in dtype else dtype), axis=0)[:count]
    old = np.arange(programs * block, dtype=np.int32).reshape(programs, block)
    options = {"KIND": kind, "SEM": ORDERS[index % 5], "SCOPE": SCOPES[index % 4], "BLOCK": block}
    launch(update, (programs,), target, values, old, count, **options)
    assert np.array_equal(target, wanted)
    before = np.arange(programs * block).reshape(programs, block)
    assert np.array_equal(old, before + np.where(np.arange(block) < count, 40, 0))


@tw.jit
def extremes(x, high, low):
    value = tl.load(x)
    tl.atomic_max(high, value)
    tl.atomic_min(low, value)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_negative_zero_is_below_zero(launch: Run, dtype: str) -> None:
    for first, value, highest, lowest in ((0.0, -0.0, 0.0, -0.0), (-0.0, 0.0, 0.0, -0.0), (-np.inf, -0.0, -0.0, -np.inf), (np.inf, -1.5, np.inf, -1.5)):
        high, low = np.array([first], dtype), np.array([first], dtype)
        launch(extremes, (1,), np.array([value], dtype), high, low)
        for found, wanted in ((high[0], highest), (low[0], lowest)):
            assert found == wanted and np.signbit(found) == np.signbit(wanted)


@tw.jit
def swap(target, compare, value, old, SEM: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(old + at, tl.atomic_cas(target + at, tl.load(compare + at), tl.load(value + at), sem=SEM))


@pytest.mark.parametrize("sem", ORDERS)
@pytest.mark.parametrize("dtype", ["int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "bfloat16", "float32", "float64"])
def test_compare_and_swap(launch: Run, dtype: str, sem: str | None) -> None:
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    rng = np.random.default_rng(5)
    target, compare = (rng.integers(0, 3, 32).astype(kind) for _ in range(2))
    value, old, before = rng.integers(10, 90, 32).astype(kind), np.zeros(32, kind), target.copy()
    launch(swap, (2,), target, compare, value, old, SEM=sem, BLOCK=16)
    assert np.array_equal(old, before)
    assert np.array_equal(target, np.where(before == compare, value, before))


@tw.jit
def guarded(data, lock, BLOCK: tl.constexpr):
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    at = tl.arange(0, BLOCK)
    tl.store(data + at, tl.load(data + at) * 3 + 1)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


def test_a_lock_lets_one_program_in(launch: Run) -> None:
    data, lock = np.zeros(128, np.int32), np.zeros(1, np.int32)
    launch(guarded, (18,), data, lock, BLOCK=128)
    assert (data == (3**18 - 1) // 2).all()
    assert not lock.any()


# -- reads and writes ---------------------------------------------------------------------------------------------------------------------------------


@tw.jit
def copy(x, out, count, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    value = tl.atomic_load(x + at, mask=at < count)
    tl.static_assert(value.dtype == x.dtype.element_ty)
    tl.atomic_store(out + at, value, mask=at < count)
    tl.atomic_store(out + BLOCK, tl.atomic_load(x, sem="relaxed", scope="sys"), sem="relaxed", scope="cta")
    (out + BLOCK + 1).atomic_store((x + 1).atomic_load(scope="gpu"), scope="sys")


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int16", "uint16", *WIDE, "float16", "bfloat16", "float32", "float64"])
def test_elements_are_read_and_written_whole(launch: Run, dtype: str) -> None:
    x = numbers("uint8", 32).astype(bool) if dtype == "bool" else numbers(dtype, 32)
    out = np.zeros(34, x.dtype)
    launch(copy, (1,), x, out, 29, BLOCK=32)
    assert np.array_equal(out, np.concatenate([x[:29], np.zeros(3, x.dtype), x[:2]]))


@tw.jit
def message(flag, data, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    pid = tl.program_id(0)
    if pid == 0:
        tl.store(data + at, at * 3 + 1)
        tl.atomic_store(flag, 1)
    else:
        seen = tl.atomic_poll(flag, 1)
        tl.store(out + pid * BLOCK + at, tl.load(data + at) * seen.to(tl.int32))


def test_what_was_stored_before_a_release_is_seen_after_an_acquire(launch: Run) -> None:
    flag, data, out = np.zeros(1, np.int32), np.zeros(64, np.int32), np.zeros((5, 64), np.int32)
    launch(message, (5,), flag, data, out, BLOCK=64)
    assert np.array_equal(out[1:], np.broadcast_to(np.arange(64) * 3 + 1, (4, 64)))


@tw.jit
def poll(flags, seen, TIMEOUT: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    found = tl.atomic_poll(flags + at, at + 1, timeout_ns=TIMEOUT)
    tl.static_assert(found.dtype == tl.int1)
    tl.store(seen + at, found)
    tl.store(seen + BLOCK, tl.atomic_poll(flags, 1, sem="relaxed", scope="sys"))
    tl.store(seen + BLOCK + 1, (flags + 1).atomic_poll(-7, timeout_ns=1000))


@pytest.mark.parametrize("timeout", [None, 0, 200_000])
def test_waiting_ends_with_the_value_or_the_time(launch: Run, timeout: int | None) -> None:
    flags, seen = np.arange(1, 17, dtype=np.int32), np.zeros(18, np.int8)
    if timeout is not None:
        flags[3::4] = 99
    launch(poll, (1,), flags, seen, TIMEOUT=timeout, BLOCK=16)
    assert list(seen) == [*(flags == np.arange(1, 17)), 1, 0]
