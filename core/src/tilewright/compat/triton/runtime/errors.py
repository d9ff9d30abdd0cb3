"""``triton.runtime.errors``. Those that Tilewright raises itself are the same classes."""

from __future__ import annotations

from tilewright.errors import AutotunerError, KernelError, LoweringError, OutOfResources


class InterpreterError(KernelError):
    """A kernel failed while it was interpreted (``TRITON_INTERPRET=1``)."""

    def __init__(self, error_message: str | None = None) -> None:
        super().__init__(error_message or "")
        self.error_message = error_message

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.error_message,)


class PTXASError(LoweringError):
    """NVIDIA's assembler refused a kernel."""

    def __init__(self, error_message: str | None = None) -> None:
        super().__init__(f"PTXAS error: {error_message or ''}")
        self.error_message = error_message

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.error_message,)


__all__ = ["AutotunerError", "InterpreterError", "OutOfResources", "PTXASError"]
