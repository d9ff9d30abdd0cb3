"""The thread pool: every program runs exactly once, whoever launches, after idling, after a
fork."""

import ctypes
import itertools
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest

from tilewright.errors import VariableError
from tilewright.llvm.codegen.compile import compile_to_object, host_target
from tilewright.llvm.codegen.link import load_object
from tilewright.testing.threads import side_by_side
from tilewright_cpu.status import INTERRUPTED, OUT_OF_MEMORY, STATUS_WORDS
from tilewright_cpu.threading import pool as pool_module
from tilewright_cpu.threading.native_pool import supports_threads
from tilewright_cpu.threading.pool import KernelRecord, Pool

#: Seconds after which a test that waits for what does not come fails.
GUARD = 900

# counts[pid] += 1 for each of its programs, after spinning slots[1] rounds
KERNEL = """
define void @kernel(ptr %slots, i64 %lo, i64 %hi) {
entry:
  %counts = load ptr, ptr %slots
  %p = getelementptr i64, ptr %slots, i64 1
  %rounds = load i64, ptr %p
  br label %program
program:
  %pid = phi i64 [ %lo, %entry ], [ %next, %end ]
  br label %spin
spin:
  %k = phi i64 [ 0, %program ], [ %k1, %spin ]
  %x = load volatile i64, ptr %p
  %k1 = add i64 %k, 1
  %more = icmp ult i64 %k1, %rounds
  br i1 %more, label %spin, label %end
end:
  %q = getelementptr i32, ptr %counts, i64 %pid
  %old = load i32, ptr %q
  %new = add i32 %old, 1
  store i32 %new, ptr %q
  %next = add i64 %pid, 1
  %again = icmp slt i64 %next, %hi
  br i1 %again, label %program, label %out
out:
  ret void
}
"""

TRIPLE = host_target()[0]
NATIVE = supports_threads(TRIPLE.split("-")[0], TRIPLE.split("-")[2])
MODES = ["native", "python", "serial"] if NATIVE else ["python", "serial"]


@pytest.fixture(scope="module")
def kernel():
    triple, cpu, features = host_target()
    loaded = load_object(
        compile_to_object(KERNEL, triple=triple, cpu=cpu, features=features), ["kernel"]
    )
    yield loaded.address("kernel")


@pytest.fixture(scope="module")
def pools():
    made = {(mode, threads): Pool(threads, mode) for mode in MODES for threads in (1, 2, 5)}
    yield made
    for pool in made.values():
        pool.stop()


class Launch:
    """A kernel's record and its arguments for a grid."""

    def __init__(self, kernel, programs, rounds=1, limit=0):
        self.record = KernelRecord(kernel, 0, 0, limit)
        self.counts = np.zeros(programs, np.int32)
        self.status = np.zeros(STATUS_WORDS, np.int32)
        self.slots = np.asarray(
            [self.counts.ctypes.data, rounds, 0, self.status.ctypes.data], np.int64
        )

    def run(self, pool):
        pool.run(ctypes.addressof(self.record), self.slots.ctypes.data, len(self.counts))

    def check(self, times=1):
        np.testing.assert_array_equal(self.counts, times)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_every_program_runs_once(pools, kernel, mode, threads):
    for programs in (1, 2, 3, 7, 64, 1000, 12345):
        launch = Launch(kernel, programs)
        for _ in range(3):
            launch.run(pools[mode, threads])
        launch.check(3)


@pytest.mark.parametrize("mode", MODES)
def test_costly_programs_are_shared_and_their_cost_is_learnt(pools, kernel, mode):
    launch, launches, longest = Launch(kernel, 64, rounds=20000), 0, 0.0
    pool, record = pools[mode, 2], ctypes.addressof(launch.record)
    # on a busy machine the other thread may do all of a launch, and this one learns nothing from it
    while launches < 4 or (pool.expected_seconds(record, 64) is None and launches < 10000):
        started = time.perf_counter()
        launch.run(pool)
        longest = max(longest, time.perf_counter() - started)
        launches += 1
    launch.check(launches)
    assert pool.expected_seconds(record, 64) == pytest.approx(
        64 * pool.expected_seconds(record, 1), rel=0.1
    )
    alone, started = Launch(kernel, 64, rounds=20000), time.thread_time()
    alone.run(pools["serial", 1])
    spent = time.thread_time() - started
    # no program takes longer than its whole launch; nor, whatever its core and clock, a tenth of
    # the work's time in one thread
    assert spent / 10 < pool.expected_seconds(record, 64) < 64 * longest
    assert Pool.expected_seconds(pool, ctypes.addressof(Launch(kernel, 1).record), 1) is None


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("threads", [1, 2])
def test_a_launch_that_was_stopped_takes_no_more_programs(pools, mode, threads):
    ran = []

    def program(slots, low, high, memory):
        ran.extend(range(low, high))
        launch.status[0] = INTERRUPTED

    kernel = ctypes.CFUNCTYPE(
        None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p
    )(program)
    launch = Launch(ctypes.cast(kernel, ctypes.c_void_p).value, 1000)
    launch.run(pools[mode, threads])
    # of a kernel whose cost is unknown each thread takes one program at first
    assert 1 <= len(ran) <= threads


