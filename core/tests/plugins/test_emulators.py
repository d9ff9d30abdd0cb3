"""Emulators: found by entry point or in the backend's own plugin, and reported where they fail."""

from __future__ import annotations

import importlib.metadata
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tilewright.errors import BackendError
from tilewright.plugins.emulators import GROUP, emulate
from tilewright.plugins.hooks import hookimpl
from tilewright.plugins.manifest import Capabilities, Manifest
from tilewright.plugins.registry import registry


class Device:
    """An emulated device: what the hook was called with."""

    error = None

    def __init__(self, **asked: Any) -> None:
        self.asked = asked

    def recover(self) -> None:
        pass


class Vega:
    """A backend without an emulator; with ``emulator``, its manifest names a distribution."""

    def __init__(self, **manifest: str) -> None:
        self.manifest = manifest

    @hookimpl
    def tilewright_backend(self) -> Manifest:
        return Manifest(
            "vega",
            "1.0",
            "for tests",
            ("vega",),
            ("v1", "v2"),
            Capabilities(frozenset({"f32"})),
            **self.manifest,
        )


class Emulated(Vega):
    """A backend that contains its emulator."""

    @hookimpl
    def tilewright_emulate(self, target: str, mode: str, seed: int) -> Device:
        return Device(target=target, mode=mode, seed=seed)


@pytest.fixture
def backend() -> Iterator[Callable[[Vega], None]]:
    """``backend(plugin)`` registers it as vega."""
    yield lambda plugin: registry().register(plugin, "vega") and None
    registry().unregister("vega")


@pytest.fixture
def ship(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """``ship(distribution, hook)``: a distribution with an emulator of vega, whose hook is a
    function."""
    entries: list[importlib.metadata.EntryPoint] = []

    def add(distribution: str, hook: Callable[..., Any] | None) -> None:
        module = types.ModuleType(f"emulator_{len(entries)}")
        if hook is not None:
            hook.__name__ = "tilewright_emulate"
            module.tilewright_emulate = hookimpl(hook)  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, module.__name__, module)
        entry = importlib.metadata.EntryPoint("vega", module.__name__, GROUP)
        vars(entry)["dist"] = types.SimpleNamespace(name=distribution, version="3.1")
        entries.append(entry)

    found = importlib.metadata.entry_points
    monkeypatch.setattr(
        importlib.metadata,
        "entry_points",
        lambda group: entries if group == GROUP else found(group=group),
    )
    return add


def test_a_backend_may_contain_its_emulator(backend: Callable[[Vega], None]) -> None:
    backend(Emulated())
    device = emulate("vega", "v2:slow:ly", 7)
    assert isinstance(device, Device) and device.asked == {
        "target": "v2",
        "mode": "slow:ly",
        "seed": 7,
    }


def test_an_installed_emulator_comes_first_and_before_the_backend(
    backend: Callable[[Vega], None], ship: Callable[..., None]
) -> None:
    def place(target: str) -> Device:
        backend(Vega())  # as an emulator replaces the driver that the backend is imported with
        return Device(target=target)

    ship("vega-emulator", place)
    device = emulate("vega", "v1")
    assert isinstance(device, Device) and device.asked == {"target": "v1"}


def fail(target: str) -> Device:
    raise KeyError("a fault")


def refuse(mode: str) -> Device:
    raise BackendError(f"there is no mode {mode!r}")


def test_a_missing_emulator_is_named(backend: Callable[[Vega], None]) -> None:
    backend(Vega(emulator="vega-emulator"))
    message = "the emulator of backend 'vega' is not installed: pip install vega-emulator"
    with pytest.raises(BackendError, match=f"^{message}\n"):
        emulate("vega", "v1")
    backend(Vega())
    with pytest.raises(
        BackendError, match=r"'vega' has no emulator: no plugin of the .* 'tilewright\.emulators'"
    ):
        emulate("vega", "v1")
    with pytest.raises(BackendError, match="no backend named 'canopus'"):
        emulate("canopus", "v1")


@pytest.mark.parametrize(
    ("hook", "text", "message"),
    [
        (
            fail,
            "v1",
            r"emulator of backend 'vega' \(wheel 3.1, emulator_0\) failed: KeyError: 'a fault'",
        ),
        (refuse, "v1:x", "there is no mode 'x'"),
        (lambda target: None, "v1", "does not implement tilewright_emulate"),
        (None, "v1", "does not implement tilewright_emulate"),
        (lambda unknown: None, "v1", "cannot be loaded: PluginValidationError"),
        (lambda target: Device(), "v3", "backend 'vega' has no target 'v3'; it has v1, v2"),
    ],
)
def test_failures_name_the_emulator(
    backend: Callable[[Vega], None],
    ship: Callable[..., None],
    hook: Callable[..., Any] | None,
    text: str,
    message: str,
) -> None:
    backend(Vega())
    ship("wheel", hook)
    with pytest.raises(BackendError, match=message):
        emulate("vega", text)


def test_only_one_emulator_may_have_a_backends_name(
    backend: Callable[[Vega], None], ship: Callable[..., None]
) -> None:
    backend(Vega())
    for distribution in ("one", "two"):
        ship(distribution, lambda target: Device())
    with pytest.raises(BackendError, match=r"one 3\.1 and two 3\.1 both ship an emulator"):
        emulate("vega", "v1")


def test_a_backend_without_a_device_is_refused(
    backend: Callable[[Vega], None], ship: Callable[..., None]
) -> None:
    backend(Vega(status="no driver"))
    ship("wheel", lambda target: Device())
    with pytest.raises(BackendError, match="backend 'vega' cannot be emulated: no driver"):
        emulate("vega", "v1")
