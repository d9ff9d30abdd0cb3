"""Plugins that end the process which imports them are named, and those that do not are tried out
once."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tilewright.plugins import probe

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals of POSIX systems")

PROGRAM = """
import tilewright
from tilewright.plugins.registry import registry
from tilewright.runtime.devices import device_registry
for name in ("faulty", "leaving", "sound"):
    try:
        registry().get(name)
    except tilewright.errors.BackendError as error:
        print(error)
    else:
        print(name, "works")
"""
#: name -> what its module does when it is imported
PLUGINS = {
    "faulty": "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)",
    "leaving": "import os, sys\nsys.stderr.write('no device')\nsys.stderr.flush()\nos._exit(0)",
    "sound": """
import os
with open(os.environ["IMPORTED"], "a") as file:
    file.write("imported ")
from tilewright.plugins.hooks import hookimpl
from tilewright.plugins.manifest import Capabilities, Manifest
@hookimpl
def tilewright_backend():
    return Manifest("sound", "1", "for tests", ("cpu",), ("t",), Capabilities(frozenset({"f32"})))
""",
}


def test_plugins_that_end_the_process_are_named_and_others_tried_out_once(tmp_path):
    site = tmp_path / "site"
    for name, source in PLUGINS.items():
        info = site / f"vendor_{name}-2.dist-info"
        info.mkdir(parents=True)
        (site / f"vendor_{name}.py").write_text(source)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vendor-{name}\nVersion: 2\n")
        (info / "entry_points.txt").write_text(f"[tilewright]\n{name} = vendor_{name}\n")
    path = os.pathsep.join([str(site), *filter(None, sys.path)])
    environment = {
        **os.environ,
        "PYTHONPATH": path,
        "TILEWRIGHT_CACHE_DIR": str(tmp_path / "cache"),
        "IMPORTED": str(tmp_path / "imported"),
    }
    environment.pop("TILEWRIGHT_CACHE_SIZE", None)
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env=environment,
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        faulty, leaving, sound = done.stdout.splitlines()
        assert (
            faulty.startswith("backend 'faulty' (vendor-faulty 2, vendor_faulty) is disabled")
            and "ends the process by signal 11" in faulty
        )
        assert (
            leaving.startswith("backend 'leaving' (vendor-leaving 2")
            and "ends the process with status 0: no device" in leaving
        )
        assert sound == "sound works"
    assert (tmp_path / "imported").read_text().split() == [
        "imported"
    ] * 3  # by the probe, and by two processes


def test_another_version_file_or_interpreter_is_tried_out_again(tmp_path, monkeypatch):
    module, known = tmp_path / "vendor_plugin.py", tmp_path / "known"
    module.write_text("x = 1\n")
    known.mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    tried = []

    def run(command, **options):
        tried.append(command)
        return subprocess.CompletedProcess(command, 0, b"survived", b"")

    monkeypatch.setattr(probe.subprocess, "run", run)

    def is_tried_out(name="vendor", version="1", module="vendor_plugin"):
        before = len(tried)
        probe.try_out(name, version, module, known, 0)
        return len(tried) > before

    assert is_tried_out() and not is_tried_out()
    assert (
        is_tried_out(version="2")
        and is_tried_out(name="vendor-of-others")
        and is_tried_out(module="vendor_plugin.part")
    )
    os.utime(module, ns=(0, 0))
    assert is_tried_out() and not is_tried_out()
    module.write_text("x = 10\n")
    os.utime(module, ns=(0, 0))
    assert is_tried_out() and not is_tried_out()
    for fact, value in (("executable", "/another/python"), ("version", "3.99")):
        monkeypatch.setattr(probe.sys, fact, value)
        assert is_tried_out() and not is_tried_out()


@pytest.mark.skipif(sys.platform != "linux", reason="signals at the death of a parent")
def test_a_plugin_that_hangs_ends_with_the_process_that_tries_it_out(tmp_path):
    (tmp_path / "vendor_plugin.py").write_text(
        f"import os, time\nopen({str(tmp_path / 'part')!r}, 'w').write(str(os.getpid()))\n"
        f"os.rename({str(tmp_path / 'part')!r}, {str(tmp_path / 'started')!r})\ntime.sleep(1000)\n"
    )
    code = (
        "from pathlib import Path\nfrom tilewright.plugins import probe\n"
        f"probe.try_out('vendor', '1', 'vendor_plugin', Path({str(tmp_path)!r}), 0)"
    )
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    trying = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path})
    started = tmp_path / "started"
    while not started.exists():
        assert trying.poll() is None
        time.sleep(0.01)
    trying.kill()
    trying.wait()
    child = Path("/proc", started.read_text())
    try:
        for _ in range(6000):
            if not child.exists() or "State:\tZ" in (child / "status").read_text():
                return
            time.sleep(0.01)
        raise AssertionError("the process outlives the one that started it")
    finally:
        with contextlib.suppress(OSError):
            os.kill(int(child.name), signal.SIGKILL)


def test_plugins_of_this_project_are_not_tried_out():
    assert {"tilewright", "tilewright-cpu"} <= probe._own_distributions()
