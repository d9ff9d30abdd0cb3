"""Forks while another thread sets something up: a fork waits for it, and children launch kernels of
their own."""

import os
import subprocess
import sys
import threading

import pytest

from tilewright import forks

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "register_at_fork"), reason="needs processes that fork"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork.*:DeprecationWarning"),
]

#: Seconds after which a test that waits for what does not come fails.
GUARD = 900


def exit_status(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def forked(check):
    """The exit status of a forked child: 0 where ``check()`` is true in it."""
    child = os.fork()
    if not child:
        status = 1
        try:
            status = 0 if check() else 2
        finally:
            os._exit(status)
    return exit_status(child)


def test_a_fork_waits_for_set_up_in_other_threads():
    lock, begun, go = threading.Lock(), threading.Event(), threading.Event()

    def set_up():
        with forks.setting_up(), forks.setting_up(), lock:
            begun.set()
            go.wait(GUARD)

    thread = threading.Thread(target=set_up)
    thread.start()
    begun.wait(GUARD)
    releasing = threading.Timer(0.2, go.set)
    releasing.start()
    assert forked(lambda: go.is_set() and lock.acquire(blocking=False)) == 0
    thread.join()
    releasing.join()


def test_a_fork_within_set_up_does_not_wait_for_itself():
    def check():
        with forks.setting_up():
            return forked(lambda: True) == 0

    with forks.setting_up():
        assert forked(check) == 0
    assert forked(check) == 0 and not forks._active


def test_a_fork_waits_no_longer_than_it_has_patience(monkeypatch):
    """The setup may wait for a lock that the forking thread holds."""
    monkeypatch.setattr(forks, "PATIENCE", 0.05)
    held, begun = threading.Lock(), threading.Event()

    def set_up():
        with forks.setting_up():
            begun.set()
            with held:
                pass

    with held:
        thread = threading.Thread(target=set_up)
        thread.start()
        begun.wait(GUARD)
        assert forked(lambda: not forks._active) == 0
    thread.join()


def test_a_thread_that_another_waits_for_is_of_the_same_set_up():
    from tilewright.plugins.patience import within_limit

    with forks.setting_up():
        assert within_limit(GUARD, lambda: forked(lambda: True)) == 0


def test_set_up_that_fails_is_over():
    with pytest.raises(KeyError), forks.setting_up():
        raise KeyError
    assert not forks._active


def test_a_child_does_not_wait_for_a_tuning_of_its_parent():
    import tilewright as tw
    from tilewright.runtime.tuning.autotune import Autotuner

    tuner = Autotuner(tw.jit(exit_status), ("child",), [tw.Config({})], ())
    begun, go = threading.Event(), threading.Event()

    def tune():
        with tuner._tuning_lock:
            begun.set()
            go.wait(GUARD)

    thread = threading.Thread(target=tune)
    thread.start()
    begun.wait(GUARD)
    try:
        assert forked(lambda: tuner._tuning_lock.acquire(blocking=False)) == 0
    finally:
        go.set()
        thread.join()


#: A process that forks at random moments of the first launches of its other thread. Arguments: the
#: seed, how many forks. It prints what children ended with.
PROGRAM = """
import os, random, sys, threading, time, warnings
import numpy as np
import tilewright as tw
import tilewright.language as tl

warnings.simplefilter("ignore", DeprecationWarning)
seed, count = map(int, sys.argv[1:])
moments = random.Random(seed)

@tw.jit
def increment(x, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o + i, tl.load(x + i, i < n) + 1, i < n)

def launch(number, B):
    x, o = np.full(8, float(number)), np.empty(8)
    increment[(1,)](x, o, 8, B=B)
    return (o == number + 1).all()

def first_launches():
    for B in (8, 16, 32, 64):
        launch(B, B)

thread = threading.Thread(target=first_launches)
thread.start()
children = []
for number in range(count):
    time.sleep(moments.choice((0, 0.001, 0.02, 0.2)) * moments.random())
    child = os.fork()
    if not child:
        status = 1
        try:
            status = 0 if launch(number, moments.choice((8, 16, 128))) else 2
        finally:
            os._exit(status)
    children.append(child)
thread.join()
print(*(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children))
"""


def forks_of(seed, count, folder):
    environment = {**os.environ, "TILEWRIGHT_CACHE_DIR": str(folder / str(seed))}
    done = subprocess.run(
        [sys.executable, str(folder / "program.py"), str(seed), str(count)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=GUARD,
        check=False,
    )
    return done.stdout.split(), done.stderr


@pytest.fixture
def program(tmp_path):
    pytest.importorskip("tilewright_cpu")
    (tmp_path / "program.py").write_text(PROGRAM)
    return tmp_path


def test_children_of_first_launches_launch(program):
    statuses, told = forks_of(0, 6, program)
    assert statuses == ["0"] * 6, told


@pytest.mark.skipif(
    os.environ.get("TILEWRIGHT_EXHAUSTIVE") != "1",
    reason="minutes: TILEWRIGHT_EXHAUSTIVE=1 runs it",
)
@pytest.mark.parametrize("seed", range(20))
def test_a_hundred_children_of_first_launches_launch(program, seed):
    statuses, told = forks_of(seed, 5, program)
    assert statuses == ["0"] * 5, told
