"""The table of public names (``public_names.toml``), and the objects they stand for."""

from __future__ import annotations

import functools
import importlib
import inspect
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: Kinds of names that stand for no object.
WITHOUT_OBJECT = frozenset({"operator", "syntax"})


@dataclass(frozen=True)
class Name:
    """A public name.

    Attributes:
        full: as programs spell it: ``tl.load``, ``tensor.sum``, ``triton.knobs.cache.dir``.
        family: the title of its family.
        kind: ``function type constant module member operator syntax host``.
        since: the release of Triton's surface that brought it, or ``"tilewright"``.
        page: the reference page that describes it, below ``reference/``.
        alias: the name of the same object that is described instead; empty where there is none.
    """

    full: str
    family: str
    kind: str
    since: str
    page: str
    alias: str = ""

    @property
    def last(self) -> str:
        """The name alone."""
        return self.full.rpartition(".")[2]


@functools.cache
def names() -> dict[str, Name]:
    """Every public name, families in the order of the table.

    Raises:
        ValueError: a name is there twice.
    """
    table = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
    found: dict[str, Name] = {}
    for family in table["family"]:
        for entry in family["names"].split():
            name, _, since = entry.partition("@")
            alias = f"{family['alias']}{name}" if "alias" in family else ""
            full = f"{family['prefix']}{name}"
            if full in found:
                raise ValueError(f"public_names.toml names {full} twice")
            found[full] = Name(
                full,
                family["title"],
                family["kind"],
                since or family.get("since", "3.0"),
                family["page"].format(name=name),
                alias,
            )
    return found


def resolve(name: Name) -> Any:
    """Return the object that a name stands for; None for operators and syntax.

    Names below ``triton`` need the shim, see :func:`tilewright_conformance.api_coverage.shim.shim`.

    Raises:
        LookupError: there is none.
    """
    if name.kind in WITHOUT_OBJECT:
        return None
    root, _, rest = name.full.partition(".")
    try:
        return _ROOTS[root](rest)
    except (AttributeError, ImportError, LookupError) as error:
        raise LookupError(f"{name.full}: {error}") from error


def _language(path: str) -> Any:
    return _walk(importlib.import_module("tilewright.language"), path)


def _package(path: str) -> Any:
    return _walk(importlib.import_module("tilewright"), path)


def _triton(path: str) -> Any:
    return _walk(importlib.import_module("triton"), path, importable=True)


def _walk(found: Any, path: str, importable: bool = False) -> Any:
    for name in path.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            if not importable or not inspect.ismodule(found):
                raise
            # computed: the public names, as users write them
            found = importlib.import_module(
                f"{found.__name__.replace('tilewright.compat.triton', 'triton')}.{name}"
            )
        except (
            RuntimeError
        ):  # a setting whose value is not to be had on this machine is there all the same
            found = inspect.getattr_static(found, name)
    return found


def _member(owner: str) -> Any:
    def find(path: str) -> Any:
        import tilewright.language as tl
        from tilewright.language.builtin_functions.descriptors import EMITTED_MEMBERS

        if owner == "dtype":
            return next(
                getattr(dtype, path) for dtype in (tl.int32, tl.float32) if hasattr(dtype, path)
            )
        if owner == "tensor_descriptor" and path in EMITTED_MEMBERS:
            return EMITTED_MEMBERS[path]
        return inspect.getattr_static(getattr(tl, owner), path)

    def checked(path: str) -> Any:
        try:
            return find(path)
        except StopIteration:
            raise AttributeError(f"dtype has no attribute {path!r}") from None

    return checked


def _kernel(path: str) -> Any:
    from tilewright_conformance.api_coverage.probes.launching import plain_kernel
    from tilewright_conformance.api_coverage.shim import shim

    with shim():
        return getattr(importlib.import_module("triton").jit(plain_kernel.fn), path)


def _compiled(path: str) -> Any:
    from tilewright_conformance.api_coverage.probes.launching import compiled_kernel

    return getattr(compiled_kernel(), path)


#: first part of a name -> what finds the rest
_ROOTS = {
    "tl": _language,
    "tilewright": _package,
    "triton": _triton,
    "tensor": _member("tensor"),
    "tensor_descriptor": _member("tensor_descriptor"),
    "dtype": _member("dtype"),
    "JITFunction": _kernel,
    "CompiledKernel": _compiled,
}
