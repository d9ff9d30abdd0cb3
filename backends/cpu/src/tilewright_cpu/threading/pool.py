"""Running a grid on the threads of this process.

The programs of a launch are shared among

- the threads of the OpenMP runtime that PyTorch uses, once that is loaded: a second pool, or worse
  a second OpenMP runtime, would fight with it for the cores (measured: up to thirty times slower);
- else workers of our own, which sleep on a futex (Linux on x86-64 and aarch64);
- else a pool of Python threads, which run the kernel with the interpreter lock released.

Work that is too little to share runs in the calling thread: each kernel's cost a program is
measured as it runs. More work is worth waking threads for that sleep, and launches that follow one
another closely are added up for that. A launch that finds the pool busy with another thread's runs
in the calling thread too.

Kernels with loops that may wait for other programs run on threads of their own, a program at a time
on each. Where no program begins for a while, more threads take programs, so that those that wait
for later ones go on once these run too. The programs of cooperative launches have a thread each,
and none begins before all of these have started.

The pool starts its threads at the first launch that can use them, again in the child of a fork, and
stops at exit.

A signal that comes while the main thread launches is handled between programs, a few times a
second; where its handler raises, as the default one of ``Ctrl-C`` does, no further programs begin,
those that are in a ``while`` loop stop there, and the launch raises that exception once the others
that run have ended.

Environment: ``TILEWRIGHT_NUM_THREADS`` (default: the cores this process may run on; with OpenMP: as
many threads as PyTorch uses) and ``TILEWRIGHT_CPU_POOL``: ``auto``, ``openmp``, ``native``,
``python`` or ``serial``.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait

from tilewright.environment import chosen, refused
from tilewright.errors import BackendError
from tilewright.llvm.codegen.interrupts import uninterrupted
from tilewright_cpu.status import INTERRUPTED
from tilewright_cpu.target import available_cores
from tilewright_cpu.threading.native_pool import (
    COMMON_SYMBOLS,
    MAX_WORKERS,
    THREAD_SYMBOLS,
    pool_ir,
    supports_threads,
)
from tilewright_cpu.torch_openmp import torch_openmp

MODES = ("auto", "openmp", "native", "python", "serial")

#: Seconds of work worth sharing with threads that are awake, until the hand-off to them has been
#: measured; and with threads that sleep.
HOT_SECONDS, COLD_SECONDS = 10e-6, 100e-6

#: Seconds of programs that a thread takes at a time in launches that signals may stop; these are
#: handled 64 times that apart.
PACE_SECONDS = 1e-3

#: Programs of one launch that can wait for each other; seconds without one that begins after which
#: more threads take programs; and after which a launch that has all the threads it can have says
#: what it waits for.
RESIDENT, STAGNANT_SECONDS, STUCK_SECONDS = 512, 0.02, 10.0

#: Looks a worker takes for the next job before it sleeps, about 30 microseconds; and the caller's
#: for workers to leave.
SPIN, SPIN_CALLER = 2000, 1000


class KernelRecord(ctypes.Structure):
    """The pool's record of a kernel: see :mod:`.work_distribution`.

    Its address must stay the same while the kernel can be launched.
    """

    _fields_ = (
        ("function", ctypes.c_void_p),
        ("cost", ctypes.c_int64),
        ("launches", ctypes.c_int64),
        ("limit", ctypes.c_int32),
        ("polls", ctypes.c_int32),
        ("memory", ctypes.c_int64),
        ("cleared", ctypes.c_int64),
    )


_JOB_WORDS = (
    "function",
    "arguments",
    "programs",
    "chunk",
    "entered",
    "cycles",
    "done",
    "lanes",
    "lane",
    "pace",
    "asleep",
    "polls",
    "memory",
    "cleared",
)


class _Job(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_int64) for name in _JOB_WORDS)


def requested_threads() -> int:
    """``TILEWRIGHT_NUM_THREADS``, or 0 where it is not set.

    Raises:
        VariableError: it is not a positive number.
    """
    text = os.environ.get("TILEWRIGHT_NUM_THREADS", "")
    if not text:
        return 0
    if not text.isdigit() or int(text) < 1:
        raise refused("TILEWRIGHT_NUM_THREADS", "a positive number", text)
    return int(text)


def _requested_mode() -> str:
    return chosen("TILEWRIGHT_CPU_POOL", MODES)


class TooFewThreadsError(Exception):
    """A cooperative launch has more programs than the process can start threads.

    ``started`` threads did start. No program has begun.
    """

    def __init__(self, started: int, reason: str) -> None:
        super().__init__(reason)
        self.started = started


class Pool:
    """The threads that run grids.

    Attributes:
        threads: how many, the caller's included.
        mode: ``openmp``, ``native``, ``python`` or ``serial``.
        launch_address: the native entry ``void (record, arguments, programs)``; 0 in the mode
        ``python``. estimate_address: ``i64 (record, programs)``, the cycles a launch is expected to
        take; all ones while unknown. poll_address: what programs call in loops that may never end:
        see :mod:`.interrupts`. serial_address: like ``launch_address``, in the calling thread
        alone. cycles_per_second: of the counter that costs are measured with.
    """

    def __init__(self, threads: int, mode: str) -> None:
        from tilewright.llvm.codegen.compile import host_target
        from tilewright.runtime.storage.host_code import load_host_code

        triple, _, _ = host_target()
        machine, _, system = (*triple.split("-"), "", "")[:3]
        self.threads = 1 if mode == "serial" else min(threads, MAX_WORKERS + 1)
        native = supports_threads(machine, system)
        if mode in ("native", "openmp") and not native:
            raise BackendError(
                f"TILEWRIGHT_CPU_POOL={mode} needs Linux on x86-64 or aarch64, not {triple}"
            )
        self.mode = mode if mode in ("python", "serial") else "native" if native else "python"
        listening = os.name == "posix" and sys.implementation.name == "cpython"
        text = pool_ir(
            machine, threads=native, listening=listening, spin=SPIN, spin_caller=SPIN_CALLER
        )
        symbols = (*COMMON_SYMBOLS, *THREAD_SYMBOLS) if native else COMMON_SYMBOLS
        self._object = load_host_code("thread pool", text, symbols)
        address = self._object.address
        self.estimate_address, self.serial_address = address("estimate"), address("serial")
        self.poll_address = address("poll")
        self.launch_address = (
            0 if self.mode == "python" else address("launch") if native else self.serial_address
        )
        self._serial = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(
            self.serial_address
        )
        self._estimate = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)(
            self.estimate_address
        )
        self._forked = False
        self._native = native
        self.cycles_per_second = _cycles_per_second(machine)
        self._set("hot", ctypes.c_int64, int(HOT_SECONDS * self.cycles_per_second))
        self._set("cold", ctypes.c_int64, int(COLD_SECONDS * self.cycles_per_second))
        self._set("pace", ctypes.c_int64, max(1, int(PACE_SECONDS * self.cycles_per_second)))
        self._listen()
        if native:
            self._launch = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(
                address("launch")
            )
            self._forget, self._stop = (
                ctypes.CFUNCTYPE(None)(address("forget")),
                ctypes.CFUNCTYPE(None)(address("stop")),
            )
            self._set_workers = ctypes.CFUNCTYPE(None, ctypes.c_int32)(address("set_workers"))
            self._set_workers(self.threads - 1 if self.mode == "native" else 0)
            os.register_at_fork(after_in_child=self._after_fork)
            atexit.register(self.stop)
        self._share = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address("share_timed"))
        pointers = [ctypes.c_void_p] * 4
        self._prepare = ctypes.CFUNCTYPE(None, *pointers, ctypes.c_int64, ctypes.c_int64)(
            address("prepare")
        )
        self._executor: ThreadPoolExecutor | None = None
        self._waiting: ThreadPoolExecutor | None = None
        self._resident: ThreadPoolExecutor | None = None
        self._executor_lock = threading.Lock()
        if self.mode == "python" and hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._after_fork)

    def _set(
        self,
        symbol: str,
        kind: type[ctypes.c_int64] | type[ctypes.c_int32] | type[ctypes.c_void_p],
        value: int,
    ) -> None:
        kind.from_address(self._object.address(symbol)).value = value

    def run(self, record: int, arguments: int | bytes, programs: int) -> None:
        """Run programs 0 to ``programs`` - 1 of a kernel, the interpreter lock released.

        Args:
            record: the address of a :class:`KernelRecord`.
            arguments: the kernel's argument slots: their address, or the bytes themselves.
        """
        if self.mode == "python":
            self._run_python(record, arguments, programs)
        else:
            self._launch(record, arguments, programs)

    def raise_pending(self) -> None:
        """Raise the exception that stopped a launch of this thread's, if there is one."""
        if threading.get_ident() != self._listener:
            return
        words = (ctypes.c_void_p * 3).from_address(self._object.address("raised"))
        kept = tuple(words)
        words[:] = [None, None, None]
        if kept[0]:
            _restore_exception(*kept)

    def _listen(self) -> None:
        self._listener = threading.main_thread().ident or 0
        self._set("listener", ctypes.c_int64, self._listener)

    def expected_seconds(self, record: int, programs: int) -> float | None:
        """Expected time of a launch in one thread; None while the kernel's cost is unknown."""
        cycles = self._estimate(record, programs)
        return None if cycles == -1 else cycles / self.cycles_per_second

    # ---- OpenMP

    def adopt_openmp(self) -> bool:
        """Use PyTorch's OpenMP runtime from now on, if PyTorch is loaded; whether it is in use."""
        if self.mode == "openmp":
            return True
        if self.mode != "native" or self._forked:
            return False
        runtime = torch_openmp()
        if runtime is None:
            return False
        self._set("openmp_threads", ctypes.c_void_p, runtime.max_threads)
        self._set("openmp_number", ctypes.c_void_p, runtime.thread_number)
        self._set("forced", ctypes.c_int32, requested_threads())
        self._set("openmp", ctypes.c_void_p, runtime.parallel)
        self.mode = "openmp"
        return True

    # ---- life and death

    def stop(self) -> None:
        """End the pool's own threads. Launches after this run in the calling thread."""
        if self._native:
            self._set_workers(0)
            self._stop()
        for executor in (self._executor, self._waiting, self._resident):
            if executor is not None:
                executor.shutdown()

    def _after_fork(self) -> None:
        # OpenMP's threads do not survive a fork, and its runtime may not be used again in the
        # child.
        self._forked = True
        self._listen()
        self._executor = self._waiting = self._resident = None
        self._executor_lock = threading.Lock()
        if self._native:
            self._forget()
            if self.mode == "openmp":
                self.mode = "native"
                self._set_workers(self.threads - 1)

    # ---- Python threads

    def _run_python(self, record: int, arguments: int | bytes, programs: int) -> None:
        kernel = KernelRecord.from_address(record)
        threads = min(self.threads, kernel.limit or self.threads, programs)
        expected = self.expected_seconds(record, programs)
        # handing a job to a Python thread takes tens of microseconds
        if threads <= 1 or (expected is not None and expected < 4 * COLD_SECONDS):
            self._serial(record, arguments, programs)
            return
        shared = _SharedJob(self, record, arguments, programs, threads)
        with shared:
            futures: list[Future[None]] = [
                _submit(self._threads(), shared.work) for _ in range(threads - 1)
            ]
            self._share(shared.address)
            for future in futures:
                # one that has not begun will find nothing left to do
                if not future.cancel():
                    future.result()
        job = shared.job
        if not job.done:
            return
        each = max(1, 16 * job.cycles // job.done)
        # down soon, up slowly, as the native pool has it
        low, high = sorted((each, kernel.cost))
        kernel.cost = (
            each if not kernel.cost else max(1, min((3 * low + high) // 4, 2 * kernel.cost))
        )

    # ---- programs that wait for each other

    def run_waiting(
        self, record: int, arguments: int | bytes, programs: int, stuck: Callable[[int, int], None]
    ) -> None:
        """Run programs of a kernel that may wait for each other, up to :data:`RESIDENT` at once.

        There are as many threads as for other kernels at first. Where no program begins for
        :data:`STAGNANT_SECONDS`, and some have not, there are twice as many: programs that wait for
        none of these are but slowed by it.

        Args:
            record, arguments: as for :meth:`run`.
            stuck: called once with the programs that run and those that have not begun, where no
                more threads are to be had and nothing changes.
        """
        if programs == 1:
            self.run(record, arguments, programs)
            return
        kernel = KernelRecord.from_address(record)
        threads = min(self.threads, kernel.limit or self.threads, programs)
        shared = _SharedJob(self, record, arguments, programs, threads)
        # one that waits must not have taken the one that it waits for
        shared.job.chunk, shared.job.pace = 1, 0
        most = min(programs, RESIDENT)
        with shared:
            executor = self._waiting_threads()
            running: list[Future[None]] = [_submit(executor, shared.work) for _ in range(threads)]
            before, since = programs, time.monotonic()
            while wait(running, STAGNANT_SECONDS).not_done:
                now = shared.left()
                if now != before or not now:
                    before, since = now, time.monotonic()
                elif len(running) < most:
                    self._set("crowded", ctypes.c_int64, 1)
                    running += [
                        _submit(executor, shared.work)
                        for _ in range(min(len(running), most - len(running)))
                    ]
                elif time.monotonic() - since > STUCK_SECONDS:
                    since = float("inf")
                    stuck(len(running), now)
            for future in running:
                future.result()

    def run_at_once(self, record: int, arguments: bytes, programs: int) -> None:
        """Run programs of a kernel on a thread each, all at once.

        Args:
            record, arguments: as for :meth:`run`.

        Raises:
            TooFewThreadsError: the process can start fewer threads; nothing has run.
        """
        if programs == 1:
            self.run(record, arguments, programs)
            return
        shared = _SharedJob(self, record, arguments, programs, min(self.threads, programs))
        shared.job.chunk, shared.job.pace = 1, 0
        if programs > available_cores():
            self._set("crowded", ctypes.c_int64, 1)
        all_started = threading.Event()

        def work() -> None:
            all_started.wait()
            shared.work()

        executor, futures = self._resident_threads(), []
        try:
            with shared:
                for number in range(programs):
                    try:
                        futures.append(_submit(executor, work))
                    except RuntimeError as error:
                        raise TooFewThreadsError(number, str(error)) from None
                all_started.set()
                for future in futures:
                    future.result()
        finally:
            all_started.set()

    def _resident_threads(self) -> ThreadPoolExecutor:
        """As many threads as there is work; one that has none is treated as the next."""
        with self._executor_lock:
            if self._resident is None:
                self._resident = ThreadPoolExecutor(sys.maxsize, "tilewright-resident")
            return self._resident

    def _waiting_threads(self) -> ThreadPoolExecutor:
        with self._executor_lock:
            if self._waiting is None:
                self._waiting = ThreadPoolExecutor(RESIDENT, "tilewright-waiting")
            return self._waiting

    def _threads(self) -> ThreadPoolExecutor:
        with self._executor_lock:
            if self._executor is None:
                self._executor = ThreadPoolExecutor(self.threads - 1, "tilewright")
            return self._executor


@uninterrupted
def _submit(executor: ThreadPoolExecutor, work: Callable[[], None]) -> Future[None]:
    """Submit work to a pool, without interrupts.

    An interrupt between the start of a thread and the record that it is the pool's would leave it
    waiting for work where the interpreter ends, and that waiting for it.
    """
    return executor.submit(work)


class _SharedJob:
    """A job whose programs Python threads share out among them.

    As a context manager it ends the job where an exception leaves the block, which a signal's
    handler may raise anywhere in there, in the middle of a submission too: threads that work on
    the job begin no further program, and the block is left when they are done.

    Attributes:
        job: the record that the native code reads, at ``address``.
    """

    def __init__(
        self, pool: Pool, record: int, arguments: int | bytes, programs: int, threads: int
    ) -> None:
        self.job = _Job()
        self.address = ctypes.addressof(self.job)
        self._pool, self._arguments = pool, arguments
        self._start = (
            arguments
            if isinstance(arguments, int)
            else ctypes.cast(ctypes.c_char_p(arguments), ctypes.c_void_p).value
        )
        self._threads, self._lanes = threads, (ctypes.c_int64 * (8 * threads))()
        self._over = False
        self._begun: list[None] = []
        self._ended: list[None] = []
        pool._prepare(
            self.address, ctypes.addressof(self._lanes), record, self._start, programs, threads
        )

    def work(self) -> None:
        """Run programs until none is left, on the calling thread; none where the job has ended."""
        self._begun.append(None)
        if not self._over:
            self._pool._share(self.address)
        self._ended.append(None)

    def left(self) -> int:
        """Return how many programs have not begun."""
        return sum(
            max(0, self._lanes[8 * lane + 1] - self._lanes[8 * lane])
            for lane in range(self._threads)
        )

    def __enter__(self) -> None:
        pass

    def __exit__(self, type_: type[BaseException] | None, *_: object) -> None:
        if type_ is not None:
            # what the programs work on does not outlive the launch
            self._over = True
            ctypes.c_int32.from_address(
                ctypes.c_uint64.from_address((self._start or 0) + 24).value
            ).value = INTERRUPTED
            while len(self._ended) < len(self._begun):
                time.sleep(1e-4)


def _restore_exception(type_: int, value: int | None, traceback: int | None) -> None:
    """Raise what ``PyErr_Fetch`` gave, whose references are taken."""
    restore = ctypes.PYFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)(
        ("PyErr_Restore", ctypes.pythonapi)
    )
    restore(type_, value, traceback)


@functools.cache
def _cycles_per_second(machine: str) -> float:
    """The rate of the counter that measures costs, from half a millisecond of it.

    Where there is no counter it is a nominal gigahertz.
    """
    from tilewright.runtime.storage.host_code import load_host_code

    name = "llvm.readsteadycounter" if machine == "aarch64" else "llvm.readcyclecounter"
    text = (
        f"declare i64 @{name}()\ndefine i64 @now() {{\n  %t = call i64 @{name}()\n  ret "
        "i64 %t\n}\n"
    )
    loaded = load_host_code("cycle counter", text, ("now",))
    now = ctypes.CFUNCTYPE(ctypes.c_int64)(loaded.address("now"))
    began, first = time.perf_counter(), now()
    while time.perf_counter() - began < 5e-4:
        pass
    cycles, seconds = now() - first, time.perf_counter() - began
    return cycles / seconds if cycles > 0 else 1e9


_pool: Pool | None = None
_pool_lock = threading.Lock()


def pool() -> Pool:
    """The pool of this process, made when first asked for.

    It adopts OpenMP when PyTorch has been loaded since.

    Raises:
        VariableError: a variable of the environment has a value that means nothing.
    """
    global _pool
    with _pool_lock:
        if _pool is None:
            _pool = Pool(requested_threads() or available_cores(), _requested_mode())
        if _requested_mode() in ("auto", "openmp"):
            _pool.adopt_openmp()
        return _pool
