"""Switches of the broken backend: named bugs, made of wrappers around a working backend's hooks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tilewright.ir import Module
from tilewright.plugins.manifest import Launcher, Parameter
from tilewright_conformance.mutation.rewriting import Rewrite, rewritten


class Healthy:
    """The hooks of the working backend: ``healthy("tilewright_lower", module=...)``.

    ``kept`` is memory of one broken backend, for bugs of caches.
    """

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call
        self.kept: dict[Any, Any] = {}

    def __call__(self, hook: str, /, **arguments: Any) -> Any:
        return self._call(hook, **arguments)


#: A hook with a bug: (the hooks that work, **the hook's arguments) -> the hook's result.
Wrapper = Callable[..., Any]


@dataclass(frozen=True)
class Switch:
    """One bug.

    Attributes:
        name: lower-case words joined by ``-``; the backend that has the bug is called
            ``broken-<name>``.
        bug_class: what a table of bugs files it under.
        description: what the backend does in place of what it should do.
        hooks: the hooks it changes.
        operations: the operations that come out wrong, where there are any: their samples show it.
    """

    name: str
    bug_class: str
    description: str
    hooks: Mapping[str, Wrapper] = field(repr=False)
    operations: tuple[str, ...] = ()


def rewriting(
    name: str, bug_class: str, operations: str, rewrite: Rewrite, description: str, **own: Any
) -> Switch:
    """A bug of the lowering of some operations, whose names are separated by blanks.

    ``own`` are launch options that lowering gets in place of the user's.
    """
    names = tuple(operations.split())

    def lower(healthy: Healthy, *, module: Module, target: Any, options: Mapping[str, Any]) -> Any:
        return healthy(
            "tilewright_lower",
            module=rewritten(module, names, rewrite),
            target=target,
            options={**options, **own},
        )

    return Switch(name, bug_class, description, {"tilewright_lower": lower}, names)


Grid = tuple[int, int, int]
#: (grid, argument values, parameters) -> the grid and values that the kernel is started with in
#: their place.
Disturb = Callable[[Grid, tuple[Any, ...], tuple[Parameter, ...]], tuple[Grid, tuple[Any, ...]]]


def disturbing(
    name: str, bug_class: str, disturb: Disturb, description: str, operations: str = ""
) -> Switch:
    """A bug on the way of grid and arguments to the kernel."""

    def launcher(healthy: Healthy, *, loaded: Any, parameters: Any, options: Any) -> Launcher:
        start = healthy(
            "tilewright_launcher", loaded=loaded, parameters=parameters, options=options
        )
        known = tuple(parameters)

        def launch(grid: Grid, stream: Any, values: tuple[Any, ...]) -> None:
            grid, values = disturb(grid, tuple(values), known)
            start(grid, stream, values)

        return launch

    return Switch(
        name, bug_class, description, {"tilewright_launcher": launcher}, tuple(operations.split())
    )
