"""Plugins that hang: reported with the place where they hang, and skipped after a time limit."""

import importlib
import subprocess
import sys
import textwrap
import threading

import pytest

from tilewright.errors import BackendError
from tilewright.plugins.discovery import PluginSource
from tilewright.plugins.hooks import hookimpl
from tilewright.plugins.manifest import Capabilities, Device, Manifest
from tilewright.plugins.patience import time_limit
from tilewright.plugins.registry import Registry
from tilewright.runtime.devices.device_registry import devices

SHORT, LONG = "0.2", "300"


class Plugin:
    """A backend that waits in one place until it is released."""

    def __init__(self, name, waits_in=""):
        self.name = self.__name__ = name
        self.waits_in, self.go_on, self.asked = waits_in, threading.Event(), 0

    def wait(self, place):
        if place == self.waits_in:
            self.go_on.wait()  # the line that hangs

    def load(self):
        self.wait("import")
        return self

    @hookimpl
    def tilewright_backend(self):
        self.wait("manifest")
        return Manifest(
            self.name, "1", "for tests", ("cpu",), ("t",), Capabilities(frozenset({"f32"}))
        )

    @hookimpl
    def tilewright_devices(self):
        self.asked += 1
        self.wait("devices")
        return [Device(self.name, "cpu", 0, threading.current_thread().name)]


def registry_of(*plugins):
    return Registry(
        lambda: [
            PluginSource(plugin.name, f"{plugin.name}-wheel 1.0", plugin.name, plugin.load)
            for plugin in plugins
        ]
    )


@pytest.fixture
def hanging():
    made = []

    def make(waits_in):
        made.append(Plugin("hanging", waits_in))
        return made[-1]

    yield make
    for plugin in made:
        plugin.go_on.set()


@pytest.mark.parametrize(
    ("place", "said"),
    [("import", "hangs while it is imported"), ("manifest", "hangs in tilewright_backend")],
)
def test_one_that_does_not_load_is_named_and_left_out(place, said, hanging, monkeypatch):
    registry = registry_of(hanging(place), Plugin("sound"))
    registry.get("sound")
    monkeypatch.setenv("TILEWRIGHT_PLUGIN_TIME_LIMIT", SHORT)
    assert [backend.name for backend in registry.backends()] == ["sound"]
    message = str(registry.broken()["hanging"])
    assert message.startswith(
        f"backend 'hanging' (hanging-wheel 1.0, hanging) is disabled: it {said}: it did not "
        "end within 0.2 seconds; it is at "
    )
    assert "TILEWRIGHT_PLUGIN_TIME_LIMIT" in message and "threading.py" in message
    with pytest.raises(BackendError, match=said):
        registry.get("hanging")


def test_one_that_does_not_find_its_devices_is_asked_once(hanging, monkeypatch):
    plugin = hanging("devices")
    backend = registry_of(plugin).get("hanging")
    monkeypatch.setenv("TILEWRIGHT_PLUGIN_TIME_LIMIT", SHORT)
    for _ in range(2):
        with pytest.raises(
            BackendError,
            match=(
                r"backend 'hanging' \(hanging-wheel 1.0\) hangs in tilewright_devices, and is "
                r"skipped: it did not end within"
            ),
        ):
            devices(backend)
    assert plugin.asked == 1


def test_within_the_limit_its_own_error_is_raised(monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_PLUGIN_TIME_LIMIT", LONG)
    plugin = Plugin("failing")
    plugin.load = lambda: 1 / 0
    with pytest.raises(BackendError, match="it cannot be imported: ZeroDivisionError") as caught:
        registry_of(plugin).get("failing")
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_without_a_limit_it_runs_in_the_thread_that_asks(monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_PLUGIN_TIME_LIMIT", "0")
    backend = registry_of(Plugin("sound")).get("sound")
    assert [device.name for device in devices(backend)] == [threading.current_thread().name]
    monkeypatch.setenv("TILEWRIGHT_PLUGIN_TIME_LIMIT", LONG)
    backend = registry_of(Plugin("sound")).get("sound")
    assert [device.name for device in devices(backend)] == ["tilewright-plugin"]


def test_one_may_ask_for_the_others_and_for_itself_while_it_loads(monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_PLUGIN_TIME_LIMIT", LONG)
    asking, found = Plugin("asking"), []

    def load():
        if not found:
            found.append("")
            found.extend(backend.name for backend in registry.backends())
        return asking

    asking.load = load
    registry = registry_of(asking, Plugin("other"))
    assert registry.get("asking").name == "asking"
    assert found == ["", "asking", "other"]


@pytest.mark.parametrize(
    "interpreter",
    ["", "import tilewright.plugins.patience as patience; patience._locks = None; "],
    ids=["CPython", "others"],
)
def test_a_module_that_is_being_imported_may_need_a_plugin_that_imports_it(interpreter, tmp_path):
    (tmp_path / "vendor.py").write_text(
        textwrap.dedent("""
        from tilewright.plugins.discovery import PluginSource
        from tilewright.plugins.registry import Registry

        def load():
            import vendor
            raise ImportError("after " + vendor.__name__)

        print(Registry(lambda: [PluginSource("v", "vendor 1.0", "vendor", load)]).broken())
        """)
    )
    result = subprocess.run(
        [sys.executable, "-c", f"{interpreter}import vendor"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert "ImportError: after vendor" in result.stdout


def test_a_finder_of_modules_may_load_plugins(monkeypatch):
    """While a module is looked for, the import system holds a lock that other threads' imports wait
    for."""
    monkeypatch.setenv("TILEWRIGHT_PLUGIN_TIME_LIMIT", LONG)
    plugin, found = Plugin("sound"), []

    def load():
        importlib.import_module("colorsys")
        return plugin

    class Finder:
        def find_spec(self, name, path, target=None):
            if name == "tilewright_looked_for":
                plugin.load = load
                found.append(registry_of(plugin).get("sound").name)
            return None

    monkeypatch.setattr(sys, "meta_path", [Finder(), *sys.meta_path])
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    with pytest.raises(ModuleNotFoundError, match="tilewright_looked_for"):
        importlib.import_module("tilewright_looked_for")
    assert found == ["sound"]


@pytest.mark.parametrize("text", ["soon", "-1", "nan", "inf"])
def test_what_is_no_time_is_refused(text, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_PLUGIN_TIME_LIMIT", text)
    with pytest.raises(
        ValueError,
        match=f"TILEWRIGHT_PLUGIN_TIME_LIMIT must be a number of seconds from 0 on, not '{text}'",
    ):
        registry_of(Plugin("sound")).get("sound")


def test_the_environment_names_the_limit(monkeypatch):
    monkeypatch.delenv("TILEWRIGHT_PLUGIN_TIME_LIMIT", raising=False)
    assert time_limit() == 60
    monkeypatch.setenv("TILEWRIGHT_PLUGIN_TIME_LIMIT", " 1.5 ")
    assert time_limit() == 1.5
