"""The layers of the core: what each package may import, and that no vendor is named in it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from source_trees import nodes_of

SOURCE = Path(__file__).resolve().parents[1] / "src" / "tilewright"

#: package, or module beside the packages -> what of the core it may import, at module level or
#: inside functions
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "recursion": set(),
    "environment": {"errors"},
    "child_process": {"environment"},
    "forks": set(),
    "logs": {"environment"},
    # successors of Triton's names, for errors
    "triton_names": {"errors"},
    "ir": {"recursion"},
    "reference": {"ir", "errors", "recursion"},
    # what the language asks at run time, outside of kernels
    "active_target": {"runtime"},
    "language": {"ir", "errors", "plugins", "active_target", "recursion"},
    "frontend": {"ir", "language", "errors", "environment", "plugins", "recursion"},
    "passes": {"ir", "errors", "environment"},
    "derivatives": {"ir", "passes", "reference", "errors"},
    "plugins": {"ir", "errors", "environment", "forks", "child_process"},
    "runtime": {
        "ir",
        "reference",
        "language",
        "frontend",
        "passes",
        "derivatives",
        "plugins",
        "errors",
        "environment",
        "child_process",
        "forks",
        "llvm",
        "logs",
        "recursion",
        "triton_names",
    },
    "llvm": {"ir", "passes", "errors", "child_process"},
    "simt": {"ir", "passes", "llvm", "errors", "environment"},
    # the host sides of backends: above the runtime, and nothing of the toolkit that compiles
    "gpu_host": {"ir", "llvm", "plugins", "runtime", "errors", "environment"},
    "jax": {"ir", "language", "runtime", "errors"},
    "torch": {"runtime", "errors"},
    "testing": {
        "derivatives",
        "ir",
        "reference",
        "frontend",
        "passes",
        "runtime",
        "llvm",
        "simt",
        "gpu_host",
        "errors",
    },
    "compat": {
        "active_target",
        "ir",
        "language",
        "passes",
        "plugins",
        "runtime",
        "testing",
        "errors",
        "environment",
    },
    "tools": {
        "ir",
        "reference",
        "language",
        "passes",
        "plugins",
        "runtime",
        "simt",
        "compat",
        "testing",
        "errors",
        "environment",
        "triton_names",
    },
    "debug": {"tools"},
    "__init__": {
        "derivatives",
        "ir",
        "language",
        "plugins",
        "runtime",
        "testing",
        "tools",
        "errors",
        "forks",
        "triton_names",
    },
    "__main__": {"tools"},
}

#: The package with the names of Triton's modules, functions and options, vendors' among them.
SHIM = "compat"
#: The comment that says why a file outside of the shim names vendors.
EXPLAINED = re.compile(r"^ *# vendors: \w", re.MULTILINE)

VENDOR = re.compile(
    r"(?i:nvidia|\bamd|hopper|\brocm|\bcuda\b(?!_array)|\bhip\b)|tilewright_(cpu|nvidia|amd)"
)


def package_of(module: str) -> str:
    """The package of a module of the core, by its dotted name without the core's: the innermost
    that has a row."""
    parts = module.split(".")
    return next(
        (name for end in range(len(parts), 1, -1) if (name := "/".join(parts[:end])) in ALLOWED),
        parts[0],
    )


def modules(package: str) -> list[Path]:
    """The files of a package, without those of packages in it that have rows of their own."""
    files = sorted((SOURCE / package).rglob("*.py")) or [SOURCE / f"{package}.py"]
    return [
        file
        for file in files
        if package_of(".".join(file.relative_to(SOURCE).with_suffix("").parts)) == package
    ]


def imported_packages(file: Path) -> set[str]:
    """The packages of the core that a file imports."""
    found = set()
    for node in nodes_of(file.read_text()):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = (
                [node.module]
                if node.module != "tilewright"
                else [f"tilewright.{alias.name}" for alias in node.names]
            )
        found |= {
            package_of(name.removeprefix("tilewright."))
            for name in names
            if name.startswith("tilewright.")
        }
    return found


@pytest.mark.parametrize("package", ALLOWED)
def test_a_package_imports_only_the_layers_below_it(package: str) -> None:
    assert modules(package), f"{package} is empty"
    for file in modules(package):
        extra = imported_packages(file) - ALLOWED[package] - {package}
        assert not extra, f"{file.relative_to(SOURCE)} imports {', '.join(sorted(extra))}"


def test_every_package_and_module_has_a_layer() -> None:
    found = {
        path.stem for path in SOURCE.iterdir() if path.suffix == ".py" or any(path.rglob("*.py"))
    }
    assert found == {package.partition("/")[0] for package in ALLOWED}


def test_the_core_names_no_vendor() -> None:
    """The shim has Triton's names; a comment ``# vendors: ...`` says why another file has some."""
    texts = {
        file.relative_to(SOURCE): file.read_text()
        for file in SOURCE.rglob("*.py")
        if file.relative_to(SOURCE).parts[0] != SHIM
    }
    wrong = [
        f"{file}:{number}: {line.strip()}"
        for file, text in texts.items()
        if not EXPLAINED.search(text)
        for number, line in enumerate(text.splitlines(), 1)
        if VENDOR.search(line)
    ]
    assert not wrong, "\n".join(wrong)
    needless = [
        str(file)
        for file, text in texts.items()
        if EXPLAINED.search(text) and not VENDOR.search(text)
    ]
    assert not needless, f"no vendor is named there any more: {needless}"


def test_the_core_imports_no_backend() -> None:
    told = [
        f"{file.relative_to(SOURCE)}:{number}"
        for file in SOURCE.rglob("*.py")
        for number in backends_imported(file)
    ]
    assert not told, ", ".join(told)


def test_the_conformance_suite_imports_no_backend() -> None:
    suite = SOURCE.parents[2] / "conformance" / "src" / "tilewright_conformance"
    files = sorted(suite.rglob("*.py"))
    own = "tilewright_conformance"
    found = [
        f"{file.relative_to(suite)}:{number}"
        for file in files
        for number in backends_imported(file, own)
    ]
    assert files and not found, ", ".join(found)


def backends_imported(file: Path, own: str = "tilewright") -> list[int]:
    """Lines of imports of ``tilewright_...``, but for those of the package ``own``."""
    found, text = [], file.read_text()
    if not re.search(rf"import.*\btilewright_|from (?!{own}\b)tilewright_", text):
        return []
    for node in nodes_of(text):
        names = (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
        packages = {name.partition(".")[0] for name in names}
        found += [
            node.lineno for name in packages if name.startswith("tilewright_") and name != own
        ]
    return found
