"""Finding plugins through entry points, and keeping the failures of each to itself."""

import importlib.metadata
import pickle
import re
import sys
import time
import types

import pytest

from tilewright.errors import BackendError
from tilewright.ir import IR_VERSION
from tilewright.plugins import discovery
from tilewright.plugins.hooks import hookimpl
from tilewright.plugins.manifest import (
    Capabilities,
    CodeObject,
    Device,
    Manifest,
    ManifestError,
    Target,
)
from tilewright.plugins.registry import Registry


def manifest(name: str, **changes) -> Manifest:
    facts = {
        "name": name,
        "version": "1.2",
        "summary": "for tests",
        "device_kinds": ("cpu",),
        "targets": ("t",),
        "capabilities": Capabilities(frozenset({"f32"})),
    }
    return Manifest(**{**facts, **changes})


def module_of(name: str, **hooks) -> types.ModuleType:
    """A plugin module with the hooks marked."""
    module = types.ModuleType(name)
    for hook, function in hooks.items():
        function.__name__ = hook
        setattr(module, hook, hookimpl(function))
    return module


@pytest.fixture
def install(monkeypatch):
    """Installs fake distributions: ``install(entry_point_name, module, distribution)``;
    ``install.registry()`` reads them all."""
    entries = []

    def add(name, module, distribution="vendor-wheel", version="3.1"):
        module_name = f"fake_plugin_{len(entries)}"
        if module is not None:
            monkeypatch.setitem(sys.modules, module_name, module)
        entry = importlib.metadata.EntryPoint(name, module_name, discovery.GROUP)
        dist = types.SimpleNamespace(name=distribution, version=version)
        vars(entry)["dist"] = dist
        entries.append(entry)
        return module_name

    monkeypatch.setattr(
        importlib.metadata,
        "entry_points",
        lambda group: [entry for entry in entries if entry.group == group],
    )
    add.registry = Registry
    return add


def test_a_plugin_that_works_is_listed_with_where_it_comes_from(install):
    install("good", module_of("good", tilewright_backend=lambda: manifest("good")))
    registry = install.registry()
    (found,) = registry.backends()
    assert (found.name, found.distribution, registry.names()) == (
        "good",
        "vendor-wheel 3.1",
        ["good"],
    )
    assert registry.get("good") is found
    assert registry.broken() == {}


def test_nothing_is_imported_before_it_is_asked_for(install, monkeypatch):
    imported = []
    install("a", module_of("a", tilewright_backend=lambda: imported.append("a") or manifest("a")))
    install("b", module_of("b", tilewright_backend=lambda: imported.append("b") or manifest("b")))
    registry = install.registry()
    assert registry.names() == ["a", "b"]
    assert imported == []
    registry.get("b")
    assert imported == ["b"]


def _import_error(install):
    module_name = install("bad", None)  # not in sys.modules: importing it fails
    return "cannot be imported", module_name, "Reinstall or update it"


def _exit_at_import(install):
    module_name = install("bad", None)

    class Finder:
        @staticmethod
        def find_spec(name, path=None, target=None):
            if name == module_name:
                raise SystemExit(3)

    sys.meta_path.insert(0, Finder)
    return "SystemExit: 3", module_name, "Reinstall or update it"


def _raises(install):
    def backend():
        raise RuntimeError("no driver 42")

    install("bad", module_of("bad", tilewright_backend=backend))
    return "RuntimeError: no driver 42", "tilewright_backend", "report this to its authors"


def _malformed(install):
    install(
        "bad", module_of("bad", tilewright_backend=lambda: manifest("bad", device_kinds=["cpu"]))
    )
    return "device_kinds must be a tuple", "ManifestError", "report this to its authors"


def _no_manifest(install):
    install("bad", module_of("bad", tilewright_backend=lambda: {"name": "bad"}))
    return "returned dict, not a Manifest", "tilewright_backend", "Report this to its authors"


def _no_hook(install):
    install("bad", types.ModuleType("bad"))
    return "does not implement tilewright_backend", "fake_plugin", "hookimpl"


