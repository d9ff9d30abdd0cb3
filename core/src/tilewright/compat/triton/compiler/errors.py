"""``triton.compiler.errors``: Tilewright's errors of a kernel's source.

They have ``src``, ``node`` and ``error_message``.
"""

from tilewright.errors import (
    CompilationError,
    CompileTimeAssertionFailure,
    UnsupportedLanguageConstruct,
)

__all__ = ["CompilationError", "CompileTimeAssertionFailure", "UnsupportedLanguageConstruct"]
