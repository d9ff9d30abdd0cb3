"""What type checkers make of kernels: the README's and every example's are right, mistakes in them are found, and signatures are those of the functions."""

from __future__ import annotations

import ast
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tilewright
from tilewright.language import standard
from tilewright.language.callable import JitCallable

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


def mypy(*files: Path, cache: Path) -> subprocess.CompletedProcess[str]:
    pytest.importorskip("mypy")
    command = [sys.executable, "-m", "mypy", "--config-file=", "--check-untyped-defs", "--ignore-missing-imports", "--cache-dir", str(cache), *map(str, files)]
    paths = [str(EXAMPLES), *([str(SOURCES)] if SOURCES.name == "src" else [])]
    environment = {**os.environ, "MYPYPATH": os.pathsep.join(paths)}
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, cwd=cache, env=environment)


def pyright(*files: Path, cache: Path) -> subprocess.CompletedProcess[str]:
    found = shutil.which("basedpyright", path=os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", ""))))
    if found is None:
        pytest.skip("basedpyright is not installed")
    for file in files:
        shutil.copy(file, cache / f"checked_{file.name}")
    chosen = {"include": ["checked_*.py"], "typeCheckingMode": "standard", "extraPaths": [str(SOURCES), str(EXAMPLES), str(EXAMPLES / "kernels")]}
    (cache / "pyrightconfig.json").write_text(json.dumps(chosen))
    command = [found, "--level", "error", "--pythonpath", sys.executable, "--project", str(cache)]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, cwd=cache)


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("types")


def programs(folder: Path) -> list[Path]:
    """The README's program, and the examples' kernels."""
    (source,) = re.findall(r"```python\n(.*?)```", (REPOSITORY / "README.md").read_text(), re.DOTALL)
    (folder / "readme_program.py").write_text(source)
    return [folder / "readme_program.py", *sorted((EXAMPLES / "kernels").glob("*.py"))]


@pytest.mark.slow
@pytest.mark.parametrize("checker", [mypy, pyright])
def test_the_readme_and_the_examples_are_right(checker, cache):
    done = checker(*programs(cache), cache=cache)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("checker", [mypy, pyright])
def test_the_demo_is_right(checker, tmp_path):
    done = checker(EXAMPLES / "demo.py", cache=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_mistakes_are_found(cache):
    file = cache / "mistakes.py"
    file.write_text(MISTAKES)
    found = {(int(line), kind) for line, kind in re.findall(r"mistakes\.py:(\d+): error: .*\[([\w-]+)\]", mypy(file, cache=cache).stdout)}
    wanted = {(number, line.rpartition("# ")[2]) for number, line in enumerate(MISTAKES.splitlines(), 1) if "# " in line}
    assert found == wanted


@pytest.mark.slow
def test_mistakes_are_found_by_pyright_too(cache, tmp_path):
    file = cache / "mistakes.py"
    file.write_text(MISTAKES)
    done = pyright(file, cache=tmp_path)
    found = {int(line) for line in re.findall(r"checked_mistakes\.py:(\d+):\d+ - error", done.stdout)}
    assert found == {number for number, line in enumerate(MISTAKES.splitlines(), 1) if "# " in line}, done.stdout


def test_signatures_are_those_of_the_functions():
    """Overloads of a function have its parameters, too, some of them by keyword alone."""
    functions = {name: value for name, value in vars(standard).items() if isinstance(value, JitCallable) and name in standard.__all__}
    declared = [node for node in ast.parse(STUBS.read_text()).body if isinstance(node, ast.FunctionDef)]
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
                assert parameter.default is inspect.Parameter.empty or node.decorator_list, (node.name, parameter.name)
            elif not (isinstance(default, ast.Constant) and default.value is ...):
                assert ast.literal_eval(default) == parameter.default, (node.name, parameter.name)
