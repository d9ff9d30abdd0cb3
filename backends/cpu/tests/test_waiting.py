"""Programs that wait for other programs of their launch, later ones among them."""

import re
import threading
import warnings

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright_cpu import launch, pool


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
    assert "test_waiting.py:" in meet[(1,)](count, x, out, N=1, backend="cpu").metadata.waits
    assert not hasattr(halve[(1,)](x, out, backend="cpu").metadata, "waits")


def test_more_programs_than_run_at_once_say_which_loop_waits(monkeypatch):
    monkeypatch.setattr(pool, "RESIDENT", 4)
    monkeypatch.setattr(launch, "RESIDENT", 4)
    monkeypatch.setattr(pool, "STUCK_SECONDS", 0.01)
    count, x, out = (np.zeros(n, np.int32) for n in (1, 6, 6))
    told = threading.Event()
    said = []

    def show(message, *_):
        said.append(str(message))
        count[0] += 100  # the programs that wait go on
        told.set()

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        monkeypatch.setattr(warnings, "showwarning", show)
        meet[(6,)](count, x, out, N=6, backend="cpu", num_threads=2)
    assert told.is_set()
    assert len(said) == 1
    assert "4 programs have been running for long, 2 have not begun" in said[0]
    assert re.search(r"in the loop at \S*test_waiting.py:\d+:4 in meet", said[0])
