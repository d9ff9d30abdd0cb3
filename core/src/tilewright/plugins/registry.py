"""The registry of installed backends: loads each when it is needed, and isolates broken ones.

A plugin that cannot be imported, whose hooks do not match their specifications, whose manifest is
malformed, or that shares its name with another is disabled alone. :meth:`Registry.broken` tells
why; asked for by name, it raises its own error.
"""

from __future__ import annotations

import contextvars
import dataclasses
import re
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import pluggy

from tilewright.errors import BackendError, TilewrightError, closest, with_help
from tilewright.forks import setting_up
from tilewright.ir import IR_VERSION, TABLE
from tilewright.ir.table import OpTable
from tilewright.plugins import hooks
from tilewright.plugins.discovery import PluginSource, installed_plugins
from tilewright.plugins.manifest import Manifest, Target, is_backend_name
from tilewright.plugins.patience import VARIABLE, HangingError, time_limit, within_limit

#: What an extra of this distribution needs of this project, without spaces and in single quotes: a
#: backend's distribution.
_OF_EXTRA = re.compile(r"tilewright-(?P<backend>\w+)(\[[^]]*\])?[^;]*;extra=='(?P<extra>[\w-]+)'")
#: Hooks that are asked before anything runs, and that drivers may hang in.
_LIMITED = frozenset({"tilewright_devices"})
#: Frames of a plugin's exception that its error shows.
_FRAMES = 3
_PATIENCE = f"Where it needs longer, set {VARIABLE} to more seconds, or to 0 for no limit"


class Backend:
    """One plugin that loaded. Its hooks are called for it alone."""

    def __init__(
        self,
        source: PluginSource,
        manifest: Manifest,
        manager: pluggy.PluginManager,
        load_seconds: float,
    ) -> None:
        self.source = source
        self.manifest = manifest
        #: seconds that importing it took
        self.load_seconds = load_seconds
        self._manager = manager
        self._table: OpTable | None = None
        #: hooks that did not end: they are not called again
        self._hanging: dict[str, str] = {}

    @property
    def name(self) -> str:
        return self.manifest.name

    @property
    def distribution(self) -> str:
        return self.source.distribution

    @property
    def table(self) -> OpTable:
        """The op table with this backend's own operations."""
        if self._table is None:
            self._table = TABLE.extended(self.manifest.ops) if self.manifest.ops else TABLE
        return self._table

    def completed(self, target: Target) -> Target:
        """``target`` with the manifest's capabilities, where it has none of its own."""
        capabilities = self.manifest.capabilities
        return (
            target
            if target.capabilities is not None or capabilities is None
            else dataclasses.replace(target, capabilities=capabilities)
        )

    def implements(self, hook: str) -> bool:
        """Return whether the plugin implements ``hook``."""
        return bool(getattr(self._manager.hook, hook).get_hookimpls())

    def takes(self, hook: str, argument: str) -> bool:
        """Return whether the plugin's implementation of ``hook`` takes ``argument``."""
        return any(
            argument in found.argnames
            for found in getattr(self._manager.hook, hook).get_hookimpls()
        )

    def call(self, hook: str, /, **arguments: Any) -> Any:
        """Call one hook of this plugin; None where it has no implementation.

        Raises:
            TilewrightError: what the plugin raised on purpose.
            BackendError: the plugin failed in another way, with the cause chained, or it hangs.
        """
        if hook in self._hanging:
            raise BackendError(self._hanging[hook])
        called = getattr(self._manager.hook, hook)
        limit = time_limit() if hook in _LIMITED else 0
        try:
            return (
                within_limit(limit, lambda: called(**arguments)) if limit else called(**arguments)
            )
        except (TilewrightError, KeyboardInterrupt):
            raise
        except HangingError as error:
            self._hanging[hook] = (
                f"backend {self.name!r} ({self.distribution}) hangs in {hook}, and is skipped: "
                f"{error}. {_PATIENCE}."
            )
            raise BackendError(self._hanging[hook]) from None
        except BaseException as error:  # SystemExit too: a plugin does not end the process
            raise BackendError(
                f"backend {self.name!r} ({self.distribution}) failed in {hook}: "
                f"{type(error).__name__}: {error} ({_raised_at(error)}). This is a defect of the "
                "backend: correct it there, or report it to its authors."
            ) from error

    def require(self, hook: str, /, **arguments: Any) -> Any:
        """Like :meth:`call` for a hook that has to answer.

        Raises:
            BackendError: there is no implementation, or it gave None.
        """
        result = self.call(hook, **arguments)
        if result is None:
            what = "gave no answer to" if self.implements(hook) else "does not implement"
            raise BackendError(
                f"backend {self.name!r} ({self.distribution}) {what} {hook}, which running a "
                "kernel needs. Use a newer version of the backend; if you write it, add this "
                "hook."
            )
        return result

    def __reduce__(self) -> Any:
        """By name: another process has its own, or says that it has none."""
        return _get, (self.name,)

    def __copy__(self) -> Backend:
        made = Backend.__new__(Backend)
        made.__dict__.update(self.__dict__)
        return made

    def __repr__(self) -> str:
        return f"<Backend {self.name} {self.manifest.version} of {self.distribution}>"


