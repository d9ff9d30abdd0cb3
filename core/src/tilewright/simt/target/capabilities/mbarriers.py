"""Mbarriers: barriers in shared memory that count arrivals and bytes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # handed in: the lowering calls capabilities with its context
    from tilewright.simt.lowering.emission.context import SimtContext


class Mbarriers(ABC):
    """Instructions on mbarriers; ``address`` is that of one in shared memory.

    Attributes:
        bytes: size and alignment of an mbarrier.
    """

    bytes: int

    @abstractmethod
    def initialize(self, context: SimtContext, address: str, count: int) -> None:
        """Initialize, in one thread, an mbarrier that expects ``count`` arrivals a phase.

        More may follow; :meth:`fence_initialization` comes after the last one.
        """

    def fence_initialization(self, context: SimtContext) -> None:  # noqa: B027
        """Make the mbarriers that this thread initialized visible, before a barrier of all."""

    @abstractmethod
    def expect(self, context: SimtContext, address: str, size: int) -> None:
        """Arrive at an mbarrier and expect ``size`` bytes (``arrive.expect_tx``), in one thread."""

    @abstractmethod
    def arrive(self, context: SimtContext, address: str) -> None:
        """Arrive at an mbarrier, in one thread, on behalf of threads that passed a barrier with it.

        Their accesses of shared memory before that barrier are complete.
        """

    @abstractmethod
    def wait(self, context: SimtContext, address: str, phase: str) -> None:
        """Wait, in each thread, until the phase of parity ``phase`` (i1) has completed."""
