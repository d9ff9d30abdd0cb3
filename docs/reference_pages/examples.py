"""A probe as a program of its own, as its page shows it: imports, kernels, data, launch,
comparison.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from types import FunctionType, ModuleType
from typing import Any

from tilewright.language.definitions.callable import JitCallable
from tilewright_conformance.api_coverage.probes import Probe

_LAUNCH = re.compile(r"\bon\((\w+(?:\.\w+)*)\)\[")
_MACHINE_IMPORT = "from tilewright_conformance.api_coverage.probes import BackendMachine"
_MACHINE = 'on = BackendMachine("cpu")  # one of several places to run'


def program(probe: Probe) -> str:
    """The Python text of a probe. It runs on the backend that the process would choose."""
    module = inspect.getmodule(probe.body)
    assert module is not None
    body = _body_of(probe.body)
    parts: dict[str, str] = {}
    _collect(body, module, parts)
    text = _LAUNCH.sub(r"\1[", "\n\n\n".join([*parts.values(), ""]) + _data(body))
    imports = _imports(text, module)
    if re.search(r"\bon\b[.,()]", text):
        imports = f"{imports}\n{_MACHINE_IMPORT}\n\n{_MACHINE}"
    return f"{imports}\n\n\n{text}"


def _data(body: str) -> str:
    """The statements of a probe, inside a function where they return early."""
    lines = "rng = np.random.default_rng(0)\n" if re.search(r"\brng\b", body) else ""
    if any(isinstance(node, ast.Return) for node in ast.walk(ast.parse(body))):
        return f"def example():\n{textwrap.indent(lines + body, '    ')}\n\n\nexample()\n"
    return f"{lines}{body}\n"


def _body_of(function: Any) -> str:
    """The statements of a function, without its docstring."""
    source = textwrap.dedent(inspect.getsource(function))
    node = ast.parse(source).body[0]
    assert isinstance(node, ast.FunctionDef)
    statements = node.body[1:] if ast.get_docstring(node) else node.body
    return textwrap.dedent("\n".join(source.splitlines()[statements[0].lineno - 1 :]))


def _collect(text: str, module: ModuleType, parts: dict[str, str]) -> None:
    """Add the source of everything of ``module`` that ``text`` uses, what it uses in turn before
    it.
    """
    for node in ast.walk(ast.parse(text)):
        name = node.id if isinstance(node, ast.Name) else ""
        found = module.__dict__.get(name)
        if not name or name in parts or not _is_defined_in(found, module, name):
            continue
        source = _source(found, module, name)
        parts[name] = ""  # a function that calls itself is met again
        _collect(source, module, parts)
        del parts[name]
        parts[name] = source.rstrip()


def _is_defined_in(found: Any, module: ModuleType, name: str) -> bool:
    if found is None or isinstance(found, ModuleType):
        return False
    if isinstance(found, JitCallable | FunctionType | type) or hasattr(found, "__wrapped__"):
        return getattr(found, "__module__", None) == module.__name__
    return _assignment(module, name) is not None


def _source(found: Any, module: ModuleType, name: str) -> str:
    if isinstance(found, JitCallable):
        return "\n".join(line.rstrip("\n") for line in found.raw_src)
    if (isinstance(found, FunctionType | type) or hasattr(found, "__wrapped__")) and _assignment(
        module, name
    ) is None:
        return _class_source(module, name) if isinstance(found, type) else inspect.getsource(found)
    assigned = _assignment(module, name)
    assert assigned is not None
    return assigned


def _class_source(module: ModuleType, name: str) -> str:
    source = inspect.getsource(module)
    node = next(
        node
        for node in ast.parse(source).body
        if isinstance(node, ast.ClassDef) and node.name == name
    )
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    return "\n".join(source.splitlines()[first - 1 : node.end_lineno])


def _assignment(module: ModuleType, name: str) -> str | None:
    """The statement of a module that assigns a name."""
    source = inspect.getsource(module)
    for node in ast.parse(source).body:
        targets = (
            node.targets
            if isinstance(node, ast.Assign)
            else [node.target]
            if isinstance(node, ast.AnnAssign)
            else []
        )
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            return ast.get_source_segment(source, node)
    return None


def _imports(text: str, module: ModuleType) -> str:
    """The imports of a module that a text uses."""
    source = inspect.getsource(module)
    used = {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}
    lines: list[str] = []
    for node in ast.parse(source).body:
        if (
            not isinstance(node, ast.Import | ast.ImportFrom)
            or getattr(node, "module", None) == "__future__"
        ):
            continue
        kept = [
            alias for alias in node.names if (alias.asname or alias.name).partition(".")[0] in used
        ]
        if kept:
            names = ", ".join(
                f"{alias.name} as {alias.asname}" if alias.asname else alias.name for alias in kept
            )
            lines.append(
                f"from {node.module} import {names}"
                if isinstance(node, ast.ImportFrom)
                else f"import {names}"
            )
    return "\n".join(lines)
