"""``triton.runtime.build``: compiling C to extension modules, kept in the cache."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sysconfig
import tempfile
import warnings
from pathlib import Path
from types import ModuleType

from tilewright.compat.triton import knobs
from tilewright.compat.triton.runtime.cache import get_cache_manager

_SHARED = re.compile(r"\.so(?:\.\d+)*$|\.a$")


def _build(
    name: str,
    src: str,
    srcdir: str,
    library_dirs: list[str],
    include_dirs: list[str],
    libraries: list[str],
    ccflags: list[str] | None = None,
) -> str:
    """Compile a C file to ``<srcdir>/<name><suffix>``; gives the path.

    Raises:
        RuntimeError: there is no C compiler.
        subprocess.CalledProcessError: it refused the file.
    """
    if knobs.build.impl is not None:
        return knobs.build.impl(name, src, srcdir, library_dirs, include_dirs, libraries)
    compiler = knobs.build.cc or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise RuntimeError(
            "Failed to find C compiler. Please specify via CC environment variable or set "
            "triton.knobs.build.impl."
        )
    scheme = sysconfig.get_default_scheme()
    headers = sysconfig.get_paths(scheme="posix_prefix" if scheme == "posix_local" else scheme)[
        "include"
    ]
    out = os.path.join(srcdir, f"{name}{sysconfig.get_config_var('EXT_SUFFIX')}")
    command = [compiler, src, "-O3", "-shared", "-fPIC", "-o", out]
    command += [
        f"-l:{library}" if _SHARED.search(library) else f"-l{library}" for library in libraries
    ]
    command += [f"-L{directory}" for directory in library_dirs]
    command += [
        f"-I{directory}"
        for directory in (*include_dirs, srcdir, headers, *sorted(knobs.build.backend_dirs))
        if directory
    ]
    subprocess.check_call([*command, *(ccflags or [])], stdout=subprocess.DEVNULL)
    return out


@functools.cache
def platform_key() -> str:
    """A text that differs between machines that cannot run each other's code."""
    return ",".join((platform.machine(), platform.system(), *platform.architecture()))


def _load_module_from_path(name: str, path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise RuntimeError(f"Failed to load newly compiled {name} from {path}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compile_module_from_src(
    src: str,
    name: str,
    library_dirs: list[str] | None = None,
    include_dirs: list[str] | None = None,
    libraries: list[str] | None = None,
    ccflags: list[str] | None = None,
) -> ModuleType:
    """Build the extension module of C source.

    It is compiled once, and again where the kept one cannot be loaded.

    Raises:
        RuntimeError: there is no C compiler.
        subprocess.CalledProcessError: it refused the source.
    """
    cache = get_cache_manager(hashlib.sha256((src + platform_key()).encode()).hexdigest())
    filename = f"{name}{sysconfig.get_config_var('EXT_SUFFIX')}"
    kept = cache.get_file(filename)
    if kept is not None:
        try:
            return _load_module_from_path(name, kept)
        except (RuntimeError, ImportError):
            warnings.warn(
                f"the compiled module {kept} could not be loaded, and is compiled anew",
                stacklevel=2,
            )
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, f"{name}.c")
        source.write_text(src)
        built = _build(
            name,
            str(source),
            folder,
            library_dirs or [],
            include_dirs or [],
            libraries or [],
            ccflags or [],
        )
        try:
            built = cache.put(Path(built).read_bytes(), filename)
        except OSError as error:
            warnings.warn(f"the compiled module {name} cannot be kept: {error}", stacklevel=2)
        return _load_module_from_path(name, built)


__all__ = ["compile_module_from_src", "platform_key"]
