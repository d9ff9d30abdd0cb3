"""Named barriers, by which warp-specialized partitions take turns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from tilewright.simt.target.capabilities.thread_hierarchy import Threads

if TYPE_CHECKING:
    # handed in: the lowering calls capabilities with its context
    from tilewright.simt.lowering.emission.context import SimtContext


class NamedBarriers(ABC):
    """Ordered hand-offs among partitions; ``order`` numbers the hand-offs of the kernel."""

    @abstractmethod
    def wait(self, context: SimtContext, order: int, place: int, of: int, threads: Threads) -> None:
        """Wait at a named barrier for the turn of ``place`` in a hand-off among partitions."""

    @abstractmethod
    def hand_over(
        self, context: SimtContext, order: int, place: int, of: int, threads: Threads
    ) -> None:
        """Arrive at the named barrier of the next partition in an ordered hand-off."""
