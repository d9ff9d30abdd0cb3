"""Child processes for tests, forked from a process that has imported Tilewright already.

A child of :func:`run` or :func:`start` behaves like a new interpreter: it has its own
``__main__``, arguments, environment, current folder, standard streams and exit. It has no threads,
and has looked for no backend, because the server has imported modules and called nothing. It saves
the 0.5 seconds of imports that an interpreter spends before its first kernel.

Start an interpreter instead (``subprocess.run([sys.executable, ...])``) where a test is about what
an import does or reads, the order of imports, flags of Python, or the installation. The server
refuses environments that only a new interpreter would follow.
"""

from __future__ import annotations

import atexit
import builtins
import contextlib
import functools
import gc
import importlib
import importlib.util
import json
import os
import pkgutil
import selectors
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

#: Packages whose modules the server imports: all that compiles and launches kernels on the CPU.
PACKAGES = (
    "tilewright.frontend",
    "tilewright.ir",
    "tilewright.language",
    "tilewright.llvm",
    "tilewright.passes",
    "tilewright.plugins",
    "tilewright.reference",
    "tilewright.runtime",
    "tilewright_cpu",
)
#: The beginnings of variables that an interpreter, a library or a module reads once, at its start.
AT_START = ("PYTHON", "LD_", "DYLD_", "OPENBLAS_", "OMP_", "MKL_", "TRITON_MAX_TENSOR_NUMEL")
#: Variables of those that a child follows, or that make no difference to it.
FOLLOWED = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "PYTHONBREAKPOINT")
#: Variables by which libraries start no threads when the server imports them.
ONE_THREAD = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
#: Elsewhere libraries of the system do not stand forks without a new program.
FORKS = sys.platform == "linux"
Arguments = Sequence[str | os.PathLike[str]]
_LENGTH = struct.Struct("!I")


