"""From a record to what compiles it: the kernel's object and, as ``triton.compiler.ASTSource``
takes
them, types, constants and attributes. Under Triton and under Tilewright's shim alike.

    with load.pretended():
        kernel = load.kernel(launch)
        source = load.source(launch)
    triton.compile(source, target=GPUTarget("cuda", 90, 32), options=load.options(launch))
"""

from __future__ import annotations

import contextlib
import enum
import functools
import importlib
import importlib.util
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from corpus.compiled_parts import replace_compiled_parts
from corpus.launches import Argument, Launch

#: Position of a parameter, and of an item within it where it is a tuple.
Path = tuple[int, ...]


def pretended() -> contextlib.AbstractContextManager[Any]:
    """A context in which packages are imported: they find an H100, as they did when their launches
    were recorded.
    """
    from corpus.pretended import Hopper

    return Hopper(fake=False)


def kernel(launch: Launch) -> Any:
    """The kernel, out of its autotuner and heuristics.

    Raises:
        ModuleNotFoundError: the package, or what it needs, is not installed.
        AttributeError: the package has no such kernel in this version.
    """
    return innermost(_named(launch.module, launch.kernel))


def innermost(found: Any) -> Any:
    """The kernel that an autotuner, heuristics or a wrapper of a package's has inside."""
    jit_function = importlib.import_module("triton.runtime.jit").JITFunction
    while not isinstance(found, jit_function):
        inside = [
            vars(found)[name]
            for name in ("fn", "jit_function", "kernel")
            if name in getattr(found, "__dict__", ())
        ]
        if not inside:
            raise TypeError(f"{found!r} has no kernel inside")
        found = inside[0]
    return found


def source(launch: Launch) -> Any:
    """The ``ASTSource`` of a launch."""
    found = kernel(launch)
    constants, attributes = specialization(launch)
    return importlib.import_module("triton.compiler").ASTSource(
        found, signature(launch), constants, attributes
    )


def signature(launch: Launch) -> dict[str, Any]:
    """The type of each parameter by name."""
    return launch.signature


def specialization(launch: Launch) -> tuple[dict[Path, Any], dict[Path, Any]]:
    """(constants, attributes) by path, as ``ASTSource`` takes them."""
    constants: dict[Path, Any] = {}
    attributes: dict[Path, Any] = {}
    for path, argument in paths(launch.arguments):
        if argument.type == "constexpr":
            constants[path] = constant(argument.value)
        elif argument.aligned:
            attributes[path] = [["tt.divisibility", 16]]
    return constants, attributes


def options(launch: Launch) -> dict[str, Any]:
    """The launch options."""
    return {name: constant(value) for name, value in launch.options.items()}


def paths(arguments: tuple[Argument, ...], above: Path = ()) -> Iterator[tuple[Path, Argument]]:
    """All arguments with their paths; of tuples the items."""
    for number, argument in enumerate(arguments):
        if argument.items is None:
            yield (*above, number), argument
        else:
            yield from paths(argument.items, (*above, number))


def constant(value: Any) -> Any:
    """The value that a record writes as JSON has it.

    Raises:
        ValueError: it stands for an object that records cannot tell of.
    """
    if not isinstance(value, dict):
        return value
    ((kind, text), *_) = value.items()
    if kind not in _CONSTANTS:
        raise ValueError(f"a record cannot tell what {text} was")
    return _CONSTANTS[kind](value)


def _dtype(value: Mapping[str, Any]) -> Any:
    language = importlib.import_module("triton.language")
    return (
        language.str_to_ty(value["dtype"], None)
        if hasattr(language, "str_to_ty")
        else language.dtype(value["dtype"])
    )


def _member(value: Mapping[str, Any]) -> enum.Enum:
    module, _, name = value["enum"].partition(":")
    found: enum.Enum = _named(module, name)[value["name"]]
    return found


#: What the first key of an object says -> the value.
_CONSTANTS: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "dtype": _dtype,
    "enum": _member,
    "float": lambda value: float(value["float"]),
    "function": lambda value: _named(*value["function"].split(":")),
    "tuple": lambda value: tuple(map(constant, value["tuple"])),
}


@functools.cache
def _named(module: str, name: str) -> Any:
    """What a module has under a name, with dots for attributes."""
    _prepare(module.partition(".")[0])
    return functools.reduce(getattr, name.split("."), importlib.import_module(module))


@functools.cache
def _prepare(package: str) -> None:
    """Do what the program that captured a package's launches does before it imports the package."""
    replace_compiled_parts()
    if importlib.util.find_spec(f"corpus.programs.{package}") is not None:
        program = importlib.import_module(f"corpus.programs.{package}")
        getattr(program, "prepare", lambda: None)()
