"""Prints: lanes write records to host memory, which the launch prints when the kernel ends.

A counter in device memory assigns each record its slot. All slots of a kernel have one size, and a
record is complete when its first word, the number of its format from 1 on, is nonzero. The same
counter counts the records that do not fit, and the launch reports how many are lost. The records
lie in host memory, so they survive a kernel that fails.
"""

from __future__ import annotations

import ctypes
import re
import struct
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, Final

from tilewright.errors import LaunchError
from tilewright.gpu_host.driver import Driver
from tilewright.gpu_host.errors import DeviceFaultError
from tilewright.gpu_host.table import DriverCall, OpaqueArgument
from tilewright.ir.core import Function
from tilewright.ir.ops.debug import Print
from tilewright.ir.types import shape_of
from tilewright.llvm.emission.writer import FunctionWriter

#: The hidden parameter of kernels that print, after the source's parameters and that of assertions:
#: the address of three 8-byte words in device memory, which are the number of requested records,
#: the number of slots, and the address of the first slot.
PARAMETER: Final = ("i64", "tilewright_prints")
#: Bytes of all slots together.
BYTES: Final = 4 << 20
_WORD: Final = 8

_HOST_MEMORY = DriverCall("hipHostMalloc", lambda hip, size: hip.hipHostMalloc(size, 0))
_CAPTURING = DriverCall(
    "hipStreamIsCapturing",
    lambda hip, stream: hip.hipStreamIsCapturing(stream),
)
_WAIT = DriverCall("hipStreamSynchronize", lambda hip, stream: hip.hipStreamSynchronize(stream))

# ---- in the kernel


def record_words(function: Function) -> int:
    """Return the words of a kernel's longest record; 0 if it prints nothing.

    A record has the format, the program ID, the coordinates and the value.
    """
    ranks = [
        len(shape_of(value.type))
        for operation in function.walk()
        if isinstance(operation, Print)
        for value in operation.operands
    ]
    return (
        1 + 3 + max(ranks, default=0) + 1
        if any(isinstance(operation, Print) for operation in function.walk())
        else 0
    )


def emit_record(
    w: FunctionWriter,
    number: int,
    words: int,
    operands: Sequence[tuple[str, str]],
    predicate: str | None,
) -> None:
    """Write a record of format ``number`` to a slot of ``words`` words.

    The operands are (LLVM type, name) of i32, i64 or double.
    """
    assert len(operands) < words
    with w.when(predicate) if predicate is not None else nullcontext():
        header = w.emit(f"inttoptr i64 %{PARAMETER[1]} to ptr addrspace(1)")
        slot = w.emit(
            f'atomicrmw add ptr addrspace(1) {header}, i64 1 syncscope("agent") monotonic, '
            f"align {_WORD}"
        )
        slots, first = (
            w.emit(f"load i64, ptr addrspace(1) {_place(w, header, index)}, align {_WORD}")
            for index in (1, 2)
        )
        with w.when(w.emit(f"icmp ult i64 {slot}, {slots}")):
            record = _place(
                w,
                w.emit(f"inttoptr i64 {first} to ptr addrspace(1)"),
                w.emit(f"mul i64 {slot}, {words}"),
            )
            for index, (type_, name) in enumerate(operands, 1):
                value = (
                    w.emit(f"zext i32 {name} to i64")
                    if type_ == "i32"
                    else w.emit(f"bitcast double {name} to i64")
                    if type_ == "double"
                    else name
                )
                w.do(
                    f"store i64 {value}, ptr addrspace(1) {_place(w, record, index)}, align {_WORD}"
                )
            w.do(f"store atomic i64 {number}, ptr addrspace(1) {record} release, align {_WORD}")


def _place(w: FunctionWriter, pointer: str, index: int | str) -> str:
    return w.emit(f"getelementptr i64, ptr addrspace(1) {pointer}, i64 {index}")


# ---- on the host


def line(form: str, types: Sequence[str], words: Sequence[int]) -> str:
    """Format a record.

    Args:
        form: a C format.
        types: of its operands, LLVM's: ``i32``, ``i64`` or ``double``.
        words: the operands' bits.
    """
    # Python's formats have no length modifiers
    conversions = re.findall(r"%[0-9]*(?:ll)?([duxf%])", form)
    signed = [conversion == "d" for conversion in conversions if conversion != "%"]
    values = [
        _value(type_, word, sign) for type_, word, sign in zip(types, words, signed, strict=True)
    ]
    return re.sub(r"%([0-9]*)ll", r"%\1", form) % tuple(values)


