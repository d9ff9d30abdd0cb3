"""Selection of the HIP runtime: with files in place of runtimes, and with a mock."""

from __future__ import annotations

import importlib
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tilewright_amd.toolchain import runtime_library
from tilewright_amd.toolchain.runtime_library import NAME, candidates, chosen, conflict, mapped

_there = (
    importlib.util.find_spec("rocm") is not None
    and importlib.util.find_spec("rocm.bindings.hip") is not None
)
needs_bindings = pytest.mark.skipif(
    not _there or shutil.which("cc") is None, reason="rocm-bindings-hip and a C compiler are needed"
)


def runtime(folder: Path, name: str = NAME) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).touch()
    return str(folder / name)


def maps_of(folder: Path, *files: str) -> Path:
    maps = folder / "maps"
    rows = [
        f"7f0{i}-7f0{i + 1} r-xp 00000000 08:01 {i} {file}"
        for i, file in enumerate([*files, "/lib/libc.so.6", *files])
    ]
    maps.write_text("\n".join(rows) + "\n")
    return maps


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without ROCm, whatever this one has."""
    for name in ("ROCM_PATH", "ROCM_HOME", "LD_LIBRARY_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(runtime_library, "_ROCM", str(tmp_path / "rocm"))
    monkeypatch.setattr(runtime_library, "_SYSTEM", (str(tmp_path / "system"),))
    monkeypatch.setattr(runtime_library, "_LOADER_CACHE", tmp_path / "cache")
    monkeypatch.setattr(
        runtime_library, "_BUNDLES", (("torch_of_this_test", "lib"), ("rocm_of_this_test", "lib"))
    )
    monkeypatch.syspath_prepend(str(tmp_path / "packages"))
    return tmp_path


def test_runtimes_are_taken_in_order(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = maps_of(bare)
    assert chosen(nothing) == ""
    expected = []

    def found(path: str) -> None:
        importlib.invalidate_caches()
        expected.insert(0, path)
        assert chosen(nothing) == path and list(candidates()) == expected

    found(runtime(bare / "system"))
    listed = runtime(bare / "listed", f"{NAME}.6")
    (bare / "cache").write_bytes(f"ld.so\0{NAME}.6\0{listed}\0{bare}/gone/{NAME}\0".encode())
    found(listed)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(bare / "path"))
    found(runtime(bare / "path"))
    found(runtime(bare / "rocm" / "lib"))
    monkeypatch.setenv("ROCM_HOME", str(bare / "home"))
    found(runtime(bare / "home"))
    found(runtime(bare / "home" / "lib64"))
    found(runtime(bare / "home" / "lib"))
    monkeypatch.setenv("ROCM_PATH", str(bare / "named"))
    found(runtime(bare / "named" / "lib"))
    found(runtime(bare / "packages" / "rocm_of_this_test" / "lib", f"{NAME}.7"))
    found(runtime(bare / "packages" / "torch_of_this_test" / "lib"))
    other = runtime(bare / "elsewhere", f"{NAME}.5")
    assert chosen(maps_of(bare, other)) == other


@pytest.mark.parametrize("folder", ["lib", "lib64", ""])
def test_rocm_path_names_a_folder_with_lib_or_lib_itself(
    bare: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    expected = runtime(bare / "named" / folder)
    monkeypatch.setenv("ROCM_PATH", str(bare / "named"))
    assert chosen(maps_of(bare)) == expected


def test_the_highest_version_is_taken_where_there_is_no_plain_name(bare: Path) -> None:
    for version in ("6.4", "7", "10.0.1", "7.15"):
        runtime(bare / "system", f"{NAME}.{version}")
    assert chosen(maps_of(bare)).endswith(f"{NAME}.10.0.1")
    assert chosen(maps_of(bare, str(bare / "gone" / NAME))) == str(bare / "gone" / NAME)


def test_hard_links_are_one_runtime_and_copies_are_two(tmp_path: Path) -> None:
    first, copy = runtime(tmp_path / "first"), runtime(tmp_path / "second")
    link = str(tmp_path / "first" / f"{NAME}.7")
    os.link(first, link)
    (tmp_path / "third").mkdir()
    symbolic = str(tmp_path / "third" / NAME)
    os.symlink(first, symbolic)
    assert mapped(maps_of(tmp_path, first, link, symbolic)) == [first] and conflict([first]) == ""
    two = mapped(maps_of(tmp_path, link, copy, first))
    assert two == [link, copy]
    assert f"this process uses several HIP runtimes, {link} and {copy}" in conflict(two)
    assert mapped(tmp_path / "nowhere") == []


def _process(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    given = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("ROCM_", "TILEWRIGHT_", "LD_LIBRARY"))
    }
    given |= {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path), **environment}
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=given, check=False
    )


#: Load runtimes, then print which one hip-python has, or what the backend says.
_PROGRAM = """
import ctypes, sys
for path in sys.argv[1:]:
    ctypes.CDLL(path)
from tilewright_amd.host import driver
from tilewright_amd.toolchain import runtime_library
reason = driver.why_not()
if not reason:
    driver._use_chosen()
    from rocm.bindings import hip
    hip.hipGetDeviceCount()
print(reason or runtime_library.mapped())
"""


@needs_bindings
def test_hip_python_loads_the_runtime_of_the_process(tmp_path: Path) -> None:
    from tilewright_amd_emulator.hip.hip_runtime import build

    first, second = (str(build(tmp_path / name) / "lib" / NAME) for name in ("first", "second"))
    link = str(tmp_path / "first" / "lib" / f"{NAME}.7")
    os.link(first, link)

    def said(*loaded: str, **environment: str) -> str:
        done = _process(_PROGRAM.replace("sys.argv[1:]", repr(list(loaded))), **environment)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    assert said(first) == repr([first]), "it is not in ROCM_PATH"
    assert said(link, ROCM_PATH=str(tmp_path / "first")) == repr([link]), (
        "hard links are one runtime"
    )
    assert said(first, ROCM_PATH=str(tmp_path / "second")) == repr([first]), (
        "the runtime of the process comes first"
    )
    assert said(ROCM_PATH=str(tmp_path / "second" / "lib")) == repr([second])
    assert "several HIP runtimes" in said(first, second)
