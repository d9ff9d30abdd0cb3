"""PyTorch for tests of which only some use it: where it is not installed, those are skipped as soon
as they do."""

from __future__ import annotations

import os
from typing import Any

import pytest


class Absent:
    """Placeholder for PyTorch, and for everything derived from it, while tests are collected."""

    def __getattr__(self, name: str) -> Absent:
        if name.startswith("__"):
            raise AttributeError(name)
        if "PYTEST_CURRENT_TEST" in os.environ:
            pytest.skip("PyTorch is not installed")
        return Absent()

    def __call__(self, *arguments: Any, **keywords: Any) -> Absent:
        return self.__getattr__("()")

    def __getitem__(self, index: Any) -> Absent:
        return self.__getattr__("[]")


def is_absent(value: Any) -> bool:
    """Return whether an object, or a part of it, was derived from the placeholder."""
    parts = (
        value.values()
        if isinstance(value, dict)
        else value
        if isinstance(value, list | tuple)
        else ()
    )
    return isinstance(value, Absent) or any(map(is_absent, parts))


torch: Any
try:
    import torch
except ImportError:
    torch = Absent()