def _too_old(install):
    install(
        "bad",
        module_of("bad", tilewright_backend=lambda: manifest("bad", ir_versions=((0, 1), (0, 9)))),
    )
    return "Tile IR 0.1 to 0.9", f"Tile IR {IR_VERSION[0]}.{IR_VERSION[1]}", "Update this backend"


def _too_new(install):
    install(
        "bad",
        module_of("bad", tilewright_backend=lambda: manifest("bad", ir_versions=((9, 0), (9, 4)))),
    )
    return "Tile IR 9.0 to 9.4", f"Tile IR {IR_VERSION[0]}.{IR_VERSION[1]}", "Update tilewright"


def _unknown_hook(install):
    install(
        "bad",
        module_of(
            "bad", tilewright_backend=lambda: manifest("bad"), tilewright_lowerr=lambda module: None
        ),
    )
    return "tilewright_lowerr", "hooks do not match", "Update it"


def _bad_argument(install):
    install(
        "bad",
        module_of(
            "bad",
            tilewright_backend=lambda: manifest("bad"),
            tilewright_lower=lambda module, tarrget: None,
        ),
    )
    return "tarrget", "hooks do not match", "Update it"


def _other_name(install):
    install("bad", module_of("bad", tilewright_backend=lambda: manifest("worse")))
    return "'worse'", "entry point", "must be the same"


def _duplicate(install):
    install("bad", module_of("bad", tilewright_backend=lambda: manifest("bad")), "one-wheel")
    install("bad", module_of("bad", tilewright_backend=lambda: manifest("bad")), "vendor-wheel")
    return "one-wheel 3.1 and vendor-wheel 3.1", "of that name", "Uninstall all but one"


FAILURES = [
    _import_error,
    _exit_at_import,
    _raises,
    _malformed,
    _no_manifest,
    _no_hook,
    _too_old,
    _too_new,
    _unknown_hook,
    _bad_argument,
    _other_name,
    _duplicate,
]


@pytest.mark.parametrize("breaking", FAILURES, ids=lambda function: function.__name__.strip("_"))
def test_a_broken_plugin_disables_itself_alone_and_says_all(install, breaking):
    finders = list(sys.meta_path)
    try:
        install(
            "good", module_of("good", tilewright_backend=lambda: manifest("good")), "good-wheel"
        )
        cause, detail, remedy = breaking(install)
        registry = install.registry()
        assert [backend.name for backend in registry.backends()] == ["good"]
        (broken,) = registry.broken().items()
        name, error = broken
        assert name == "bad"
        for part in ("'bad'", "vendor-wheel 3.1", cause, detail, remedy):
            assert part in str(error), str(error)
        with pytest.raises(BackendError) as raised:
            registry.get("bad")
        assert str(raised.value) == str(error)
        assert str(pickle.loads(pickle.dumps(raised.value))) == str(error)
    finally:
        sys.meta_path[:] = finders


def test_the_cause_is_chained(install):
    def backend():
        raise KeyError("nothing")

    install("bad", module_of("bad", tilewright_backend=backend))
    with pytest.raises(BackendError) as raised:
        install.registry().get("bad")
    assert isinstance(raised.value.__cause__, KeyError)


def test_a_slow_plugin_works(install):
    def backend():
        time.sleep(0.15)
        return manifest("slow")

    install("slow", module_of("slow", tilewright_backend=backend))
    (found,) = install.registry().backends()
    assert found.load_seconds >= 0.15


def test_an_entry_point_that_two_paths_show_is_one_plugin(install):
    module = module_of("good", tilewright_backend=lambda: manifest("good"))
    install("good", module)
    entry = discovery.importlib.metadata.entry_points(group=discovery.GROUP)[0]
    assert len(discovery._sources([entry, entry])) == 1


def test_the_error_of_a_missing_backend_names_the_installed_ones_and_no_foreign_package(
    install,
):
    install(
        "good",
        module_of("good", tilewright_backend=lambda: manifest("good", device_kinds=("cuda",))),
    )
    with pytest.raises(BackendError) as raised:
        install.registry().get("npu")
    assert str(raised.value) == "no backend named 'npu' is installed; installed: good"


