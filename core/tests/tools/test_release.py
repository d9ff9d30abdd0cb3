"""The release script finds what is wrong with versions, wheels and source archives."""

from __future__ import annotations

import importlib.util
import io
import sys
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def release() -> Any:
    spec = importlib.util.spec_from_file_location(
        "tilewright_release_script", ROOT / "tools" / "release.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def distributions(release: Any) -> list[Any]:
    return [release.read_distribution(ROOT / part) for part in release.PARTS]


def test_every_distribution_is_released(release: Any) -> None:
    found = {
        path.parent.relative_to(ROOT).as_posix()
        for path in (*ROOT.glob("*/pyproject.toml"), *ROOT.glob("backends/**/pyproject.toml"))
    }
    assert found == set(release.PARTS)


def test_the_distributions_agree_on_their_version(release: Any, distributions: list[Any]) -> None:
    assert list(release.version_faults(distributions, None, "")) == []


def test_each_licence_is_the_project_s(release: Any) -> None:
    for part in release.PARTS:
        assert (ROOT / part / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()


@pytest.mark.parametrize(
    ("version", "asked"),
    [("0.1.0", ">=0.1.0,<0.2"), ("0.9.3", ">=0.9.3,<0.10"), ("2.4.0", ">=2.4.0,<3")],
)
def test_what_distributions_ask_of_each_other(version: str, asked: str, release: Any) -> None:
    assert release.wanted(version) == asked


def test_another_version_dependency_or_tag_is_told(release: Any, distributions: list[Any]) -> None:
    core, cpu, *_ = distributions
    assert any(
        "released together" in line
        for line in release.version_faults([core, replace(cpu, version="9.9.9")], None, "")
    )
    stale = replace(cpu, dependencies=("tilewright[llvm]>=0.0.1,<0.2",))
    (line,) = release.version_faults([core, stale], None, "")
    assert f"tilewright{release.wanted(core.version)}" in line
    told = list(release.version_faults([core], "v9.9.9", "## Unreleased\n"))
    assert len(told) == 2 and "tag" in told[0] and "Unreleased" in told[1]
    assert (
        list(
            release.version_faults([core], f"v{core.version}", f"# Changes\n\n## {core.version}\n")
        )
        == []
    )


@pytest.fixture
def wheel(release: Any, distributions: list[Any], tmp_path: Path) -> Any:
    """Makes a wheel of the CPU backend as it should be, but for the changes given: name -> content,
    None to leave a file out."""
    cpu = distributions[1]

    def make(**changes: str | None) -> Path:
        info = f"{cpu.stem}.dist-info"
        files: dict[str, str | None] = dict.fromkeys(release.package_files(cpu), "")
        files[f"{info}/METADATA"] = (
            f"Metadata-Version: 2.4\nName: {cpu.name}\nVersion: {cpu.version}\nSummary: s\n"
            "License-Expression: MIT\n"
            f"Requires-Python: >=3.11\nDescription-Content-Type: text/markdown\n\n{'words ' * 40}\n"
        )
        files[f"{info}/entry_points.txt"] = "[tilewright]\ncpu = tilewright_cpu.plugin\n"
        files[f"{info}/licenses/LICENSE"] = "MIT"
        files.update({name.replace("INFO", info): text for name, text in changes.items()})
        path = tmp_path / f"{cpu.stem}-py3-none-any.whl"
        with zipfile.ZipFile(path, "w") as archive:
            for name, text in files.items():
                if text is not None:
                    archive.writestr(name, text)
        return path

    return make


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("tilewright_cpu/py.typed", None, "lacks py.typed"),
        ("tilewright_cpu/lower.py", None, "lacks tilewright_cpu/lower.py"),
        ("tests/test_it.py", "", "has tests/test_it.py"),
        ("INFO/licenses/LICENSE", None, "lacks the licence"),
        ("INFO/entry_points.txt", "", "lacks the entry point tilewright:cpu"),
        ("INFO/METADATA", "Name: other\nVersion: 0\n\n", "says Name other"),
        ("INFO/METADATA", None, "has no"),
    ],
)
def test_what_a_wheel_lacks_is_told(
    name: str, text: str | None, told: str, wheel: Any, release: Any, distributions: list[Any]
) -> None:
    assert list(release.wheel_faults(distributions[1], wheel())) == []
    assert any(
        told in line for line in release.wheel_faults(distributions[1], wheel(**{name: text}))
    )


def test_what_an_archive_lacks_is_told(
    release: Any, distributions: list[Any], tmp_path: Path
) -> None:
    cpu = distributions[1]
    names = [f"src/{name}" for name in release.package_files(cpu)] + [
        "pyproject.toml",
        "README.md",
        "PKG-INFO",
        "LICENSE",
    ]

    def make(names: list[str]) -> Path:
        path = tmp_path / f"{cpu.stem}.tar.gz"
        with tarfile.open(path, "w:gz") as archive:
            for name in names:
                archive.addfile(tarfile.TarInfo(f"{cpu.stem}/{name}"), io.BytesIO())
        return path

    assert list(release.archive_faults(cpu, make(names))) == []
    assert list(
        release.archive_faults(cpu, make([name for name in names if name != "LICENSE"]))
    ) == [f"{cpu.stem}.tar.gz lacks LICENSE"]
    assert (
        len(
            list(
                release.archive_faults(cpu, make([*names, "src/tilewright_cpu/__pycache__/x.pyc"]))
            )
        )
        == 1
    )


def test_the_readme_has_a_kernel_to_run(release: Any) -> None:
    block = release.readme_kernel()
    assert "@tw.jit" in block and "out = " in block and "x, y = " in block
    assert "x + y" in block
