"""Pool of worker processes that lower kernels, kept as long as this process.

    pool = worker_pool()
    artifact = unpack(pool.lower(job, time_limit=60))

Nothing of this process is forked: :mod:`tilewright.runtime.compiler.worker_server` runs in an
interpreter of its own, which forks the workers. Kernels are sent as Tile IR, so it does not matter
where their functions were defined, in ``__main__``, a notebook or a closure.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
import threading
from dataclasses import dataclass, replace

from tilewright.child_process import environment, module_path, python_command
from tilewright.child_process import time_limit as default_limit
from tilewright.environment import refused
from tilewright.errors import BackendError, LoweringError
from tilewright.plugins.registry import registry
from tilewright.runtime.compiler.worker_server import FORK, KILL, REAP, LoweringJob, receive, send

_SERVER = (
    "import socket, sys; from tilewright.runtime.compiler.worker_server import serve; "
    "serve(socket.socket(fileno=int(sys.argv[1])))"
)
#: An empty kernel for warming up a server.
_NOTHING = "tilewright.ir 1.0\n\nkernel @nothing() {\n  return\n}\n"
#: Timeouts in seconds for a server's start and for a fork.
_START = 600.0


def worker_count() -> int:
    """Return the maximum number of workers: ``TILEWRIGHT_WORKERS``, else the CPU count.

    Raises:
        VariableError: the variable is no count.
    """
    named = os.environ.get("TILEWRIGHT_WORKERS", "").strip()
    if named:
        if not named.isdecimal():
            raise refused(
                "TILEWRIGHT_WORKERS",
                "a number of processes, 0 to compile in threads of this one",
                named,
            )
        return int(named)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def workers_serve(backend_name: str) -> bool:
    """Return whether workers can lower for a backend.

    The system must support forking, and workers must be able to find the backend's distribution.
    """
    able = (
        hasattr(os, "fork")
        and hasattr(socket, "recv_fds")
        and bool(sys.executable)
        and sys.platform != "darwin"
    )
    return able and worker_count() > 1 and registry().is_installed(backend_name)


class UnsendableError(Exception):
    """A job that only this process can do, since it cannot be pickled."""


@dataclass
class _Worker:
    """A worker process, the socket to it, and its current owner."""

    process: int
    connection: socket.socket
    owner: threading.Event | None = None


class WorkerPool:
    """Up to ``count`` workers. Any thread may ask; each worker does one job at a time.

    Attributes:
        started: how many workers were forked so far.
    """

    def __init__(self, count: int) -> None:
        self.count, self.started = count, 0
        self._lock = threading.Lock()
        self._free = threading.Semaphore(count)
        self._idle: list[_Worker] = []
        self._busy: list[_Worker] = []
        self._server: subprocess.Popen[bytes] | None = None
        self._orders: socket.socket | None = None
        self._path: list[str] = []
        self._process = os.getpid()

    def prepare(self, job: LoweringJob) -> None:
        """Start the server for jobs of this job's backend and target, without waiting.

        An idle server whose module search path differs from this process's is ended first.
        """
        with self._lock:
            if self._path != module_path() and not self._busy:
                self._stop()
            self._start(job)

    def lower(
        self,
        job: LoweringJob,
        time_limit: float | None = None,
        owner: threading.Event | None = None,
    ) -> bytes:
        """Lower a job in a worker and return the packed artifact.

        Args:
            owner: the owner of the job: see :meth:`end_busy`.
            time_limit: seconds after which the worker is ended; those of
                ``TILEWRIGHT_COMPILE_TIME_LIMIT`` otherwise.

        Raises:
            LoweringError, OutOfResources: what lowering raised; or the worker ended on the way.
            UnsendableError: an option cannot be pickled.
            TimeoutError: it took longer than ``time_limit``.
        """
        try:
            data = pickle.dumps(job)
        except Exception as error:
            raise UnsendableError(f"the job cannot be sent to a worker: {error}") from error
        if time_limit is None:
            time_limit = default_limit()
        with self._free:
            worker = self._take(job, owner)
            try:
                worker.connection.settimeout(time_limit)
                send(worker.connection, data)
                kind, value = pickle.loads(receive(worker.connection))
            except TimeoutError:
                self._end(worker)
                raise TimeoutError(f"compilation took longer than {time_limit} s") from None
            except (EOFError, OSError, pickle.UnpicklingError):
                raise LoweringError(
                    f"the process that compiled it {_ending(self._end(worker, REAP))}"
                ) from None
            except BaseException:
                self._end(worker)
                raise
            self._give_back(worker)
        if kind == "failed":
            raise value
        if kind == "text":
            raise BackendError(value)
        artifact: bytes = value
        return artifact

    def end_busy(self, owner: threading.Event) -> None:
        """End the workers busy for an owner and start no more of its jobs.

        Sets ``owner``; threads that wait for these jobs receive an error.
        """
        owner.set()
        # they, or the server with them, may have ended by themselves
        with self._lock, contextlib.suppress(OSError):
            for worker in self._busy:
                if worker.owner is owner:
                    self._order(KILL + struct.pack("<i", worker.process))
                    worker.connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End the server and all workers."""
        with self._lock:
            for worker in (*self._idle, *self._busy):
                worker.connection.close()
            self._idle, self._busy = [], []
            self._stop()

    # -- workers

    def _take(self, job: LoweringJob, owner: threading.Event | None) -> _Worker:
        with self._lock:
            if owner is not None and owner.is_set():
                raise LoweringError("its tuning was given up")
            self._start(job)
            if self._idle:
                worker = self._idle.pop()
            else:
                try:
                    worker = self._fork()
                except OSError:  # the server has just ended, for want of orders or by force
                    self._stop()
                    self._start(job)
                    worker = self._fork()
            worker.owner = owner
            self._busy.append(worker)
            return worker

    def _give_back(self, worker: _Worker) -> None:
        with self._lock:
            if worker in self._busy:
                self._busy.remove(worker)
                self._idle.append(worker)

    def _end(self, worker: _Worker, order: bytes = KILL) -> int | None:
        """End a worker that is lost, and return its exit status if known."""
        with self._lock:
            if worker in self._busy:
                self._busy.remove(worker)
            worker.connection.close()
            try:
                return self._order(order + struct.pack("<i", worker.process))
            except OSError:
                return None

    def _fork(self) -> _Worker:
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                process = self._order(FORK, theirs.fileno())
            except OSError:
                ours.close()
                raise
        self.started += 1
        return _Worker(process, ours)

    # -- the server

    def _start(self, job: LoweringJob) -> None:
        if self._server is not None and self._server.poll() is None:
            return
        self._stop()
        ours, theirs = socket.socketpair()
        ours.settimeout(_START)
        self._path = module_path()
        command = python_command(_SERVER, theirs.fileno())
        with theirs:
            self._server = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                env=environment(),
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        self._orders = ours
        send(ours, pickle.dumps(replace(job, module=_NOTHING, key="")))

    def _order(self, data: bytes, handle: int | None = None) -> int:
        """Send the server an order and return its answer.

        Raises:
            OSError: it is gone.
        """
        orders = self._orders
        if orders is None:
            raise BrokenPipeError
        socket.send_fds(orders, [data], [] if handle is None else [handle])
        answer = b""
        while len(answer) < 4:
            more = orders.recv(4 - len(answer))
            if not more:
                raise BrokenPipeError
            answer += more
        return int(struct.unpack("<i", answer)[0])

    def _stop(self) -> None:
        for worker in self._idle:
            worker.connection.close()
        self._idle = []
        if self._orders is not None:
            self._orders.close()
        if self._server is not None and os.getpid() == self._process:
            try:
                self._server.wait(5)
            except subprocess.TimeoutExpired:
                os.killpg(self._server.pid, signal.SIGKILL)
                self._server.wait()
        self._server = self._orders = None


def _ending(status: int | None) -> str:
    if status is None or status == 0:
        return "was ended"
    return (
        f"was ended by signal {-status} ({signal.strsignal(-status)})"
        if status < 0
        else f"ended with status {status}"
    )


_pool: WorkerPool | None = None
_making = threading.Lock()


def worker_pool() -> WorkerPool:
    """Return the pool of this process."""
    global _pool
    with _making:
        if _pool is None or _pool.count != worker_count():
            if _pool is not None:
                _pool.close()
            _pool = WorkerPool(worker_count())
        return _pool


def close_pool() -> None:
    """End the workers of this process; the next tuning starts new ones."""
    global _pool
    with _making:
        if _pool is not None:
            _pool.close()
        _pool = None


def _forget() -> None:
    """Forget the parent's workers in a forked child."""
    global _pool, _making
    _pool, _making = None, threading.Lock()


atexit.register(close_pool)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
