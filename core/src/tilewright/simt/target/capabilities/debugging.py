"""Reports of a running kernel: prints, failed assertions, and the clock."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tilewright.llvm.emission.writer import FunctionWriter

if TYPE_CHECKING:
    # handed in: the lowering calls capabilities with its context
    from tilewright.simt.lowering.emission.context import SimtContext


class Debugging(ABC):
    """Prints, assertions and the device clock."""

    @abstractmethod
    def print(
        self,
        context: SimtContext,
        form: str,
        operands: Sequence[tuple[str, str]],
        predicate: str | None,
    ) -> None:
        """Print by a C format; operands are (LLVM type, name) of i32, i64, double or ptr."""

    @abstractmethod
    def fail(
        self,
        context: SimtContext,
        message: str,
        file: str,
        line: int,
        function: str,
        predicate: str,
    ) -> None:
        """Stop the kernel with an error if ``predicate`` holds."""

    @abstractmethod
    def clock(self, w: FunctionWriter) -> str:
        """Emit the nanoseconds of a monotonic device clock, as an i64."""
