"""Reports of failed assertions under runtimes that abort the process before they return an error.

When a queue fails, HSA, below the HIP runtime, calls ``abort`` on its own thread, so no runtime
call returns the error. By then the number of the failed assertion is in host memory
(:mod:`.assertions`). A SIGABRT handler looks for such numbers, writes a line for each to standard
error, and re-raises the signal under the previous handler, such as :mod:`faulthandler`'s. It calls
only async-signal-safe functions, takes no locks and does not need the interpreter.

The handler exists on Linux for x86-64 and aarch64, from the first kernel with assertions on. A
forked child ignores its parent's kernels, since it does not have their memory.
"""

from __future__ import annotations

import ctypes
import functools
import os
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from tilewright.llvm.native import signal_handlers

if TYPE_CHECKING:
    from tilewright.llvm.codegen.link import LoadedObject

#: The maximum number of kernels that the handler checks; the newest replace the oldest.
MOST: Final = 4096
_MACHINES: Final = ("x86_64", "aarch64")
#: SIGABRT's number on Linux.
_SIGABRT: Final = 6

_IR: Final = """
; of each kernel: addresses of the number and of the texts, how many these are
@kernels = global [MOST x [3 x i64]] zeroinitializer
@owner = global i32 0 ; the process
@before = global [19 x i64] zeroinitializer ; what sigaction gave

declare i32 @sigaction(i32, ptr, ptr)
declare i32 @raise(i32)
declare i32 @getpid()
declare i64 @write(i32, ptr, i64)

define void @aborted(i32 %signal, ptr %facts, ptr %context) nounwind {
entry:
  %process = call i32 @getpid()
  %owner = load i32, ptr @owner
  %ours = icmp eq i32 %process, %owner
  br i1 %ours, label %look, label %leave
look:
  %i = phi i64 [ 0, %entry ], [ %i1, %looked ]
  %kernel = getelementptr [MOST x [3 x i64]], ptr @kernels, i64 0, i64 %i
  %place0 = load atomic i64, ptr %kernel acquire, align 8
  %there = icmp ne i64 %place0, 0
  br i1 %there, label %read, label %looked
read:
  %place = inttoptr i64 %place0 to ptr
  %number = load volatile i32, ptr %place
  %wide = zext i32 %number to i64
  %p2 = getelementptr i64, ptr %kernel, i64 2
  %count = load i64, ptr %p2
  %index = sub i64 %wide, 1
  %failed = icmp ult i64 %index, %count
  br i1 %failed, label %tell, label %looked
tell:
  %p1 = getelementptr i64, ptr %kernel, i64 1
  %texts0 = load i64, ptr %p1
  %texts = inttoptr i64 %texts0 to ptr
  %entry.at = getelementptr [2 x i64], ptr %texts, i64 %index
  %text0 = load i64, ptr %entry.at
  %text = inttoptr i64 %text0 to ptr
  %length.at = getelementptr i64, ptr %entry.at, i64 1
  %length = load i64, ptr %length.at
  %written = call i64 @write(i32 2, ptr %text, i64 %length)
  br label %looked
looked:
  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i1, MOST
  br i1 %more, label %look, label %leave
leave:
  ; the signal comes once more, when this returns, under the handler that was there before
  %r = call i32 @sigaction(i32 %signal, ptr @before, ptr null)
  %s = call i32 @raise(i32 %signal)
  ret void
}
"""


class _Watch:
    def __init__(self, code: LoadedObject) -> None:
        self._code = code
        self._kernels = (ctypes.c_int64 * (3 * MOST)).from_address(code.address("kernels"))
        self._kept: list[object] = [None] * MOST
        self._count = 0
        self._lock = threading.Lock()

    def install(self) -> None:
        """Install the SIGABRT handler, which restores and re-raises to the previous handler."""
        ctypes.c_int32.from_address(self._code.address("owner")).value = os.getpid()
        signal_handlers.install(
            _SIGABRT, self._code.address("aborted"), self._code.address("before")
        )

    def add(self, place: int, lines: Sequence[bytes]) -> None:
        texts = [ctypes.create_string_buffer(line, len(line)) for line in lines]
        pairs = [number for text in texts for number in (ctypes.addressof(text), len(text))]
        table = (ctypes.c_int64 * len(pairs))(*pairs)
        with self._lock:
            entry = 3 * (self._count % MOST)
            # write the address of the number last: until then the handler skips the entry
            self._kernels[entry] = 0
            self._kernels[entry + 1], self._kernels[entry + 2] = ctypes.addressof(table), len(texts)
            self._kept[self._count % MOST] = table, texts
            self._kernels[entry] = place
            self._count += 1


@functools.cache
def _watch(process: int) -> _Watch | None:
    """Return the abort handler of a process, installed at the first call; None if unsupported."""
    from tilewright.llvm.codegen.compile import host_target
    from tilewright.runtime.storage.host_code import load_host_code

    machine, _, system = (*host_target()[0].split("-"), "", "")[:3]
    if system != "linux" or machine not in _MACHINES:
        return None
    found = _Watch(
        load_host_code(
            "abort handler",
            _IR.replace("MOST", str(MOST)),
            ("aborted", "kernels", "owner", "before"),
        )
    )
    found.install()
    return found


def watch(place: int, kernel: str, messages: Sequence[str]) -> None:
    """Make the SIGABRT handler report failed assertions of a kernel.

    A failed assertion leaves its number, from 1 on, at the address ``place``, which must stay
    readable for the lifetime of the process.
    """
    found = _watch(os.getpid())
    if found is not None:
        found.add(
            place, [f"\ntilewright: kernel {kernel}: {message}\n".encode() for message in messages]
        )
