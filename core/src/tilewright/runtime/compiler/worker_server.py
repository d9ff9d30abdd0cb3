"""The fork server of compile workers: it imports everything once and forks them.

The server is a fresh process of one thread, so that forking it is safe whatever its parent has
begun: threads, a device's context, a notebook. It takes orders from a socket (see
:mod:`tilewright.runtime.compiler.workers`), whose end means that the parent is gone: then the whole
family ends. It looks for its parent besides: a copy of that process may have the other end of the
socket, too. A worker takes jobs from a socket of its own, one after the other. What passes is
pickled plain data and packed kernels, never functions.
"""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import select
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tilewright.child_process import end_with_parent
from tilewright.plugins.manifest import Target

#: Whether this process is the server or a worker, which leave devices to their parent.
serving = False
#: Seconds without orders after which a server, and its workers, end.
IDLE = 300.0
#: Opcodes of orders: fork a worker; end one; report the exit status of one that has closed its
#: connection. The last two name a process.
FORK, KILL, REAP = b"F", b"K", b"R"
#: Seconds between checks that the parent is alive.
_PARENT_LOOK = 2.0
#: Seconds that a worker may take to exit after closing its connection, and polling interval.
_ENDING, _LOOK = 2.0, 0.005
_LENGTH = struct.Struct("<Q")
#: Niceness added for workers and for threads that wait for them.
_NICE = 5


@dataclass(frozen=True)
class LoweringJob:
    """One kernel to lower.

    Attributes:
        module: Tile IR text, straight from the frontend.
        options: every option of the backend's manifest.
        backend: its name.
        target: what the kernel is lowered for.
        key: the disk cache's key, which the artifact has.
        environment: the variables of the process that asks.
    """

    module: str
    options: Mapping[str, Any]
    backend: str
    target: Target
    key: str
    environment: Mapping[str, str]


def send(connection: socket.socket, data: bytes) -> None:
    """Send one message."""
    connection.sendall(_LENGTH.pack(len(data)) + data)


def receive(connection: socket.socket) -> bytes:
    """Receive the next message.

    Raises:
        EOFError: the other end is gone.
    """
    (length,) = _LENGTH.unpack(_exactly(connection, _LENGTH.size))
    return _exactly(connection, length)


def _exactly(connection: socket.socket, count: int) -> bytes:
    data = bytearray(count)
    view, place = memoryview(data), 0
    while place < count:
        taken = connection.recv_into(view[place:])
        if not taken:
            raise EOFError
        place += taken
    return bytes(data)


def perform(job: LoweringJob) -> bytes:
    """Lower a job and return the packed artifact."""
    from tilewright.ir.parser import parse_module
    from tilewright.plugins.registry import registry
    from tilewright.runtime.compiler.compile import lower_module
    from tilewright.runtime.storage.artifact import pack

    backend = registry().get(job.backend)
    return pack(
        lower_module(
            parse_module(job.module, backend.table), job.options, backend, job.target, key=job.key
        )
    )


# ---- the server


def serve(orders: socket.socket) -> None:
    """Run the server: import what the first message's ``LoweringJob`` depends on, then obey orders.

    It ends when no order came for long, or when the parent is gone.
    """
    parent = os.getppid()
    global serving
    serving = True
    orders.settimeout(IDLE)
    try:
        warm: LoweringJob = pickle.loads(receive(orders))
    except (EOFError, OSError):
        return
    with contextlib.suppress(Exception):  # the jobs will report the error
        perform(warm)
    gc.collect()
    gc.freeze()
    try:
        while _is_ordered(orders, parent) and _obey(orders):
            pass
    except OSError:  # the parent is gone, or has nothing to do for us
        pass
    if os.getpgrp() == os.getpid():  # a session of its own, as it is started
        os.killpg(0, signal.SIGKILL)  # the workers, and this process


def _is_ordered(orders: socket.socket, parent: int) -> bool:
    """Wait for an order; False after a timeout or if the parent is gone."""
    until = time.monotonic() + IDLE
    while os.getppid() == parent and time.monotonic() < until:
        if select.select([orders], [], [], _PARENT_LOOK)[0]:
            return True
    return False


def _obey(orders: socket.socket) -> bool:
    """Obey one order; False at the end of orders."""
    data, handles, _, _ = socket.recv_fds(orders, 5, 1)
    if not data:
        return False
    if data[:1] == FORK:
        server = os.getpid()
        child = os.fork()
        if not child:
            end_with_parent(server)
            with socket.socket(fileno=handles[0]) as connection:
                orders.close()
                _work(connection)
            os._exit(0)
        os.close(handles[0])
        orders.sendall(struct.pack("<i", child))
    else:
        (child,) = struct.unpack("<i", data[1:])
        orders.sendall(struct.pack("<i", _ended(child, _ENDING if data[:1] == REAP else 0.0)))
    return True


def _ended(child: int, patience: float) -> int:
    """Return a worker's exit status, killing it after a timeout.

    It is 0 where the worker was killed or had ended before.
    """
    until = time.monotonic() + patience
    with contextlib.suppress(OSError):
        while True:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return os.waitstatus_to_exitcode(status)
            if time.monotonic() >= until:
                break
            time.sleep(_LOOK)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return 0


def give_way() -> None:
    """Lower this thread's priority below that of threads that measure kernels.

    A launch that waits for a CPU core would falsify the measured time.
    """
    if sys.platform == "linux":  # where a thread has a priority of its own
        thread = threading.get_native_id()
        os.setpriority(
            os.PRIO_PROCESS, thread, min(19, os.getpriority(os.PRIO_PROCESS, thread) + _NICE)
        )


def _work(connection: socket.socket) -> None:
    """Run a worker: receive jobs, send packed artifacts or errors."""
    give_way()
    while True:
        try:
            job: LoweringJob = pickle.loads(receive(connection))
        except EOFError:
            return
        if job.environment != os.environ:
            os.environ.clear()
            os.environ.update(job.environment)
        try:
            answer: tuple[str, Any] = "done", perform(job)
        except Exception as error:
            answer = "failed", error
        send(connection, _pickled(answer))


def _pickled(answer: tuple[str, Any]) -> bytes:
    """Pickle an answer; an error that cannot be pickled is replaced by its text."""
    try:
        data = pickle.dumps(answer)
        pickle.loads(data)
    except Exception:
        error = answer[1]
        data = pickle.dumps(("text", f"{type(error).__name__}: {error}"))
    return data
