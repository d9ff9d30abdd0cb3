"""Folders of sources have few files, and within a package each imports only those below it."""

from __future__ import annotations

import ast
import functools
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest
from source_trees import nodes_of

ROOT = Path(__file__).resolve().parents[2]
SIMT = ROOT / "core" / "src" / "tilewright" / "simt"

#: Files that a folder of sources has at most: as many names as one takes in at a glance.
LIMIT = 24


@dataclass(frozen=True)
class Layers:
    """The order of a package's folders and modules.

    Attributes:
        name: the package.
        path: its folder, from the repository's root.
        order: its folders and modules, each of which imports only those before it.
    """

    name: str
    path: str
    order: tuple[str, ...]

    def __str__(self) -> str:
        return self.name

    def files(self) -> dict[str, Path]:
        """Every module of the package but its own ``__init__``, by its name within the package."""
        root = ROOT / self.path
        found = {
            ".".join(file.relative_to(root).with_suffix("").parts): file
            for file in sorted(root.rglob("*.py"))
        }
        return {name: file for name, file in found.items() if name != "__init__"}

    def rank(self, module: str) -> int:
        return self.order.index(module.partition(".")[0])


PACKAGES = (
    Layers(
        "tilewright.simt",
        "core/src/tilewright/simt",
        (
            "layouts",
            "dialect",
            "target",
            "analysis",
            "assign_layouts",
            "passes",
            "pipeline",
            "lowering",
            "compile",
            "report",
            "emulator",
        ),
    ),
    Layers(
        "tilewright_cpu",
        "backends/cpu/src/tilewright_cpu",
        (
            "__version__",
            "status",
            "hardware",
            "torch_openmp",
            "manifest",
            "target",
            "fault_handler",
            "threading",
            "codegen",
            "lower",
            "runtime",
            "resources",
            "tuning",
            "prepack",
            "python_launch",
            "native_launch",
            "launch",
            "export",
            "host",
            "language",
            "plugin",
        ),
    ),
    Layers(
        "tilewright_cpu.codegen",
        "backends/cpu/src/tilewright_cpu/codegen",
        (
            "state",
            "context",
            "analysis",
            "gemm",
            "intrinsics",
            "sanitizer",
            "loops",
            "ops",
            "control",
            "registry",
            "kernel",
        ),
    ),
    Layers(
        "tilewright.language",
        "core/src/tilewright/language",
        (
            *(
                "binding",
                "options",
                "value_types",
                "definitions",
                "builtin_functions",
                "signatures",
                "core",
                "semantic",
                "floats",
            ),
            *(
                "math",
                "random",
                "standard",
                "members",
                "device_math",
                "libdevice",
                "target_info",
                "backend_modules",
                "extra",
            ),
        ),
    ),
    Layers(
        "tilewright.passes",
        "core/src/tilewright/passes",
        (
            *(
                "clone",
                "effects",
                "rewriter",
                "package_modules",
                "math",
                "fold",
                "analysis",
                "cse",
                "dce",
                "licm",
                "inline",
                "descriptor_padding",
            ),
            *(
                "descriptor_pointers",
                "rewrites",
                "canonicalize",
                "pipeline",
                "decompose",
                "exact",
                "expand_math",
                "watch",
            ),
        ),
    ),
    Layers(
        "tilewright.reference",
        "core/src/tilewright/reference",
        (
            *(
                "numerics",
                "values",
                "memory",
                "failures",
                "cooperative_threads",
                "frame",
                "provenance",
            ),
            *("operations", "checks", "interpreter"),
        ),
    ),
    Layers(
        "tilewright.llvm", "core/src/tilewright/llvm", ("emission", "assembly", "codegen", "native")
    ),
    Layers(
        "tilewright.runtime",
        "core/src/tilewright/runtime",
        (
            *(
                "hooks",
                "integers",
                "executors",
                "options",
                "preparation",
                "storage",
                "shipped_records",
                "tuning_records",
            ),
            *("devices", "arguments", "compiler", "launch", "exact", "derivatives", "tuning"),
            "reference_backend",
        ),
    ),
    Layers(
        "tilewright_nvidia",
        "backends/nvidia/src/tilewright_nvidia",
        (
            *(
                "__version__",
                "architectures",
                "operations",
                "toolchain",
                "codegen",
                "async_copy",
                "mma",
                "host",
            ),
            *(
                "instruction_costs",
                "manifest",
                "target",
                "lower",
                "language",
                "performance_model",
                "tuning",
                "ceilings",
                "plugin",
            ),
        ),
    ),
    Layers(
        "tilewright_amd",
        "backends/amd/src/tilewright_amd",
        (
            *(
                "__version__",
                "architectures",
                "toolchain",
                "codegen",
                "async_copy",
                "mma",
                "host",
                "instruction_costs",
            ),
            *("manifest", "target", "lower", "language", "ceilings", "plugin"),
        ),
    ),
    Layers(
        "tilewright_amd_emulator",
        "backends/amd/emulator/src/tilewright_amd_emulator",
        (
            *("errors", "formats", "code", "memory", "state", "decode", "instructions", "engine"),
            *("hip", "plugin"),
        ),
    ),
    Layers(
        "tilewright_conformance",
        "conformance/src/tilewright_conformance",
        (
            *(
                "suite",
                "op_samples",
                "oracles",
                "testlib",
                "kernels",
                "exact",
                "cases",
                "random_programs",
                "mutation",
                "fuzz",
                "runtests",
            ),
            *("api_coverage", "pytest_plugin", "test_suite", "__main__"),
        ),
    ),
    Layers(
        "tilewright_conformance.suite",
        "conformance/src/tilewright_conformance/suite",
        (
            *(
                "capture",
                "comparison",
                "placement",
                "session",
                "case",
                "requirements",
                "requirements_audit",
                "catalogue",
                "expectations",
            ),
            *(
                "releases",
                "provenance",
                "engine",
                "profiles",
                "report",
                "progress",
                "run",
                "rerun",
                "minimal_backend",
            ),
            *("selftest", "cli"),
        ),
    ),
    Layers(
        "tilewright_kernels",
        "kernels/src/tilewright_kernels",
        (
            "operations",
            *("rows", "reductions", "linear", "attention", "sampling"),
            *("experts", "sequence", "optimizers"),
            "models",
            "tuning",
        ),
    ),
)