#: Requirements as a distribution states them: backends by their names and by their kinds of
#: devices, and what else extras bring.
NEEDED = [
    "pluggy>=1.5",
    "tilewright-own; extra == 'all'",
    "tilewright-good; extra == 'all'",
    "tilewright-own; extra == 'own'",
    "tilewright-good; extra == 'good'",
    "tilewright-good; extra == 'cuda'",
    'tilewright-own[driver] >= 1; extra == "metal"',
    "other; extra == 'else'",
]


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("goood", "did you mean good?"),
        ("cpuu", "did you mean cpu?"),
        ("cdua", "did you mean cuda? It is a kind of devices, which backend 'good' serves"),
        ("cuda", "cuda is a kind of devices, which backend 'good' serves"),
        ("metal", "metal is installed with: pip install 'tilewright[metal]'"),
        ("meatl", "did you mean metal? It is installed with: pip install 'tilewright[metal]'"),
        ("own", "own is installed with: pip install 'tilewright[own]'"),
        ("onw", "did you mean own? It is installed with: pip install 'tilewright[own]'"),
        ("all", ""),
        ("else", ""),
        ("pluggy", ""),
    ],
)
def test_a_missing_backend_is_told_with_the_one_that_was_meant(install, monkeypatch, name, remedy):
    install(
        "good",
        module_of("good", tilewright_backend=lambda: manifest("good", device_kinds=("cuda",))),
    )
    install(
        "cpu", module_of("cpu", tilewright_backend=lambda: manifest("cpu", device_kinds=("cpu",)))
    )
    monkeypatch.setattr(discovery.importlib.metadata, "requires", lambda name: NEEDED)
    with pytest.raises(BackendError) as raised:
        install.registry().get(name)
    told = f"\n  help: {remedy}" if remedy else ""
    assert (
        str(raised.value) == f"no backend named {name!r} is installed; installed: cpu, good{told}"
    )


def test_a_missing_backend_whose_name_is_a_kind_of_devices_of_another_is_told_how_it_is_installed(
    install, monkeypatch
):
    install(
        "good",
        module_of("good", tilewright_backend=lambda: manifest("good", device_kinds=("own",))),
    )
    monkeypatch.setattr(discovery.importlib.metadata, "requires", lambda name: NEEDED)
    for name, remedy in (
        ("own", "own is installed with"),
        ("onw", "did you mean own? It is installed with"),
    ):
        with pytest.raises(BackendError) as raised:
            install.registry().get(name)
        assert (
            str(raised.value).splitlines()[1] == f"  help: {remedy}: pip install 'tilewright[own]'"
        )


def test_order_is_by_priority_then_name(install):
    for name, priority in (("c", 5), ("a", 0), ("b", 0), ("d", 7)):
        install(
            name,
            module_of(
                name,
                tilewright_backend=lambda name=name, priority=priority: manifest(
                    name, priority=priority
                ),
            ),
        )
    registry = install.registry()
    assert [backend.name for backend in registry.backends()] == ["d", "c", "a", "b"]
    assert [backend.name for backend in registry.for_device_kind("cpu")] == ["d", "c", "a", "b"]
    assert registry.for_device_kind("cuda") == []


class Plugin:
    """A plugin object with every kind of answer."""

    @hookimpl
    def tilewright_backend(self):
        return manifest("object")

    @hookimpl
    def tilewright_devices(self):
        return [Device("object", "cpu", 0, "a device")]

    @hookimpl
    def tilewright_target(self, device):
        raise ZeroDivisionError("oops")

    @hookimpl
    def tilewright_lower(self, module):
        raise BackendError("cannot, on purpose")

    @hookimpl
    def tilewright_load(self, code, device):
        return None


def test_a_defect_is_shown_with_the_innermost_frames_of_the_plugin():
    class Deep:
        tilewright_backend = Plugin.tilewright_backend

        @hookimpl
        def tilewright_lower(self, module):
            self.descend(9)

        def descend(self, levels):
            return self.descend(levels - 1) if levels else module_of_nothing()

    def module_of_nothing():
        return None.body

    backend = Registry(list).register(Deep(), "object")
    with pytest.raises(BackendError, match="failed in tilewright_lower: AttributeError") as raised:
        backend.call(
            "tilewright_lower", module=None, target=Target("object", "t", kind="cpu"), options={}
        )
    places = re.findall(r"at (\S+):(\d+) in (\w+)", str(raised.value))
    deepest, line = module_of_nothing.__code__, Deep.descend.__code__.co_firstlineno + 1
    assert places == [
        (__file__, str(deepest.co_firstlineno + 1), "module_of_nothing"),
        (__file__, str(line), "descend"),
        (__file__, str(line), "descend"),
    ]


