"""From a kernel's Python source to Tile IR.

The frontend resolves names, evaluates at compile time, structures control flow, inlines calls, and
reports errors with a caret.

:func:`~tilewright.frontend.compile.compile_function` is the entry. Not in this package: the
semantics and result types of operators and builtins (``tilewright.language``), optimisation
(``passes``), launching and caching (``runtime``).
"""

from tilewright.frontend.compile import compile_function

__all__ = ["compile_function"]