@pytest.mark.parametrize("mode", MODES)
def test_a_launch_that_was_held_up_raises_the_cost_to_twice_at_most_and_cheap_ones_lower_it_soon(
    pools, mode
):
    seconds = [0.0]

    def program(slots, low, high, memory):
        time.sleep(seconds[0])

    kernel = ctypes.CFUNCTYPE(
        None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p
    )(program)
    launch, pool = Launch(ctypes.cast(kernel, ctypes.c_void_p).value, 8), pools[mode, 1]

    def run(pause):
        seconds[0] = pause
        launch.run(pool)
        return launch.record.cost

    before = run(0.001)
    assert before > 0
    for _ in range(2):
        held = run(0.1)
        assert before < held <= 2 * before
        before = held
    for _ in range(1000):  # one of them, on any machine, takes a fraction of that
        if run(0.0) < held / 8:
            break
    else:
        pytest.fail("the cost stays where it was")


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
def test_the_number_of_threads_can_be_limited(pools, kernel, limit):
    for mode in MODES:
        launch = Launch(kernel, 200, rounds=2000, limit=limit)
        for _ in range(5):
            launch.run(pools[mode, 5])
        launch.check(5)


@pytest.mark.parametrize("mode", MODES)
def test_launches_from_many_threads(pools, kernel, mode):
    """Three threads launch at once: who finds the pool busy runs alone."""

    def work(seed):
        random = np.random.default_rng(seed)
        for _ in range(400):
            launch = Launch(
                kernel, int(random.integers(1, 300)), rounds=int(random.integers(1, 500))
            )
            repeats = int(random.integers(1, 6))
            for _ in range(repeats):
                launch.run(pools[mode, 5])
            launch.check(repeats)

    side_by_side(3, work)


@pytest.mark.skipif(not NATIVE, reason="needs the native pool")
def test_workers_wake_after_sleeping_and_restart_after_a_stop(kernel):
    pool = Pool(3, "native")
    for _ in range(5):
        launch = Launch(kernel, 100, rounds=3000)
        launch.run(pool)
        launch.check()
        time.sleep(0.02)  # past the spin, on most machines: the workers sleep
    for _ in range(3):
        pool.stop()
        launch = Launch(kernel, 100, rounds=3000)
        launch.run(pool)
        launch.check()
        pool._set_workers(2)
        launch.run(pool)
        launch.check(2)
    pool.stop()


def run_script(body, timeout=GUARD, **environment):
    script = textwrap.dedent(body)
    result = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**os.environ, **environment},
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


SETUP = f"""
import ctypes, os, sys, time
import numpy as np
from tilewright.llvm.codegen.compile import compile_to_object, host_target
from tilewright.llvm.codegen.link import load_object
from tilewright_cpu.threading.pool import KernelRecord, pool
triple, cpu, features = host_target()
loaded = load_object(compile_to_object('''{KERNEL}''', triple=triple, cpu=cpu, features=features), ["kernel"])
def check(programs, rounds, repeats=3):
    record = KernelRecord(loaded.address("kernel"), 0, 0, 0)
    counts = np.zeros(programs, np.int32)
    status = np.zeros({STATUS_WORDS}, np.int32)
    slots = np.asarray([counts.ctypes.data, rounds, 0, status.ctypes.data], np.int64)
    for _ in range(repeats):
        pool().run(ctypes.addressof(record), slots.ctypes.data, programs)
    assert (counts == repeats).all()
"""


