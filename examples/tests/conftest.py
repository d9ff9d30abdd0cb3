"""Fresh environments with wheels in them, for tests of what a vendor does; and the examples on
emulated GPUs:

python -m pytest examples/tests/test_kernels.py examples/tests/test_triton_examples.py --emulate
gfx942
"""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: Instructions of a batch of emulated waves: the examples execute some 100,000 at most, and a
#: kernel that does not end is one of a minute, not of many.
LIMIT = 1 << 23


@pytest.fixture(scope="session")
def statements() -> Callable[[Path], int]:
    """Count the statements of a package's modules, docstrings excepted."""

    def count(package: Path) -> int:
        trees = (ast.parse(file.read_text()) for file in package.rglob("*.py"))
        nodes = (node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.stmt))
        return sum(
            not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
            for node in nodes
        )

    return count


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--emulate",
        default="",
        metavar="TARGET",
        help="run the examples' kernels on an emulated AMD GPU, as gfx942 or gfx942:lockstep",
    )


@pytest.fixture(scope="session")
def emulated(request: pytest.FixtureRequest) -> Iterator[Any]:
    """The emulated device that arrays of the host are on, where the command asks for one; None
    otherwise."""
    target, _, schedule = request.config.getoption("--emulate", "").partition(":")
    if not target:
        yield None
        return
    pytest.importorskip("torch")
    from tilewright_amd_emulator.hip.emulation import emulate
    from tilewright_amd_emulator.hip.host_arrays import host_arrays

    os.environ["TILEWRIGHT_BACKEND"] = (
        "amd"  # of kernels without arrays, and of what asks for the device's properties
    )
    device = emulate(target, schedule, shared=True, limit=LIMIT)
    with host_arrays(device):
        yield device


@pytest.fixture(autouse=True)
def on_the_emulated_device(emulated: Any) -> Iterator[None]:
    """With an emulated device, each test runs kernels on it, and none of them does what it must
    not."""
    launched = 0 if emulated is None else len(emulated.launches)
    yield
    if emulated is not None:
        found, emulated.error = emulated.error, None
        emulated.recover()
        assert found is None, found
        assert len(emulated.launches) > launched, "no kernel ran on the emulated device"


def completed(*command: object, **environment: str) -> subprocess.CompletedProcess[str]:
    settings = {
        name: value for name, value in os.environ.items() if name != "PYTHONPATH"
    } | environment
    return subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        timeout=3600,
        check=False,
        env=settings,
    )


def made_once(folder: Path, make: Callable[[Path], None]) -> Path:
    """A folder that ``make`` fills, by the first process that asks for it; others wait."""
    import fcntl  # which Windows has not: the rest of this file does without

    with open(f"{folder}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            part = Path(f"{folder}.part")
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir()
            make(part)
            part.rename(folder)
    return folder


class Environment:
    """Create a virtual environment in a folder, with its own kernel cache.

    The test environment's pip fills it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.programs = folder / "env" / "bin"

    def python(self, *arguments: object, code: int = 0, path: Path | str = "") -> str:
        """Run Python with some arguments, and modules of ``path``; what it printed, where it ends
        with ``code``."""
        done = completed(
            self.programs / "python",
            *arguments,
            TILEWRIGHT_CACHE_DIR=str(self.folder / "cache"),
            PYTHONPATH=str(path),
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def pip(self, *arguments: object) -> None:
        done = completed(
            sys.executable,
            "-m",
            "pip",
            "--python",
            self.programs / "python",
            "--quiet",
            "--disable-pip-version-check",
            *arguments,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def install(self, *what: object) -> None:
        """Install wheels and projects; of what they need, only what is imported is compiled."""
        self.pip("install", "--no-compile", *what)

    def backends(self) -> dict[str, Any]:
        """The report of ``tilewright backends``."""
        report: dict[str, Any] = json.loads(
            self.python("-m", "tilewright.tools.cli", "backends", "--json")
        )
        return report

    def conformance(
        self, *arguments: object, code: int = 0, path: Path | str = ""
    ) -> dict[str, Any]:
        """Run the conformance suite with two processes; its report, where it ends with ``code``."""
        folder = self.folder / "report"
        self.python(
            "-m",
            "tilewright_conformance",
            "run",
            "-j",
            2,
            "--report",
            folder,
            *arguments,
            code=code,
            path=path,
        )
        report: dict[str, Any] = json.loads((folder / "report.json").read_text())
        return report


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of all processes of a run of the tests."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture(scope="session")
def wheel_of(shared: Path) -> Callable[[Path], Path]:
    """Builds the wheel of a project."""

    def build(project: Path) -> Path:
        def make(out: Path) -> None:
            done = completed(
                sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, project
            )
            assert done.returncode == 0, done.stdout + done.stderr

        (built,) = made_once(shared / f"wheel of {project.name}", make).glob("*.whl")
        return built

    return build


@pytest.fixture(scope="session")
def with_wheels(shared: Path, wheel_of: Callable[[Path], Path]) -> Path:
    """The folder of an environment with the wheels of the core and of the conformance suite, to be
    copied; what these import is compiled."""

    def make(folder: Path) -> None:
        venv.create(folder / "env", with_pip=False)
        made = Environment(folder)
        made.install(wheel_of(ROOT / "core"), wheel_of(ROOT / "conformance"))
        made.python("-m", "tilewright_conformance", "list")

    return made_once(shared / "environment", make)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory, with_wheels: Path) -> Environment:
    """An environment with the wheels of the core and of the conformance suite. Its files are links
    to those of the one that is copied: neither pip nor Python writes into a file that is there."""
    folder = tmp_path_factory.mktemp("vendor")
    shutil.copytree(with_wheels / "env", folder / "env", symlinks=True, copy_function=os.link)
    return Environment(folder)


@pytest.fixture(scope="session")
def one_of_each_subject() -> list[str]:
    """Options for a quick case of profile core for each operation and function that it tests: the
    first and the last in turn."""
    from tilewright_conformance.suite.catalogue import catalogue

    found: dict[str, list[str]] = {}
    for case in catalogue().select(profiles=["core"], quick=True):
        found.setdefault(case.subject, []).append(case.id)
    return [
        part
        for number, cases in enumerate(found.values())
        for part in ("--case", cases[-(number % 2)])
    ]
