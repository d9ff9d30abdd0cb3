"""The layers of the core: what each package may import, and that no vendor is named in it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src" / "tilewright"

#: package -> packages of the core it may import at module level or inside functions
ALLOWED = {
    "ir": set(),
    "reference": {"ir", "errors"},
    "language": {"ir", "errors", "plugins"},
    "frontend": {"ir", "language", "errors", "environment", "plugins"},
    "passes": {"ir", "errors", "environment"},
    "plugins": {"ir", "errors"},
    "runtime": {"ir", "reference", "language", "frontend", "passes", "plugins", "errors", "environment", "llvm"},
    "llvm": {"ir", "passes", "errors"},
    "simt": {"ir", "passes", "llvm", "errors", "environment"},
    # the host sides of backends: above the runtime, and nothing of the toolkit that compiles
    "simt/host": {"ir", "llvm", "plugins", "runtime", "errors"},
    "testing": None,
    "tools": None,
}

VENDOR = re.compile(r"(?i:nvidia|\bamd|hopper|\brocm|\bcuda\b(?!_array)|\bhip\b)|tilewright_(cpu|nvidia|amd)")


def package_of(module: str) -> str:
    """The package of a module of the core, by its dotted name without the core's: the innermost that has a row."""
    parts = module.split(".")
    return next((name for end in range(len(parts), 1, -1) if (name := "/".join(parts[:end])) in ALLOWED), parts[0])


def modules(package: str) -> list[Path]:
    """The files of a package, without those of packages in it that have rows of their own."""
    files = sorted((SOURCE / package).rglob("*.py"))
    return [file for file in files if package_of(".".join(file.relative_to(SOURCE).with_suffix("").parts)) == package]


def imported_packages(file: Path) -> set[str]:
    """The packages of the core that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module] if node.module != "tilewright" else [f"tilewright.{alias.name}" for alias in node.names]
        found |= {package_of(name.removeprefix("tilewright.")) for name in names if name.startswith("tilewright.")}
    return found


@pytest.mark.parametrize("package", ALLOWED)
def test_a_package_imports_only_the_layers_below_it(package: str) -> None:
    allowed = ALLOWED[package]
    assert modules(package), f"{package} is empty"
    if allowed is None:
        return
    for file in modules(package):
        extra = imported_packages(file) - allowed - {package}
        assert not extra, f"{file.relative_to(SOURCE)} imports {', '.join(sorted(extra))}"


def test_the_core_names_no_vendor() -> None:
    # Device kinds of argument protocols ("cuda" in __cuda_array_interface__) and names of the language's surface are data, not dependencies.
    exempt = {"compat"}
    exempt_files = {"runtime/arguments.py", "runtime/dlpack.py", "plugins/manifest.py", "language/target_info.py", "language/linear.py"}
    named = []
    for file in SOURCE.rglob("*.py"):
        relative = file.relative_to(SOURCE)
        if relative.parts[0] in exempt or str(relative) in exempt_files:
            continue
        named += [f"{relative}:{number}: {line.strip()}" for number, line in enumerate(file.read_text().splitlines(), 1) if VENDOR.search(line)]
    assert not named, "\n".join(named)
