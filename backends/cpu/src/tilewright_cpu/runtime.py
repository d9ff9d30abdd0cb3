"""Loaded kernels, host memory, timing, and what kernels call back: prints.

A kernel is a function ``void (slots, first, last)`` that runs programs first .. last - 1 of a grid.
``slots`` are words of 8 bytes: the grid's extents, the address of the status block, that of the
list of packed operands (0: none), then the arguments. The status block: :mod:`.status`.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.errors import BackendError, KernelError
from tilewright.ir.type_text import parse_type
from tilewright.ir.types import FloatType, IntType, PointerType, Type
from tilewright.plugins.manifest import CodeObject
from tilewright_cpu.fault_handler import watch
from tilewright_cpu.status import ASSERTION_FAILED, OUT_OF_BOUNDS, OUT_OF_MEMORY, poll_symbol
from tilewright_cpu.threading.pool import KernelRecord, pool


class LoadedKernel:
    """A kernel mapped into the process.

    Attributes:
        name: the kernel's symbol.
        record: what the pool knows of it; its address is stable.
        messages: what each assertion says, by index; empty for kernels without assertions.
        prints: whether the kernel may print.
        function: the address of its code.
    """

    def __init__(self, code: CodeObject) -> None:
        from tilewright.llvm.codegen.link import load_object

        refuse_foreign(code)
        symbol = code.metadata.get("kernel", code.name)
        polls = bool(code.metadata.get("polls"))
        symbols = (symbol, poll_symbol(symbol)) if polls else (symbol,)
        self._object = load_object(code.binary, symbols, {"tilewright_print": print_address()})
        self.name = code.name
        self.function = self._object.address(symbol)
        self.record = KernelRecord(
            self.function,
            0,
            0,
            0,
            polls,
            code.metadata.get("memory_bytes", 0),
            code.metadata.get("cleared_bytes", 0),
        )
        if polls:
            ctypes.c_void_p.from_address(
                self._object.address(poll_symbol(symbol))
            ).value = pool().poll_address
        watch(self.function, len(code.binary), code.name)
        self.messages: tuple[str, ...] = tuple(code.metadata.get("asserts", ()))
        # code that does not say may print
        self.prints = bool(code.metadata.get("prints", b"tilewright_print" in code.binary))
        self.metadata = code.metadata

    def raise_failure(self, code: int, message: int, x: int, y: int, z: int) -> None:
        """Raise what a status block reports, or the exception that stopped the launch."""
        pool().raise_pending()
        if code == ASSERTION_FAILED and 0 <= message < len(self.messages):
            text = f"device-side assertion failed: {self.messages[message]}"
        elif code == OUT_OF_BOUNDS and 0 <= message < len(self.messages):
            text = self.messages[message]
        elif code == OUT_OF_MEMORY:
            size = self.metadata.get("arena_bytes", 0)
            text = (
                f"there is no memory for its large tiles, {size} bytes for each thread: take "
                "smaller blocks"
            )
        else:
            text = f"failed with status {code}, {message}"
        raise KernelError(f"kernel {self.name}: {text}; program ({x}, {y}, {z})")


def refuse_foreign(code: CodeObject) -> None:
    """Raise where this machine lacks instructions of the code.

    The first of them would end the process.

    Raises:
        BackendError: the architecture is another one, or the machine has no such instructions.
    """
    from tilewright_cpu.target import processor

    here = processor()
    arch = code.metadata.get("arch", here.arch)
    if arch != here.arch:
        raise BackendError(
            f"kernel {code.name} is compiled for {arch}, and this machine is {here.arch}"
        )
    missing = sorted(set(code.metadata.get("features", ())) - here.features)
    if missing:
        raise BackendError(
            f"kernel {code.name} is compiled for a processor with {', '.join(missing)}, which this "
            "machine lacks"
        )


def load(code: CodeObject) -> LoadedKernel:
    """Map a kernel's code into the process.

    Raises:
        BackendError: the code is for another processor.
        LoweringError: the code is damaged, or refers to a function that no library of the process
        has.
    """
    return LoadedKernel(code)


# ---- prints


class PrintBuffer:
    """Output of running kernels, kept until the launch has ended, in the order of program ids."""

    def __init__(self) -> None:
        self._lines: list[tuple[tuple[int, int, int], str]] = []
        self._lock = threading.Lock()

    def after_fork(self) -> None:
        """Reset the buffer in a child process.

        The lines are the parent's to write, and none of its threads is there to release the lock.
        """
        self._lines, self._lock = [], threading.Lock()

    def add(self, program: tuple[int, int, int], text: str) -> None:
        with self._lock:
            self._lines.append((program, text))

    def flush(self) -> None:
        """Write the output to ``sys.stdout``: programs in order, each program's lines in order."""
        with self._lock:
            lines, self._lines = self._lines, []
        if lines:
            lines.sort(key=lambda line: line[0][::-1])
            sys.stdout.write("".join(f"{text}\n" for _, text in lines))
            sys.stdout.flush()


