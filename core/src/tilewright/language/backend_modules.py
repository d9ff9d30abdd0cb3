"""The modules below ``tl.extra`` that installed backends declare as their part of the language.

They have the names of the backends' manifests.

``tilewright.language.extra.NAME`` is the very module of the backend, found by a finder at the head
of ``sys.meta_path``, so that attributes, ``from`` imports and imports of what is below it all work.
Nothing is imported, and no plugin loaded, before a name is asked for.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING

from tilewright.errors import BackendError
from tilewright.plugins.manifest import SHARED_LANGUAGE

if TYPE_CHECKING:
    from tilewright.plugins.registry import Registry

_PACKAGE = f"{__name__.rpartition('.')[0]}.extra"


class AbsentLanguageError(BackendError, AttributeError):
    """``tl.extra`` has no module of a name: no installed backend brings it."""


class AbsentModuleError(BackendError, ModuleNotFoundError):
    """The same, where the module is imported."""


class BrokenLanguageError(BackendError, ImportError):
    """The module that a backend brings cannot be imported."""


def names() -> list[str]:
    """Return the names below ``tl.extra``, for which every installed backend is loaded."""
    return sorted((*SHARED_LANGUAGE, *_registry().languages()))


def _registry() -> Registry:
    from tilewright.plugins.registry import registry

    return registry()


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds what is below ``tilewright.language.extra``."""

    def __init__(self) -> None:
        #: names below the package that were given out
        self.given: set[str] = set()
        self._listens = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if not fullname.startswith(f"{_PACKAGE}."):
            return None
        module, backend = self._module(fullname)
        loaded = sys.modules.get(module)
        try:
            known = importlib.util.find_spec(module) if loaded is None else loaded.__spec__
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # SystemExit too: a plugin does not end the process
            raise _failure(fullname, backend, module, error) from error
        if loaded is None and known is None:
            raise _failure(
                fullname, backend, module, ModuleNotFoundError(f"No module named {module!r}")
            )
        spec = importlib.machinery.ModuleSpec(
            fullname, self, origin=None if known is None else known.origin
        )
        if known is not None and known.submodule_search_locations is not None:
            spec.submodule_search_locations = list(known.submodule_search_locations)
        return spec

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        name, backend = self._module(spec.name)
        try:
            # computed: the module that a backend's manifest names for kernels
            module = importlib.import_module(name)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise _failure(spec.name, backend, name, error) from error
        # The import system puts the spec of the name that was asked for into the module; it keeps
        # the one of its own name.
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        spec = module.__spec__
        assert spec is not None
        module.__spec__ = spec.loader_state
        self.given.add(_below(spec.name))
        # What a module has of other modules is imported by its name too:
        # ``from ...extra.NAME.libdevice import tanh``.
        for name in getattr(module, "__all__", ()):
            inner = getattr(module, name, None)
            if isinstance(inner, ModuleType):
                sys.modules.setdefault(f"{spec.name}.{name}", inner)

    def _module(self, fullname: str) -> tuple[str, str]:
        """The name of the module that answers to one below the package, and its backend."""
        if not self._listens:
            self._listens = True
            _registry().on_change(self.forget)
        name = _below(fullname)
        found = _registry().languages().get(name)
        if found is None:
            raise _missing(name)
        backend, module = found
        return module + fullname.removeprefix(
            f"{_PACKAGE}.{name}"
        ), f"{backend.name!r} ({backend.distribution})"

    def forget(self) -> None:
        """Find every name anew: plugins came or went."""
        if not self.given:
            return
        for fullname, module in list(sys.modules.items()):
            if _below(fullname) in self.given and getattr(module, "__name__", fullname) != fullname:
                del sys.modules[fullname]
        package = sys.modules[_PACKAGE]
        for name in self.given:
            package.__dict__.pop(name, None)
        self.given.clear()


def _below(fullname: str) -> str:
    """Return ``NAME`` of ``tilewright.language.extra.NAME.libdevice``, or "".

    The root package may have any name; the result is empty outside of such a package.
    """
    return fullname.partition(".language.extra.")[2].partition(".")[0]


def _missing(name: str) -> AbsentModuleError:
    broken = _registry().broken()
    disabled = "".join(f"\n  {error}" for error in broken.values())
    there = ", ".join(names())
    return AbsentModuleError(
        f"tl.extra has no {name!r}: no installed backend brings language of that name; there are "
        f"{there}. Install the backend that has it{disabled}"
    )


def _failure(fullname: str, backend: str, module: str, error: BaseException) -> BrokenLanguageError:
    return BrokenLanguageError(
        f"{fullname.removeprefix(f'{_PACKAGE}.')!r} of tl.extra is {module} of backend {backend}, "
        f"which cannot be imported: {type(error).__name__}: {error}. Reinstall or update "
        "that backend"
    )


_finder = Finder()


def install() -> Finder:
    """Let names below ``tilewright.language.extra`` be imported."""
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
    return _finder
