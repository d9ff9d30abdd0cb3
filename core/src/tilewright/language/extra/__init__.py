"""Functions beyond the core language: ``tl.extra.libdevice``, and backends' modules.

Backends bring them for their targets, each under a name in its manifest.

    from tilewright.language.extra import libdevice
    from tilewright.language.extra.NAME import function

A backend's module is imported when it is first asked for. It is there wherever the backend is
installed, whichever backend compiles the kernel.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

from tilewright.language import backend_modules, libdevice

# Kernels are written with ``from ...extra.libdevice import tanh`` too.
sys.modules[f"{__name__}.libdevice"] = libdevice
backend_modules.install()


def __getattr__(name: str) -> Any:
    if name.startswith("_"):  # no backend's, and not worth loading them all for
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return importlib.import_module(f"{__name__}.{name}")
    except backend_modules.AbsentModuleError as error:
        raise backend_modules.AbsentLanguageError(str(error)) from None


def __dir__() -> list[str]:
    return backend_modules.names()


__all__ = ["libdevice"]
