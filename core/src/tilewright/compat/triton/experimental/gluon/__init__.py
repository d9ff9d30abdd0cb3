"""``triton.experimental.gluon``: a language of one vendor's hardware, without a compiler here.

Programs that have kernels in Gluon beside portable ones, as vLLM has, import it whether or not they
launch any. Such kernels are defined here as anywhere; a launch is refused.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tilewright.compat.triton.outside import OutsideKernelError, absent
from tilewright.language.definitions.callable import constexpr_function

__all__ = ["GluonKernel", "constexpr_function", "jit"]


class GluonKernel:
    """A kernel in Gluon: it has a name and a source, and cannot be launched."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.fn = fn
        functools.update_wrapper(self, fn)

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        return self.run

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.run()

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Refuse the launch.

        Raises:
            OutsideKernelError: always; it names the kernel and where it is defined.
        """
        code = self.fn.__code__
        raise OutsideKernelError(
            f"{self.fn.__qualname__}, at {code.co_filename}:{code.co_firstlineno}, is written in "
            "Gluon, which speaks of one vendor's hardware and is outside what "
            "tilewright.compat.triton provides. Write the kernel in triton.language, or have the "
            "program choose a kernel that is"
        )

    warmup = run


def jit(fn: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Define a kernel in Gluon; with or without arguments, as ``triton.jit``."""
    return (lambda own: GluonKernel(own)) if fn is None else GluonKernel(fn)


def __getattr__(name: str) -> Any:
    raise absent(__name__.replace("tilewright.compat.", ""), name, "it is of the Gluon language")
