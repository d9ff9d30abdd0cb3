"""Versions of installed code for cache keys: equal in every process, different for other code."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import sys
import weakref
from pathlib import Path
from types import ModuleType

from tilewright.plugins.registry import registry


def digest(*parts: str) -> str:
    """SHA-256 over texts, in hex."""
    return hashlib.sha256("\x00".join(parts).encode()).hexdigest()


def distribution_version(name: str, package: str) -> str:
    """Return the version of a distribution, with a digest of its package's files where needed.

    They change without the version in an editable install, and where there is no distribution of
    that name. The digest covers sizes and times of the files.
    """
    try:
        distribution = importlib.metadata.distribution(name)
        origin = json.loads(distribution.read_text("direct_url.json") or "{}")
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return f"{name} {_files_version(package)}"
    editable = isinstance(origin, dict) and (origin.get("dir_info") or {}).get("editable")
    return f"{name} {distribution.version} {_files_version(package) if editable else ''}"


#: module -> its version, as it was when it was first asked for
_versions: weakref.WeakKeyDictionary[ModuleType, str] = weakref.WeakKeyDictionary()


def plugin_version(module: str) -> str:
    """Return the version of the plugin, or of the language's package, that ships a module.

    Empty where none does.
    """
    package = module.partition(".")[0]
    distribution = registry().distribution_of(package)
    if distribution is None:
        return ""
    found = sys.modules.get(package)
    if found is None:
        return distribution_version(distribution, package)
    known = _versions.get(found)
    if known is None:
        known = _versions[found] = distribution_version(distribution, package)
    return known


def text_version(module: str) -> str:
    """A digest of the text of a module's file; empty where it has none."""
    found = sys.modules.get(module)
    file = getattr(found, "__file__", None)
    if found is None or not file:
        return ""
    known = _versions.get(found)
    if known is None:
        try:
            known = hashlib.sha256(Path(file).read_bytes()).hexdigest()
        except OSError:  # in an archive, or gone
            known = ""
        _versions[found] = known
    return known


def _files_version(package: str) -> str:
    """Return a digest of name, size and modification time of a top-level package's Python files.

    Empty where it is not loaded, or has no files.
    """
    module = sys.modules.get(package)
    file = getattr(module, "__file__", None)
    if not file:
        return ""
    if not hasattr(module, "__path__"):
        status = os.stat(file)
        return digest(f"{file} {status.st_size} {status.st_mtime_ns}")
    found = []
    pending = [str(Path(file).parent)]
    while pending:
        for entry in os.scandir(pending.pop()):
            if entry.is_dir(follow_symlinks=False):
                if entry.name != "__pycache__":
                    pending.append(entry.path)
            elif entry.name.endswith(".py"):
                status = entry.stat()
                found.append(f"{entry.path} {status.st_size} {status.st_mtime_ns}")
    return digest(*sorted(found))
