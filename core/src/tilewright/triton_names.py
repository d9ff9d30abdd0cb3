"""Successors of Triton's public names that this package does not have, for errors about them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

_TARGET = "tl.target_info.current_target() returns the target, in kernels and outside"
_DESCRIPTOR = "it is tw.TensorDescriptor"
_CACHE = "tw.hooks observes compilation; TILEWRIGHT_CACHE_DIR is the folder of compiled kernels"

#: Module and name, as after renaming ``triton`` to ``tilewright`` -> what there is instead.
_SUCCESSORS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "tilewright.backends": "backends are plugins: see tilewright.plugins",
        "tilewright.compile": (
            "kernel.warmup(*arguments, grid=grid) compiles without a launch, and "
            "`tilewright compile` compiles a kernel for C programs"
        ),
        "tilewright.compiler": "kernel.warmup(...) and tw.explain compile without a launch",
        "tilewright.knobs": (
            "settings are environment variables (tilewright help reference/environment), and "
            "hooks are tw.hooks"
        ),
        "tilewright.runtime.Autotuner": "it is tw.Autotuner",
        "tilewright.runtime.JITFunction": "it is tw.JITFunction",
        "tilewright.runtime.autotuner": "tw.autotune, tw.Autotuner and tw.Config have its place",
        "tilewright.runtime.cache": _CACHE,
        "tilewright.runtime.driver": _TARGET,
        "tilewright.runtime.jit": "tw.jit and tw.JITFunction have its place",
        "tilewright.tools.disasm": "kernel.warmup(...).asm has the stages; tw.explain shows them",
        "tilewright.tools.tensor_descriptor": _DESCRIPTOR,
    }
)


def successor(module: str, name: str) -> str:
    """Return what replaces a name of Triton's in a module, or ""."""
    return _SUCCESSORS.get(f"{module}.{name}", "")


def absent(module: str, name: str) -> AttributeError:
    """Return the error for a name that a module does not have, with its successor."""
    from tilewright.errors import with_help

    return AttributeError(
        with_help(f"module {module!r} has no attribute {name!r}", successor(module, name))
    )


__all__ = ["absent", "successor"]
