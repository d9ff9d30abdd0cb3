"""What the modules of the seven distributions import of each other, at their top, within functions
and for types alone: no large circles, no private names."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest
from source_trees import nodes_of, tree_of

ROOT = Path(__file__).resolve().parents[2]
DISTRIBUTIONS = {
    "tilewright": "core/src",
    "tilewright_cpu": "backends/cpu/src",
    "tilewright_nvidia": "backends/nvidia/src",
    "tilewright_amd": "backends/amd/src",
    "tilewright_amd_emulator": "backends/amd/emulator/src",
    "tilewright_conformance": "conformance/src",
    "tilewright_kernels": "kernels/src",
}

#: Files that may need each other: so many can be read as one.
LIMIT = 3
#: Packages that are one interface in several files, none of which imports another for more than
#: annotations.
INTERFACES = ("tilewright.simt.target.capabilities",)

#: The comment that says, in a function that imports a module by a computed name, who names it. All
#: other imports of ours can be read in the sources.
COMPUTED = re.compile(r"# computed: \w")


class Import(NamedTuple):
    """``name`` of the module ``source``, imported by ``module``; a submodule of ``source``, or the
    empty text for ``source`` itself."""

    module: str
    source: str
    name: str
    line: int


@functools.cache
def modules() -> Mapping[str, Path]:
    """The file of each module, by dotted name."""
    found = {}
    for package, folder in DISTRIBUTIONS.items():
        for file in sorted((ROOT / folder / package).rglob("*.py")):
            parts = file.relative_to(ROOT / folder).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


@functools.cache
def text_of(module: str) -> str:
    return modules()[module].read_text()


def lazy_imports(tree: ast.Module) -> ast.FunctionDef | None:
    """The function by which a package imports what it has the names of when it is first asked for
    it."""
    return next(
        (
            node
            for node in tree.body
            if isinstance(node, ast.FunctionDef) and node.name == "__getattr__"
        ),
        None,
    )


def is_import_call(node: ast.AST) -> bool:
    """Whether it calls ``import_module`` or ``__import__``."""
    return isinstance(node, ast.Call) and getattr(
        node.func, "attr", getattr(node.func, "id", "")
    ) in ("import_module", "__import__")


def computed_imports(text: str) -> list[int]:
    """The lines that import a module whose name is not written there, but for those of a lazy
    package, whose names :func:`imports_of` sees."""
    if "import_module" not in text and "__import__" not in text:
        return []
    lazy = lazy_imports(tree_of(text))
    seen = {id(node) for node in ast.walk(lazy)} if lazy is not None else set()
    calls = [
        node
        for node in nodes_of(text)
        if isinstance(node, ast.Call) and is_import_call(node) and id(node) not in seen
    ]
    return [
        call.lineno for call in calls if not call.args or not isinstance(call.args[0], ast.Constant)
    ]


@functools.cache
def imports_of(module: str) -> tuple[Import, ...]:
    """All imports of our modules, of every kind; also those by ``import_module`` of a written name,
    and of modules that a lazy package has the names of."""
    return tuple(_imports_of(module))


def _imports_of(module: str) -> Iterator[Import]:
    lazy = lazy_imports(tree_of(text_of(module))) is not None
    for node in nodes_of(text_of(module)):
        if isinstance(node, ast.ImportFrom):
            assert not node.level, f"{module}:{node.lineno} imports relatively"
            if node.module in modules():
                yield from (
                    Import(module, node.module, alias.name, node.lineno) for alias in node.names
                )
        elif isinstance(node, ast.Import):
            yield from (
                Import(module, alias.name, "", node.lineno)
                for alias in node.names
                if alias.name in modules()
            )
        elif isinstance(node, ast.Call) and is_import_call(node) and node.args:
            named = node.args[0]
            if isinstance(named, ast.Constant) and named.value in modules():
                yield Import(module, named.value, "", node.lineno)
        elif lazy and isinstance(node, ast.Constant):
            yield from (
                Import(module, name, "", node.lineno)
                for name in (str(node.value), f"{module}.{node.value}")
                if name in modules()
            )


def needs() -> dict[str, set[str]]:
    """The modules that each module imports. What a package's folder has is imported from there, not
    from the package."""
    graph: dict[str, set[str]] = {}
    for module in modules():
        found = {
            f"{one.source}.{one.name}" if f"{one.source}.{one.name}" in modules() else one.source
            for one in imports_of(module)
        }
        graph.setdefault(_joined(module), set()).update(map(_joined, found))
    return {module: found - {module} for module, found in graph.items()}


def _joined(module: str) -> str:
    """The package of a module of :data:`INTERFACES`, else the module."""
    return next((package for package in INTERFACES if module.startswith(f"{package}.")), module)


def circles(graph: Mapping[str, set[str]]) -> list[set[str]]:
    """The sets of modules of which each needs each other, the largest first."""
    left = {module: set(needed) for module, needed in graph.items()}
    while (
        True
    ):  # what needs nothing that is left, or is needed by nothing that is left, is in no circle
        needed = set().union(*left.values())
        kept = {module for module, own in left.items() if own & left.keys() and module in needed}
        if len(kept) == len(left):
            break
        left = {module: left[module] & kept for module in kept}
    users: dict[str, set[str]] = {module: set() for module in left}
    for module, own in left.items():
        for other in own:
            users[other].add(module)
    found = []
    while left:
        start = min(left)
        circle = _reached(start, left) & _reached(start, users)
        found.append(circle)
        for module in circle:
            del left[module], users[module]
    return sorted(
        (circle for circle in found if len(circle) > 1),
        key=lambda circle: (-len(circle), min(circle)),
    )


def _reached(start: str, edges: Mapping[str, set[str]]) -> set[str]:
    reached, pending = {start}, [start]
    while pending:
        for other in edges[pending.pop()] & edges.keys():
            if other not in reached:
                reached.add(other)
                pending.append(other)
    return reached


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        ({"a": {"b"}, "b": {"c"}, "c": set()}, []),
        ({"a": {"b"}, "b": {"a", "c"}, "c": {"d"}, "d": {"c"}}, [{"a", "b"}, {"c", "d"}]),
        (
            {"z": {"a"}, "a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": {"d"}},
            [{"a", "b", "c"}, {"d", "e"}],
        ),
        ({"a": {"b", "c"}, "b": {"a"}, "c": {"d"}, "d": {"a"}}, [{"a", "b", "c", "d"}]),
    ],
)
def test_circles_are_found(graph: dict[str, set[str]], expected: list[set[str]]) -> None:
    assert circles(graph) == expected


def test_no_circle_of_imports_is_larger_than_one_can_read() -> None:
    told = [
        f"{len(circle)} modules need each other, and {LIMIT} may: {', '.join(sorted(circle))}"
        for circle in circles(needs())
        if len(circle) > LIMIT
    ]
    assert not told, "\n".join(told)


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("import importlib\nimportlib.import_module('a.b')", []),
        ("import importlib\nfor n in ('a', 'b'):\n    importlib.import_module(f'x.{n}')", [3]),
        ("def f(n):\n    return import_module(name=n)", [2]),
        ("def f(n):\n    return __import__(n)", [2]),
        ("def __getattr__(name):\n    return import_module(f'{__name__}.{name}')", []),
    ],
)
def test_computed_imports_are_found(text: str, lines: list[int]) -> None:
    assert computed_imports(text) == lines


def unexplained_imports(text: str) -> list[int]:
    """Return the lines of computed imports without a comment above or in their function."""
    computed, lines = computed_imports(text), text.split("\n")
    if not computed:
        return []
    explained = {
        line
        for node in nodes_of(text)
        if isinstance(node, ast.FunctionDef)
        and any(map(COMPUTED.search, lines[node.lineno - 1 : node.end_lineno]))
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    return [
        line for line in computed if line not in explained and not COMPUTED.search(lines[line - 2])
    ]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("def f(n):\n    return import_module(n)", [2]),
        ("def f(n):\n    # computed: the user names it\n    return import_module(n)", []),
        ("# computed: the user names it\ndef f(n):\n    return import_module(n)", [3]),
        ("for n in ():\n    # computed: own modules\n    import_module(n)", []),
    ],
)
def test_computed_imports_are_explained_in_place(text: str, lines: list[int]) -> None:
    assert unexplained_imports(text) == lines


def test_imports_can_be_read_in_the_sources() -> None:
    """A loop over ``import_module(f"package.{name}")`` would hide a circle from the test above."""
    texts = {module: text_of(module) for module in modules()}
    wrong = [
        f"{module}:{line} imports a module whose name is computed: write the import, or have a "
        "table handed in; a comment `# computed: ...` says who else names the module"
        for module, text in texts.items()
        for line in unexplained_imports(text)
    ]
    wrong += [
        f"{module} imports nothing by a computed name: its comment is not needed"
        for module, text in texts.items()
        if COMPUTED.search(text) and not computed_imports(text)
    ]
    assert not wrong, "\n".join(wrong)


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def private_names(module: str) -> Iterator[str]:
    """The private names of other modules that a module imports or takes of a module that it
    imported; private modules belong to the folder they are in."""
    aliases: dict[str, str] = {}
    for node in nodes_of(text_of(module)):
        if isinstance(node, ast.ImportFrom) and node.module in modules():
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                if whole in modules():
                    aliases[alias.asname or alias.name] = whole
        elif isinstance(node, ast.Import):
            aliases.update(
                (alias.asname, alias.name)
                for alias in node.names
                if alias.asname and alias.name in modules()
            )
    for one in imports_of(module):
        whole = (
            f"{one.source}.{one.name}" if f"{one.source}.{one.name}" in modules() else one.source
        )
        if whole == one.source and is_private(one.name):
            yield f"{module}:{one.line} imports {one.name} of {one.source}"
        parts = whole.split(".")
        owners = [".".join(parts[:place]) for place, part in enumerate(parts) if is_private(part)]
        yield from (
            f"{module}:{one.line} imports {whole}, which is {owner}'s"
            for owner in owners
            if not f"{module}.".startswith(f"{owner}.")
        )
    for node in nodes_of(text_of(module)):
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id in aliases
            and is_private(node.attr)
        ):
            yield f"{module}:{node.lineno} takes {node.attr} of {aliases[node.value.id]}"


def test_no_module_uses_the_private_names_of_another() -> None:
    told = [line for module in modules() for line in private_names(module)]
    assert not told, "\n".join(told)


def test_a_module_of_the_package_is_imported_without_asking_backends():
    """``from tilewright import MODULE`` asks the package for an attribute first."""
    code = (
        "from tilewright import child_process; from tilewright.plugins.registry import registry; "
        "print(child_process.__name__, registry()._loaded)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "tilewright.child_process {}\n"
