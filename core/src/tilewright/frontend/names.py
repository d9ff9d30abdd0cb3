"""Name resolution: local and captured variables, permitted globals, and Python builtins."""

from __future__ import annotations

import ast
import enum
from types import ModuleType
from typing import Any

from tilewright.environment import ALLOW_GLOBALS, flag
from tilewright.errors import CompilationError, similar, with_help
from tilewright.frontend import remedies
from tilewright.frontend.errors import located
from tilewright.frontend.frame import Undefined
from tilewright.frontend.generator import ModuleGenerator
from tilewright.frontend.python_builtins import PYTHON_BUILTINS
from tilewright.frontend.values import lift
from tilewright.language.binding import BoundCallable, is_builtin
from tilewright.language.core import base_type, base_value, constexpr
from tilewright.language.definitions.callable import BoundConstexprFunction, JitCallable

_MISSING = object()
#: Types of globals that are always permitted.
_PERMITTED = (ModuleType, JitCallable, constexpr, base_type, BoundConstexprFunction, BoundCallable)


def load_name(g: ModuleGenerator, node: ast.AST, name: str) -> Any:
    """Resolve a name to its value.

    Raises:
        CompilationError: it has none, or is a global that kernels may not read.
    """
    value = g.scope.get(name, _MISSING)
    if value is not _MISSING:
        if type(value) is Undefined:
            raise located(
                g.frame, node, f"{name} is not defined here: it {value.reason}", CompilationError
            )
        return value
    frame = g.frame
    # a variable that was not assigned yet hides no global, unlike in Python
    if (
        name in frame.analysis.locals
        and name not in frame.nonlocals
        and name not in frame.namespace
    ):
        remedy = f"give {name} its first value before the loop" if frame.loops else ""
        raise located(
            g.frame,
            node,
            with_help(f"{name} is not defined: it is used before it is assigned", remedy),
            CompilationError,
        )
    value = frame.nonlocals.get(name, _MISSING)
    if value is _MISSING:
        value = frame.namespace.get(name, _MISSING)
    if value is not _MISSING:
        if (
            isinstance(value, _PERMITTED)
            or is_permitted(value)
            or name in PYTHON_BUILTINS
            or flag(ALLOW_GLOBALS)
        ):
            return lift(value)
        raise _refused(name, value)
    value = PYTHON_BUILTINS.get(name, _MISSING)
    if value is not _MISSING:
        return value
    known = {
        **dict.fromkeys(frame.analysis.locals),
        **g.scope,
        **frame.nonlocals,
        **frame.namespace,
        **PYTHON_BUILTINS,
    }
    raise NameError(
        with_help(f"{name} is not defined", remedies.of_builtin(name) or similar(name, known))
    )


def is_permitted(value: Any) -> bool:
    """Return whether a kernel may read a global of this value.

    Permitted are values whose changes would be noticed before they could alter the kernel's
    meaning.
    """
    if isinstance(value, _PERMITTED) or is_builtin(value) or isinstance(value, base_value):
        return True
    if isinstance(value, type):
        # Classes of the language, aggregates, namedtuples, enumerations.
        return (
            issubclass(value, enum.Enum)
            or value.__module__.startswith("tilewright.")
            or (issubclass(value, tuple) and hasattr(value, "_fields"))
            or getattr(value, "_is_aggregate", False) is True
            or value is constexpr
        )
    return type(value).__module__.startswith("tilewright.language")


def _refused(name: str, value: Any) -> NameError:
    kind = type(value).__name__
    if callable(value):
        what = f"the plain Python {'class' if isinstance(value, type) else 'function'} {name}"
        return NameError(
            with_help(
                f"Cannot access {what} from a kernel",
                "decorate it with @jit, or with @constexpr_function if it runs at compile time",
            )
        )
    return NameError(
        with_help(
            f"Cannot access global variable {name} (of type {kind}) from a kernel: {name} is not "
            "defined as an instance of tl.constexpr",
            f"write `{name} = tl.constexpr({value!r})`, pass it as an argument, or set "
            f"{ALLOW_GLOBALS}=1",
        )
    )
