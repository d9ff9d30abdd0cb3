"""Kernels under type checkers.

The README and all examples check without errors, mistakes in them are found, and signatures agree
with the functions.
"""

from __future__ import annotations

import ast
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import tilewright
from tilewright.language import standard
from tilewright.language.definitions.callable import JitCallable

REPOSITORY = Path(__file__).resolve().parents[3]
SOURCES = Path(tilewright.__file__).parents[1]
EXAMPLES = REPOSITORY / "examples"
STUBS = Path(standard.__file__).with_suffix(".pyi")

MISTAKES = """
import tilewright as tw
import tilewright.language as tl


@tw.jit
def kernel(x_ptr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.sum(tl.load(x_ptr + offsets), axes=0)  # call-arg
    tl.store(x_ptr, tl.laod(x_ptr) + total)  # attr-defined
    peak = tl.max(offsets, axis="rows")  # call-overload
    both = tl.max(offsets, 0, return_indices=True) + 1  # operator
    tl.store(x_ptr, peak // both, msak=offsets < 3)  # call-arg
"""

#: A program that reads fields of operations, with the errors that it makes.
FIELDS = """
# mypy: strict-equality
from typing import Literal, assert_type

import tilewright
from tilewright.ir.core import Operation, Region, Value
from tilewright.ir.ops.arithmetic import Arange, Cmp
from tilewright.ir.ops.control import For, If
from tilewright.ir.ops.memory import Load
from tilewright.simt.dialect.ops.async_copy import Wait

def read(operation: Operation) -> None:
    if isinstance(operation, Load):
        assert_type(operation.pointer, Value)
        assert_type(operation.mask, Value | None)
        assert_type(operation.volatile, bool)
        assert_type(operation.eviction, Literal["normal", "first", "last"])
        operation.value  # attr-defined
        operation.mask.type  # union-attr
        operation.eviction == "never"  # comparison-overlap
    if isinstance(operation, For):
        assert_type(operation.inits, list[Value])
        assert_type(operation.num_stages, int)
        assert_type(operation.body, Region)
    if isinstance(operation, If):
        assert_type(operation.else_, Region)
    operation.pointer  # attr-defined

def axis(cmp: Cmp, arange: Arange, wait: Wait) -> None:
    assert_type(cmp.predicate, Literal["eq", "ne", "lt", "le", "gt", "ge"])
    assert_type(arange.end - arange.start, int)
    assert_type(wait.tokens, list[Value])
    cmp.a = cmp.b  # misc
"""


def mypy(files: Sequence[Path], folder: Path) -> str:
    pytest.importorskip("mypy")
    options = [
        "--config-file=",
        "--check-untyped-defs",
        "--ignore-missing-imports",
        "--explicit-package-bases",
        "--cache-dir",
        str(folder / "cache"),
    ]
    paths = [str(folder), str(EXAMPLES), *([str(SOURCES)] if SOURCES.name == "src" else [])]
    environment = {**os.environ, "MYPYPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-m", "mypy", *options, *map(str, files)]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        cwd=folder,
        env=environment,
    ).stdout


def pyright(files: Sequence[Path], folder: Path) -> str:
    found = shutil.which(
        "basedpyright",
        path=os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", ""))),
    )
    if found is None:
        pytest.skip("basedpyright is not installed")
    extra = [str(SOURCES), str(EXAMPLES), str(EXAMPLES / "kernels")]
    chosen = {"include": [*map(str, files)], "typeCheckingMode": "standard", "extraPaths": extra}
    (folder / "pyrightconfig.json").write_text(json.dumps(chosen))
    command = [found, "--level", "error", "--pythonpath", sys.executable, "--project", str(folder)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=600, check=False, cwd=folder
    ).stdout


#: It takes five times as long as the other, and `make lint` has it check the packages.
MYPY = pytest.param(mypy, marks=pytest.mark.full)


@pytest.fixture(scope="module", params=[MYPY, pyright])
def said(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The lines of a type checker about the README's program, the examples' kernels, the demo, a
    file of mistakes, and for mypy a program that reads operations' fields."""
    folder = tmp_path_factory.mktemp("types")
    (source,) = re.findall(
        r"```python\n(.*?)```", (REPOSITORY / "README.md").read_text(), re.DOTALL
    )
    (folder / "readme_program.py").write_text(source)
    (folder / "mistakes.py").write_text(MISTAKES)
    (folder / "fields.py").write_text(FIELDS)
    files = [
        folder / "readme_program.py",
        *sorted((EXAMPLES / "kernels").glob("*.py")),
        EXAMPLES / "demo.py",
        folder / "mistakes.py",
        *([folder / "fields.py"] if request.param is mypy else []),
    ]
    return request.param(files, folder).splitlines()


@pytest.mark.slow
def test_the_readme_the_examples_and_the_demo_are_right(said: list[str]) -> None:
    errors = [line for line in said if " error: " in line or " - error" in line]
    expected = ("mistakes.py", "fields.py")
    assert errors and not [line for line in errors if not any(name in line for name in expected)], (
        said
    )


@pytest.mark.slow
def test_mistakes_are_found(said: list[str]) -> None:
    """At their lines; mypy says what they are, too."""
    found = {
        (int(line), kind)
        for line, kind in re.findall(
            r"mistakes\.py:(\d+)(?:: error: .*\[([\w-]+)\]$|:\d+ - error)",
            "\n".join(said),
            re.MULTILINE,
        )
    }
    wanted = {
        (number, line.rpartition("# ")[2])
        for number, line in enumerate(MISTAKES.splitlines(), 1)
        if "# " in line
    }
    assert found in (wanted, {(number, "") for number, _ in wanted}), said


@pytest.mark.slow
@pytest.mark.parametrize("said", [MYPY], indirect=True)
def test_mypy_knows_the_fields_of_operations(said: list[str]) -> None:
    found = re.findall(r"fields\.py:(\d+): error: .*\[([\w-]+)\]", "\n".join(said))
    assert [(int(line), kind) for line, kind in found] == [
        (number, line.rpartition("  # ")[2])
        for number, line in enumerate(FIELDS.splitlines(), 1)
        if "  # " in line
    ], said


def test_signatures_are_those_of_the_functions():
    """Overloads of a function have its parameters, too, some of them by keyword alone."""
    functions = {
        name: value
        for name, value in vars(standard).items()
        if isinstance(value, JitCallable) and name in standard.__all__
    }
    declared = [
        node for node in ast.parse(STUBS.read_text()).body if isinstance(node, ast.FunctionDef)
    ]
    hidden = {"_argmax_combine", "_argmin_combine", "_log2", "sort_impl"}
    assert {node.name for node in declared} == functions.keys() - hidden
    for node in declared:
        parameters = inspect.signature(functions[node.name].fn).parameters
        arguments = [*node.args.args, *node.args.kwonlyargs]
        assert [argument.arg for argument in arguments] == list(parameters), node.name
        without = len(node.args.args) - len(node.args.defaults)
        defaults = [None] * without + node.args.defaults + node.args.kw_defaults
        for parameter, default in zip(parameters.values(), defaults, strict=True):
            if default is None:  # an overload asks for what has a default
                assert parameter.default is inspect.Parameter.empty or node.decorator_list, (
                    node.name,
                    parameter.name,
                )
            elif not (isinstance(default, ast.Constant) and default.value is ...):
                assert ast.literal_eval(default) == parameter.default, (node.name, parameter.name)
