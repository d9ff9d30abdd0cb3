"""Tensor memory, which holds the accumulators of matmuls that one thread starts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # handed in: the lowering calls capabilities with its context
    from tilewright.simt.lowering.emission.context import SimtContext


class TensorMemory(ABC):
    """Allocation of tensor memory, and completion of the matmuls that write it.

    The plan of a matmul loads and stores accumulators
    (:class:`~tilewright.simt.target.matmul_plan.TensorMemoryAccumulator`).

    Attributes:
        columns: the columns that a CTA may allocate.
    """

    columns: int

    @abstractmethod
    def allocate(self, context: SimtContext, columns: int, scratch: str) -> str:
        """Allocate tensor memory, by all threads; return the i32 of its first column.

        ``scratch`` is the address of 16 bytes of shared memory.
        """

    @abstractmethod
    def free(self, context: SimtContext, columns: int, memory: str) -> None:
        """Free tensor memory for accumulators, by all threads, after a barrier of theirs."""

    @abstractmethod
    def arrive_after(self, context: SimtContext, address: str) -> None:
        """Arrive at an mbarrier once all matmuls into accumulators in flight have completed.

        The thread that starts those matmuls emits this.
        """
