"""``triton.compiler.compiler``: compiling a kernel ahead of its launch."""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tilewright.compat.triton import knobs
from tilewright.compat.triton.backends.compiler import BaseBackend, Language, TilewrightCompiler
from tilewright.compat.triton.backends.instrumentation import EXACT_MODE, sanitized
from tilewright.compat.triton.backends.launcher import Launcher
from tilewright.compat.triton.backends.targets import GPUTarget, overridden, place_of, target_for
from tilewright.compat.triton.compiler.choice import make_backend
from tilewright.compat.triton.compiler.compiled import CompiledKernel, tell
from tilewright.compat.triton.compiler.options import tilewright_options
from tilewright.compat.triton.compiler.pipeline import compile_artifact
from tilewright.compat.triton.compiler.sources import (
    ASTSource,
    IRSource,
    NamedFunction,
    type_converters,
)
from tilewright.compat.triton.compiler.stages import Asm as AsmDict
from tilewright.compat.triton.outside import OutsideNameError
from tilewright.compat.triton.runtime.cache import get_cache_key, triton_key
from tilewright.compat.triton.runtime.driver import driver
from tilewright.plugins.manifest import Device, Target
from tilewright.plugins.registry import Backend
from tilewright.runtime.compiler.compile import Specialization, lower_module, parameters_of
from tilewright.runtime.hooks import LazyDict
from tilewright.runtime.storage.artifact import Artifact


class CompileTimer:
    """Times the parts of a compilation."""

    def __init__(self) -> None:
        self.start = time.time()
        self.ir_initialization_end: float | None = None
        self.lowering_stage_ends: list[tuple[str, float]] = []
        self.store_results_end: float | None = None

    def finished_ir_initialization(self) -> None:
        self.ir_initialization_end = time.time()

    def stage_finished(self, stage_name: str) -> None:
        self.lowering_stage_ends.append((stage_name, time.time()))

    def end(self) -> knobs.CompileTimes:
        """Return the times in microseconds.

        A compilation that never got past the frontend was a hit of the cache.
        """
        now = time.time()
        if self.ir_initialization_end is None:
            self.ir_initialization_end = now
        else:
            self.store_results_end = now
        stages, last = [], self.ir_initialization_end
        for name, end in self.lowering_stage_ends:
            stages.append((name, int((end - last) * 1e6)))
            last = end
        stored = (
            int((self.store_results_end - last) * 1e6) if self.store_results_end is not None else 0
        )
        return knobs.CompileTimes(
            int((self.ir_initialization_end - self.start) * 1e6), stages, stored
        )


def compile(
    src: Any,
    target: GPUTarget | None = None,
    options: Mapping[str, Any] | None = None,
    _env_vars: Any = None,
) -> CompiledKernel:
    """Compile a kernel; no device is needed where a target is given.

    Args:
        src: an :class:`ASTSource`, or the path of a file of Tile IR.
        target: what to compile for; the active driver's target for None.
        options: launch options by name.

    Raises:
        CompilationError: the kernel breaks a rule of the language.
        RuntimeError: no installed backend compiles for the target.
        ValueError: Triton's floating-point sanitizer is asked for, of a file of Tile IR.
    """
    if target is None:
        target = driver.active.get_current_target()
    assert isinstance(target, GPUTarget), "target must be of GPUTarget type"
    target = overridden(target)
    compiler = make_backend(target)
    assert isinstance(compiler, TilewrightCompiler)
    if not isinstance(src, ASTSource | IRSource):
        assert isinstance(src, str), "source must be either AST or a filepath"
        src = IRSource(src)
    parsed = compiler.parse_options({**(options or {}), **src.parse_options()})
    backend = compiler.backend()
    own, device = place_of(target, backend)
    own = target_for(backend, own)
    chosen = tilewright_options(backend, own, parsed.__dict__)
    mode = parsed.__dict__.get("instrumentation_mode") or knobs.compilation.instrumentation_mode
    if isinstance(src, IRSource):
        if mode == EXACT_MODE:
            raise ValueError(
                f"instrumentation mode {mode!r} computes differently from the kernel's source on, "
                "and a file of Tile IR has none. Compile the kernel's source"
            )
        return _compile_file(src, chosen, backend, own, device)
    specialization = src.specialize(chosen)
    if mode == EXACT_MODE:
        specialization = replace(
            specialization,
            options={**specialization.options, "instrumentation_mode": mode},
            before_passes=sanitized(None).preparation,
        )
    artifact, times = compile_artifact(specialization, backend, own)
    found = CompiledKernel.of(
        artifact,
        specialization,
        backend,
        own,
        device,
        type_converters(dict(specialization.signature)),
    )
    tell(found, times)
    return found


def _compile_file(
    src: IRSource,
    options: Mapping[str, Any],
    backend: Backend,
    target: Target,
    device: Device | None,
) -> CompiledKernel:
    artifact: Artifact = lower_module(src.module, options, backend, target)
    names = [parameter.name for parameter in parameters_of(src.module)]
    specialization = Specialization(
        NamedFunction(src.name, names),  # type: ignore[arg-type]
        dict.fromkeys(names, ""),
        options=dict(options),
    )
    return CompiledKernel.of(
        artifact,
        specialization,
        backend,
        target,
        device,
        [((position,), None) for position in range(len(names))],
    )


@functools.cache
def max_shared_mem(device: int) -> int:
    """Bytes of shared memory that a program may have on a device of the active driver."""
    utils = driver.active.utils  # type: ignore[attr-defined]
    return int(utils.get_device_properties(device)["max_shared_mem"])


def filter_traceback(e: BaseException) -> None:
    """Do nothing: errors of Tilewright show the kernel's source, and keep their frames.

    Triton removes its compiler's frames from tracebacks by this.
    """


_OUTSIDE = {
    "parse": "it reads MLIR",
    "convert_type_repr": "it reads MLIR types",
    "ir": "MLIR has no counterpart: see tilewright.ir",
    "passes": "MLIR's passes",
}


def __getattr__(name: str) -> Any:
    if name in _OUTSIDE:
        raise OutsideNameError(
            f"triton.compiler.compiler.{name} is outside what tilewright.compat.triton provides: "
            f"{_OUTSIDE[name]}"
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "ASTSource",
    "AsmDict",
    "BaseBackend",
    "CompileTimer",
    "CompiledKernel",
    "GPUTarget",
    "IRSource",
    "Language",
    "Launcher",
    "LazyDict",
    "compile",
    "driver",
    "filter_traceback",
    "get_cache_key",
    "make_backend",
    "max_shared_mem",
    "triton_key",
]
