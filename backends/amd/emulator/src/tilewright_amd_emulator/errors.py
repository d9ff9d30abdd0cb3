"""The exception for faults of an emulated kernel."""

from __future__ import annotations

from tilewright.errors import TilewrightError


class WaveError(TilewrightError):
    """A fault: an unknown instruction, an access out of bounds, a register read before its wait.

    Attributes:
        message: what happened and what to do, without the place.
        line: line of the assembly text, from 1; None where the fault has no line.
        instruction: the text of that line.
    """

    def __init__(self, message: str, line: int | None = None, instruction: str = "") -> None:
        super().__init__(f"line {line}: {instruction}: {message}" if line is not None else message)
        self.message, self.line, self.instruction = message, line, instruction

    def at(self, line: int, instruction: str) -> WaveError:
        """The same error at a line, if it has none yet."""
        return self if self.line is not None else WaveError(self.message, line, instruction)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.message, self.line, self.instruction)