def _raised_at(error: BaseException) -> str:
    """Return the last frames of a plugin's exception, the innermost first, for its authors."""
    frames = traceback.extract_tb(error.__traceback__)
    # The plugin's frames follow those of this file and of pluggy, which calls the hooks.
    calls = [at for at, frame in enumerate(frames) if frame.name == "_multicall"]
    own = frames[calls[-1] + 1 if calls else 1 :] or frames
    return ", called ".join(
        f"at {frame.filename}:{frame.lineno} in {frame.name}" for frame in own[: -_FRAMES - 1 : -1]
    )


def _get(name: str) -> Backend:
    return registry().get(name)


def load_backend(source: PluginSource) -> Backend:
    """Import a plugin and check all of it: hooks against their specifications, then the manifest.

    Raises:
        BackendError: naming plugin, distribution, cause and remedy.
        VariableError: the time limit in the environment is none.
    """
    started, limit = time.perf_counter(), time_limit()
    try:
        plugin = within_limit(limit, source.load)
    except KeyboardInterrupt:
        raise
    except HangingError as error:
        raise _refusal(source, f"it hangs while it is imported: {error}", _PATIENCE) from None
    except BaseException as error:  # SystemExit too: a plugin does not end the process
        raise _refusal(
            source,
            f"it cannot be imported: {_cause(error)}",
            "Reinstall or update it, with what it needs",
        ) from error
    manager = pluggy.PluginManager(hooks.PROJECT)
    manager.add_hookspecs(hooks)
    try:
        manager.register(plugin, source.name)
        manager.check_pending()
    except Exception as error:
        raise _refusal(
            source,
            f"its hooks do not match their specifications: {error}",
            "Update it to a version made for this release",
        ) from error
    try:
        manifest = within_limit(limit, manager.hook.tilewright_backend)
    except KeyboardInterrupt:
        raise
    except HangingError as error:
        raise _refusal(source, f"it hangs in tilewright_backend: {error}", _PATIENCE) from None
    except BaseException as error:
        raise _refusal(
            source,
            f"tilewright_backend failed: {_cause(error)}",
            "Update it, or report this to its authors",
        ) from error
    _check_manifest(source, manifest)
    return Backend(source, manifest, manager, time.perf_counter() - started)


def _check_manifest(source: PluginSource, manifest: object) -> None:
    if manifest is None:
        raise _refusal(
            source,
            "it does not implement tilewright_backend",
            "Mark that function of its module with tilewright.plugins.hooks.hookimpl",
        )
    if not isinstance(manifest, Manifest):
        raise _refusal(
            source,
            f"tilewright_backend returned {type(manifest).__name__}, not a Manifest",
            "Report this to its authors",
        )
    if manifest.name != source.name:
        raise _refusal(
            source,
            f"its manifest is named {manifest.name!r} and its entry point {source.name!r}",
            "Both must be the same: report this to its authors",
        )
    low, high = manifest.ir_versions
    if not low <= IR_VERSION <= high:
        accepted = f"{low[0]}.{low[1]} to {high[0]}.{high[1]}"
        newer = "this backend" if high < IR_VERSION else "tilewright"
        raise _refusal(
            source,
            f"it accepts Tile IR {accepted}, and this tilewright writes Tile IR "
            f"{IR_VERSION[0]}.{IR_VERSION[1]}",
            f"Update {newer}",
        )


