"""``tilewright new-backend``: which names it takes, what it writes, and that it leaves alone what
is there."""

from __future__ import annotations

import importlib
import sys
import tomllib
from pathlib import Path

import pytest

from tilewright.errors import LoweringError
from tilewright.plugins.registry import Registry, registry
from tilewright.tools import cli
from tilewright.tools import new_backend as new_backend_module
from tilewright.tools.new_backend import new_backend
from tilewright.tools.usage import UsageError


def test_it_writes_a_package_and_says_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        cli.main(["new-backend", "vega-2", "--directory", str(tmp_path / "deeper" / "still")]) == 0
    )
    folder = tmp_path / "deeper" / "still" / "tilewright-vega-2"
    printed = capsys.readouterr().out
    assert (
        f"cd {folder}\n" in printed
        and "make quick" in printed
        and str(folder / "README.md") in printed
    )
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    modules = {
        f"src/tilewright_vega_2/{name}.py"
        for name in ("__init__", "manifest", "target", "lower", "runtime", "plugin")
    }
    others = {
        "pyproject.toml",
        "README.md",
        "Makefile",
        "expectations.toml",
        ".gitignore",
        "tests/test_backend.py",
    }
    assert files == modules | others
    assert [path.name for path in folder.parent.iterdir()] == ["tilewright-vega-2"]
    text = "".join((folder / name).read_text() for name in files)
    assert "$package" not in text and "$name" not in text and "vega" in text
    project = tomllib.loads((folder / "pyproject.toml").read_text())
    assert project["project"]["entry-points"]["tilewright"] == {
        "vega-2": "tilewright_vega_2.plugin"
    }
    assert tomllib.loads((folder / "expectations.toml").read_text()) == {}


@pytest.mark.parametrize(
    "name", ["Vega", "2vega", "vega-", "vega_", "ve ga", "", "../vega", "vega.x", "véga", "v" * 41]
)
def test_names_that_no_backend_can_have(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["new-backend", name, "--directory", str(tmp_path)]) == 2
    assert f"{name!r} cannot be a backend's name" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_name_that_is_taken(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=r"tilewright .* is installed and has a backend named 'reference'"
    ):
        new_backend("reference", tmp_path)


@pytest.mark.parametrize("kind", ["folder", "file", "broken link"])
def test_what_is_there_is_left_alone(tmp_path: Path, kind: str) -> None:
    there = tmp_path / "tilewright-vega"
    if kind == "folder":
        there.mkdir()
    elif kind == "file":
        there.write_text("mine")
    else:
        there.symlink_to(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="exists already"):
        new_backend("vega", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["tilewright-vega"]
    assert kind != "file" or there.read_text() == "mine"


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        UsageError, match=r"cannot write .*tilewright-vega: (File exists|Not a directory)"
    ):
        new_backend("vega", tmp_path / "file")


def test_nothing_is_left_of_a_package_that_could_not_be_written_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Path, *arguments: object, **options: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(UsageError, match=r"cannot write .*: No space left on device"):
        new_backend("vega", tmp_path)
    assert list(tmp_path.iterdir()) == []


KERNEL = """tilewright.ir 1.0

kernel @fill(%x: ptr<f32>) {
  %one = constant 1.0 : f32
  store %x, %one
  return
}
"""


def test_it_is_small_enough_to_be_read() -> None:
    template = Path(new_backend_module.__file__).with_name("backend_template")
    assert sum(len(file.read_text().splitlines()) for file in template.rglob("*.in")) < 250


def test_each_step_of_the_way_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tilewright.ir.parser import parse_module

    _forget_vega()
    files = new_backend("vega", tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path / "tilewright-vega" / "src"))
    plugin = importlib.import_module("tilewright_vega.plugin")
    lower = importlib.import_module("tilewright_vega.lower")
    try:
        backend = Registry(list).register(plugin, "vega")
        assert backend.manifest.priority < registry().get("reference").manifest.priority
        (device,) = backend.require("tilewright_devices")
        arguments = {
            "target": backend.require("tilewright_target", device=device),
            "options": backend.manifest.options,
        }
        module = parse_module(KERNEL)
        with pytest.raises(
            LoweringError,
            match=(
                r"does not lower constant yet \(at .*\): write a "
                r"function.*@lowers\('constant'\).*lower.py; this kernel also needs store\n"
            ),
        ):
            backend.require("tilewright_lower", module=module, **arguments)
        lower.lowers("constant", "store")(lambda code, operation: code.lines.append(operation.name))
        with pytest.raises(
            LoweringError, match=r"makes no code of a kernel yet: write assemble\(\)"
        ):
            backend.require("tilewright_lower", module=module, **arguments)
        monkeypatch.setattr(lower, "assemble", str.encode)
        code = backend.require("tilewright_lower", module=module, **arguments)
        assert code.binary == b"constant\nstore"
        with pytest.raises(LoweringError, match=r"loads no code yet: write tilewright_load\(\)"):
            backend.require("tilewright_load", code=code, device=device)
        launch = backend.require("tilewright_launcher", loaded=None, parameters=(), options={})
        with pytest.raises(LoweringError, match=r"starts no kernel yet: write start\(\)"):
            launch((1, 1, 1), None, ())
    finally:
        _forget_vega()
    assert len(files) == 12


def _forget_vega() -> None:
    """Let the next import of the package read its files: pages of the documentation write and
    import one of the same name."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "tilewright_vega"]:
        del sys.modules[name]
