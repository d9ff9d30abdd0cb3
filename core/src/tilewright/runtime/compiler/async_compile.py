"""Background compilation in an executor.

    with ThreadPoolExecutor(8) as pool, AsyncCompileMode(pool):
        for block in (64, 128, 256):
            kernel.warmup(x, n, BLOCK=block, grid=(1,))

Each warm-up in the block returns a :class:`FutureKernel` at once; the block ends when all of them
are compiled.
"""

from __future__ import annotations

import contextvars
import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future, as_completed
from types import TracebackType
from typing import Any

#: the mode in force
active_mode: contextvars.ContextVar[AsyncCompileMode | None] = contextvars.ContextVar(
    "tilewright_async_compile", default=None
)


class FutureKernel:
    """Future of a kernel that is being compiled.

    It is used like the compiled kernel; using it waits for the compilation. :meth:`result` returns
    the kernel itself.

    Attributes:
        kernel: the compiled kernel, once it is there.
        future: the compilation; None once it has ended.
    """

    def __init__(self, future: Future[Any]) -> None:
        self.future: Future[Any] | None = future
        self.kernel: Any = None
        self._compiled: Any = None
        self._state = "pending"
        #: it failed with an error that may be ignored, unlike an interrupt
        self._ignorable = True
        self._callbacks: deque[tuple[Callable[[Any], Any], Callable[[Any], Any]]] = deque()
        self._running = False
        self._lock = threading.RLock()

    def add_callbacks(self, finalize: Callable[[Any], Any], cleanup: Callable[[Any], Any]) -> None:
        """Register callbacks for when the compilation's result is requested.

        ``finalize(compiled kernel)`` is called after a success, ``cleanup(self)`` after a failure.

        A result of ``finalize`` other than None replaces the kernel.
        """
        self._callbacks.append((finalize, cleanup))

    def result(self, ignore_errors: bool = False) -> Any:
        """Wait for the compiled kernel; None if it failed to compile and ``ignore_errors`` is set.

        Raises:
            CompilationError, LoweringError, OutOfResources: as compiling it here would have raised,
                the first time that it is asked for.
            RuntimeError: the result of a failed compilation was requested again. The error is not
                kept, since its traceback keeps the whole compilation alive.
        """
        future = self.future
        if self._state == "pending" and future is not None:
            try:
                compiled = future.result()
            except BaseException as error:
                ignorable = isinstance(error, Exception)
                if self._end("failed", ignorable=ignorable):
                    if ignorable and ignore_errors:
                        return None
                    raise
            else:
                self._end("succeeded", compiled)
        self._run_callbacks()
        if self._state == "succeeded":
            return self.kernel
        if ignore_errors and self._ignorable:
            return None
        raise RuntimeError(
            "the compilation of this kernel previously failed, or was given up; see the error that "
            "was raised then"
        )

    def abandon(self) -> None:
        """Give up a compilation without waiting for it."""
        future = self.future
        if self._state == "pending" and future is not None:
            future.cancel()
            self._end("failed", ignorable=False)

    def _end(self, state: str, compiled: Any = None, ignorable: bool = True) -> bool:
        """Mark the compilation as ended; False if another thread did so first."""
        with self._lock:
            if self._state != "pending":
                return False
            self._state, self._ignorable, self.future, self.kernel, self._compiled = (
                state,
                ignorable,
                None,
                compiled,
                compiled,
            )
        self._run_callbacks()
        return True

    def _run_callbacks(self) -> None:
        """Run all callbacks that have not run yet, then raise the first error.

        An interrupt takes precedence over other errors.

        The error of a clean-up is left to the compilation's own error.
        """
        with self._lock:
            # this thread is calling them: the outer call goes on with what was added
            if self._running:
                return
            self._running = True
            errors: list[BaseException] = []
            try:
                while self._callbacks:
                    finalize, cleanup = self._callbacks.popleft()
                    try:
                        if self._state == "succeeded":
                            made = finalize(self._compiled)
                            self.kernel = self.kernel if made is None else made
                        else:
                            cleanup(self)
                    except BaseException as error:
                        if self._state == "succeeded" or not isinstance(error, Exception):
                            errors.append(error)
            finally:
                self._running = False
        if errors:
            raise next((error for error in errors if not isinstance(error, Exception)), errors[0])

    def __getitem__(self, grid: Any) -> Any:
        return self.result()[grid]

    def __getattr__(self, name: str) -> Any:
        # protocol lookups must neither wait nor find the kernel's methods, and an instance that is
        # being unpickled has no state yet
        if name.startswith("__") or "_state" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        return getattr(self.result(), name)


