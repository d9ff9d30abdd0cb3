"""Emulators: devices of a backend on a machine without its hardware.

An emulator is a plugin of the entry-point group ``tilewright.emulators``, named like the backend
whose devices it emulates, and implements the hook ``tilewright_emulate``::

    [project.entry-points."tilewright.emulators"]
    vega = "tilewright_vega_emulator.plugin"

A backend that contains its emulator implements the hook in its own plugin, without an entry point.
Its manifest is then read before the hook runs, so it may not depend on whether a device is present.
"""

from __future__ import annotations

from typing import Any

import pluggy

from tilewright.errors import BackendError, TilewrightError
from tilewright.plugins import hooks
from tilewright.plugins.discovery import PluginSource, installed_plugins
from tilewright.plugins.manifest import EmulatedDevice, Manifest
from tilewright.plugins.registry import registry

#: The entry-point group.
GROUP = f"{hooks.PROJECT}.emulators"
_HOOK = "tilewright_emulate"


def emulate(backend: str, text: str, seed: int = 0) -> EmulatedDevice:
    """Give a backend an emulated device, in this process and those that it starts.

    Call it before anything asks the backend for its devices.

    Args:
        backend: name of the backend.
        text: ``TARGET`` or ``TARGET:MODE``; the emulator defines its modes.
        seed: seed of the emulator's own choices.

    Raises:
        BackendError: the backend has no emulator, or not such a target; its emulator is not
            installed, or fails.
    """
    target, _, mode = text.partition(":")
    source = _source(backend)
    arguments: dict[str, Any] = {"target": target, "mode": mode, "seed": seed}
    if source is not None:
        device = _call(source, arguments)
        manifest = registry().get(backend).manifest
    else:
        own = registry().get(backend)
        manifest = own.manifest
        if not own.implements(_HOOK):
            raise BackendError(_missing(manifest))
        _check_target(manifest, target)
        device = own.require(_HOOK, **arguments)
    _check_target(manifest, target)
    if manifest.status:
        raise BackendError(f"backend {backend!r} cannot be emulated: {manifest.status}")
    return device


def _check_target(manifest: Manifest, target: str) -> None:
    if target not in manifest.targets:
        targets = ", ".join(manifest.targets)
        raise BackendError(f"backend {manifest.name!r} has no target {target!r}; it has {targets}")


def _missing(manifest: Manifest) -> str:
    """Return the error for a backend whose emulator is not installed, or that has none."""
    if manifest.emulator:
        remedy = f"pip install {manifest.emulator}"
        return f"the emulator of backend {manifest.name!r} is not installed: {remedy}"
    where = f"no plugin of the entry-point group {GROUP!r} has its name"
    return f"backend {manifest.name!r} has no emulator: {where}, and it has no hook {_HOOK}"


def _source(backend: str) -> PluginSource | None:
    """Return the installed emulator of a backend, if there is one."""
    found = [source for source in installed_plugins(GROUP) if source.name == backend]
    if len(found) > 1:
        shippers = " and ".join(source.distribution for source in found)
        message = f"{shippers} both ship an emulator of backend {backend!r}. Uninstall all but one."
        raise BackendError(message)
    return found[0] if found else None


def _call(source: PluginSource, arguments: dict[str, Any]) -> EmulatedDevice:
    """Import an emulator and call its hook."""
    name = f"the emulator of backend {source.name!r} ({source.distribution}, {source.reference})"
    manager = pluggy.PluginManager(hooks.PROJECT)
    manager.add_hookspecs(hooks)
    try:
        manager.register(source.load(), source.name)
        manager.check_pending()
    except BaseException as error:  # SystemExit too: a plugin does not end the process
        if isinstance(error, KeyboardInterrupt):
            raise
        cause = f"{type(error).__name__}: {error}"
        raise BackendError(f"{name} cannot be loaded: {cause}. Reinstall or update it.") from error
    try:
        device: EmulatedDevice | None = manager.hook.tilewright_emulate(**arguments)
    except (TilewrightError, KeyboardInterrupt):
        raise
    except BaseException as error:
        cause = f"{type(error).__name__}: {error}"
        raise BackendError(f"{name} failed: {cause}. Report this to its authors.") from error
    if device is None:
        raise BackendError(f"{name} does not implement {_HOOK}. Report this to its authors.")
    return device
