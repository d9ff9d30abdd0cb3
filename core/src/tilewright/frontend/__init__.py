"""From a kernel's Python source to Tile IR: names, compile-time evaluation, structured control flow, inlining, and errors with a caret.

:func:`~tilewright.frontend.compile.compile_function` is the entry. Not in this package: the
semantics and result types of operators and builtins (``tilewright.language``), optimisation
(``passes``), launching and caching (``runtime``).
"""

from tilewright.frontend.compile import compile_function

__all__ = ["compile_function"]
