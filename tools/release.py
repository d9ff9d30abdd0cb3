"""Build what a release consists of, and prove it: wheels and source archives of every distribution,
checked, installed and run.

    python tools/release.py                    into dist/
    python tools/release.py --out DIR --tag v0.2.0

1. One version: every distribution has the same, asks for the others from it on and below the next
   minor one, and is the tag's where one is given; with a tag the changes have a section of that
   version and nothing in the work tree is uncommitted.
2. A source archive and a wheel of each, the wheel made from the archive, so that the archive is
   whole.
3. Contents: every file of the package and no other, its licence, `py.typed`, entry points; metadata
   that the package index takes.
4. A fresh environment gets the wheels (what they depend on comes from the package index), and runs
   the README's first kernel on the CPU and on the reference interpreter, outside of the repository.

It needs `build`; it uploads nothing. Exit status 1 and a line for each fault.
"""

from __future__ import annotations

import argparse
import email.parser
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PARTS = (
    "core",
    "backends/cpu",
    "backends/nvidia",
    "backends/amd",
    "backends/amd/emulator",
    "conformance",
    "kernels",
)


@dataclass(frozen=True)
class Distribution:
    """One distribution: its folder, and what its pyproject.toml says."""

    folder: Path
    name: str
    version: str
    dependencies: tuple[str, ...]
    entry_points: frozenset[str]

    @property
    def stem(self) -> str:
        """What the names of its files begin with."""
        return f"{self.name.replace('-', '_')}-{self.version}"

    @property
    def package(self) -> str:
        return self.name.replace("-", "_")


def read_distribution(folder: Path) -> Distribution:
    """The distribution in a folder."""
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    points = {
        f"{group}:{name}"
        for group, rows in project.get("entry-points", {}).items()
        for name in rows
    }
    points |= {f"console_scripts:{name}" for name in project.get("scripts", {})}
    return Distribution(
        folder,
        project["name"],
        project["version"],
        tuple(project.get("dependencies", ())),
        frozenset(points),
    )


# ---- versions


def version_faults(
    distributions: list[Distribution], tag: str | None, changes: str
) -> Iterator[str]:
    """What is wrong with the versions of distributions that are released together.

    ``changes`` is the text of CHANGELOG.md.
    """
    first = distributions[0]
    names = {distribution.name for distribution in distributions}
    for distribution in distributions:
        if distribution.version != first.version:
            yield (
                f"{distribution.name} is {distribution.version}, and {first.name} "
                f"{first.version}: the distributions are released together"
            )
        for dependency in distribution.dependencies:
            name = re.split(r"[\s\[<>=!~;]", dependency, maxsplit=1)[0]
            if name in names and wanted(distribution.version) not in dependency:
                yield (
                    f"{distribution.name} asks for {dependency!r}; it should ask for "
                    f"{name}{wanted(distribution.version)}"
                )
    if tag is not None:
        if tag != f"v{first.version}":
            yield f"the tag {tag} is not v{first.version}"
        if not re.search(rf"^## {re.escape(first.version)}\b", changes, re.MULTILINE):
            yield f"CHANGELOG.md has no section '## {first.version}': rename 'Unreleased'"


def wanted(version: str) -> str:
    """How the distributions ask for each other at a version."""
    major, minor, *_ = version.split(".")
    following = f"{major}.{int(minor) + 1}" if major == "0" else str(int(major) + 1)
    return f">={version},<{following}"


# ---- contents


