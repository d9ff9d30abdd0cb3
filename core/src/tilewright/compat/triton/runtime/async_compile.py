"""The names of :mod:`triton.runtime._async_compile`."""

from tilewright.compat.triton.runtime._async_compile import (
    AsyncCompileMode,
    FutureKernel,
    active_mode,
)

__all__ = ["AsyncCompileMode", "FutureKernel", "active_mode"]
