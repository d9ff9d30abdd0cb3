"""How sources are put into folders: few enough files in each, and within a package each folder imports only those below it."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SIMT = ROOT / "core" / "src" / "tilewright" / "simt"

#: Files that a folder of sources has at most: as many names as one takes in at a glance.
LIMIT = 24
#: Folders that have more -> how many. The numbers may only fall.
CROWDED = {
    "backends/amd/src/tilewright_amd": 32,
    "backends/cpu/src/tilewright_cpu/lowering": 59,
    "backends/nvidia/src/tilewright_nvidia": 51,
    "conformance/src/tilewright_conformance/surface/probes": 26,
    "conformance/src/tilewright_conformance/waves": 35,
    "core/src/tilewright/language": 40,
    "core/src/tilewright/llvm": 28,
    "core/src/tilewright/passes": 32,
    "core/src/tilewright/reference": 30,
    "core/src/tilewright/runtime": 68,
}

#: The folders and modules of the GPU toolkit, each of which imports only those before it.
ORDER = ("layouts", "dialect", "target", "analysis", "assign_layouts", "passes", "pipeline", "lowering", "compile", "report", "emulator")
#: Modules that name classes of folders above them in annotations, for what they are handed.
HANDED = {"dialect.op_interface", "dialect.registry", "target.simt_target"}


def crowded() -> dict[str, int]:
    counts: Counter[str] = Counter()
    for source in ROOT.glob("*/src"), ROOT.glob("backends/*/src"):
        for folder in source:
            counts.update(str(file.parent.relative_to(ROOT)) for file in folder.rglob("*.py"))
    return {folder: count for folder, count in sorted(counts.items()) if count > LIMIT}


def test_folders_have_few_files() -> None:
    assert crowded() == CROWDED, "divide a folder that has grown, and let the numbers here follow one that has shrunk"


def imports(file: Path) -> Iterator[tuple[str, int, bool]]:
    """(the module or package of the toolkit that is imported, the line, whether for annotations alone)."""
    tree = ast.parse(file.read_text())
    typing = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and isinstance(block.test, ast.Name) and block.test.id == "TYPE_CHECKING"
        for node in ast.walk(block)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None and f"{node.module}.".startswith("tilewright.simt."):
            inside = node.module.removeprefix("tilewright.simt").lstrip(".")
            yield from ((inside or alias.name, node.lineno, id(node) in typing) for alias in node.names)


def name_of(file: Path) -> str:
    return ".".join(file.relative_to(SIMT).with_suffix("").parts)


FILES = [file for file in sorted(SIMT.rglob("*.py")) if file != SIMT / "__init__.py"]


@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_a_folder_of_the_toolkit_imports_only_those_below_it(file: Path) -> None:
    own = ORDER.index(name_of(file).partition(".")[0])
    above = [
        f"line {line}: {imported}"
        for imported, line, for_annotations in imports(file)
        if ORDER.index(imported.partition(".")[0]) > own and not (for_annotations and name_of(file) in HANDED)
    ]
    assert not above, f"{name_of(file)} imports what is above it: {'; '.join(above)}"


def test_who_is_handed_classes_of_folders_above_names_them() -> None:
    assert {name_of(file) for file in FILES if any(for_annotations for *_, for_annotations in imports(file))} >= HANDED