def test_hooks_are_called_for_one_plugin_with_the_arguments_it_names():
    registry = Registry(list)
    changes = []
    registry.on_change(lambda: changes.append(registry.names()))
    backend = registry.register(Plugin(), "object")
    assert changes == [["object"]]
    assert backend.call("tilewright_devices")[0].name == "a device"
    assert backend.implements("tilewright_lower")
    assert not backend.implements("tilewright_cost")
    assert backend.call("tilewright_timer", device=backend.call("tilewright_devices")[0]) is None
    with pytest.raises(
        BackendError,
        match=(
            r"backend 'object' \(registered in this process\) failed in tilewright_target: "
            r"ZeroDivisionError: oops.*correct it there, or report it to its authors"
        ),
    ) as raised:
        backend.call("tilewright_target", device=None)
    assert isinstance(raised.value.__cause__, ZeroDivisionError)
    line = Plugin.tilewright_target.__code__.co_firstlineno + 2
    assert f"oops (at {__file__}:{line} in tilewright_target). This" in str(raised.value)
    with pytest.raises(BackendError, match=r"^cannot, on purpose\n"):
        backend.call(
            "tilewright_lower", module=None, target=Target("object", "t", kind="cpu"), options={}
        )
    with pytest.raises(BackendError, match="gave no answer to tilewright_load"):
        backend.require("tilewright_load", code=CodeObject("k", b""), device=None)
    with pytest.raises(BackendError, match="does not implement tilewright_launcher"):
        backend.require("tilewright_launcher", loaded=None, parameters=(), options={})
    registry.unregister("object")
    assert registry.names() == []
    assert len(changes) == 2


def test_a_malformed_object_is_not_registered():
    registry = Registry(list)
    with pytest.raises(BackendError, match="does not implement tilewright_backend"):
        registry.register(types.ModuleType("empty"), "empty")
    assert registry.names() == []


def test_the_installed_plugins_load():
    registry = Registry()
    assert {"cpu", "reference"} <= set(registry.names())
    assert registry.get("reference").manifest.capabilities is not None


def test_what_is_taken_back_shows_what_was_discovered_before():
    shipped, looks = module_of("shipped", tilewright_backend=lambda: manifest("b")), []
    source = discovery.PluginSource("b", "shipper 1", "shipped", lambda: shipped)
    registry = Registry(lambda: looks.append(1) or [source])
    assert registry.get("b").distribution == "shipper 1"
    for name in ("b", "c"):
        registry.register(
            module_of("mine", tilewright_backend=lambda name=name: manifest(name)), name
        )
    assert registry.names() == ["b", "c"] and registry.get("b").distribution != "shipper 1"
    for name in ("b", "c"):
        registry.unregister(name)
    assert (
        registry.names() == ["b"] and registry.get("b").distribution == "shipper 1" and looks == [1]
    )


def test_capabilities_have_orders_that_there_are():
    found = Capabilities(frozenset({"f32"}), orders={"reduce": frozenset({"tree", "sequential"})})
    assert found.orders["reduce"] == {"tree", "sequential"}
    with pytest.raises(
        ManifestError,
        match="orders of reduce has 'pairs'; there are 'any', 'tree', 'sequential'",
    ):
        Capabilities(frozenset({"f32"}), orders={"reduce": frozenset({"tree", "pairs"})})


def test_a_manifest_lowers_operations_that_there_are():
    with pytest.raises(
        ManifestError, match=r"^lowers: there is no operation 'reshap'; did you mean reshape\?$"
    ):
        manifest("vega", lowers=frozenset({"add", "reshap"}))
    with pytest.raises(
        ManifestError, match=r"no operation 'qqqqqqq'; `tilewright ops` lists them$"
    ):
        manifest("vega", lowers=frozenset({"qqqqqqq"}))
