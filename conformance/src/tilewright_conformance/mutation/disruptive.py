"""Bugs worse than wrong results: backends that end the process, hang, or take all memory.

Only kernels with a certain operation in them do it: ``sqrt``, or the one that the environment
variable ``TILEWRIGHT_BROKEN_TRIGGER`` names.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.errors import LaunchError
from tilewright.ir import Module
from tilewright.plugins.manifest import CodeObject, Launcher, Parameter
from tilewright_conformance.mutation.mutant import Grid, Healthy, Switch

ENVIRONMENT = "TILEWRIGHT_BROKEN_TRIGGER"
_MARK = "disruptive"
#: Bytes that each launch of the leaking backend keeps.
LEAK = 1 << 28

_kept: list[Any] = []


def _is_chosen(module: Module) -> bool:
    """Return whether a kernel has the operation that triggers the bug."""
    trigger = os.environ.get(ENVIRONMENT, "sqrt")
    return any(operation.name == trigger for operation in module.walk())


def _marked(
    healthy: Healthy, *, module: Module, target: Any, options: Mapping[str, Any]
) -> CodeObject:
    """The code, with a note in its metadata whether the kernel has the operation."""
    code: CodeObject = healthy("tilewright_lower", module=module, target=target, options=options)
    code.metadata[_MARK] = _is_chosen(module)
    return code


def _loaded(healthy: Healthy, *, code: CodeObject, device: Any) -> Any:
    loaded = healthy("tilewright_load", code=code, device=device)
    if code.metadata[_MARK]:
        healthy.kept[id(loaded)] = loaded
    return loaded


def _on_launch(disrupt: Callable[[], None]) -> Mapping[str, Callable[..., Any]]:
    def launcher(
        healthy: Healthy,
        *,
        loaded: Any,
        parameters: Sequence[Parameter],
        options: Mapping[str, Any],
    ) -> Launcher:
        start = healthy(
            "tilewright_launcher", loaded=loaded, parameters=parameters, options=options
        )
        if healthy.kept.get(id(loaded)) is not loaded:
            return start

        def launch(grid: Grid, stream: Any, values: tuple[Any, ...]) -> None:
            disrupt()
            start(grid, stream, values)

        return launch

    return {
        "tilewright_lower": _marked,
        "tilewright_load": _loaded,
        "tilewright_launcher": launcher,
    }


def _in_lowering(disrupt: Callable[[], None]) -> Mapping[str, Callable[..., Any]]:
    def lower(
        healthy: Healthy, *, module: Module, target: Any, options: Mapping[str, Any]
    ) -> CodeObject:
        if _is_chosen(module):
            disrupt()
        return healthy("tilewright_lower", module=module, target=target, options=options)

    return {"tilewright_lower": lower}


def _sleep() -> None:
    while True:
        time.sleep(3600)


def _leak() -> None:
    _kept.append(np.ones(LEAK, np.uint8))


def _read_nowhere() -> None:
    import ctypes

    ctypes.string_at(8)


def _raise_wrongly() -> None:
    raise RuntimeError("an exception that is none of Tilewright's")


def _refuse() -> None:
    raise LaunchError("a launch that is refused for no reason")


def _exit() -> None:
    os._exit(0)


SWITCHES: tuple[Switch, ...] = (
    Switch("crash-on-launch", "crash", "a launch aborts the process", _on_launch(os.abort)),
    Switch(
        "segfault-on-launch",
        "crash",
        "a launch reads where no memory is",
        _on_launch(_read_nowhere),
    ),
    Switch("crash-on-lowering", "crash", "lowering aborts the process", _in_lowering(os.abort)),
    Switch(
        "exit-on-lowering", "crash", "lowering ends the process with status 0", _in_lowering(_exit)
    ),
    Switch("hang-on-launch", "hang", "a launch does not end", _on_launch(_sleep)),
    Switch("hang-on-lowering", "hang", "lowering does not end", _in_lowering(_sleep)),
    Switch("leak-on-launch", "leak", "each launch keeps 256 MiB", _on_launch(_leak)),
    Switch(
        "foreign-exception",
        "crash",
        "lowering raises an exception that is none of Tilewright's",
        _in_lowering(_raise_wrongly),
    ),
    Switch(
        "refusal-on-launch", "refusal", "a launch is refused for no reason", _on_launch(_refuse)
    ),
)
