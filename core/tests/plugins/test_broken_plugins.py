"""Plugins broken in every way, installed as wheels would be, beside ones that work: ``tilewright
backends`` names each, and all else works."""

import json
import os
import subprocess
import textwrap

import fork_server
import pytest

PRELUDE = """
from tilewright.plugins.hooks import hookimpl
from tilewright.plugins.manifest import *

def manifest(name, **changes):
    facts = dict(device_kinds=("cpu",), targets=("t",), capabilities=Capabilities(frozenset({"f32", "i32"}), power_of_two=False), priority=-500)
    return Manifest(name, "1", "for tests", **{**facts, **changes})

class Sound:
    def __init__(self, name):
        self.name = self.__name__ = name
    @hookimpl
    def tilewright_backend(self): return manifest(self.name)
    @hookimpl
    def tilewright_devices(self): return [Device(self.name, "cpu", 0, "a device")]
    @hookimpl
    def tilewright_target(self, device): return Target(self.name, "t", kind=device.kind)
    @hookimpl
    def tilewright_lower(self, module): return CodeObject(module.kernel.name, b"x")
    @hookimpl
    def tilewright_load(self, code): return 1
    @hookimpl
    def tilewright_launcher(self, loaded): return lambda grid, stream, values: None
"""


def with_hook(hook: str, body: str) -> str:
    return (
        f"{PRELUDE}\nclass Broken(Sound):\n    @hookimpl\n    def {hook}: {body}\n"
        "plugin = Broken(__name__[3:])\n"
    )


def manifest_with(changes: str) -> str:
    return with_hook("tilewright_backend(self)", f"return manifest(self.name, {changes})")