class AsyncCompileMode:
    """While the block runs, kernels that are warmed up or launched are compiled by ``executor``.

    Args:
        executor: runs the compilations.
        ignore_errors: leave out kernels that do not compile, instead of raising the first error at
            the end of the block.

    Raises:
        RuntimeError: entered while another mode is in force.

    Attributes:
        future_kernels: the kernels that were asked for in the block, by key; raw_futures: their
            compilations.
    """

    #: the future of a kernel that is being compiled
    future_type: Callable[[Future[Any]], FutureKernel] = FutureKernel

    def __init__(self, executor: Executor, *, ignore_errors: bool = False) -> None:
        self.executor = executor
        self.ignore_errors = ignore_errors
        self.raw_futures: list[Future[Any]] = []
        self.future_kernels: dict[Any, FutureKernel] = {}

    def submit(
        self,
        key: Any,
        compile_fn: Callable[[], Any],
        finalize_fn: Callable[[Any], Any],
        cleanup_fn: Callable[[Any], Any] = lambda _: None,
    ) -> FutureKernel:
        """Return the kernel of ``key``, submitting ``compile_fn`` on the first request.

        For the callbacks see :meth:`FutureKernel.add_callbacks`.
        """
        found = self.future_kernels.get(key)
        if found is None:
            future = self.executor.submit(compile_fn)
            self.raw_futures.append(future)
            found = self.future_kernels[key] = type(self).future_type(future)
        found.add_callbacks(finalize_fn, cleanup_fn)
        return found

    def __enter__(self) -> AsyncCompileMode:
        if active_mode.get() is not None:
            raise RuntimeError("Another AsyncCompileMode is already active")
        active_mode.set(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        active_mode.set(None)
        try:
            if kind is not None and not issubclass(kind, Exception):  # an interrupt does not wait
                self._abandon()
            else:
                self._drain()
        except Exception:
            raise
        except BaseException:
            self._abandon()
            raise
        finally:
            self.raw_futures.clear()
            self.future_kernels.clear()

    def _completed(self, futures: Iterable[Future[Any]]) -> Iterable[Future[Any]]:
        return as_completed(futures)

    def _drain(self) -> None:
        """Wait for all compilations, including new ones; raise the first unreported error."""
        reported = {kernel for kernel in self.future_kernels.values() if kernel._state == "failed"}
        errors: list[Exception] = []

        def finish(kernel: FutureKernel) -> None:
            try:
                kernel.result(self.ignore_errors)
            except Exception as error:
                if kernel not in reported:
                    errors.append(error)

        while True:
            while self.raw_futures:
                futures, self.raw_futures = self.raw_futures, []
                by_future = {
                    kernel.future: kernel
                    for kernel in self.future_kernels.values()
                    if kernel.future is not None
                }
                for future in self._completed(futures):
                    if future in by_future:
                        finish(by_future[future])
            late = [kernel for kernel in self.future_kernels.values() if kernel._callbacks]
            if not late:
                break
            for kernel in late:  # asked for again since they ended
                finish(kernel)
        if errors:
            raise errors[0]

    def _abandon(self) -> None:
        """Abandon all compilations, also those that a clean-up submits."""
        while self.future_kernels:
            _, kernel = self.future_kernels.popitem()
            try:
                kernel.abandon()
                kernel._run_callbacks()
            except Exception:  # the interrupt that led here is what is raised
                continue