def test_folders_have_few_files() -> None:
    files = (
        file
        for source in (*ROOT.glob("*/src"), *ROOT.glob("backends/**/src"))
        for file in source.rglob("*.py")
    )
    counts = Counter(str(file.parent.relative_to(ROOT)) for file in files)
    crowded = {folder: count for folder, count in sorted(counts.items()) if count > LIMIT}
    assert not crowded, f"folders to divide, of more than {LIMIT} files: {crowded}"


#: The comment in a block of imports for annotations: who hands in objects of folders above.
HANDED_IN = re.compile(r"^ +# handed in: \w", re.MULTILINE)


class Import(NamedTuple):
    """An import of names from a module, or of those names as its submodules.

    ``handed_in`` is true within an ``if TYPE_CHECKING`` that has the comment ``# handed in: ...``.
    """

    names: tuple[str, ...]
    module: str
    line: int
    handed_in: bool


@functools.cache
def all_imports(text: str) -> list[Import]:
    nodes, lines = nodes_of(text), text.split("\n")
    handed_in = {
        id(node)
        for block in nodes
        if isinstance(block, ast.If) and getattr(block.test, "id", "") == "TYPE_CHECKING"
        if HANDED_IN.search("\n".join(lines[block.lineno : block.end_lineno]))
        for node in ast.walk(block)
    }
    return [
        Import(
            tuple(alias.name for alias in node.names),
            node.module,
            node.lineno,
            id(node) in handed_in,
        )
        for node in nodes
        if isinstance(node, ast.ImportFrom) and node.module is not None
    ]


@pytest.mark.parametrize(
    ("text", "handed_in"),
    [
        ("from a import b", False),
        ("if TYPE_CHECKING:\n    from a import b", False),
        ("if TYPE_CHECKING:\n    # handed in: a calls it\n    from a import b", True),
        ("if x:\n    # handed in: a calls it\n    from a import b", False),
        ("if TYPE_CHECKING:\n    # handed in: a calls it\n    import c\nfrom a import b", False),
    ],
)
def test_imports_for_objects_that_are_handed_in_are_found(text: str, handed_in: bool) -> None:
    assert [found.handed_in for found in all_imports(text)] == [handed_in]


def imports(file: Path, package: str) -> Iterator[tuple[str, int, bool]]:
    """(the module or folder of the package that is imported, the line, whether handed in)."""
    for found in all_imports(file.read_text()):
        if f"{found.module}.".startswith(f"{package}."):
            inside = found.module.removeprefix(package).lstrip(".")
            yield from ((inside or name, found.line, found.handed_in) for name in found.names)


@pytest.mark.parametrize("package", PACKAGES, ids=str)
def test_a_folder_imports_only_those_below_it(package: Layers) -> None:
    """For annotations it may name classes of folders above, where a comment says who hands it the
    objects: ``# handed in: ...``."""
    above = [
        f"{name}:{line} imports {imported}"
        for name, file in package.files().items()
        for imported, line, handed_in in imports(file, package.name)
        if package.rank(imported) > package.rank(name) and not handed_in
    ]
    assert not above, f"imports of folders above: {'; '.join(above)}"


def test_comments_of_objects_that_are_handed_in_are_needed() -> None:
    explained = {
        file
        for package in PACKAGES
        for file in package.files().values()
        if HANDED_IN.search(file.read_text())
    }
    needed = {
        file
        for package in PACKAGES
        for name, file in package.files().items()
        for imported, *_ in imports(file, package.name)
        if package.rank(imported) > package.rank(name)
    }
    assert explained == needed
