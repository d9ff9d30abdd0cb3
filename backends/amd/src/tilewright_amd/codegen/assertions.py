"""Failed assertions: a number in host memory, then a trap that ends the queue.

The number lies in host memory that the device can access, so the host can still read it when the
device has become unusable, and when the runtime aborts the process
(:mod:`tilewright_amd.codegen.abort_messages`).
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from typing import Any, Final

from tilewright.gpu_host.driver import Driver
from tilewright.gpu_host.table import DriverCall, OpaqueArgument
from tilewright.llvm.emission.writer import FunctionWriter
from tilewright_amd.codegen.abort_messages import watch

#: The hidden parameter of kernels with assertions, after the source's parameters: the address where
#: a failed assertion leaves its number, from 1 on.
PARAMETER: Final = ("i64", "tilewright_reports")
_BYTES: Final = 64

_HOST_MEMORY = DriverCall("hipHostMalloc", lambda hip, size: hip.hipHostMalloc(size, 0))
_lock = threading.Lock()
#: (driver, kernel, messages) -> address of their host memory, which is never freed
_places: dict[tuple[Driver, str, tuple[str, ...]], int] = {}


def emit_failure(w: FunctionWriter, number: int) -> None:
    """Store the number of a failed assertion and trap. All active lanes take part."""
    place = w.emit(f"inttoptr i64 %{PARAMETER[1]} to ptr addrspace(1)")
    w.do(f"store volatile i32 {number}, ptr addrspace(1) {place}, align 4")
    # make the store visible to the host, past the device's caches, before the queue ends
    w.do("fence seq_cst")
    w.call("llvm.trap", "void", [])


def text_of(message: str, file: str, line: int, function: str) -> str:
    """Return the error text of a failed assertion."""
    return f"an assertion failed: {message or 'it has no message'} ({file}:{line}, in {function})"


def argument(hip: Driver, kernel: str, messages: Sequence[str]) -> OpaqueArgument:
    """Return the value of :data:`PARAMETER` for a kernel with the given assertions.

    Raises:
        DriverError: the runtime has no memory of the host for it.
    """
    address = _place(hip, kernel, tuple(messages)).to_bytes(8, "little")
    return OpaqueArgument(
        subject="what its assertions tell", inputs=(), size=8, encode=lambda values: address
    )


def _place(hip: Driver, kernel: str, messages: tuple[str, ...]) -> int:
    with _lock:
        found = _places.get((hip, kernel, messages))
        if found is None:
            found = int(hip(_HOST_MEMORY, _BYTES))
            ctypes.memset(found, 0, _BYTES)
            _places[hip, kernel, messages] = found
            watch(found, kernel, messages)
        return found


def message_of(bindings: Any) -> str:
    """Return and clear the reports of failed assertions, each message once."""
    said = []
    with _lock:
        for (hip, _, messages), place in _places.items():
            word = ctypes.c_uint32.from_address(place)
            if hip.bindings is bindings and 0 < word.value <= len(messages):
                said.append(messages[word.value - 1])
                word.value = 0
    return "; ".join(said)