class ForkServer:
    """A process that forks children on request.

    Args:
        preload: the code whose imports the children share.
    """

    def __init__(self, preload: str) -> None:
        # a library's threads would be lost in the children
        self._environment = {**os.environ, **dict.fromkeys(ONE_THREAD, "1")}
        self._environment.pop("PYTHONPATH", None)
        self._control, theirs = socket.socketpair()
        code = (
            f"import sys\nsys.path[0] = {str(Path(__file__).parent)!r}\n{preload}\n"
            f"import fork_server\nexec(*fork_server.serve({theirs.fileno()}))"
        )
        self._server = subprocess.Popen(
            [sys.executable, "-c", code],
            env=self._environment,
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        theirs.close()
        self._owner, self._lock = os.getpid(), threading.RLock()
        self._received, self._codes, self._pids = b"", {}, []
        atexit.register(self.close)

    def __enter__(self) -> ForkServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the server and the children that still run."""
        if self._owner == os.getpid() and self._control.fileno() >= 0:
            self._control.close()
            self._server.wait()

    def start(
        self,
        arguments: Arguments,
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        stdin: int = subprocess.DEVNULL,
    ) -> Child:
        """Start a child in a session of its own.

        Args:
            arguments: those of an interpreter: a file, or ``-c`` and code, or ``-m`` and a module,
                and what the program finds in ``sys.argv``.
            env: the whole environment; this process's otherwise.
            stdin: a descriptor.
        """
        environment = {**os.environ} if env is None else dict(env)
        for name in {*environment, *self._environment} - {*FOLLOWED}:
            if name.startswith(AT_START) and name not in ONE_THREAD:
                assert environment.get(name) == self._environment.get(name), (
                    f"{name} takes effect when an interpreter starts: use subprocess"
                )
        out, theirs_out = os.pipe()
        err, theirs_err = os.pipe()
        empty = os.open(os.devnull, os.O_RDONLY)
        job = {
            "arguments": [os.fspath(argument) for argument in arguments],
            "environment": environment,
            "folder": os.fspath(cwd) if cwd is not None else os.getcwd(),
        }
        data = json.dumps(job).encode()
        given = empty if stdin == subprocess.DEVNULL else stdin
        with self._lock:
            socket.send_fds(self._control, [b"J"], [given, theirs_out, theirs_err])
            self._control.sendall(_LENGTH.pack(len(data)) + data)
            for handle in (theirs_out, theirs_err, empty):
                os.close(handle)
            while not self._pids:
                self._receive(None)
            return Child(self, self._pids.pop(), list(job["arguments"]), out, err)

    def run(
        self,
        arguments: Arguments,
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        input: str | None = None,
        timeout: float = 900,
        check: bool = False,
    ) -> subprocess.CompletedProcess[str]:
        """Run a child to its end, as ``subprocess.run`` does with its output captured as text."""
        with contextlib.ExitStack() as stack:
            stdin = subprocess.DEVNULL
            if input is not None:
                file = stack.enter_context(tempfile.TemporaryFile())
                file.write(input.encode())
                file.seek(0)
                stdin = file.fileno()
            child = self.start(arguments, env=env, cwd=cwd, stdin=stdin)
        try:
            out, err = child.communicate(timeout=timeout)
        except BaseException:
            child.kill()
            raise
        assert child.returncode is not None
        done = subprocess.CompletedProcess(child.args, child.returncode, out, err)
        if check:
            done.check_returncode()
        return done

    def exit_code(self, pid: int, timeout: float | None) -> int | None:
        """Wait for a child's exit code; None if it does not end in ``timeout`` seconds."""
        until = None if timeout is None else time.monotonic() + timeout
        with self._lock:
            while pid not in self._codes:
                left = None if until is None else max(0.0, until - time.monotonic())
                if not self._receive(left):
                    return None
            return self._codes.pop(pid)

    def _receive(self, timeout: float | None) -> bool:
        """Take note of what the server reports; return whether it did in time."""
        self._control.settimeout(timeout)
        try:
            data = self._control.recv(4096)
        except (TimeoutError, BlockingIOError):
            return False
        finally:
            self._control.settimeout(None)
        assert data, f"the fork server has ended with {self._server.wait()}"
        *lines, self._received = (self._received + data).split(b"\n")
        for line in lines:
            kind, pid, code = line.split()
            if kind == b"started":
                self._pids.append(int(pid))
            else:
                self._codes[int(pid)] = int(code)
        return True


class Child:
    """A started child, with those members of ``subprocess.Popen`` that tests use."""

    def __init__(self, server: ForkServer, pid: int, args: list[str], out: int, err: int) -> None:
        self.pid, self.args = pid, args
        self._server = server
        self.stdout, self.stderr = os.fdopen(out, "r"), os.fdopen(err, "r")
        self.returncode: int | None = None

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            self.returncode = self._server.exit_code(self.pid, timeout)
            if self.returncode is None:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Return what is left of the child's output, after its end."""
        until = None if timeout is None else time.monotonic() + timeout
        taken: dict[Any, str] = {self.stdout: "", self.stderr: ""}
        readers = [
            threading.Thread(
                target=lambda file=file: taken.update({file: file.read()}), daemon=True
            )
            for file in taken
            if not file.closed
        ]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join(None if until is None else max(0.0, until - time.monotonic()))
            if reader.is_alive():
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
        out, err = taken[self.stdout], taken[self.stderr]
        self.stdout.close()
        self.stderr.close()
        self.wait(None if until is None else max(0.0, until - time.monotonic()))
        return out, err

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End the child and every process of its session's group."""
        if self.poll() is None:
            os.killpg(self.pid, signal.SIGKILL)


def preload(*packages: str) -> None:
    """Import packages and all their modules, except those that need another distribution."""
    for name in packages:
        package = importlib.import_module(name)
        for module in pkgutil.walk_packages(package.__path__, name + "."):
            if module.name.rpartition(".")[2] != "__main__":
                with contextlib.suppress(ModuleNotFoundError):
                    importlib.import_module(module.name)


@functools.cache
def server(*packages: str, code: str = "") -> ForkServer:
    """Return this process's server with Tilewright and its backend for CPUs.

    Args:
        packages: more packages whose modules it imports.
        code: what else it does, which may not look for backends.
    """
    modules = "tilewright.tools.cli, pytest"
    chosen = (*PACKAGES, *packages)
    return ForkServer(f"import fork_server, {modules}\nfork_server.preload(*{chosen!r})\n{code}")


def start(arguments: Arguments, **options: Any) -> Child | subprocess.Popen[str]:
    """:meth:`ForkServer.start` of the shared server; an interpreter where systems fork badly."""
    if FORKS:
        return server().start(arguments, **options)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    command = [sys.executable, *arguments]
    return subprocess.Popen(command, start_new_session=True, **pipes, **options)


def run(arguments: Arguments, **options: Any) -> subprocess.CompletedProcess[str]:
    """:meth:`ForkServer.run` of the shared server; an interpreter where systems fork badly."""
    if FORKS:
        return server().run(arguments, **options)
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        **{"timeout": 900, "check": False, **options},
    )


_FIRST_LAUNCH = """
import numpy as np, tilewright as tw, tilewright.language as tl

@tw.jit
def fork_server_kernel(x):
    tl.store(x + tl.program_id(0), 1)

fork_server_kernel[(64,)](np.zeros(64))
"""


@functools.cache
def _native_code() -> dict[Path, bytes]:
    """Return the files of a cache after a process's first launch."""
    with tempfile.TemporaryDirectory() as folder:
        program, cache = Path(folder, "program.py"), Path(folder, "cache")
        program.write_text(_FIRST_LAUNCH)
        run([program], env={**os.environ, "TILEWRIGHT_CACHE_DIR": str(cache)}, check=True)
        files = [file for file in cache.rglob("*") if file.is_file()]
        return {file.relative_to(cache): file.read_bytes() for file in files}