def _value(type_: str, word: int, signed: bool) -> int | float:
    if type_ == "double":
        return float(struct.unpack("<d", struct.pack("<Q", word))[0])
    bits = int(type_[1:])
    number = word & ((1 << bits) - 1)
    return number - (1 << bits) if signed and number >> (bits - 1) else number


class _Queue:
    """The print records of a device, for one launch at a time."""

    def __init__(self, hip: Driver, device: int) -> None:
        self._hip, self._device = hip, device
        self._lock = threading.Lock()
        self.header = int(hip(hip.entries.memory_allocate, 3 * _WORD))
        self._slots = int(hip(_HOST_MEMORY, BYTES))
        ctypes.memset(self._slots, 0, BYTES)

    @contextmanager
    def of(self, kernel: str, facts: dict[str, Any], stream: int) -> Iterator[None]:
        """Launch a kernel in the block, wait for it, and write its prints to ``sys.stdout``.

        Raises:
            LaunchError: the stream is being captured into a graph.
            DriverError: the launch fails.
        """
        hip, size = self._hip, _WORD * int(facts["words"])
        capacity = BYTES // size
        with self._lock:
            with hip.beside_captures(self._device):
                if int(hip(_CAPTURING, stream)):
                    raise LaunchError(
                        f"kernel {kernel}: it prints, for which its launch waits, and its stream "
                        "is captured into a graph: take the prints out"
                    )
                self._copy(hip.entries.memory_to_device, (0, capacity, self._slots))
            try:
                yield
                hip(_WAIT, stream)
            except DeviceFaultError:
                self._write(kernel, facts["formats"], size, capacity, None)
                raise
            with hip.beside_captures(self._device):
                asked = self._copy(hip.entries.memory_to_host)[0]
            self._write(kernel, facts["formats"], size, capacity, asked)

    def _copy(self, entry: Any, words: tuple[int, ...] = (0, 0, 0)) -> tuple[int, ...]:
        held = (ctypes.c_uint64 * 3)(*words)
        pair = (self.header, ctypes.addressof(held))
        self._hip(
            entry,
            *(pair if entry == self._hip.entries.memory_to_device else reversed(pair)),
            3 * _WORD,
        )
        return tuple(held)

    def _write(
        self,
        kernel: str,
        formats: Sequence[tuple[str, Sequence[str]]],
        size: int,
        capacity: int,
        asked: int | None,
    ) -> None:
        """Print the records and clear their slots.

        ``asked`` is the number of requested records, or None if it can no longer be read.
        """
        used = capacity if asked is None else min(asked, capacity)
        data = ctypes.string_at(self._slots, used * size)
        ctypes.memset(self._slots, 0, used * size)
        found = []
        for number, *words in struct.iter_unpack(f"<{size // _WORD}Q", data):
            if number:
                form, types = formats[number - 1]
                found.append(line(form, types, words[: len(types)]))
        if asked is None and len(found) == capacity:
            found.append(
                f"kernel {kernel} failed, and lines of its prints may be lost: {capacity} fit\n"
            )
        elif asked is not None and asked > len(found):
            found.append(
                f"{asked - len(found)} lines that kernel {kernel} printed are lost: {capacity} "
                "fit. Print in fewer programs, or fewer elements\n"
            )
        sys.stdout.write("".join(found))
        sys.stdout.flush()


_lock = threading.Lock()
#: (driver, device) -> its queue, whose memory is never freed
_queues: dict[tuple[Driver, int], _Queue] = {}


def _queue(hip: Driver, device: int) -> _Queue:
    """Return the queue of a device whose context is current."""
    with _lock:
        if (hip, device) not in _queues:
            with hip.beside_captures(device):
                _queues[hip, device] = _Queue(hip, device)
        return _queues[hip, device]


def argument(hip: Driver, device: int) -> OpaqueArgument:
    """Return the value of :data:`PARAMETER` for a kernel on a device."""
    return OpaqueArgument(
        subject="what it prints",
        inputs=(),
        size=_WORD,
        encode=lambda values: _queue(hip, device).header.to_bytes(_WORD, "little"),
    )


def around(hip: Driver, device: int, kernel: str, facts: dict[str, Any]) -> Any:
    """Return a function from a stream to the context manager around a printing kernel's launch.

    ``facts`` is the ``prints`` entry of the code object's metadata.
    """
    return lambda stream: _queue(hip, device).of(kernel, facts, stream)
