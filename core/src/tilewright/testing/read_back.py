"""Check that a target keeps nothing between questions: kernels that are printed after a stage and
read back by another target compile to the same code, and no method changes the target."""

from __future__ import annotations

import ast
import copy
import inspect
import textwrap
from collections.abc import Callable, Collection, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from tilewright.ir.core import Module
from tilewright.ir.parser import parse_module
from tilewright.ir.printer import print_module
from tilewright.passes.clone import clone_module
from tilewright.simt.compile import STAGES, kernel_of
from tilewright.simt.lowering.lower_function import lower_function
from tilewright.simt.target.simt_target import SimtTarget

#: Methods by which containers are changed: those that their immutable kinds have not.
_CHANGING: Final = frozenset(
    name
    for kind, immutable in ((list, tuple), (set, frozenset), (dict, MappingProxyType))
    for name in set(dir(kind)) - set(dir(immutable)) - {"copy"}
)


def check_read_back(
    module: Module, new_target: Callable[[], SimtTarget], options: Mapping[str, Any]
) -> None:
    """Compile a kernel straight through, and with its text read back after every stage.

    A new target reads it.

    Raises:
        AssertionError: the LLVM IR is another one; or the target has changed. The message names
            the stages after which the text alone makes the difference.
    """
    names = [stage.name for stage in new_target().stages(STAGES)]
    target = new_target()
    before = _held(target)
    expected = _code_of(module, lambda: target, options, ())
    assert _held(target) == before, (
        f"{target.name} has changed: {_difference(before, _held(target))}"
    )
    if _code_or_error(module, new_target, options, names) != expected:
        differing = [
            one for one in names if _code_or_error(module, new_target, options, [one]) != expected
        ]
        raise AssertionError(
            f"{target.name}: kernel {kernel_of(module).name} compiles to other code where its text "
            "is read back after "
            f"{'stage ' + ', '.join(differing) if differing else 'all stages together'}"
        )


def _code_of(
    module: Module,
    new_target: Callable[[], SimtTarget],
    options: Mapping[str, Any],
    printed: Collection[str],
) -> str:
    """LLVM IR of a kernel that is printed, and read back, after the stages ``printed``."""
    module, target = clone_module(module), new_target()
    for stage in target.stages(STAGES):
        stage.run(module, target, options)
        if stage.name in printed:
            target = new_target()
            module = parse_module(print_module(module), target.dialect.table)
    return lower_function(kernel_of(module), target, options)


def _code_or_error(
    module: Module,
    new_target: Callable[[], SimtTarget],
    options: Mapping[str, Any],
    printed: Collection[str],
) -> str:
    try:
        return _code_of(module, new_target, options, printed)
    except Exception as error:  # a crash is another result
        return f"{type(error).__name__}: {error}"


def _held(target: SimtTarget) -> dict[str, Any]:
    """Return the attributes of a target and of its capabilities, with copies of containers."""
    owners = {
        "": target,
        **{f"{name}.": value for name, value in vars(target).items() if is_capability(value)},
    }
    return {
        f"{owner}{name}": copy.copy(value) if isinstance(value, list | dict | set) else value
        for owner, owned in owners.items()
        for name, value in vars(owned).items()
    }


def _difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    return ", ".join(name for name in after if name not in before or before[name] != after[name])


# ---- the text of classes


def is_capability(value: object) -> bool:
    """Return whether an attribute of a target is one of its capability objects."""
    return any(
        one.__module__.startswith("tilewright.simt.target.capabilities.")
        for one in type(value).__mro__
    )


def changes_in(class_: type) -> list[str]:
    """Return the places where methods of a class, and of its bases, change the object.

    The class is one of targets or of their capabilities. A place is ``Class.method: statement``;
    containers that the object holds count as well. ``__init__`` may change it.
    """
    return [
        found
        for one in class_.__mro__
        if one.__module__.partition(".")[0] not in ("abc", "builtins", "typing")
        for found in _changes(one)
    ]


def changes_by(target: SimtTarget) -> list[str]:
    """Return the places where methods of a target or of its capabilities change them."""
    classes = dict.fromkeys(
        [type(target), *(type(value) for value in vars(target).values() if is_capability(value))]
    )
    return [found for class_ in classes for found in changes_in(class_)]


def _changes(class_: type) -> Iterator[str]:
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(class_))).body
    assert isinstance(definition, ast.ClassDef)
    for method in definition.body:
        if isinstance(method, ast.FunctionDef) and method.name != "__init__" and method.args.args:
            own = method.args.args[0].arg
            for node in ast.walk(method):
                if any(_is_of(target, own) for target in _written(node)):
                    yield f"{class_.__name__}.{method.name}: {ast.unparse(node)}"


def _written(node: ast.AST) -> list[ast.expr]:
    """The expressions for what a node of the syntax changes."""
    match node:
        case ast.Assign() | ast.Delete():
            return [part for target in node.targets for part in _parts(target)]
        case ast.AugAssign() | ast.AnnAssign() | ast.For():
            return _parts(node.target)
        case ast.withitem(optional_vars=ast.expr() as target):
            return _parts(target)
        case ast.Call(func=ast.Attribute(value=value, attr=name)) if name in _CHANGING:
            return [value]
        case ast.Call(func=ast.Attribute(attr="__setattr__"), args=[first, *_]):
            return [ast.Attribute(first, "")]
        case ast.Call(func=ast.Name(id="setattr" | "delattr" | "vars"), args=[first, *_]):
            return [ast.Attribute(first, "")]
    return []


def _parts(target: ast.expr) -> list[ast.expr]:
    """The single targets of an assignment."""
    if isinstance(target, ast.Tuple | ast.List):
        return [part for element in target.elts for part in _parts(element)]
    return _parts(target.value) if isinstance(target, ast.Starred) else [target]


def _is_of(target: ast.expr, own: str) -> bool:
    """Return whether an expression is an attribute of the method's object, or part of one."""
    attribute = False
    while isinstance(target, ast.Attribute | ast.Subscript):
        attribute, target = True, target.value
    return attribute and isinstance(target, ast.Name) and target.id == own
