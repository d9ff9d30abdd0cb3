"""The choice of the HIP runtime for this process.

In order of preference: a runtime that the process has mapped already, PyTorch's, that of ROCm's
wheels, ``ROCM_PATH``'s, the system's. Nothing is loaded here. PyTorch's precedes ``ROCM_PATH``'s,
since a program that imports PyTorch later would otherwise have both.
"""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

NAME: Final = "libamdhip64.so"
_MAPS: Final = Path("/proc/self/maps")
_LOADER_CACHE: Final = Path("/etc/ld.so.cache")
_ROCM: Final = "/opt/rocm"
_SYSTEM: Final = ("/usr/lib64", "/usr/lib", "/usr/lib/x86_64-linux-gnu")
#: (package, folder of the runtime that it bundles): PyTorch for ROCm, and ROCm's wheels.
_BUNDLES: Final = (("torch", "lib"), ("_rocm_sdk_core", "lib"))


def mapped(maps: Path = _MAPS) -> list[str]:
    """Return the HIP runtimes mapped in this process, without duplicates.

    Several names of one file count as one: ROCm's wheels contain hard links.
    """
    try:
        text = maps.read_text()
    except OSError:
        return []
    found: list[str] = []
    for path in dict.fromkeys(re.findall(rf"\s(/.*/{re.escape(NAME)}\S*)$", text, re.M)):
        if not any(same(path, other) for other in found):
            found.append(path)
    return found


def same(first: str, second: str) -> bool:
    """Return whether two paths name the same file."""
    try:
        return os.path.samefile(first, second)
    except OSError:
        return first == second


def chosen(maps: Path = _MAPS) -> str:
    """Return the path of the runtime to use; empty if there is none.

    If several are mapped, this is one of them.
    """
    return next(iter(mapped(maps)), "") or next(candidates(), "")


def candidates() -> Iterator[str]:
    """Yield the installed runtimes, in order of preference."""
    for package, folder in _BUNDLES:
        for root in _package_folders(package):
            yield from _in_folder(Path(root, folder))
    named = [os.environ[name] for name in ("ROCM_PATH", "ROCM_HOME") if os.environ.get(name)]
    for root in (*named, _ROCM):
        for place in ("lib", "lib64", ""):
            yield from _in_folder(Path(root, place))
    for root in [
        folder for folder in os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep) if folder
    ]:
        yield from _in_folder(Path(root))
    yield from _of_loader(_LOADER_CACHE)
    for root in _SYSTEM:
        yield from _in_folder(Path(root))


def conflict(found: Sequence[str]) -> str:
    """Return an error text if a process has several runtimes; empty otherwise."""
    if len(found) < 2:
        return ""
    return (
        f"this process uses several HIP runtimes, {' and '.join(found)}, which do not know each "
        "other's memory and streams: let all its libraries use one, as by importing the library "
        "that brings its own before others, or by installing builds for the same ROCm"
    )


def _package_folders(name: str) -> list[str]:
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return []
    return list(spec.submodule_search_locations or ()) if spec is not None else []


def _in_folder(folder: Path) -> Iterator[str]:
    """Yield the runtime in a folder: its plain name, or else the highest version."""
    plain = folder / NAME
    if plain.is_file():
        yield str(plain)
        return
    versioned = [path for path in folder.glob(f"{NAME}.*") if path.is_file()]
    if versioned:
        yield str(
            max(
                versioned,
                key=lambda path: [
                    int(part) for part in re.findall(r"\d+", path.name.partition(NAME)[2])
                ],
            )
        )


def _of_loader(cache: Path) -> Iterator[str]:
    """Yield the runtimes in the dynamic linker's cache, which holds NUL-terminated paths."""
    try:
        data = cache.read_bytes()
    except OSError:
        return
    for found in re.findall(rb"/[^\0]*/" + re.escape(NAME.encode()) + rb"[^\0/]*(?=\0)", data):
        path = os.fsdecode(found)
        if os.path.isfile(path):
            yield path
