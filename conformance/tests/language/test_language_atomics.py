"""Atomic operations without the barriers and times that the suite's cases have: locks and messages
alone keep order, and waiting has no end but the value."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import tilewright as tw
import tilewright.language as tl

Run = Callable[..., None]


@tw.jit
def guarded(data, lock, BLOCK: tl.constexpr):
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    at = tl.arange(0, BLOCK)
    tl.store(data + at, tl.load(data + at) * 3 + 1)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


def test_a_lock_lets_one_program_in(launch: Run) -> None:
    """The swap that takes the lock comes before the loads behind it."""
    data, lock = np.zeros(128, np.int32), np.zeros(1, np.int32)
    launch(guarded, (18,), data, lock, BLOCK=128)
    assert (data == (3**18 - 1) // 2).all()
    assert not lock.any()


@tw.jit
def message(flag, data, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    pid = tl.program_id(0)
    if pid == 0:
        tl.store(data + at, at * 3 + 1)
        flag.atomic_store(1)
    else:
        seen = flag.atomic_poll(1)
        tl.store(out + pid * BLOCK + at, tl.load(data + at) * seen.to(tl.int32))


def test_what_was_stored_before_a_release_is_seen_after_an_acquire(launch: Run) -> None:
    flag, data, out = np.zeros(1, np.int32), np.zeros(64, np.int32), np.zeros((5, 64), np.int32)
    launch(message, (5,), flag, data, out, BLOCK=64)
    assert np.array_equal(out[1:], np.broadcast_to(np.arange(64) * 3 + 1, (4, 64)))


@tw.jit
def hand_on(flags, order, BLOCK: tl.constexpr):
    """Each program waits for a row of flags, all set by the program before it, and sets those of
    the next."""
    at = tl.arange(0, BLOCK)
    pid = tl.program_id(0)
    row = flags + pid * BLOCK + at
    found = tl.atomic_poll(row, at + pid)
    tl.static_assert(found.dtype == tl.int1)
    tl.store(order + pid * BLOCK + at, found)
    (row + BLOCK).atomic_store(row.atomic_load() + 1)


def test_waiting_for_a_whole_tile(launch: Run) -> None:
    programs, block = 6, 16
    flags, order = (
        np.full((programs + 1, block), -1, np.int32),
        np.zeros((programs, block), np.int8),
    )
    flags[0] = np.arange(block)
    launch(hand_on, (programs,), flags, order, BLOCK=block)
    assert order.all()
    assert np.array_equal(flags, np.arange(block) + np.arange(programs + 1)[:, None])
