"""The options of a compilation in Triton's terms and in Tilewright's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.compat.triton.backends import backends
from tilewright.compat.triton.backends.compiler import TilewrightCompiler
from tilewright.compat.triton.backends.options import (
    MIN_DOT,
    OF_THE_LANGUAGE,
    RENAMED,
    TritonOptions,
)
from tilewright.compat.triton.backends.targets import target_of
from tilewright.plugins.manifest import Target
from tilewright.plugins.registry import Backend


def triton_options(backend: Backend, target: Target, given: Mapping[str, Any]) -> TritonOptions:
    """Every option of a compilation in Triton's terms."""
    return compiler_of(backend, backend.completed(target)).parse_options(given)


def compiler_of(backend: Backend, target: Target) -> TilewrightCompiler:
    """The compiler of a backend, for one of its targets."""
    compiler = backends.classes(backend.name).compiler
    assert issubclass(compiler, TilewrightCompiler)
    return compiler(target_of(target), target)


def tilewright_options(
    backend: Backend, target: Target, options: Mapping[str, Any]
) -> dict[str, Any]:
    """The options of a compilation in Tilewright's terms, from all of Triton's."""
    known = dict(backend.manifest.options)
    known.update({name: options[name] for name in known if options.get(name) is not None})
    for theirs, ours in RENAMED.items():
        if options.get(theirs) and ours in known:
            known[ours] = options[theirs]
    return known | language_options(target, options)


def language_options(target: Target, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that the language itself reads, from all of Triton's."""
    given = {RENAMED.get(name, name): value for name, value in options.items()}
    given["plain_loops"] = given["named_values"] = given["thread_prints"] = True
    given["min_dot_size"] = tuple(MIN_DOT.get(target.kind, {}).items())
    return {name: given[name] for name in OF_THE_LANGUAGE if given.get(name)}
