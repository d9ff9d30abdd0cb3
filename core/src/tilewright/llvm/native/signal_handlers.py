"""Signal handlers in LLVM code, called without Python, on Linux."""

from __future__ import annotations

import ctypes
from typing import Final

#: Bytes of a ``struct sigaction``.
SIZE: Final = 152
#: SA_SIGINFO, SA_ONSTACK
_FLAGS: Final = 4 | 0x08000000


class _SignalAction(ctypes.Structure):
    """``struct sigaction`` of glibc and musl on 64-bit Linux."""

    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_uint64 * 16),
        ("flags", ctypes.c_int32),
        ("restorer", ctypes.c_void_p),
    )


def install(signal: int, handler: int, before: int) -> None:
    """Have a signal call a native function ``void (int, siginfo_t *, void *)``.

    Args:
        handler: the function's address.
        before: an address of :data:`SIZE` bytes, where the handler that was there is left.
    """
    action = _SignalAction(handler, flags=_FLAGS)
    ctypes.CDLL(None).sigaction(signal, ctypes.byref(action), ctypes.c_void_p(before))
