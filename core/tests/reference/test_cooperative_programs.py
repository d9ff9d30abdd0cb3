"""Programs of cooperative launches on the reference.

They are interleaved, so that they can wait for each other.
"""

import pickle
import threading

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.errors import KernelError, LaunchError, ResidencyError
from tilewright.reference.checks.checked_mode import CheckError

REFERENCE = {"backend": "reference", "cooperative": True}


@tw.jit
def shift(count, x, kept, out, ROUNDS: tl.constexpr, BLOCK: tl.constexpr):
    """Each round hands every block on to the next program, with a barrier of the grid between
    writes and reads."""
    p, n = tl.program_id(0), tl.num_programs(0)
    at = tl.arange(0, BLOCK)
    value = tl.load(x + p * BLOCK + at)
    for turn in range(ROUNDS):
        tl.store(kept + (turn * n + p) * BLOCK + at, value)
        tl.atomic_add(count, 1, sem="acq_rel")
        while tl.atomic_add(count, 0, sem="acquire") < (turn + 1) * n:
            pass
        value = tl.load(kept + (turn * n + (p + 1) % n) * BLOCK + at) + 1
    tl.store(out + p * BLOCK + at, value)


@tw.jit
def wait_for(flag, out, LATE: tl.constexpr):
    p = tl.program_id(0)
    if p == 0:
        while tl.load(flag, volatile=True) == 0:
            pass
    elif LATE:
        tl.store(flag, 1)
    tl.store(out + p, p + 1)


@tw.jit
def racy(flag, x, out, ORDERED: tl.constexpr):
    p = tl.program_id(0)
    if p == 0:
        tl.store(x, 7)
        tl.atomic_xchg(flag, 1, sem="release")
    else:
        if ORDERED:
            while tl.atomic_add(flag, 0, sem="acquire") == 0:
                pass
        tl.store(out, tl.load(x))


@tw.jit
def fail_late(count):
    tl.atomic_add(count, 1)
    while tl.load(count, volatile=True) < tl.num_programs(0):
        pass
    tl.device_assert(tl.program_id(0) != 2, "program 2 fails")
    while tl.load(count, volatile=True) < 100:
        pass


@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.parametrize("programs", [1, 2, 7])
def test_programs_meet_at_barriers_of_the_grid(programs, checked):
    x = np.random.default_rng(0).integers(-1000, 1000, (programs, 4)).astype(np.int32)
    count, kept, out = (
        np.zeros(1, np.int32),
        np.zeros((3, programs, 4), np.int32),
        np.full((programs, 4), -1, np.int32),
    )
    shift[(programs,)](count, x, kept, out, ROUNDS=3, BLOCK=4, checked=checked, **REFERENCE)
    np.testing.assert_array_equal(out, np.roll(x, -3, 0) + 3)


def test_a_program_waits_for_a_later_one_in_cooperative_launches_alone():
    flag, out = np.zeros(1, np.int32), np.zeros(3, np.int32)
    with pytest.raises(
        KernelError,
        match=(
            "programs that it may wait for run after this one, unless the launch has "
            "cooperative=True"
        ),
    ):
        wait_for[(3,)](flag, out, LATE=True, backend="reference")
    flag[:] = out[:] = 0
    wait_for[(3,)](flag, out, LATE=True, **REFERENCE)
    assert out.tolist() == [1, 2, 3]


def test_programs_that_wait_for_nobody_are_told():
    before = threading.active_count()
    with pytest.raises(
        KernelError,
        match=(
            "this loop never ends: no iteration changes anything, and all other programs wait as "
            "well, or have ended"
        ),
    ):
        wait_for[(3,)](np.zeros(1, np.int32), np.zeros(3, np.int32), LATE=False, **REFERENCE)
    assert threading.active_count() == before


def test_a_program_that_fails_ends_the_others():
    before = threading.active_count()
    with pytest.raises(KernelError, match="program 2 fails"):
        fail_late[(5,)](np.zeros(1, np.int32), debug=True, **REFERENCE)
    assert threading.active_count() == before


def test_the_checked_mode_sees_the_order_that_waiting_makes():
    for ordered in (True, False):
        flag, x, out = (np.zeros(1, np.int32) for _ in range(3))
        if ordered:
            racy[(2,)](flag, x, out, ORDERED=True, checked=True, **REFERENCE)
            assert out[0] == 7
        else:
            with pytest.raises(CheckError, match="race"):
                racy[(2,)](flag, x, out, ORDERED=False, checked=True, **REFERENCE)


def test_more_programs_than_threads_run_none(monkeypatch):
    start, begun = threading.Thread.start, []

    def limited(thread):
        if len(begun) == 3:
            raise RuntimeError("can't start new thread")
        begun.append(thread)
        start(thread)

    out = np.zeros(5, np.int32)
    monkeypatch.setattr(threading.Thread, "start", limited)
    with pytest.raises(
        ResidencyError, match=r"kernel wait_for: .* of the 5 of grid \(5, 1, 1\) 3 fit"
    ) as told:
        wait_for[(5,)](np.zeros(1, np.int32), out, LATE=True, **REFERENCE)
    assert not out.any()
    again = pickle.loads(pickle.dumps(told.value))
    assert (str(again), again.required, again.limit) == (str(told.value), 5, 3)


def test_the_option_is_a_truth_value():
    with pytest.raises(
        LaunchError, match="wait_for: option cooperative must be True or False, not 'yes'"
    ):
        wait_for[(1,)](
            np.zeros(1, np.int32),
            np.zeros(1, np.int32),
            LATE=True,
            backend="reference",
            cooperative="yes",
        )
