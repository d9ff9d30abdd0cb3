"""Texts of cache keys: the same in every process, and different where the code may differ."""

from __future__ import annotations

import enum
import functools
import hashlib
import importlib.metadata
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from tilewright.ir import IR_VERSION
from tilewright.plugins.registry import Backend
from tilewright.plugins.versions import digest, distribution_version

__all__ = [
    "UnstableError",
    "backend_version",
    "core_version",
    "digest",
    "libraries_text",
    "stable_text",
]


class UnstableError(Exception):
    """A value has no text that is the same in every process, so it cannot be part of a disk key."""


#: Minimum size in bits of integers written in hexadecimal: Python limits decimal conversion to some
#: thousand digits.
_LONG = 8192


def stable_text(value: Any) -> str:
    """Return a text that two values share only if they mean the same to a kernel.

    Raises:
        UnstableError: there is none.
    """
    if value is None or isinstance(value, bool | str | bytes):
        return f"{type(value).__name__}:{value!r}"
    if isinstance(value, enum.Enum):
        kind = type(value)
        return f"{kind.__module__}.{kind.__qualname__}.{value.name}={stable_text(value.value)}"
    if isinstance(value, int):
        return f"int:{int(value)}" if value.bit_length() <= _LONG else f"int:{int(value):#x}"
    if isinstance(value, float):
        return f"float:{value.hex()}"
    if isinstance(value, complex):
        return f"complex:{value!r}"
    key = getattr(value, "cache_key", None)
    if isinstance(key, str):
        return f"function:{key}"
    name = f"{type(value).__module__}.{type(value).__qualname__}"
    if isinstance(value, tuple | list):
        names = f"({','.join(value._fields)})" if hasattr(value, "_fields") else ""
        return f"{name}{names}[{','.join(map(stable_text, value))}]"
    if isinstance(value, Mapping):
        items = sorted(f"{stable_text(key)}={stable_text(item)}" for key, item in value.items())
        return f"{name}{{{','.join(items)}}}"
    if isinstance(value, frozenset | set):
        return f"{name}{{{','.join(sorted(map(stable_text, value)))}}}"
    if isinstance(value, type):
        return f"type:{value.__module__}.{value.__qualname__}"
    if is_dataclass(value):
        texts = (f"{one.name}={stable_text(getattr(value, one.name))}" for one in fields(value))
        return f"{name}({','.join(texts)})"
    if _text_is_the_value(value):
        return f"{name}:{value}"
    raise UnstableError(name)


def _text_is_the_value(value: Any) -> bool:
    """Return whether a value is an element type, which its text identifies completely."""
    return type(value).__name__ in ("dtype", "pointer_type", "block_type") or any(
        base.__module__ in ("numpy",) for base in type(value).__mro__
    )


@functools.cache
def core_version() -> str:
    """Return the versions of this package, the IR and the compiler library, if installed."""
    return (
        f"{distribution_version('tilewright', 'tilewright')} ir "
        f"{IR_VERSION[0]}.{IR_VERSION[1]} llvmlite {_installed('llvmlite')}"
    )


@functools.cache
def backend_version(backend: Backend) -> str:
    """Return the version of a backend, of its distribution, and of its files under development."""
    name = backend.distribution.partition(" ")[0]
    return (
        f"{backend.name} {backend.manifest.version} "
        f"{distribution_version(name, backend.source.package)}"
    )


def libraries_text(given: Any) -> str:
    """Return the key text of the launch option ``extern_libs``: the contents of its files.

    Empty without libraries. The backend refuses unreadable files.
    """
    pairs = given.items() if isinstance(given, Mapping) else given or ()
    try:
        return " ".join(
            sorted(
                f"{name}={hashlib.sha256(Path(path).read_bytes()).hexdigest()}"
                for name, path in pairs
            )
        )
    except (OSError, TypeError, ValueError):
        return "unreadable"


def _installed(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "none"
