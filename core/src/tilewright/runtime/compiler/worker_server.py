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

#: Whether this is such a process, which leaves devices to its parent.
serving = False
#: Seconds without orders after which a server, and its workers, end.
IDLE = 300.0
#: What an order begins with: fork a worker; end one; tell how one ended that has closed its connection. The last two name a process.
FORK, KILL, REAP = b"F", b"K", b"R"
#: Seconds between looks for the parent.
_PARENT_LOOK = 2.0
#: Seconds that a worker may take from closing its connection to its end, and between looks.
_ENDING, _LOOK = 2.0, 0.005
_LENGTH = struct.Struct("<Q")
#: How much nicer workers are, and who waits for them.
_NICE = 5


@dataclass(frozen=True)
class Job:
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
    """The next message.

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


def perform(job: Job) -> bytes:
    """The packed artifact of a job."""
    from tilewright.ir.parser import parse_module
    from tilewright.plugins.registry import registry
    from tilewright.runtime.compiler.compile import lower_module
    from tilewright.runtime.storage.artifact import pack

    backend = registry().get(job.backend)
    return pack(lower_module(parse_module(job.module, backend.table), job.options, backend, job.target, key=job.key))


# ---- the server


def serve(orders: socket.socket) -> None:
    """Import what ``Job`` of the first message needs, then fork a worker for each order, until there are none for long or the parent is gone."""
    parent = os.getppid()
    global serving
    serving = True
    orders.settimeout(IDLE)
    try:
        warm: Job = pickle.loads(receive(orders))
    except (EOFError, OSError):
        return
    with contextlib.suppress(Exception):  # what is wrong with it, the jobs will tell
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
    """Wait for an order, or the end of orders; False where there is none for long, or the parent is gone."""
    until = time.monotonic() + IDLE
    while os.getppid() == parent and time.monotonic() < until:
        if select.select([orders], [], [], _PARENT_LOOK)[0]:
            return True
    return False


def _obey(orders: socket.socket) -> bool:
    """Follow one order; False where there will be no more."""
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
    """The exit status of a worker, which is killed after so many seconds; 0 where it had to be, or had ended before."""
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
    """Let this thread have less of a processor than who measures beside it: the times of launches that wait for a processor are no times of kernels."""
    if sys.platform == "linux":  # where a thread has a priority of its own
        thread = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, thread, min(19, os.getpriority(os.PRIO_PROCESS, thread) + _NICE))


def _work(connection: socket.socket) -> None:
    """A worker: jobs in, packed artifacts or errors out."""
    give_way()
    while True:
        try:
            job: Job = pickle.loads(receive(connection))
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
    """An answer as bytes; an error that cannot be sent becomes its text."""
    try:
        data = pickle.dumps(answer)
        pickle.loads(data)
    except Exception:
        error = answer[1]
        data = pickle.dumps(("told", f"{type(error).__name__}: {error}"))
    return data