def package_files(distribution: Distribution) -> set[str]:
    """The files of a package as they stand in its wheel."""
    source = distribution.folder / "src"
    pages = ROOT / "docs" / "site"
    written = {
        f"tilewright/documentation/{path.relative_to(pages).as_posix()}"
        for path in pages.rglob("*.md")
        if distribution.name == "tilewright"
    }
    return written | {
        path.relative_to(source).as_posix()
        for path in (source / distribution.package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc"
    }


def wheel_faults(distribution: Distribution, wheel: Path) -> Iterator[str]:
    """What is wrong with a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        info = f"{distribution.stem}.dist-info/"
        if f"{info}METADATA" not in names:
            yield f"{wheel.name} has no {info}METADATA"
            return
        metadata = email.parser.Parser().parsestr(archive.read(f"{info}METADATA").decode())
        points = (
            archive.read(f"{info}entry_points.txt").decode()
            if f"{info}entry_points.txt" in names
            else ""
        )
    if not wheel.name.endswith("-py3-none-any.whl"):
        yield f"{wheel.name} is bound to a system: the packages are Python alone"
    inside = {name for name in names if not name.startswith(info)}
    expected = package_files(distribution) | {
        path.name for path in distribution.folder.glob("*.pth")
    }
    yield from (f"{wheel.name} lacks {name}" for name in sorted(expected - inside))
    yield from (
        f"{wheel.name} has {name}, which is no file of the package"
        for name in sorted(inside - expected)
    )
    if f"{distribution.package}/py.typed" not in names:
        yield f"{wheel.name} lacks py.typed"
    if not any("LICENSE" in name for name in names):
        yield f"{wheel.name} lacks the licence: put LICENSE beside its pyproject.toml"
    for field, value in (("Name", distribution.name), ("Version", distribution.version)):
        if metadata[field] != value:
            yield f"{wheel.name} says {field} {metadata[field]}, not {value}"
    for field in ("Summary", "Requires-Python", "License-Expression", "Description-Content-Type"):
        if not metadata[field]:
            yield f"{wheel.name} says no {field}"
    if len(str(metadata.get_payload())) < 100:
        yield f"{wheel.name} has no description: its README.md"
    written, group = set(), ""
    for line in points.splitlines():
        if line.startswith("["):
            group = line.strip("[]")
        elif "=" in line:
            written.add(f"{group}:{line.split('=')[0].strip()}")
    yield from (
        f"{wheel.name} lacks the entry point {point}"
        for point in sorted(distribution.entry_points - written)
    )


def archive_faults(distribution: Distribution, archive: Path) -> Iterator[str]:
    """What is wrong with a source archive."""
    with tarfile.open(archive) as opened:
        names = {name.removeprefix(f"{distribution.stem}/") for name in opened.getnames()}
    expected = {f"src/{name}" for name in package_files(distribution)} | {
        "pyproject.toml",
        "README.md",
        "PKG-INFO",
        "LICENSE",
    }
    yield from (f"{archive.name} lacks {name}" for name in sorted(expected - names))
    yield from (
        f"{archive.name} has {name}"
        for name in sorted(names)
        if "__pycache__" in name or name.endswith(".pyc")
    )


# ---- building and trying


def build(distribution: Distribution, out: Path) -> tuple[Path, Path]:
    """Its source archive and wheel, which is made from the archive."""
    subprocess.run(
        [sys.executable, "-m", "build", "--outdir", str(out), str(distribution.folder)],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    (wheel,) = out.glob(f"{distribution.stem}-*.whl")
    return out / f"{distribution.stem}.tar.gz", wheel


def readme_kernel() -> str:
    """The first block of Python in the README that has a kernel and launches it."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    return next(block for block in blocks if "@tw.jit" in block and "import tilewright" in block)


def try_faults(wheels: list[Path], distributions: list[Distribution]) -> Iterator[str]:
    """What goes wrong in a fresh environment."""
    with tempfile.TemporaryDirectory(prefix="tilewright-release-") as folder:
        venv.create(folder, with_pip=True)
        binaries = Path(folder) / ("Scripts" if sys.platform == "win32" else "bin")
        python = str(binaries / "python")
        # backends for GPUs load drivers' bindings of their own, and are installed without
        ours = [
            str(wheel)
            for wheel in wheels
            if not wheel.name.startswith(("tilewright_nvidia", "tilewright_amd"))
        ]
        others = [str(wheel) for wheel in wheels if str(wheel) not in ours]
        for arguments in (ours, ["--no-deps", *others]):
            subprocess.run(
                [
                    python,
                    "-m",
                    "pip",
                    "install",
                    "--quiet",
                    "--disable-pip-version-check",
                    *arguments,
                ],
                check=True,
            )
        script = Path(folder) / "readme_kernel.py"
        script.write_text(f"{readme_kernel()}\nassert np.array_equal(out, x + y), 'wrong'\n")
        for backend in ("cpu", "reference"):
            variables = {
                "TILEWRIGHT_BACKEND": backend,
                "TILEWRIGHT_CACHE_DIR": str(Path(folder) / "cache"),
                "PATH": str(binaries),
                "HOME": folder,
            }
            run = subprocess.run(
                [python, str(script)], cwd=folder, env=variables, capture_output=True, text=True
            )
            if run.returncode:
                yield (
                    f"the README's kernel fails on the backend {backend}: "
                    f"{run.stderr.strip()[-800:]}"
                )
        for distribution in distributions:
            code = (
                f"import importlib.metadata as m, {distribution.package}; "
                f"print(m.version({distribution.name!r}))"
            )
            run = subprocess.run([python, "-c", code], cwd=folder, capture_output=True, text=True)
            if run.stdout.strip() != distribution.version:
                yield (
                    f"{distribution.name} {distribution.version} is installed as "
                    f"{run.stdout.strip() or run.stderr.strip()[-300:]}"
                )
        run = subprocess.run(
            [python, "-m", "tilewright", "backends"], cwd=folder, capture_output=True, text=True
        )
        if run.returncode or "cpu" not in run.stdout:
            yield (
                f"'python -m tilewright backends' says: {(run.stdout + run.stderr).strip()[-500:]}"
            )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0] if __doc__ else None)
    parser.add_argument(
        "--out", type=Path, default=ROOT / "dist", help="where archives and wheels go (dist)"
    )
    parser.add_argument(
        "--tag",
        help="the release's tag, as v0.2.0: checked against versions, changes and the work tree",
    )
    options = parser.parse_args()
    distributions = [read_distribution(ROOT / part) for part in PARTS]
    faults = list(version_faults(distributions, options.tag, (ROOT / "CHANGELOG.md").read_text()))
    if (
        options.tag is not None
        and subprocess.run(
            ["git", "status", "--porcelain"], cwd=ROOT, capture_output=True, text=True
        ).stdout
    ):
        faults.append("the work tree has changes that are not committed")
    if not faults:
        options.out.mkdir(parents=True, exist_ok=True)
        for old in options.out.glob("tilewright*"):
            old.unlink()
        wheels = []
        for distribution in distributions:
            archive, wheel = build(distribution, options.out)
            faults += [*archive_faults(distribution, archive), *wheel_faults(distribution, wheel)]
            wheels.append(wheel)
            print(f"built {archive.name} and {wheel.name}", flush=True)
        faults += try_faults(wheels, distributions)
    for fault in faults:
        print(f"fault: {fault}", file=sys.stderr)
    print(
        f"{len(faults)} faults"
        if faults
        else (
            f"version {distributions[0].version}: built, checked, installed and run; in "
            f"{options.out}"
        )
    )
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