PRINTED = PrintBuffer()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=PRINTED.after_fork)

_PRINT_TYPE = ctypes.CFUNCTYPE(
    None,
    ctypes.c_char_p,
    ctypes.c_char_p,
    ctypes.c_int32,
    ctypes.c_int32,
    ctypes.c_int32,
    ctypes.POINTER(ctypes.c_int64),
    ctypes.c_int32,
    ctypes.c_uint64,
    ctypes.c_int32,
)


@functools.cache
def _element_type(text: bytes) -> Type:
    return parse_type(text.decode())


def _number(type_: Type, bits: int) -> int | float:
    """The number that 64 bits stand for: a widened integer, or a float's bits in the low bytes."""
    if isinstance(type_, FloatType):
        from tilewright.reference.numerics import decode, numpy_dtype

        raw = np.asarray([bits & ((1 << type_.bits) - 1)], f"u{type_.bits // 8}").view(
            numpy_dtype(type_)
        )
        return float(decode(raw, type_)[0])
    if isinstance(type_, IntType) and type_.signed:
        return bits - (1 << 64) if bits >> 63 else bits
    assert isinstance(type_, IntType | PointerType)
    return bits


def _print(
    head: bytes,
    element: bytes,
    x: int,
    y: int,
    z: int,
    index: Any,
    rank: int,
    bits: int,
    hexadecimal: int,
) -> None:
    from tilewright.ir.print_lines import element_text, line, message

    program, text = (x, y, z), head.decode(errors="replace")
    if not element:
        PRINTED.add(program, message(program, text))
        return
    type_ = _element_type(element)
    value = element_text(_number(type_, bits), type_, hexadecimal=bool(hexadecimal))
    PRINTED.add(program, line(program, text, [index[axis] for axis in range(rank)], value))


_print_callback = _PRINT_TYPE(_print)


def print_address() -> int:
    """The address of ``tilewright_print``, which kernels call; see ``codegen/ops/debug.py``."""
    return ctypes.cast(_print_callback, ctypes.c_void_p).value or 0


# ---- time


#: Bytes that ``HostTimer.flush_cache`` passes over at most.
FLUSHED = 64 << 20


class HostTimer:
    """Timer of calls by the system's monotonic clock.

    ``flush_cache`` writes to every line of more memory than the caches hold, or of ``FLUSHED``
    bytes: a virtual machine may report the last cache of a whole host, and to pass it would take
    longer than most kernels.
    """

    def __init__(self) -> None:
        self._spoiler: np.ndarray[Any, np.dtype[np.uint8]] | None = None

    def measure(self, call: Callable[[], None], repetitions: int) -> list[float]:
        """Milliseconds of each repetition."""
        clock, found = time.perf_counter_ns, []
        for _ in range(repetitions):
            start = clock()
            call()
            found.append((clock() - start) * 1e-6)
        return found

    def flush_cache(self) -> None:
        if self._spoiler is None:
            from tilewright_cpu.target import host

            limits = host().limits
            size = min(2 * max(limits["l2_bytes"], limits["l3_bytes"]), FLUSHED)
            self._spoiler = np.zeros(
                (-(-size // limits["line_bytes"]), limits["line_bytes"]), np.uint8
            )
        self._spoiler[:, 0] += 1


__all__ = ["PRINTED", "HostTimer", "LoadedKernel", "load", "pool", "print_address"]
