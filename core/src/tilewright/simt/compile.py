"""All of the toolkit in order: from a module of Tile IR to LLVM IR for one thread."""

from __future__ import annotations

import time
from collections.abc import Mapping, MutableMapping
from typing import Any

from tilewright.ir.core import Function, Module
from tilewright.simt.assign import assign
from tilewright.simt.assignment import Assignment
from tilewright.simt.barriers import insert_barriers
from tilewright.simt.expand import prepare
from tilewright.simt.lower import lower_function
from tilewright.simt.notes import warn_slow
from tilewright.simt.pipeline import pipeline
from tilewright.simt.shared_memory import allocate
from tilewright.simt.target import SimtTarget


def compile_kernel(module: Module, target: SimtTarget, options: Mapping[str, Any], timings: MutableMapping[str, float] | None = None) -> tuple[str, Assignment]:
    """LLVM IR text of a module's kernel, and what was decided on the way. The module is changed.

    Args:
        options: the launch options; ``num_warps`` and ``num_stages`` among them.
        timings: gets the milliseconds of each stage added.

    Raises:
        OutOfResources: a program needs more shared memory or threads than the target has.
        LoweringError: an operation that the target cannot do.
    """
    clock = _Clock(timings)
    prepare(module, target)
    clock.lap("expand")
    function = kernel_of(module)
    assignment = assign(function, target, options["num_warps"], options)
    clock.lap("layouts")
    pipeline(function, target, assignment, options)
    clock.lap("pipeline")
    allocate(function, assignment, target)
    insert_barriers(function, assignment, target)
    clock.lap("shared memory")
    text = lower_function(function, target, assignment, options)
    clock.lap("emit")
    warn_slow(function, assignment)
    return text, assignment


def kernel_of(module: Module) -> Function:
    """The module's kernel."""
    (function,) = (function for function in module.functions.values() if function.kernel)
    return function


class _Clock:
    def __init__(self, timings: MutableMapping[str, float] | None) -> None:
        self._timings, self._last = timings, time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        if self._timings is not None:
            self._timings[name] = self._timings.get(name, 0.0) + (now - self._last) * 1e3
        self._last = now