def _cause(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _refusal(source: PluginSource, cause: str, remedy: str) -> BackendError:
    return BackendError(
        f"backend {source.name!r} ({source.distribution}, {source.reference}) is disabled: "
        f"{cause}. {remedy}."
    )


#: The names of the plugins that are being loaded, of which the innermost asks.
_loading: contextvars.ContextVar[frozenset[str]] = contextvars.ContextVar(
    "loading", default=frozenset()
)


class Registry:
    """The installed backends. Each is imported when first asked for; :meth:`backends` imports all.

    Args:
        discover: what lists the plugins; the installed distributions by default.
    """

    def __init__(self, discover: Callable[[], Sequence[PluginSource]] = installed_plugins) -> None:
        self._discover = discover
        self._lock = threading.RLock()
        #: by name: what is there, and what distributions ship of that
        self._sources: dict[str, list[PluginSource]] | None = None
        self._discovered: dict[str, list[PluginSource]] = {}
        self._loaded: dict[str, Backend | BackendError] = {}
        #: by name: held while a plugin is loaded, which asks for others in a thread of its own
        self._loading: dict[str, threading.Lock] = {}
        self._registered: set[str] = set()
        self._listeners: list[Callable[[], None]] = []

    def names(self) -> list[str]:
        """The names of all installed plugins, working or not."""
        return sorted(self._all_sources())

    def is_installed(self, name: str) -> bool:
        """Return whether other processes find the backend called ``name``, too.

        They do where a distribution ships it, and nothing was registered in its place.
        """
        return name in self._all_sources() and name not in self._registered

    def get(self, name: str) -> Backend:
        """The backend called ``name``.

        Raises:
            BackendError: it is not installed, or is broken (its own error).
        """
        if not isinstance(name, str):
            raise BackendError(
                f"a backend is asked for by its name, a string, not by {name!r}; installed: "
                f"{self._installed()}"
            )
        found = self._loaded.get(name) or self._load(name)
        if isinstance(found, BackendError):
            raise BackendError(str(found)) from found.__cause__
        return found

    def backends(self) -> list[Backend]:
        """The backends that work, highest priority first, then by name."""
        found = [self._loaded.get(name) or self._load(name) for name in self.names()]
        working = [backend for backend in found if isinstance(backend, Backend)]
        return sorted(working, key=lambda backend: (-backend.manifest.priority, backend.name))

    def broken(self) -> dict[str, BackendError]:
        """The plugins that disabled themselves, with why."""
        self.backends()
        return {
            name: found
            for name, found in sorted(self._loaded.items())
            if isinstance(found, BackendError)
        }

    def for_device_kind(self, kind: str) -> list[Backend]:
        """The backends that serve devices of a kind, the default one first."""
        return [backend for backend in self.backends() if kind in backend.manifest.device_kinds]

    def languages(self) -> dict[str, tuple[Backend, str]]:
        """Return the language modules: name below ``tl.extra`` -> the backend and its module.

        Of several backends the one of the highest priority is taken.
        """
        found: dict[str, tuple[Backend, str]] = {}
        for backend in self.backends():
            for name, module in backend.manifest.language.items():
                found.setdefault(name, (backend, module))
        return found

    def host_module(self, name: str) -> str | None:
        """Return the full name of the module ``tilewright.NAME`` that a backend brings, or None."""
        return next(
            (
                backend.manifest.host
                for backend in self.backends()
                if backend.name == name and backend.manifest.host
            ),
            None,
        )

    def distribution_of(self, package: str) -> str | None:
        """Return the name of the distribution that ships a plugin in ``package``, a top-level one.

        Empty where the package only has the language of a loaded backend, and None where it is no
        plugin's. Imports nothing.
        """
        for sources in self._all_sources().values():
            for source in sources:
                if source.package == package:
                    return source.distribution.partition(" ")[0]
        loaded = [found for found in list(self._loaded.values()) if isinstance(found, Backend)]
        modules = (module for found in loaded for module in found.manifest.language.values())
        return "" if any(module.partition(".")[0] == package for module in modules) else None

    def register(
        self, plugin: object, name: str, *, distribution: str = "registered in this process"
    ) -> Backend:
        """Add a plugin object or module that no distribution ships, in place of any of that name.

        Raises:
            BackendError: it is malformed; nothing is registered.
        """
        source = PluginSource(
            name, distribution, getattr(plugin, "__name__", type(plugin).__name__), lambda: plugin
        )
        backend = load_backend(source)
        with self._lock:
            self._all_sources()[name] = [source]
            self._loaded[name] = backend
            self._registered.add(name)
        self._changed()
        return backend

    def unregister(self, name: str) -> None:
        """Take back :meth:`register`; an installed plugin of that name shows again."""
        with self._lock:
            sources = self._all_sources()
            self._loaded.pop(name, None)
            self._registered.discard(name)
            if name in self._discovered:
                sources[name] = self._discovered[name]
            else:
                sources.pop(name, None)
        self._changed()

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` whenever a plugin is registered or removed, which outdates choices."""
        self._listeners.append(listener)

    def _changed(self) -> None:
        for listener in self._listeners:
            listener()

    def _all_sources(self) -> dict[str, list[PluginSource]]:
        if self._sources is None:
            with setting_up(), self._lock:
                if self._sources is None:
                    grouped: dict[str, list[PluginSource]] = {}
                    for source in self._discover():
                        grouped.setdefault(source.name, []).append(source)
                    self._discovered, self._sources = grouped, dict(grouped)
        return self._sources

    def _load(self, name: str) -> Backend | BackendError:
        with setting_up():
            return self._load_once(name)

    def _load_once(self, name: str) -> Backend | BackendError:
        with self._lock:
            lock = self._loading.setdefault(name, threading.Lock())
        loading = _loading.get()
        if name in loading:  # the plugin asks for itself
            return self._load_now(name)
        with lock:
            token = _loading.set(loading | {name})
            try:
                return self._load_now(name)
            finally:
                _loading.reset(token)

    def _load_now(self, name: str) -> Backend | BackendError:
        if name in self._loaded:
            return self._loaded[name]
        sources = self._all_sources().get(name)
        if not sources:
            return self._missing(name)
        found: Backend | BackendError
        if len(sources) > 1:
            shippers = " and ".join(source.distribution for source in sources)
            found = BackendError(
                f"backend {name!r} is disabled: {shippers} both ship a plugin of that name. "
                "Uninstall all but one of them."
            )
        else:
            try:
                found = load_backend(sources[0])
            except BackendError as error:
                found = error
        with self._lock:
            return self._loaded.setdefault(name, found)

    def _missing(self, name: str) -> BackendError:
        message = f"no backend named {name!r} is installed; installed: {self._installed()}"
        if not is_backend_name(name):
            return BackendError(f"{message}. Names are lower-case letters, digits, '-' and '_'")
        kinds: dict[str, str] = {}
        for backend in self.backends():
            for kind in backend.manifest.device_kinds:
                kinds.setdefault(kind, backend.name)
        ours = _shipped()
        known = {kind: f"a kind of devices, which backend {kinds[kind]!r} serves" for kind in kinds}
        for extra, own in ours.items():
            if own not in self.names() and (extra == own or extra not in kinds):
                known[extra] = f"installed with: pip install 'tilewright[{extra}]'"
        known.update(dict.fromkeys(self.names(), ""))
        if name in known:
            return BackendError(with_help(message, f"{name} is {known[name]}"))
        meant = closest(name, known)
        summary = f" It is {known[meant]}" if known.get(meant) else ""
        return BackendError(with_help(message, f"did you mean {meant}?{summary}" if meant else ""))

    def _installed(self) -> str:
        return ", ".join(self.names()) or "none"


def _shipped() -> dict[str, str]:
    """Return this project's backends by the extras of this distribution that install one each.

    The extra has the backend's name or its kind of devices: only of these it is known what a
    package of that name would be.
    """
    import importlib.metadata

    try:
        needed = importlib.metadata.requires("tilewright") or []
    except importlib.metadata.PackageNotFoundError:
        return {}
    found: dict[str, list[str]] = {}
    for need in needed:
        if match := _OF_EXTRA.fullmatch(need.replace('"', "'").replace(" ", "")):
            found.setdefault(match["extra"], []).append(match["backend"])
    return {extra: backends[0] for extra, backends in found.items() if len(backends) == 1}


_registry: Registry | None = None


def registry() -> Registry:
    """The registry of this process."""
    global _registry
    if _registry is None:
        _registry = Registry()
    return _registry
