"""``import triton``, answered by Tilewright.

A finder at the head of ``sys.meta_path`` gives the modules of this package under Triton's names:
``triton.knobs`` is the very module ``tilewright.compat.triton.knobs``, and ``triton.language`` is
``tilewright.language``. Nothing is imported before it is asked for. Names below ``triton`` that
Tilewright has no counterpart of raise an error that says so; they never fall through to an
installed Triton, whose objects would not mix with ours.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import CodeType, ModuleType

from tilewright.compat.triton.outside import OutsideModuleError, reason_of
from tilewright.errors import TilewrightError

_ROOT = "triton"
_PACKAGE = "tilewright.compat.triton"
#: Modules that are those of Tilewright itself; what is below them too. The others are this
#: package's, name by name.
_ALIASES = {"triton.language": "tilewright.language"}
#: Parts of this package that are not Triton's.
_OWN = frozenset({"hook", "outside", "recording", "switch", "__main__"})


class TritonFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds ``triton`` and what is below it."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != _ROOT and not fullname.startswith("triton."):
            return None
        name = counterpart(fullname)
        found = sys.modules.get(name)
        known = getattr(found, "__spec__", None) or importlib.util.find_spec(name)
        assert known is not None
        spec = importlib.machinery.ModuleSpec(
            fullname,
            self,
            origin=known.origin,
            is_package=known.submodule_search_locations is not None,
        )
        spec.submodule_search_locations = known.submodule_search_locations
        spec.has_location = known.has_location
        return spec

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        name = counterpart(spec.name)
        # computed: the counterpart of a module that a program imports
        module = importlib.import_module(name)
        # The import system puts the spec of the name that was asked for into the module; it keeps
        # the one of its own name.
        spec.loader_state = module.__spec__
        if spec.name == "triton.language":
            _write_types_as(spec.name)
        return module

    def get_code(self, fullname: str) -> CodeType | None:
        """Return the code that ``python -m`` runs of a module."""
        name = counterpart(fullname)
        loader = getattr(importlib.util.find_spec(name), "loader", None)
        return loader.get_code(name) if isinstance(loader, importlib.abc.InspectLoader) else None

    def exec_module(self, module: ModuleType) -> None:
        spec = module.__spec__
        if spec is None or spec.loader is not self:
            return
        module.__spec__ = spec.loader_state
        # Submodules that are loaded already are known by the other name at once: were they imported
        # again, the import system would bind them in their package, in place of what the package
        # itself keeps there (the object ``triton.runtime.driver``).
        own = counterpart(spec.name)
        for name, loaded in list(sys.modules.items()):
            below = name.removeprefix(f"{own}.")
            if (
                below != name
                and below not in _OWN
                and not getattr(loaded.__spec__, "_initializing", False)
            ):
                sys.modules.setdefault(f"{spec.name}.{below}", loaded)


def counterpart(fullname: str) -> str:
    """The name of the module that answers to ``triton`` or one below it.

    Raises:
        OutsideModuleError: there is none.
    """
    for name in _candidates(fullname):
        if _exists(name):
            return name
    raise OutsideModuleError(reason_of(fullname), name=fullname)


def _candidates(fullname: str) -> list[str]:
    """The names that the counterpart of a name may have."""
    found = [
        name + fullname[len(alias) :]
        for alias, name in _ALIASES.items()
        if fullname == alias or fullname.startswith(f"{alias}.")
    ]
    return (
        found
        if fullname.removeprefix("triton.") in _OWN
        else [*found, _PACKAGE + fullname[len(_ROOT) :]]
    )


def _exists(name: str) -> bool:
    """Raises AbsentModuleError for a part of the language that no installed backend brings."""
    if name in sys.modules:
        return True
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError as error:
        if isinstance(error, TilewrightError):
            raise
        return False


def _write_types_as(module: str) -> None:
    """Let ``repr(tl.float32)`` be ``<module>.float32``: programs evaluate it."""
    dtypes = sys.modules.get("tilewright.language.value_types.dtypes")
    if dtypes is not None:
        dtypes.surface = module  # type: ignore[attr-defined]


_finder = TritonFinder()


def activate() -> None:
    """Let ``import triton`` find Tilewright in this process from now on; idempotent.

    Raises:
        ImportError: the process has imported another ``triton`` already, so that there would be two
            kinds of everything.
    """
    loaded = sys.modules.get(_ROOT)
    if loaded is not None and loaded is not sys.modules.get(_PACKAGE):
        raise ImportError(
            "another triton was imported before tilewright.compat.triton, from "
            f"{getattr(loaded, '__file__', 'somewhere')}. Import tilewright.compat.triton first, "
            "or start the process with python -m tilewright.compat.triton or with "
            "TILEWRIGHT_TRITON=1 in the environment"
        )
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
    if "triton.language" in sys.modules:
        _write_types_as("triton.language")


def deactivate() -> None:
    """Remove the finder and forget the names below ``triton``.

    The next ``import triton`` finds an installed one, if there is any.
    """
    if _finder in sys.meta_path:
        sys.meta_path.remove(_finder)
    ours = [
        name
        for name, module in sys.modules.items()
        if (name == _ROOT or name.startswith(f"{_ROOT}."))
        and any(sys.modules.get(own) is module for own in _candidates(name))
    ]
    for name in ours:
        del sys.modules[name]
    _write_types_as("tilewright.language")


def is_active() -> bool:
    """Return whether ``import triton`` finds Tilewright."""
    return _finder in sys.meta_path
