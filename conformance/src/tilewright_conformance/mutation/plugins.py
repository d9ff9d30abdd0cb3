"""The faulty backends as objects of a module, for plugins that are loaded by reference.

``tilewright_conformance.mutation.plugins:broken-<switch>``, ``:null`` and ``:broken``.
"""

from __future__ import annotations

from typing import Any

from tilewright_conformance.mutation import is_faulty, plugin


def __getattr__(name: str) -> Any:
    if not is_faulty(name):
        raise AttributeError(f"no faulty backend is called {name!r}")
    return plugin(name)
