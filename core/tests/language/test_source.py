"""The text of a function, cut out of its file: every line keeps its number, so that errors and
warnings name the right one."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path

import pytest

from tilewright.language.definitions.source import FunctionSource

_NESTED = '''
def outer():
    if True:

        def inner(a):
            first = 1

            text = """
 to the left of the indent

"""
{blank}
            last = a

        return inner
'''


@pytest.mark.parametrize("blank", ["", "  ", " " * 20], ids=["empty", "shorter", "longer"])
def test_blank_lines_of_an_indented_function_count(tmp_path: Path, blank: str) -> None:
    path = tmp_path / "nested.py"
    path.write_text(_NESTED.format(blank=blank))
    spec = importlib.util.spec_from_file_location("nested", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    source = FunctionSource(module.outer())

    lines = path.read_text().splitlines()
    assert lines[source.definition_line - 1].lstrip() == "def inner(a):"
    for statement in source.parse().body:
        assert isinstance(statement, ast.Assign)
        (target,) = statement.targets
        assert isinstance(target, ast.Name)
        assert (
            lines[source.definition_line + statement.lineno - 2]
            .lstrip()
            .startswith(f"{target.id} = ")
        )