#: name -> (source of the plugin's module, what its error says); these disable themselves
DISABLED = {
    "missing": ("import no_such_module", "No module named 'no_such_module'"),
    "leaving": ("raise SystemExit('bye')", "SystemExit: bye"),
    "strange": ("class Own(BaseException): pass\nraise Own('mine')", "Own: mine"),
    "garbled": ("def (", "SyntaxError"),
    "hollow": ("x = 1", "no attribute 'plugin'"),
    "endless": ("def f(): f()\nf()", "RecursionError"),
    "late": (
        with_hook("tilewright_backend(self)", "raise SystemExit(4)"),
        "tilewright_backend failed: SystemExit: 4",
    ),
    "ancient": (manifest_with("ir_versions=((0, 1), (0, 2))"), "it accepts Tile IR 0.1 to 0.2"),
    "versions": (manifest_with("ir_versions='1.0'"), "ir_versions must be two versions"),
    "capable": (manifest_with("capabilities='all'"), "capabilities must be a Capabilities"),
    "sets": (manifest_with("capabilities=Capabilities({'f32'})"), "dtypes must be a frozenset"),
    "ignorant": (
        manifest_with("ignored=frozenset({'warps'})"),
        "ignored must be a frozenset of launch options",
    ),
    "urgent": (manifest_with("priority='high'"), "priority must be an integer"),
    "optional": (manifest_with("options=5"), "options must be a mapping"),
    "operative": (manifest_with("ops=(1,)"), "ops must be a tuple of OpSpec"),
    "twin": (PRELUDE + "plugin = Sound('twin')", "pl-other 1.0 and pl-twin 1.0 both ship"),
}
#: name -> (source, what its status says); these load, and cannot run kernels
FAILING = {
    "dev_raises": (
        with_hook("tilewright_devices(self)", "raise OSError('driver gone')"),
        "OSError: driver gone",
    ),
    "dev_leaves": (
        with_hook("tilewright_devices(self)", "raise SystemExit(9)"),
        "tilewright_devices: SystemExit: 9",
    ),
    "dev_number": (with_hook("tilewright_devices(self)", "return 5"), "no list of devices"),
    "dev_none": (
        with_hook("tilewright_devices(self)", "return None"),
        "no answer to tilewright_devices",
    ),
    "dev_texts": (
        with_hook("tilewright_devices(self)", "return ['gpu']"),
        "gave a str, not a Device",
    ),
    "target_raises": (
        with_hook("tilewright_target(self)", "raise OSError('no model')"),
        "OSError: no model",
    ),
    "target_text": (
        with_hook("tilewright_target(self)", "return 'x86'"),
        "gave a str, not a Target",
    ),
    "pass_raises": (
        with_hook("tilewright_passes(self)", "return [lambda module: 1 / 0]"),
        "one of its passes failed: ZeroDivisionError",
    ),
    "pass_number": (with_hook("tilewright_passes(self)", "return 5"), "not a sequence of passes"),
    "lower_none": (
        with_hook("tilewright_lower(self)", "return None"),
        "no answer to tilewright_lower",
    ),
    "lower_text": (
        with_hook("tilewright_lower(self)", "return 'asm'"),
        "gave a str, not a CodeObject",
    ),
    "lower_types": (
        with_hook("tilewright_lower(self)", "return CodeObject('k', 'text')"),
        "a binary, bytes, not str and str",
    ),
    "lower_leaves": (
        with_hook("tilewright_lower(self)", "raise SystemExit(3)"),
        "tilewright_lower: SystemExit: 3",
    ),
    "load_none": (
        with_hook("tilewright_load(self)", "return None"),
        "no answer to tilewright_load",
    ),
    "launcher_none": (
        with_hook("tilewright_launcher(self)", "return None"),
        "no answer to tilewright_launcher",
    ),
    "launcher_number": (
        with_hook("tilewright_launcher(self)", "return 5"),
        "a int, which cannot be called",
    ),
    "launcher_raises": (
        with_hook("tilewright_launcher(self)", "return lambda *a: 1 / 0"),
        "its launcher failed on an empty kernel: ZeroDivisionError",
    ),
}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder of installed distributions, one a plugin."""
    folder = tmp_path_factory.mktemp("site")

    def install(distribution: str, entry: str, target: str) -> None:
        info = folder / f"{distribution.replace('-', '_')}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n"
        )
        (info / "entry_points.txt").write_text(f"[tilewright]\n{entry} = {target}\n")

    sources = {name: text for name, (text, _) in {**DISABLED, **FAILING}.items()}
    sources["sound"] = f"{PRELUDE}\nprint('NOISE')\nplugin = Sound('sound')\n"
    for name, text in sources.items():
        (folder / f"pl_{name}.py").write_text(text)
        install(f"pl-{name}", name, f"pl_{name}:plugin")
    install("pl-other", "twin", "pl_sound:plugin")
    install("pl-lost", "lost", "no module at all")
    return folder


def run(site, *command: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "TILEWRIGHT_CACHE_SIZE": "0",  # without a cache, no separate process tries plugins
        "PYTHONPATH": os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])]),
        "TILEWRIGHT_CACHE_DIR": str(site / "cache"),
    }
    environment.pop("TILEWRIGHT_BACKEND", None)
    return fork_server.run(
        [*command],
        timeout=900,
        env=environment,
    )


def test_each_is_named_with_its_error_in_json(site):
    result = run(site, "-m", "tilewright.tools.cli", "backends", "--json")
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)  # what a plugin prints at import is not in it
    assert "NOISE" in result.stderr
    assert set(report["disabled"]) >= {*DISABLED, "lost"}
    assert "'no module at all' does not name a module" in report["disabled"]["lost"]
    for name, (_, message) in DISABLED.items():
        assert f"'{name}'" in report["disabled"][name]
        assert message in report["disabled"][name]
    entries = {entry["name"]: entry for entry in report["backends"]}
    for name, (_, message) in FAILING.items():
        assert f"'{name}'" in entries[name]["status"], name
        assert message in entries[name]["status"], entries[name]["status"]
    assert entries["sound"]["status"] == entries["reference"]["status"] == ""


def test_each_is_named_in_the_text_and_by_the_doctor(site):
    text, doctor = (
        run(site, "-m", "tilewright.tools.cli", command) for command in ("backends", "doctor")
    )
    assert (text.returncode, doctor.returncode) == (0, 1), text.stderr + doctor.stderr
    for name, (_, message) in {**DISABLED, **FAILING}.items():
        for lines in (
            text.stdout.splitlines(),
            [line for line in doctor.stdout.splitlines() if line.startswith("BROKEN")],
        ):
            assert any(f"'{name}'" in line and message in line for line in lines), name
    assert any(
        line.startswith("ok") and "backend sound" in line for line in doctor.stdout.splitlines()
    )


def test_kernels_run_beside_them_and_a_broken_one_raises_its_own_error(site):
    file = site / "kernel_beside.py"
    file.write_text(
        textwrap.dedent("""
        import numpy as np
        import tilewright as tw
        import tilewright.language as tl

        @tw.jit
        def kernel(x):
            tl.store(x, 7)

        x = np.zeros(1, np.float32)
        kernel[(1,)](x, backend="reference")
        print(x[0])
        for name in ("missing", "dev_raises", "lower_none", "launcher_none"):
            try:
                kernel[(1,)](x, backend=name)
            except tw.BackendError as error:
                print(error)
        """)
    )
    result = run(site, str(file))
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[0] == "7.0"
    for name, line in zip(
        ("missing", "dev_raises", "lower_none", "launcher_none"), lines[1:], strict=True
    ):
        assert f"'{name}'" in line
        assert {**DISABLED, **FAILING}[name][1] in line


def test_one_that_comes_first_and_finds_no_devices_is_passed_over(site, tmp_path):
    (site / "first_registered.py").write_text(
        with_hook("tilewright_devices(self)", "raise OSError('driver gone')").replace(
            "priority=-500", "priority=10_000"
        )
        + textwrap.dedent("""
        import numpy as np
        import tilewright as tw
        import tilewright.language as tl
        from tilewright.plugins.registry import registry

        @tw.jit
        def kernel(x):
            tl.store(x, 7)

        registry().register(Broken("first"), "first")
        x = np.zeros(1, np.float32)
        kernel[(1,)](x)
        print(x[0])
        """)
    )
    result = run(site, str(site / "first_registered.py"))
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-1] == "7.0"
    assert "is used, since one that comes before it failed: backend 'first'" in result.stderr
