"""Kernels of the site's tutorials, read from their pages."""

from __future__ import annotations

import ast
import functools
import importlib.util
import re
import tempfile
from pathlib import Path
from types import ModuleType

TUTORIALS = Path(__file__).resolve().parents[2] / "docs" / "site" / "tutorials"
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.M | re.S)


@functools.cache
def kernels_of(page: str) -> ModuleType:
    """Return a module with the imports and functions of a page, without its other statements."""
    code = "\n".join(_BLOCK.findall((TUTORIALS / f"{page}.md").read_text()))
    kinds = (ast.Import, ast.ImportFrom, ast.FunctionDef)
    kept = [node for node in ast.parse(code).body if isinstance(node, kinds)]
    # A kernel's source is read from its file, which must outlive the module.
    file = Path(tempfile.mkdtemp()) / f"{page}_tutorial.py"
    file.write_text("\n\n\n".join(map(ast.unparse, kept)) + "\n")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
