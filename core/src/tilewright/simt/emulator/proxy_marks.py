"""Generic-proxy accesses of threads to shared memory since their last proxy fence.

A bulk copy may write as early as its issue, and earlier loads of threads may be performed later: a
barrier between them does not order them, but a proxy fence of each reader does. The emulator
therefore refuses a copy at its issue, whenever it is performed, if a thread accessed the bytes that
it writes and has executed no proxy fence since. It refuses a read through the async proxy if a
thread wrote the bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.errors import KernelError
from tilewright.simt.emulator import layout

_DID = "read", "wrote"


class ProxyMarks:
    """Marks of one launch.

    Args:
        marks: (reads and writes, thread, granule of the shared memory of the thread's CTA) -> the
            thread's count of fences at its last access to the granule.
    """

    def __init__(self, block: Any, words: Any, marks: Any) -> None:
        self._block, self._words, self._marks = block, words, marks

    def check(self, address: int, size: int, what: str, *, writes: bool = False) -> None:
        """Check that bytes of shared memory may be accessed through the async proxy."""
        bases = self._block[:, layout.SHARED_BASE]
        rank = int(np.flatnonzero(bases <= address)[-1])
        start = address - int(bases[rank])
        granules = slice(-(-start // layout.GRANULE), (start + size) // layout.GRANULE)
        beside = self._words[:, layout.RANK] == rank
        fences = np.where(beside, self._words[:, layout.FENCES], -1)[:, None]
        for kind in (0, 1) if writes else (1,):
            found = np.argwhere(self._marks[kind][:, granules] == fences)
            if len(found):
                thread = int(found[0][0])
                warp, lane = (int(self._words[thread, one]) for one in (layout.WARP, layout.LANE))
                raise KernelError(
                    f"{what} {'writes' if writes else 'reads'} bytes {start} to {start + size} of"
                    f" shared memory through the async proxy, where lane {lane} of warp {warp}"
                    f" {_DID[kind]} through the generic proxy and has executed no proxy fence since"
                )