@pytest.mark.each_value
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("mode", ["auto", "python"])
@pytest.mark.parametrize("torch", [False, True])
def test_the_child_of_a_fork_launches(mode, torch):
    if torch:
        pytest.importorskip("torch")
    body = SETUP + ("import torch; torch.ones(200000).add(1)\n" if torch else "")
    body += """
check(100, 3000)
before = pool().mode
for _ in range(3):
    child = os.fork()
    if child == 0:
        check(100, 3000); check(7, 100)
        grandchild = os.fork()
        if grandchild == 0:
            check(100, 3000)
            os._exit(0)
        assert os.waitpid(grandchild, 0)[1] == 0
        sys.stdout.flush()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    check(100, 3000)
print(before, pool().mode)
"""
    out = run_script(body, TILEWRIGHT_NUM_THREADS="3", TILEWRIGHT_CPU_POOL=mode).split()
    if mode == "auto" and NATIVE:
        assert out == (["openmp", "openmp"] if torch else ["native", "native"])


def test_the_process_ends_while_workers_sleep_and_while_they_spin():
    for pause in ("0", "0.05"):
        run_script(SETUP + f"check(100, 3000); time.sleep({pause})", TILEWRIGHT_NUM_THREADS="4")


def test_openmp_of_torch_is_adopted_when_it_is_imported_later():
    pytest.importorskip("torch")
    if not NATIVE:
        pytest.skip("needs the native pool")
    body = SETUP + (
        "check(50, 2000); first = pool().mode\nimport torch\n"
        "check(50, 2000, 10); print(first, pool().mode)\n"
        "assert torch.ones(300000).sum() == 300000"
    )
    assert run_script(body, TILEWRIGHT_NUM_THREADS="2").split() == ["native", "openmp"]
    assert run_script(body, TILEWRIGHT_NUM_THREADS="2", TILEWRIGHT_CPU_POOL="native").split() == [
        "native",
        "native",
    ]


@pytest.mark.skipif(not NATIVE, reason="needs the native pool")
def test_an_interrupt_reaches_the_main_thread():
    """Workers block signals, so the interpreter's own handler runs where Python expects it."""
    body = SETUP + "check(100, 3000)\nimport signal, threading\n"
    body += (
        "signal.signal(signal.SIGUSR1, lambda *a: print('caught', threading.current_thread() is "
        "threading.main_thread()))\n"
    )
    body += "os.kill(os.getpid(), signal.SIGUSR1)\ncheck(100, 3000)\n"
    assert run_script(body, TILEWRIGHT_NUM_THREADS="4").split() == ["caught", "True"]
    assert signal.SIGUSR1


def test_settings_are_checked(monkeypatch):
    for value in ("0", "-1", "many"):
        monkeypatch.setenv("TILEWRIGHT_NUM_THREADS", value)
        with pytest.raises(VariableError, match="TILEWRIGHT_NUM_THREADS must be a positive number"):
            pool_module.requested_threads()
    monkeypatch.setenv("TILEWRIGHT_NUM_THREADS", "3")
    assert pool_module.requested_threads() == 3
    monkeypatch.setenv("TILEWRIGHT_CPU_POOL", "quick")
    with pytest.raises(VariableError, match="TILEWRIGHT_CPU_POOL must be one of auto"):
        pool_module._requested_mode()


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "serial"])
def test_costly_programs_run_on_two_threads_at_once(mode):
    """In each launch two programs wait for each other, which one thread alone would do for ever."""
    pool, begun, seen = Pool(2, mode), [], []

    def program(slots, low, high, memory):
        begun.append(threading.get_ident())
        if len(begun) <= 2:
            together.wait(GUARD)
        time.sleep(0.002 * (high - low))  # costly on any machine
        seen.extend(range(low, high))

    kernel = ctypes.CFUNCTYPE(
        None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p
    )(program)
    launch = Launch(ctypes.cast(kernel, ctypes.c_void_p).value, 32)
    for _ in range(5):
        together = threading.Barrier(2)
        begun.clear()
        launch.run(pool)
        assert begun[0] != begun[1] and not together.broken
    assert sorted(seen) == sorted(5 * list(range(32)))
    pool.stop()


