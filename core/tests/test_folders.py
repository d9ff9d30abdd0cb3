"""Folders of sources have few files, and within a package each imports only those below it."""

from __future__ import annotations

import ast
import functools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

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
        annotated: modules that name classes of later folders in annotations, for the objects that
            they are handed.
    """

    name: str
    path: str
    order: tuple[str, ...]
    annotated: frozenset[str] = frozenset()

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


#: Capabilities whose methods take the context of the emission.
ANNOTATED_CAPABILITIES = (
    *(
        "arithmetic",
        "async_copy",
        "clusters",
        "debugging",
        "external_functions",
        "global_memory",
        "kernel_assembly",
        "matrix",
        "mbarriers",
    ),
    *("named_barriers", "tensor_memory", "tma"),
)

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
        frozenset(
            {
                "dialect.op_interface",
                "dialect.registry",
                *(f"target.capabilities.{name}" for name in ANNOTATED_CAPABILITIES),
            }
        ),
    ),
    Layers(
        "tilewright_cpu",
        "backends/cpu/src/tilewright_cpu",
        (
            "__version__",
            "status",
            "hardware",
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
        frozenset({"context"}),
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
            *("devices", "arguments", "compiler", "launch", "tuning", "reference_backend"),
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
        frozenset({"codegen.kernel_state"}),
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
        frozenset({"mma.block_scaled"}),
    ),
    Layers(
        "tilewright_amd_emulator",
        "backends/amd/emulator/src/tilewright_amd_emulator",
        (
            *("errors", "formats", "code", "memory", "state", "decode", "instructions", "engine"),
            *("hip", "plugin"),
        ),
        frozenset({"code.program"}),
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


@functools.cache
def all_imports(file: Path) -> list[tuple[ast.ImportFrom, bool]]:
    """(an import of names from a module, whether for annotations alone)."""
    nodes = list(ast.walk(ast.parse(file.read_text())))
    typing = {
        id(node)
        for block in nodes
        if isinstance(block, ast.If)
        and isinstance(block.test, ast.Name)
        and block.test.id == "TYPE_CHECKING"
        for node in ast.walk(block)
    }
    return [(node, id(node) in typing) for node in nodes if isinstance(node, ast.ImportFrom)]


def imports(file: Path, package: str) -> Iterator[tuple[str, int, bool]]:
    """(the module or folder of the package that is imported, the line, whether for annotations
    alone)."""
    for node, for_annotations in all_imports(file):
        if node.module is not None and f"{node.module}.".startswith(f"{package}."):
            inside = node.module.removeprefix(package).lstrip(".")
            yield from (
                (inside or alias.name, node.lineno, for_annotations) for alias in node.names
            )


@pytest.mark.parametrize("package", PACKAGES, ids=str)
def test_a_folder_imports_only_those_below_it(package: Layers) -> None:
    above = [
        f"{name}:{line} imports {imported}"
        for name, file in package.files().items()
        for imported, line, for_annotations in imports(file, package.name)
        if package.rank(imported) > package.rank(name)
        and not (for_annotations and name in package.annotated)
    ]
    assert not above, f"imports of folders above: {'; '.join(above)}"


@pytest.mark.parametrize("package", PACKAGES, ids=str)
def test_modules_that_are_handed_objects_of_folders_above_annotate_them(package: Layers) -> None:
    annotating = {
        name
        for name, file in package.files().items()
        if any(for_annotations for *_, for_annotations in imports(file, package.name))
    }
    assert annotating >= package.annotated
