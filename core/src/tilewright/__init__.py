"""Tilewright: tile kernels written in Python, compiled to CPUs and GPUs by plugin backends.

    import tilewright as tw
    import tilewright.language as tl

    @tw.jit
    def add(x, y, out, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        mask = offsets < n
        tl.store(out + offsets, tl.load(x + offsets, mask) + tl.load(y + offsets, mask), mask)

    add[(tw.cdiv(n, 1024),)](x, y, out, n, BLOCK=1024)

Everything is imported when it is first used, so that ``import tilewright`` costs next to nothing.

PYTEST_DONT_REWRITE: where ``import triton`` is answered the package is imported before pytest,
which would warn that it cannot rewrite the asserts in it.
"""

from __future__ import annotations

import importlib
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from tilewright import errors, ir, language, testing
    from tilewright.derivatives.refusals import DerivativeError
    from tilewright.errors import (
        AutotunerError,
        BackendError,
        CompilationError,
        KernelError,
        LaunchError,
        LoweringError,
        OutOfResources,
        TilewrightError,
    )
    from tilewright.language.binding import must_use_result
    from tilewright.language.definitions.aggregate import aggregate
    from tilewright.language.definitions.callable import constexpr_function
    from tilewright.language.definitions.custom_derivative import custom_vjp
    from tilewright.runtime.arguments.descriptor import TensorDescriptor
    from tilewright.runtime.arguments.mock_tensors import MockTensor, TensorWrapper, reinterpret
    from tilewright.runtime.derivatives.adjoint_kernel import vjp
    from tilewright.runtime.derivatives.tangent_kernel import jvp
    from tilewright.runtime.devices.allocator import set_allocator
    from tilewright.runtime.devices.backend_choice import backend
    from tilewright.runtime.hooks import hooks
    from tilewright.runtime.integers import cdiv, next_power_of_2
    from tilewright.runtime.launch.compiled_kernel import CompiledKernel
    from tilewright.runtime.launch.heuristics import heuristics
    from tilewright.runtime.launch.jit import JITFunction, jit
    from tilewright.runtime.launch.kernel_interface import KernelInterface
    from tilewright.runtime.tuning.autotune import Autotuner, Config, autotune
    from tilewright.tools.explain.explanation import explain

#: public name -> module that defines it
_MODULES: dict[str, str] = {
    **dict.fromkeys(
        (
            "AutotunerError",
            "BackendError",
            "CompilationError",
            "KernelError",
            "LaunchError",
            "LoweringError",
            "OutOfResources",
            "TilewrightError",
        ),
        "tilewright.errors",
    ),
    "DerivativeError": "tilewright.derivatives.refusals",
    "jvp": "tilewright.runtime.derivatives.tangent_kernel",
    "vjp": "tilewright.runtime.derivatives.adjoint_kernel",
    "aggregate": "tilewright.language.definitions.aggregate",
    "must_use_result": "tilewright.language.binding",
    "constexpr_function": "tilewright.language.definitions.callable",
    "custom_vjp": "tilewright.language.definitions.custom_derivative",
    "set_allocator": "tilewright.runtime.devices.allocator",
    **dict.fromkeys(("Autotuner", "Config", "autotune"), "tilewright.runtime.tuning.autotune"),
    "backend": "tilewright.runtime.devices.backend_choice",
    "TensorDescriptor": "tilewright.runtime.arguments.descriptor",
    "heuristics": "tilewright.runtime.launch.heuristics",
    "hooks": "tilewright.runtime.hooks",
    **dict.fromkeys(("cdiv", "next_power_of_2"), "tilewright.runtime.integers"),
    "KernelInterface": "tilewright.runtime.launch.kernel_interface",
    **dict.fromkeys(("JITFunction", "jit"), "tilewright.runtime.launch.jit"),
    "CompiledKernel": "tilewright.runtime.launch.compiled_kernel",
    **dict.fromkeys(
        ("MockTensor", "TensorWrapper", "reinterpret"), "tilewright.runtime.arguments.mock_tensors"
    ),
    "explain": "tilewright.tools.explain.explanation",
}

_SUBMODULES = frozenset(
    {
        "compat",
        "errors",
        "frontend",
        "ir",
        "language",
        "passes",
        "plugins",
        "reference",
        "runtime",
        "testing",
        "tools",
    }
)


def __getattr__(name: str) -> Any:
    from tilewright.forks import setting_up

    with setting_up():
        if name in _MODULES:
            found = getattr(importlib.import_module(_MODULES[name]), name)
        # without loading a backend
        elif (
            name in _SUBMODULES or PathFinder.find_spec(f"{__name__}.{name}", __path__) is not None
        ):
            found = importlib.import_module(f"tilewright.{name}")
        else:
            found = _of_a_backend(name)
    globals()[name] = found
    return found


def _of_a_backend(name: str) -> Any:
    """Return the host module of the installed backend of that name, or None."""
    if not name.startswith("_"):
        from tilewright.plugins.registry import registry

        module = registry().host_module(name)
        if module is not None:
            # computed: the module that a backend's manifest names for programs
            return importlib.import_module(module)
    from tilewright.errors import similar, with_help
    from tilewright.triton_names import successor

    remedy = successor(__name__, name) or similar(name, (*_MODULES, *_SUBMODULES))
    raise AttributeError(
        with_help(
            f"module 'tilewright' has no attribute {name!r}", "" if name.startswith("_") else remedy
        )
    )


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES, *_SUBMODULES})


__all__ = [
    "Autotuner",
    "AutotunerError",
    "BackendError",
    "CompilationError",
    "CompiledKernel",
    "Config",
    "DerivativeError",
    "JITFunction",
    "KernelError",
    "KernelInterface",
    "LaunchError",
    "LoweringError",
    "MockTensor",
    "OutOfResources",
    "TensorDescriptor",
    "TensorWrapper",
    "TilewrightError",
    "__version__",
    "aggregate",
    "autotune",
    "backend",
    "cdiv",
    "constexpr_function",
    "custom_vjp",
    "errors",
    "explain",
    "heuristics",
    "hooks",
    "ir",
    "jit",
    "jvp",
    "language",
    "must_use_result",
    "next_power_of_2",
    "reinterpret",
    "set_allocator",
    "testing",
    "vjp",
]
