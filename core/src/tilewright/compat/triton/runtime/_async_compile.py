"""``triton.runtime._async_compile``: compiling kernels in the background.

It is :mod:`tilewright.runtime.compiler.async_compile` with Triton's constructors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future, as_completed
from typing import Any

from tilewright.runtime.compiler import async_compile as own
from tilewright.runtime.compiler.async_compile import active_mode


class FutureKernel(own.FutureKernel):
    """A kernel that is being compiled.

    See :class:`tilewright.runtime.compiler.async_compile.FutureKernel`.

    Made as ``FutureKernel(finalize, future)``, or as ``FutureKernel(future)`` with
    ``add_callbacks``, as later releases of Triton do.
    """

    def __init__(self, finalize_compile: Any, future: Future[Any] | None = None) -> None:
        if future is None:
            super().__init__(finalize_compile)
            return
        super().__init__(future)
        finalize: Callable[[Any], Any] = finalize_compile
        self.add_callbacks(finalize, lambda _: None)


class AsyncCompileMode(own.AsyncCompileMode):
    """Compile the kernels that are warmed up or launched in a ``with`` block by ``executor``.

    The block ends when all are done.

        with ThreadPoolExecutor(8) as pool, triton.AsyncCompileMode(pool):
            kernel.warmup(torch.float32, 64, grid=(1,))

    Raises:
        RuntimeError: entered while another mode is in force.
    """

    future_type = FutureKernel

    def _completed(self, futures: Iterable[Future[Any]]) -> Iterable[Future[Any]]:
        return as_completed(futures)


__all__ = ["AsyncCompileMode", "FutureKernel", "active_mode"]
