"""The faulty backends as objects of a module: ``tilewright_conformance.faulty.plugins:broken-<switch>`` (and ``:null``, ``:broken``), for what loads a
plugin by such a reference."""

from __future__ import annotations

from typing import Any

from tilewright_conformance.faulty import is_faulty, plugin


def __getattr__(name: str) -> Any:
    if not is_faulty(name):
        raise AttributeError(f"no faulty backend is called {name!r}")
    return plugin(name)
