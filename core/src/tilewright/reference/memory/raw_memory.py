"""Probed access to memory outside all arguments, without ever faulting.

It is for kernels that load pointers from memory.

Pages are probed before they are touched, by system calls that copy from or to an address and report
a bad one instead of raising a signal.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from tilewright.reference.memory.memory_range import MemoryRange

_PAGE = 4096


class RawMemory:
    """Probed access to the process's memory.

    ``supported`` is false where the system has no pipes that can probe (Windows).
    """

    def __init__(self) -> None:
        self.supported = os.name == "posix"
        self._pipe: tuple[int, int] | None = None
        self._readable: set[int] = set()
        self._writeable: set[int] = set()
        if self.supported:
            library = ctypes.CDLL(None, use_errno=True)
            self._write, self._read = library.write, library.read
            for function in (self._write, self._read):
                function.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t)
                function.restype = ctypes.c_ssize_t

    def close(self) -> None:
        if self._pipe is not None:
            for end in self._pipe:
                os.close(end)
            self._pipe = None

    def refused(self, addresses: NDArray[np.int64], size: int, write: bool) -> int | None:
        """Return the position of the first address without ``size`` accessible bytes, or None."""
        if not self.supported:
            return 0
        unsigned = addresses.astype(np.uint64)
        known = self._writeable if write else self._readable
        for last in (0, size - 1):
            pages, first = np.unique(
                (unsigned + np.uint64(last)) // np.uint64(_PAGE), return_index=True
            )
            for page, position in sorted(
                zip(pages.tolist(), first.tolist(), strict=True), key=lambda pair: pair[1]
            ):
                if page in known:
                    continue
                if not self._probe(page * _PAGE, write):
                    return int(position)
                known.add(page)
        return None

    def _probe(self, address: int, write: bool) -> bool:
        if self._pipe is None:
            self._pipe = os.pipe()
        source, sink = self._pipe
        if address + _PAGE > 1 << 63 or self._write(sink, address, 1) != 1:
            return False
        if write:  # the byte just read goes back to where it came from
            if self._read(source, address, 1) == 1:
                return True
            os.read(source, 1)
            return False
        os.read(source, 1)
        return True

    def blocks(
        self, addresses: NDArray[np.int64], size: int
    ) -> Iterator[tuple[MemoryRange, NDArray[np.intp]]]:
        """Addresses that :meth:`refused` found none of, by the run of pages they lie in."""
        pages = addresses // _PAGE
        touched = np.unique(np.concatenate([pages, (addresses + (size - 1)) // _PAGE]))
        breaks = np.flatnonzero(np.diff(touched) != 1) + 1
        for run in np.split(touched, breaks):
            lanes = np.flatnonzero((pages >= run[0]) & (pages <= run[-1]))
            if lanes.size:
                start, end = int(run[0]) * _PAGE, (int(run[-1]) + 1) * _PAGE
                yield MemoryRange(start, end, True, None), lanes
