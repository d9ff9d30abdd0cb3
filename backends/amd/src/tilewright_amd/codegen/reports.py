"""Prints, failed assertions and the clock in kernels."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.llvm.emission.writer import FunctionWriter
from tilewright.simt.lowering.emission.context import SimtContext
from tilewright.simt.target.capabilities.debugging import Debugging
from tilewright_amd.architectures import TICK
from tilewright_amd.codegen import assertions, prints
from tilewright_amd.codegen.kernel_state import kernel_state


class GcnDebugging(Debugging):
    """Reports by records in host memory."""

    def print(
        self,
        context: SimtContext,
        form: str,
        operands: Sequence[tuple[str, str]],
        predicate: str | None,
    ) -> None:
        """Write a print record: the format's number and the operands (:mod:`.codegen.prints`)."""
        state, format_ = kernel_state(context.writer), (form, tuple(type_ for type_, _ in operands))
        if format_ not in state.formats:
            state.formats.append(format_)
        number = 1 + state.formats.index(format_)
        prints.emit_record(context.writer, number, state.record_words, operands, predicate)

    def fail(
        self,
        context: SimtContext,
        message: str,
        file: str,
        line: int,
        function: str,
        predicate: str,
    ) -> None:
        """Record which assertion failed for the host, then end the queue with an error."""
        texts = kernel_state(context.writer).assertions
        texts.append(assertions.text_of(message, file, line, function))
        with context.writer.when(predicate, likely=False):
            assertions.emit_failure(context.writer, len(texts))

    def clock(self, w: FunctionWriter) -> str:
        """Read the 100 MHz clock in nanoseconds.

        The product does not overflow, so dividing by the length of a tick restores the count.
        """
        return w.emit(f"mul nuw nsw i64 {w.call('llvm.readsteadycounter', 'i64', [])}, {TICK}")