def warm_cache(folder: Path) -> Path:
    """Make a kernel cache that has the runtime's and the CPU backend's native code alone.

    A process compiles it before its first launch in 0.25 seconds where its cache lacks it. Kernels
    of tests are not in the cache.
    """
    for name, content in () if folder.exists() else _native_code().items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


# ---- the server's side

_kept: list[ModuleType] = []


def serve(handle: int) -> tuple[CodeType, dict[str, Any]]:
    """Fork children on request. In the server this does not return; it ends with its client.

    Returns:
        in a child: the program, and the names of its ``__main__``.
    """
    assert threading.active_count() == 1, "preloading started threads"
    gc.collect()
    gc.freeze()
    control = socket.socket(fileno=handle)
    wake, woken = socket.socketpair()
    wake.setblocking(False)
    signal.set_wakeup_fd(wake.fileno())
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    running: set[int] = set()
    with selectors.DefaultSelector() as selector:
        selector.register(control, selectors.EVENT_READ)
        selector.register(woken, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is woken:
                    woken.recv(4096)
                    _reap(control, running)
                    continue
                mark, handles, _, _ = socket.recv_fds(control, 1, 3)
                if not mark:
                    for pid in running:
                        with contextlib.suppress(ProcessLookupError):
                            os.killpg(pid, signal.SIGKILL)
                    os._exit(0)
                (length,) = _LENGTH.unpack(_exactly(control, _LENGTH.size))
                job = json.loads(_exactly(control, length))
                pid = os.fork()
                if pid == 0:
                    signal.set_wakeup_fd(-1)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    for end in (control, wake, woken):
                        end.close()
                    break
                for handle in handles:
                    os.close(handle)
                running.add(pid)
                control.sendall(b"started %d 0\n" % pid)
            else:
                continue
            break
    return _become(job, handles)


def _exactly(control: socket.socket, length: int) -> bytes:
    data = b""
    while len(data) < length:
        data += control.recv(length - len(data))
    return data


def _reap(control: socket.socket, running: set[int]) -> None:
    while running:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        running.discard(pid)
        with contextlib.suppress(OSError):
            control.sendall(b"ended %d %d\n" % (pid, os.waitstatus_to_exitcode(status)))


def _become(job: dict[str, Any], handles: list[int]) -> tuple[CodeType, dict[str, Any]]:
    """Make this process what an interpreter with the job's arguments would be."""
    os.setsid()
    for target, handle in enumerate(handles):
        os.dup2(handle, target)
        os.close(handle)
    sys.stdin = sys.__stdin__ = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = sys.__stdout__ = open(1, "w", closefd=False)  # noqa: SIM115
    errors = open(2, "w", errors="backslashreplace", closefd=False)  # noqa: SIM115
    sys.stderr = sys.__stderr__ = errors
    sys.stderr.reconfigure(line_buffering=True)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    environment = job["environment"]
    for name in os.environ.keys() - environment.keys():
        del os.environ[name]
    os.environ.update(environment)
    os.chdir(job["folder"])
    sys.dont_write_bytecode = bool(environment.get("PYTHONDONTWRITEBYTECODE"))
    return _program(*job["arguments"])


def _program(kind: str, *rest: str) -> tuple[CodeType, dict[str, Any]]:
    """Set up ``sys.argv``, ``sys.path`` and ``__main__`` for a command line, and compile it."""
    sys.orig_argv = [sys.executable, kind, *rest]
    path = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    # the server's own is frozen: finalizers of what it refers to would not run at the end
    _kept.append(sys.modules["__main__"])
    sys.modules["__main__"] = ModuleType("__main__")
    names = sys.modules["__main__"].__dict__
    names["__builtins__"] = builtins
    if kind == "-c":
        sys.path[:1] = ["", *path]
        sys.argv = ["-c", *rest[1:]]
        return compile(rest[0], "<string>", "exec"), names
    if kind == "-m":
        sys.path[:1] = [os.getcwd(), *path]
        spec = importlib.util.find_spec(rest[0])
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{rest[0]}.__main__")
        assert spec is not None and spec.origin is not None, rest[0]
        loader: Any = spec.loader
        names.update(__spec__=spec, __package__=spec.parent, __loader__=loader)
        names["__file__"] = spec.origin
        sys.argv = [spec.origin, *rest[1:]]
        return loader.get_code(spec.name), names
    sys.path[:1] = [os.path.dirname(os.path.abspath(kind)), *path]
    names["__file__"] = kind
    sys.argv = [kind, *rest]
    return compile(Path(kind).read_bytes(), kind, "exec"), names
