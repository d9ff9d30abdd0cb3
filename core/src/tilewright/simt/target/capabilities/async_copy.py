"""Asynchronous copies, and the queues of asynchronous operations in flight."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tilewright.errors import LoweringError
from tilewright.llvm.emission.writer import FunctionWriter
from tilewright.simt.dialect.types import LOADS
from tilewright.simt.target.copy_mechanism import THROUGH_REGISTERS, CopyMechanism

if TYPE_CHECKING:
    # handed in: the lowering calls capabilities with its context
    from tilewright.simt.lowering.emission.context import SimtContext


class AsyncCopies:
    """The copy mechanisms of a target, and waits for what they have in flight.

    Attributes:
        mechanisms: the copy mechanisms into shared memory, in order of preference.
    """

    def __init__(self, mechanisms: Sequence[CopyMechanism] = ()) -> None:
        self.mechanisms = tuple(mechanisms)

    def mechanism(self, name: str) -> CopyMechanism:
        """Return the copy mechanism of the given name.

        Raises:
            LoweringError: the target has no such mechanism.
        """
        for found in (*self.mechanisms, THROUGH_REGISTERS):
            if found.name == name:
                return found
        raise LoweringError(
            f"the target has no copy mechanism {name!r}; it has "
            f"{', '.join(one.name for one in self.mechanisms)}"
        )

    def keep_order(self, w: FunctionWriter, *, everything: bool) -> None:
        """Keep the code generator from moving accesses, or ``everything``, across this point."""

    def commit(self, context: SimtContext, queue: str) -> None:
        """End the group of asynchronous operations that this thread has started in a queue."""
        raise self._no_queue(context, queue)

    def wait(
        self, context: SimtContext, queue: str, pending: int, names: Sequence[Sequence[str]]
    ) -> list[list[str]]:
        """Wait until at most ``pending`` of this thread's groups are in flight in a queue.

        If the mechanism counts single copies, ``pending`` is a number of copies. ``names`` are the
        registers of the tiles in flight; returns the registers of the tiles that may be read after
        the wait. At the end of a loop, a wait for matmuls has no tiles, because none is read yet.
        Loads into registers are waited for by their readers, unless a target overrides this.
        """
        if queue != LOADS.queue:
            raise self._no_queue(context, queue)
        return [list(tile) for tile in names]

    @staticmethod
    def _no_queue(context: SimtContext, queue: str) -> LoweringError:
        return LoweringError(f"{context.target.name} has no queue of {queue} in flight")
