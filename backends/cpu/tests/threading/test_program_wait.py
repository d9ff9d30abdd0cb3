"""Programs that wait for other programs of their launch, later ones among them."""

import pickle
import re
import signal
import threading
import warnings

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.errors import KernelError, ResidencyError
from tilewright_cpu import python_launch
from tilewright_cpu.threading import pool


@tw.jit
def meet(count, x, out, N: tl.constexpr):
    """A barrier of the grid: what programs wrote before it is read by all after it."""
    p = tl.program_id(0)
    tl.store(x + p, p)
    tl.atomic_add(count, 1, sem="acq_rel")
    while tl.atomic_add(count, 0, sem="acquire") < N:
        pass
    s = 0
    for i in range(tl.num_programs(0)):
        s += tl.load(x + i, volatile=True)
    tl.store(out + p, s)


@tw.jit
def arrive(count, most, N: tl.constexpr):
    """Programs that leave when all have come, and say how many they saw."""
    x, y, z = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    p = (z * tl.num_programs(1) + y) * tl.num_programs(0) + x
    tl.atomic_add(count, 1, sem="acq_rel")
    seen = tl.atomic_add(count, 0, sem="acquire")
    while seen < N:
        seen = tl.atomic_add(count, 0, sem="acquire")
    tl.store(most + p, seen)


@tw.jit
def take_turns(turn, out):
    """Each program waits for the one after it."""
    p = tl.program_id(0)
    last = tl.num_programs(0) - 1
    while tl.load(turn, volatile=True) != last - p:
        pass
    tl.store(out + p, last - p)
    tl.atomic_xchg(turn, last - p + 1, sem="release")


@tw.jit
def halve(x, out):
    n = tl.load(x + tl.program_id(0))
    steps = 0
    while n > 1:
        n = n // 2
        steps += 1
    tl.store(out + tl.program_id(0), steps)


@pytest.mark.each_value
@pytest.mark.parametrize("threads", [0, 1, 3])
@pytest.mark.parametrize("programs", [1, 2, 13, 40])
def test_programs_meet_at_a_barrier_of_the_grid(programs, threads):
    for _ in range(2):
        count, x, out = (np.zeros(n, np.int32) for n in (1, programs, programs))
        meet[(programs,)](count, x, out, N=programs, backend="cpu", num_threads=threads)
        assert out.tolist() == [programs * (programs - 1) // 2] * programs


def test_programs_wait_for_later_ones():
    turn, out = np.zeros(1, np.int32), np.zeros(12, np.int32)
    take_turns[(12,)](turn, out, backend="cpu", num_threads=2)
    assert out.tolist() == list(range(11, -1, -1))


def test_only_loops_that_read_memory_anew_may_wait():
    count, x, out = (np.ones(1, np.int32) for _ in range(3))
    assert "test_program_wait.py:" in meet[(1,)](count, x, out, N=1, backend="cpu").metadata.waits
    assert not hasattr(halve[(1,)](x, out, backend="cpu").metadata, "waits")


def test_more_programs_than_run_at_once_say_which_loop_waits(monkeypatch):
    monkeypatch.setattr(pool, "RESIDENT", 4)
    monkeypatch.setattr(python_launch, "RESIDENT", 4)
    monkeypatch.setattr(pool, "STUCK_SECONDS", 0.01)
    count, x, out = (np.zeros(n, np.int32) for n in (1, 6, 6))
    warned = threading.Event()
    said = []

    def show(message, *_):
        said.append(str(message))
        count[0] += 100  # the programs that wait go on
        warned.set()

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        monkeypatch.setattr(warnings, "showwarning", show)
        meet[(6,)](count, x, out, N=6, backend="cpu", num_threads=2)
    assert warned.is_set()
    assert len(said) == 1
    assert "4 programs have been running for long, 2 have not begun" in said[0]
    assert re.search(r"in the loop at \S*test_program_wait.py:\d+:4 in meet", said[0])


@tw.jit
def meet_or_fail(count, out, N: tl.constexpr):
    p = tl.program_id(0)
    tl.device_assert(p != 1, "program 1 fails")
    tl.atomic_add(count, 1, sem="acq_rel")
    while tl.atomic_add(count, 0, sem="acquire") < N:
        pass
    tl.store(out + p, 1)


@pytest.mark.parametrize("options", [{}, {"cooperative": True}])
def test_programs_do_not_wait_for_one_that_failed(options):
    with pytest.raises(KernelError, match="program 1 fails"):
        meet_or_fail[(5,)](
            np.zeros(1, np.int32), np.zeros(5, np.int32), N=5, backend="cpu", debug=True, **options
        )


# ---- cooperative launches


@pytest.mark.parametrize("grid", [(1,), (2,), (40,), (3, 5, 7)])
def test_all_programs_of_a_cooperative_launch_run_at_once(grid):
    programs = int(np.prod(grid))
    for _ in range(2):
        count, most = np.zeros(1, np.int32), np.zeros(programs, np.int32)
        arrive[grid](count, most, N=programs, backend="cpu", cooperative=True)
        assert most.tolist() == [programs] * programs


def test_a_cooperative_launch_is_of_more_programs_than_others_hold(monkeypatch):
    monkeypatch.setattr(pool, "RESIDENT", 4)
    count, most = np.zeros(1, np.int32), np.zeros(150, np.int32)
    arrive[(150,)](count, most, N=150, backend="cpu", cooperative=True)
    assert most.tolist() == [150] * 150


def test_too_few_threads_run_no_program(monkeypatch):
    count, x, out = (np.zeros(n, np.int32) for n in (1, 20, 20))
    running = pool.pool()
    meet[(3,)](count, x, out, N=3, backend="cpu", cooperative=True)
    count[:] = x[:] = out[:] = 0
    monkeypatch.setattr(running, "_resident", None)
    start, begun = threading.Thread.start, []

    def limited(thread):
        if thread.name.startswith("tilewright-resident"):
            if len(begun) == 7:
                raise RuntimeError("can't start new thread")
            begun.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)
    with pytest.raises(
        ResidencyError,
        match=(
            r"of the 20 of grid \(20, 1, 1\) 7 fit: .*can't start new thread.*Launch at most 7 "
            r"programs"
        ),
    ) as refused:
        meet[(20,)](count, x, out, N=20, backend="cpu", cooperative=True)
    assert (refused.value.required, refused.value.limit) == (20, 7)
    assert not count.any() and not x.any() and not out.any()
    again = pickle.loads(pickle.dumps(refused.value))
    assert str(again) == str(refused.value)
    # threads of the refused launch may not be idle yet, and then the next one starts others
    monkeypatch.setattr(threading.Thread, "start", start)
    meet[(7,)](count, x, out, N=7, backend="cpu", cooperative=True)
    assert out.tolist() == [21] * 7 + [0] * 13


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="the system has no interval timers")
def test_an_interrupted_cooperative_launch_raises_and_the_next_one_runs():
    count, x, out = (np.zeros(n, np.int32) for n in (1, 3, 3))
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        with pytest.raises(KeyboardInterrupt):
            meet[(3,)](
                count, x, out, N=4, backend="cpu", cooperative=True
            )  # none of them is the fourth
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    count[:] = 0
    meet[(3,)](count, x, out, N=3, backend="cpu", cooperative=True)
    assert out.tolist() == [3, 3, 3]
