"""A fault handler that names the kernel which ran when a fault ended the process.

Kernels are distinguished by the addresses of their code, so a launch costs nothing: the handler
looks up the instruction that faulted. It writes a line to standard error and yields to the
handler that was there before, such as :mod:`faulthandler`'s, or to the process's end.

It works on Linux for x86-64 and aarch64, once a first kernel has been loaded.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from typing import TYPE_CHECKING, Final

from tilewright.llvm.native import signal_handlers

if TYPE_CHECKING:
    from tilewright.llvm.codegen.link import LoadedObject

#: Maximum of kernels that are distinguished; of more the oldest are forgotten.
MOST: Final = 4096
#: Where a signal's context has the address of the instruction, in bytes.
_PLACE: Final = {"x86_64": 168, "aarch64": 440}
#: Illegal instruction, bus error, arithmetic, memory: Linux's numbers.
SIGNALS: Final = (4, 7, 8, 11)

_IR = """
; of each kernel: start and end of the code, address and bytes of the text
@kernels = global [MOST x [4 x i64]] zeroinitializer
@before = global [16 x [19 x i64]] zeroinitializer ; by signal: what sigaction gave

declare i32 @sigaction(i32, ptr, ptr)
declare i32 @raise(i32)
declare i64 @write(i32, ptr, i64)

define void @fault(i32 %signal, ptr %facts, ptr %context) nounwind {
entry:
  %place = getelementptr i8, ptr %context, i64 PLACE
  %at = load i64, ptr %place
  br label %look
look:
  %i = phi i64 [ 0, %entry ], [ %i1, %looked ]
  %found = phi ptr [ null, %entry ], [ %found1, %looked ]
  %best = phi i64 [ 0, %entry ], [ %best1, %looked ]
  %kernel = getelementptr [MOST x [4 x i64]], ptr @kernels, i64 0, i64 %i
  %start = load i64, ptr %kernel
  %p1 = getelementptr i64, ptr %kernel, i64 1
  %end = load i64, ptr %p1
  %after = icmp uge i64 %at, %start
  %within = icmp ult i64 %at, %end
  %nearer = icmp ugt i64 %start, %best
  %inside = and i1 %after, %within
  %take = and i1 %inside, %nearer
  br label %looked
looked:
  %found1 = select i1 %take, ptr %kernel, ptr %found
  %best1 = select i1 %take, i64 %start, i64 %best
  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i1, MOST
  br i1 %more, label %look, label %done
done:
  %none = icmp eq ptr %found1, null
  br i1 %none, label %leave, label %tell
tell:
  %p2 = getelementptr i64, ptr %found1, i64 2
  %text0 = load i64, ptr %p2
  %text = inttoptr i64 %text0 to ptr
  %p3 = getelementptr i64, ptr %found1, i64 3
  %length = load i64, ptr %p3
  %written = call i64 @write(i32 2, ptr %text, i64 %length)
  br label %leave
leave:
  ; the instruction is tried again, under the handler that was there before; a signal that somebody
  ; sent must be sent again
  %wide = zext i32 %signal to i64
  %old = getelementptr [16 x [19 x i64]], ptr @before, i64 0, i64 %wide
  %r = call i32 @sigaction(i32 %signal, ptr %old, ptr null)
  %p4 = getelementptr i8, ptr %facts, i64 8
  %code = load i32, ptr %p4
  %sent = icmp sle i32 %code, 0
  br i1 %sent, label %again, label %out
again:
  %s = call i32 @raise(i32 %signal)
  br label %out
out:
  ret void
}
"""


class _Watch:
    def __init__(self, code: LoadedObject) -> None:
        self._code = code
        self._kernels = (ctypes.c_int64 * (4 * MOST)).from_address(code.address("kernels"))
        self._texts: list[ctypes.Array[ctypes.c_char] | None] = [None] * MOST
        self._count = 0
        self._lock = threading.Lock()

    def install(self) -> None:
        """Handle faults from now on, before the handlers that are there."""
        for signal in SIGNALS:
            before = self._code.address("before") + signal * signal_handlers.SIZE
            signal_handlers.install(signal, self._code.address("fault"), before)

    def add(self, start: int, size: int, text: bytes) -> None:
        with self._lock:
            place = self._count % MOST
            self._count += 1
            kept = ctypes.create_string_buffer(text, len(text))
            # the code's start comes last: until then the entry is of no kernel
            self._kernels[4 * place] = self._kernels[4 * place + 1] = 0
            self._kernels[4 * place + 2], self._kernels[4 * place + 3] = (
                ctypes.addressof(kept),
                len(text),
            )
            self._texts[place] = kept
            self._kernels[4 * place + 1] = start + size
            self._kernels[4 * place] = start


@functools.cache
def _watch() -> _Watch | None:
    from tilewright.llvm.codegen.compile import host_target
    from tilewright.runtime.storage.host_code import load_host_code

    machine, _, system = (*host_target()[0].split("-"), "", "")[:3]
    if system != "linux" or machine not in _PLACE:
        return None
    text = _IR.replace("MOST", str(MOST)).replace("PLACE", str(_PLACE[machine]))
    found = _Watch(load_host_code("fault handler", text, ("fault", "kernels", "before")))
    found.install()
    return found


def watch(start: int, size: int, name: str) -> None:
    """Name kernel ``name`` at a fault in code from ``start`` on, of at most ``size`` bytes."""
    found = _watch()
    if found is not None:
        text = (
            f"\ntilewright: kernel {name} was running when a fault ended the process: most "
            "likely an access outside of its arrays. To see which, and where: "
        )
        found.add(
            start,
            size,
            (text + 'with tilewright.backend("reference", checked=True): ...\n').encode(),
        )
