"""The exceptions users meet. All derive from :class:`TilewrightError` and can be pickled.

Messages say what happened, where, with which types, and what to do about it.
"""

from __future__ import annotations


class TilewrightError(Exception):
    """Base of every error Tilewright raises on purpose."""


class CompilationError(TilewrightError):
    """A kernel's source breaks a rule of the language. ``str`` shows file, line, source, caret and the chain of inlined calls.

    Attributes:
        message: the rule that is broken, without location.
        file, line, column: where (1-based line, 0-based column); None where unknown.
    """

    def __init__(self, message: str, text: str | None = None, file: str | None = None, line: int | None = None, column: int | None = None) -> None:
        super().__init__(text if text is not None else message)
        self.message, self.text, self.file, self.line, self.column = message, text, file, line, column

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.message, self.text, self.file, self.line, self.column)


class CompileTimeAssertionFailure(CompilationError):
    """A ``static_assert`` of a kernel does not hold."""


class UnsupportedLanguageConstruct(CompilationError):
    """A kernel uses Python that the language does not have."""


class BackendError(TilewrightError):
    """A backend cannot do what it was asked: missing, broken, unfit for the device, or lacking a capability."""


class LoweringError(BackendError):
    """A backend could not turn Tile IR into code."""


class OutOfResources(BackendError):
    """A kernel needs more of a resource than the target has."""

    def __init__(self, required: int, limit: int, name: str) -> None:
        super().__init__(f"out of resource: {name}, required: {required}, available: {limit}. Reducing block sizes or num_stages may help.")
        self.required, self.limit, self.name = required, limit, name

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.required, self.limit, self.name)


class LaunchError(TilewrightError):
    """A launch's arguments, grid or options do not fit the kernel."""


class KernelError(TilewrightError):
    """A kernel failed while it ran: an assertion, an access the reference's checked mode refuses."""


class AutotunerError(TilewrightError):
    """The autotuner has no configuration that works."""
