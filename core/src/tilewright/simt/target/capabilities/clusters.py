"""Clusters: CTAs that run a program together and access each other's shared memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from tilewright.llvm.emission.writer import FunctionWriter

if TYPE_CHECKING:
    # handed in: the lowering calls capabilities with its context
    from tilewright.simt.lowering.emission.context import SimtContext


class Clusters(ABC):
    """Clusters of CTAs.

    Attributes:
        max_ctas: maximum number of CTAs of a cluster.
        min_tile: minimum rows and columns of a matmul's result for each CTA of a cluster.
    """

    max_ctas: int
    min_tile: tuple[int, int] = (1, 1)

    @abstractmethod
    def rank(self, w: FunctionWriter) -> str:
        """Emit the CTA's rank in its cluster."""

    @abstractmethod
    def barrier(self, context: SimtContext) -> None:
        """Emit a cluster barrier: wait for all threads of all CTAs of the cluster.

        It orders their accesses of shared memory before the barrier ahead of those after it.
        """

    @abstractmethod
    def arrive_at_all(self, context: SimtContext, address: str) -> None:
        """Arrive at the mbarrier at ``address`` in every CTA of the cluster, in one thread.

        As for :meth:`.mbarriers.Mbarriers.arrive`, it is on behalf of threads that passed a barrier
        with this one.
        """
