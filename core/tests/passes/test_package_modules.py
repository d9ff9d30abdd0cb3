"""Modules that register themselves: all are found, in one order, whatever was imported before."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import tilewright
from tilewright.passes.canonicalize import REWRITES
from tilewright.passes.decompose.catalogue import CATALOGUE
from tilewright.passes.package_modules import rows_of
from tilewright.simt import lowering
from tilewright.simt.dialect.registry import interface_of
from tilewright.simt.emulator.target import EmulatedTarget

SOURCES = Path(tilewright.__file__).parent

#: Imports the modules of the packages in the reverse order, and prints what is registered.
REVERSED = """
import importlib, pkgutil
for name in ("passes.rewrites", "passes.decompose"):
    package = importlib.import_module(f"tilewright.{name}")
    modules = [module.name for module in pkgutil.iter_modules(package.__path__)]
    for module in sorted(modules, reverse=True):
        importlib.import_module(f"tilewright.{name}.{module}")
from tilewright.passes.canonicalize import REWRITES
from tilewright.passes.decompose.catalogue import CATALOGUE
print([row.law for row in REWRITES], list(CATALOGUE))
"""


def _files_with(package: str, table: str) -> set[str]:
    """The files of a package that assign to a name."""
    found = set()
    for path in sorted((SOURCES / package).glob("*.py")):
        for statement in ast.parse(path.read_text()).body:
            targets = (
                statement.targets
                if isinstance(statement, ast.Assign)
                else [statement.target]
                if isinstance(statement, ast.AnnAssign)
                else []
            )
            if any(isinstance(target, ast.Name) and target.id == table for target in targets):
                found.add(path.stem)
    return found


@pytest.mark.parametrize(
    ("package", "table", "rows"),
    [("passes/rewrites", "REWRITES", REWRITES), ("passes/decompose", "ROWS", CATALOGUE.values())],
)
def test_each_table_of_a_package_is_found(package: str, table: str, rows: object) -> None:
    files = _files_with(package, table)
    assert len(files) > 1
    name = f"tilewright.{package.replace('/', '.')}"
    modules = {file: sys.modules[f"{name}.{file}"] for file in sorted(files)}
    expected = [row for module in modules.values() for row in getattr(module, table)]
    assert list(rows_of(name, table)) == expected == list(rows)  # type: ignore[call-overload]


def test_each_lowering_is_found() -> None:
    target = EmulatedTarget()
    for file in _files_with("simt/lowering", "INTERFACES"):
        interfaces = getattr(lowering, file).INTERFACES
        assert all(interface_of(target, name) is row for name, row in interfaces.items())


def test_the_order_of_imports_does_not_matter() -> None:
    found = subprocess.run(
        [sys.executable, "-c", REVERSED], check=True, capture_output=True, text=True
    ).stdout
    assert found.strip() == f"{[row.law for row in REWRITES]} {list(CATALOGUE)}"
