"""Modules of a package that register themselves: a new file is found without a list of files."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any


def import_modules(package: str) -> list[Any]:
    """Import the modules of a package, in the order of their names; but no packages in it."""
    # computed: the modules of a package, which register themselves
    path = importlib.import_module(package).__path__
    names = sorted(module.name for module in pkgutil.iter_modules(path) if not module.ispkg)
    return [importlib.import_module(f"{package}.{name}") for name in names]


def rows_of(package: str, table: str) -> tuple[Any, ...]:
    """Return the rows of the tables that modules of a package have under one name.

    Their order is that of the modules' names, whatever was imported before.
    """
    return tuple(row for module in import_modules(package) for row in getattr(module, table, ()))


__all__ = ["import_modules", "rows_of"]