@pytest.mark.parametrize("threads", [1, 2, 3, 64])
@pytest.mark.parametrize("programs", [1, 2, 7, 64, 1000, 2**40 + 1])
def test_lanes_cover_the_programs_evenly(kernel, pools, programs, threads):
    pool = pools["python", 2]
    job, lanes, record = (
        pool_module._Job(),
        (ctypes.c_int64 * (8 * threads))(),
        KernelRecord(kernel, 0, 0, 0),
    )
    pool._prepare(
        ctypes.addressof(job),
        ctypes.addressof(lanes),
        ctypes.addressof(record),
        None,
        programs,
        threads,
    )
    assert job.lanes == min(programs, threads) and job.programs == programs
    bounds = [(lanes[8 * lane], lanes[8 * lane + 1]) for lane in range(job.lanes)]
    assert [first for first, _ in bounds] == [0, *(end for _, end in bounds[:-1])] and bounds[-1][
        1
    ] == programs
    lengths = [end - first for first, end in bounds]
    assert max(lengths) - min(lengths) <= 1 <= min(lengths)


@pytest.mark.skipif(not NATIVE, reason="the native pool is for Linux on x86-64 and aarch64")
def test_the_hand_off_is_measured_when_work_is_first_shared(kernel):
    pool = Pool(2, "native")
    try:
        hot = ctypes.c_int64.from_address(pool._object.address("hot"))
        measured, usual = ctypes.c_int32.from_address(pool._object.address("measured")), hot.value
        assert measured.value == 0
        launch = Launch(kernel, 64, rounds=2000)
        launch.run(pool)
        assert (launch.counts == 1).all()
        assert measured.value == 1 and usual // 8 <= hot.value <= usual
        hot.value = usual  # what was measured once is not measured again
        launch.run(pool)
        assert (launch.counts == 2).all() and hot.value == usual
    finally:
        pool.stop()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("threads", [1, 2])
def test_a_thread_gives_all_its_programs_of_a_launch_the_same_memory(pools, mode, threads):
    size, cleared, seen = 10_000, 100, {}

    def program(slots, low, high, memory):
        assert memory % 64 == 0
        if (threading.get_ident(), memory) not in seen:
            assert ctypes.string_at(memory, cleared) == bytes(cleared)
        ctypes.memset(memory, 0xA5, size)
        seen.setdefault((threading.get_ident(), memory), []).extend(range(low, high))

    kernel = ctypes.CFUNCTYPE(
        None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p
    )(program)
    launch = Launch(ctypes.cast(kernel, ctypes.c_void_p).value, 32)
    launch.record.memory, launch.record.cleared = size, cleared
    for _ in range(3):
        seen.clear()
        launch.run(pools[mode, threads])
        assert sorted(itertools.chain.from_iterable(seen.values())) == list(range(32))
        assert len(seen) == len({thread for thread, _ in seen}) <= threads


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("threads", [1, 2])
def test_where_there_is_no_memory_no_program_runs_and_the_launch_says_so(
    pools, kernel, mode, threads
):
    launch = Launch(kernel, 32)
    launch.record.memory = 1 << 60
    for _ in range(3):
        launch.run(pools[mode, threads])
        assert launch.status[0] == OUT_OF_MEMORY
        launch.check(0)
    launch.record.memory = launch.status[0] = 0
    launch.run(pools[mode, threads])
    launch.check(1)


@pytest.mark.skipif(not NATIVE, reason="the native pool is for Linux on x86-64 and aarch64")
@pytest.mark.parametrize("pause", [0.0, 0.05])
def test_short_launches_one_after_another_wake_the_workers_and_lonely_ones_do_not(kernel, pause):
    pool, work = Pool(2, "native"), 200_000  # cycles
    try:

        def symbol(name):
            return ctypes.c_int64.from_address(pool._object.address(name))

        launch = Launch(kernel, 8, rounds=20000)
        launch.run(pool)
        epoch, hot, cold, owed = symbol("pool"), symbol("hot"), symbol("cold"), symbol("owed")
        while ctypes.c_int32.from_address(pool._object.address("pool") + 64).value == 0:
            time.sleep(0.001)  # until the worker sleeps
        hot.value, shared, launches = 1, epoch.value >> 33, 0
        cold.value = (
            5 * work
        )  # five launches; one that comes later than a quarter of that does not follow closely
        while launches < (12 if pause else 2000) and epoch.value >> 33 == shared:
            if pause:
                time.sleep(pause)
            launch.record.cost = (
                2 * work
            )  # sixteenths of cycles, eight programs: what this machine's launches take has no say
            launch.run(pool)
            launches += 1
        assert (epoch.value >> 33 == shared) == bool(pause)
        assert pause or (launches > 1 and owed.value == 0)
        assert launch.counts.min() == launch.counts.max() == launches + 1
    finally:
        pool.stop()
