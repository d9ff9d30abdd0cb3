"""The async proxy, through which TMA copies and matrix instructions access shared memory."""

from __future__ import annotations

from abc import ABC, abstractmethod

from tilewright.llvm.emission.writer import FunctionWriter


class AsyncProxy(ABC):
    """Proxy fences, on targets whose asynchronous hardware bypasses the threads' memory order.

    TMA copies, and matmuls that read shared memory themselves, use the async proxy. A proxy fence
    orders a thread's own reads and writes of shared memory before theirs.
    """

    @abstractmethod
    def fence(self, w: FunctionWriter, *, everywhere: bool) -> None:
        """Emit a proxy fence, for shared memory or, if ``everywhere``, for all memory.

        This thread's writes are visible to TMA copies and to matmuls through the async proxy after
        the next barrier or arrival.
        """
