"""The module ``triton``: importing it makes ``import triton`` find Tilewright in this process.

    import tilewright.compat.triton  # before anything imports triton
    import triton
    import triton.language as tl

Other ways: ``python -m tilewright.compat.triton script.py`` and ``TILEWRIGHT_TRITON=1`` in the
environment. Each module here is the one that Triton has under the same name; the objects are
Tilewright's own, with the defaults and errors of Triton 3.8 where the two differ.
"""

from __future__ import annotations

import importlib
from typing import Any

from tilewright.compat.triton import outside
from tilewright.compat.triton.hook import activate
from tilewright.compat.triton.version import VERSION

__version__ = VERSION

#: public name -> module that defines it
_MODULES: dict[str, str] = {
    **dict.fromkeys(
        (
            "JITFunction",
            "KernelInterface",
            "MockTensor",
            "TensorWrapper",
            "constexpr_function",
            "jit",
            "reinterpret",
        ),
        "tilewright.compat.triton.runtime.jit",
    ),
    **dict.fromkeys(
        ("Autotuner", "Config", "Heuristics", "autotune", "heuristics"),
        "tilewright.compat.triton.runtime.autotuner",
    ),
    **dict.fromkeys(
        ("AsyncCompileMode", "FutureKernel"), "tilewright.compat.triton.runtime.async_compile"
    ),
    **dict.fromkeys(
        ("InterpreterError", "OutOfResources"), "tilewright.compat.triton.runtime.errors"
    ),
    **dict.fromkeys(("cdiv", "next_power_of_2"), "tilewright.runtime.integers"),
    "CompilationError": "tilewright.compat.triton.compiler.errors",
    "TritonError": "tilewright.compat.triton.errors",
    "aggregate": "tilewright.language.definitions.aggregate",
    "compile": "tilewright.compat.triton.compiler.compiler",
    "must_use_result": "tilewright.language.binding",
    "set_allocator": "tilewright.runtime.devices.allocator",
}

_SUBMODULES = frozenset(
    {
        "_C",
        "_internal_testing",
        "_utils",
        "backends",
        "compiler",
        "errors",
        "knobs",
        "language",
        "profiler",
        "runtime",
        "testing",
        "tools",
    }
)

__all__ = [
    "AsyncCompileMode",
    "CompilationError",
    "Config",
    "FutureKernel",
    "InterpreterError",
    "JITFunction",
    "KernelInterface",
    "MockTensor",
    "OutOfResources",
    "TensorWrapper",
    "TritonError",
    "aggregate",
    "autotune",
    "cdiv",
    "compile",
    "compiler",
    "constexpr_function",
    "heuristics",
    "jit",
    "knobs",
    "language",
    "must_use_result",
    "next_power_of_2",
    "reinterpret",
    "runtime",
    "set_allocator",
    "testing",
    "tools",
]

activate()


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        if _MODULES[name].startswith(f"{__name__}.runtime."):
            # so that its modules are known by that name, too
            importlib.import_module("triton.runtime")
        found = getattr(importlib.import_module(_MODULES[name]), name)
    elif name in _SUBMODULES:
        # by their own names: loading them by Triton's, halfway through the load of another, would
        # bind half of them
        found = importlib.import_module(
            "triton.language" if name == "language" else f"{__name__}.{name}"
        )
    elif f"triton.{name}" in outside.MODULES:
        raise outside.OutsideNameError(outside.reason_of(f"triton.{name}"))
    else:
        raise AttributeError(
            f"module 'triton' (tilewright.compat.triton) has no attribute {name!r}"
        )
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES, *_SUBMODULES})
