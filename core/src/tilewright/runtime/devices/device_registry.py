"""Registry of each backend's devices and their targets, queried once per process."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from string import ascii_lowercase

from tilewright.errors import BackendError, with_help
from tilewright.forks import setting_up
from tilewright.plugins import discovery
from tilewright.plugins.manifest import Device, Target
from tilewright.plugins.registry import Backend

_lock = threading.Lock()


def _plugin_memory() -> Path | None:
    """Return the cache folder of plugin discovery; None where it cannot be written."""
    from tilewright.runtime.storage import private_folder
    from tilewright.runtime.storage.disk_cache import disk_cache

    cache = disk_cache()
    folder = cache.directory / "plugins"
    if cache.cap <= 0 or private_folder.distrust(cache.directory):
        return None
    try:
        private_folder.make(folder, cache.directory)
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK) and not private_folder.distrust(folder) else None


discovery.memory = _plugin_memory
_devices: dict[Backend, list[Device]] = {}
_targets: dict[tuple[Backend, str, int], Target] = {}
#: (backend, kind, index, index of another device) that kernels on the first device access the
#: memory of the second of
_peers: set[tuple[Backend, str, int, int]] = set()


def devices(backend: Backend) -> Sequence[Device]:
    """Return a backend's devices, as found by its first search.

    Raises:
        BackendError: the backend failed in the search.
    """
    found = _devices.get(backend)
    if found is None:
        with setting_up():
            answer = backend.require("tilewright_devices")
        try:
            listed = list(answer)
        except Exception as error:
            raise BackendError(
                f"backend {backend.name!r} ({backend.distribution}): tilewright_devices gave no "
                f"list of devices: {error}"
            ) from error
        for device in listed:
            if not isinstance(device, Device):
                raise BackendError(
                    f"backend {backend.name!r} ({backend.distribution}): tilewright_devices gave a "
                    f"{type(device).__name__}, not a Device"
                )
        with _lock:
            found = _devices.setdefault(backend, listed)
    return found


def find(backend: Backend, place: tuple[str, int] | None) -> Device:
    """Find the device of a backend at (kind, index); its first one for None.

    Raises:
        BackendError: the backend cannot run anything, has no device, or not this one.
    """
    if backend.manifest.status:
        raise BackendError(
            f"backend {backend.name!r} ({backend.distribution}) cannot run kernels: "
            f"{backend.manifest.status}"
        )
    found = devices(backend)
    if not found:
        raise BackendError(
            f"backend {backend.name!r} ({backend.distribution}) found no "
            f"device{refusal(backend, place)}"
        )
    if place is None:
        return found[0]
    for device in found:
        if (device.kind, device.index) == place:
            return device
    listed = ", ".join(f"{device.kind}:{device.index} ({device.name})" for device in found)
    raise BackendError(
        f"backend {backend.name!r} has no device {place[0]}:{place[1]}; it found "
        f"{listed}{refusal(backend, place)}"
    )


def why_unreachable(backend: Backend, device: Device, place: tuple[str, int]) -> str:
    """Enable peer access to memory at (kind, index); return the failure's reason, else "".

    Raises:
        BackendError: the backend failed in its answer.
    """
    kind, index = place
    if place == (device.kind, device.index):
        return ""
    if kind != device.kind:
        return f"it is of kind {kind!r}"
    key = (backend, kind, device.index, index)
    if key in _peers:
        return ""
    if not backend.implements("tilewright_peer_access"):
        return f"backend {backend.name!r} has no access of devices to each other's memory"
    with setting_up():
        answer = backend.require("tilewright_peer_access", device=device, peer=find(backend, place))
    if not isinstance(answer, str):
        raise BackendError(
            f"backend {backend.name!r} ({backend.distribution}): tilewright_peer_access gave a "
            f"{type(answer).__name__}, not a str"
        )
    if not answer:
        _peers.add(key)
    return answer


def refusal(backend: Backend, place: tuple[str, int] | None = None) -> str:
    """Return a message suffix with the reason why a backend lacks a device, if known.

    The device is the one at (kind, index), by default the backend's first.
    """
    kind, index = place or (backend.manifest.device_kinds[0], 0)
    if kind not in backend.manifest.device_kinds:
        return ""
    try:
        backend.call(
            "tilewright_target", device=Device(backend.name, kind, index, f"{kind}:{index}", {})
        )
    except BackendError as error:
        # other kinds of it are calls of a driver that fail, as for a device that is not there
        return f": {error}" if type(error) is BackendError else ""
    return ""


def target_of(backend: Backend, device: Device) -> Target:
    """Return the target of a device, with its capabilities.

    Raises:
        BackendError: the backend has no answer.
    """
    key = (backend, device.kind, device.index)
    found = _targets.get(key)
    if found is None:
        with setting_up():
            found = _targets.setdefault(key, _ask(backend, device))
    return found


def no_target(backend: Backend, arch: str, others: Iterable[Backend] = ()) -> str:
    """Return the message that a backend has no target ``arch``.

    It proposes the target of which only the letters at the end lack, as of ``sm_90``.

    Args:
        others: backends whose targets may be meant, where the caller named no backend.
    """
    targets = backend.manifest.targets
    message = f"backend {backend.name!r} has no target {arch!r}; it has {', '.join(targets)}"
    meant = _meant(backend, arch)
    if meant:
        return with_help(message, f"did you mean {meant}?")
    for other in others:
        meant = _meant(other, arch)
        if meant:
            name = other.name
            return with_help(
                message,
                f"backend {name!r} has the target {meant}: give --backend {name} --arch {meant} "
                f'(in Python, backend="{name}", arch="{meant}")',
            )
    return message


def _meant(backend: Backend, arch: str) -> str:
    """Return the target of a backend that ``arch`` means, or ""."""
    targets = backend.manifest.targets
    if arch in targets:
        return arch
    return next((name for name in targets if name.rstrip(ascii_lowercase) == arch), "")


def named_target(backend: Backend, arch: str) -> Target:
    """Return the target of an architecture, whether such a device is present or not.

    Raises:
        BackendError: the backend has no such target, or no answer.
    """
    manifest = backend.manifest
    if arch not in manifest.targets:
        raise BackendError(no_target(backend, arch))
    return _ask(backend, Device(backend.name, manifest.device_kinds[0], 0, arch, {"arch": arch}))


def _ask(backend: Backend, device: Device) -> Target:
    answer = backend.require("tilewright_target", device=device)
    if not isinstance(answer, Target):
        raise BackendError(
            f"backend {backend.name!r} ({backend.distribution}): tilewright_target gave a "
            f"{type(answer).__name__}, not a Target"
        )
    if answer.kind != device.kind:
        raise BackendError(
            f"backend {backend.name!r} ({backend.distribution}): tilewright_target gave a target "
            f"of kind {answer.kind!r} for a device of kind {device.kind!r}"
        )
    return backend.completed(answer)


def forget() -> None:
    """Forget all devices and targets, so that the backends are queried again."""
    with _lock:
        _devices.clear()
        _targets.clear()
        _peers.clear()
