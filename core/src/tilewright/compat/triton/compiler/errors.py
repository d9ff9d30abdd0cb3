"""``triton.compiler.errors``: the errors of a kernel's source. They are Tilewright's own, with ``src``, ``node`` and ``error_message``."""

from tilewright.errors import CompilationError, CompileTimeAssertionFailure, UnsupportedLanguageConstruct

__all__ = ["CompilationError", "CompileTimeAssertionFailure", "UnsupportedLanguageConstruct"]
