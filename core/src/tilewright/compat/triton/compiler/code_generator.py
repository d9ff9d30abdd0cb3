"""``triton.compiler.code_generator``: Tilewright's frontend; see ``tilewright.frontend``."""

from __future__ import annotations

from typing import Any

from tilewright.compat.triton.compiler.errors import (
    CompilationError,
    CompileTimeAssertionFailure,
    UnsupportedLanguageConstruct,
)
from tilewright.compat.triton.outside import OutsideNameError


def ast_to_ttir(
    fn: Any,
    src: Any,
    context: Any = None,
    options: Any = None,
    codegen_fns: Any = None,
    module_map: Any = None,
    module: Any = None,
) -> Any:
    """Return the accesses of a kernel for the active driver's target; ``tile_ir`` is the kernel."""
    from tilewright.compat.triton.runtime.driver import driver

    return src.make_ir(
        driver.active.get_current_target(), options, codegen_fns, module_map, context
    )


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    raise OutsideNameError(
        f"triton.compiler.code_generator.{name} is a part of Triton's frontend, which writes MLIR; "
        "Tilewright's is tilewright.frontend"
    )


__all__ = [
    "CompilationError",
    "CompileTimeAssertionFailure",
    "UnsupportedLanguageConstruct",
    "ast_to_ttir",
]
