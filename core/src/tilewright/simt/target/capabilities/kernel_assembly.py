"""Inline assembly in kernels."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tilewright.llvm.assembly.assembly_operands import AssemblyOperand

    # handed in: the lowering calls capabilities with its context
    from tilewright.simt.lowering.emission.context import SimtContext


class InlineAssembly(ABC):
    """Emission and analysis of inline assembly."""

    @abstractmethod
    def emit(
        self,
        context: SimtContext,
        text: str,
        constraints: str,
        results: Sequence[AssemblyOperand],
        operands: Sequence[AssemblyOperand],
    ) -> list[str]:
        """Emit inline assembly on one group of elements, and return the values of its results.

        The operation is ``context.operation``.

        Raises:
            LoweringError: the constraints do not fit; the caller adds the source location.
        """

    def is_uniform(self, text: str) -> bool:
        """Return whether assembly yields equal results in all threads with equal inputs.

        It then reads no per-thread state and no memory. By default this is unknown, and conditions
        computed from its results may diverge (:mod:`tilewright.simt.analysis.divergence`).
        """
        return False
