"""Texts for cache keys: the same in every process, different whenever the compiled code may be."""

from __future__ import annotations

import enum
import functools
import hashlib
import importlib.metadata
import json
import os
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from tilewright.ir import IR_VERSION
from tilewright.plugins.registry import Backend


class UnstableError(Exception):
    """A value has no text that is the same in every process, so what depends on it is not kept on disk."""


def stable_text(value: Any) -> str:
    """A text that two values share only if they mean the same to a kernel.

    Raises:
        UnstableError: there is none.
    """
    if value is None or isinstance(value, bool | str | bytes):
        return f"{type(value).__name__}:{value!r}"
    if isinstance(value, enum.Enum):
        return f"{type(value).__module__}.{type(value).__qualname__}.{value.name}={stable_text(value.value)}"
    if isinstance(value, int):
        return f"int:{int(value)}"
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
        return f"{name}{{{','.join(sorted(f'{stable_text(key)}={stable_text(item)}' for key, item in value.items()))}}}"
    if isinstance(value, frozenset | set):
        return f"{name}{{{','.join(sorted(map(stable_text, value)))}}}"
    if isinstance(value, type):
        return f"type:{value.__module__}.{value.__qualname__}"
    if is_dataclass(value):
        return f"{name}({','.join(f'{field.name}={stable_text(getattr(value, field.name))}' for field in fields(value))})"
    if _text_is_the_value(value):
        return f"{name}:{value}"
    raise UnstableError(name)


def _text_is_the_value(value: Any) -> bool:
    """Element types of the language and of array libraries: their text says all of them."""
    return type(value).__name__ in ("dtype", "pointer_type", "block_type") or any(base.__module__ in ("numpy",) for base in type(value).__mro__)


def digest(*parts: str) -> str:
    """SHA-256 over texts, in hex."""
    return hashlib.sha256("\x00".join(parts).encode()).hexdigest()


@functools.cache
def core_version() -> str:
    """Versions of this package, of the IR and of the compiler library, where it is installed."""
    return f"{_distribution_key('tilewright', Path(__file__).parents[1])} ir {IR_VERSION[0]}.{IR_VERSION[1]} llvmlite {_installed('llvmlite')}"


@functools.cache
def backend_version(backend: Backend) -> str:
    """The version of a backend, of its distribution, and of its files where it is being worked on."""
    name = backend.distribution.partition(" ")[0]
    package = backend.source.reference.partition(":")[0].partition(".")[0]
    return f"{backend.name} {backend.manifest.version} {_distribution_key(name, _package_directory(package))}"


def _package_directory(package: str) -> Path | None:
    import sys

    module = sys.modules.get(package)
    file = getattr(module, "__file__", None)
    return Path(file).parent if file else None


def _distribution_key(name: str, directory: Path | None) -> str:
    """The distribution's version; for an editable install also a digest of sizes and times of the files, which change without the version."""
    try:
        distribution = importlib.metadata.distribution(name)
        origin = json.loads(distribution.read_text("direct_url.json") or "{}")
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return f"{name} {_files_key(directory) if directory else ''}"
    editable = isinstance(origin, dict) and (origin.get("dir_info") or {}).get("editable")
    return f"{name} {distribution.version} {_files_key(directory) if editable and directory else ''}"


def _files_key(directory: Path) -> str:
    """A digest of name, size and modification time of every Python file under a directory."""
    found = []
    pending = [str(directory)]
    while pending:
        for entry in os.scandir(pending.pop()):
            if entry.is_dir(follow_symlinks=False):
                if entry.name != "__pycache__":
                    pending.append(entry.path)
            elif entry.name.endswith(".py"):
                status = entry.stat()
                found.append(f"{entry.path} {status.st_size} {status.st_mtime_ns}")
    return digest(*sorted(found))


def _installed(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "none"
