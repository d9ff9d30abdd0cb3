"""Compiling for the shim: Tilewright's compiler with Triton's settings around it."""

from __future__ import annotations

import contextlib
import time
from typing import Any

from tilewright.compat.triton import knobs
from tilewright.compat.triton.compiler import directory  # noqa: F401  # where kernels are kept
from tilewright.compat.triton.compiler.places import located_in_text
from tilewright.compat.triton.compiler.sources import ASTSource, with_override
from tilewright.environment import ALLOW_GLOBALS
from tilewright.plugins.manifest import Target
from tilewright.plugins.registry import Backend
from tilewright.runtime.compiler.compile import Specialization, compile_kernel
from tilewright.runtime.storage.artifact import Artifact

#: Stages of the texts of a kernel by the file endings that Triton's tools know.
DUMPED = {
    "tileir": "ttir",
    "llir": "llir",
    "ptx": "ptx",
    "cubin": "cubin",
    "amdgcn": "amdgcn",
    "hsaco": "hsaco",
}


def compile_artifact(
    specialization: Specialization, backend: Backend, target: Target
) -> tuple[Artifact, knobs.CompileTimes]:
    """Compile, or find in the disk cache, as ``triton.knobs.compilation`` says; return the times.

    Raises:
        CompilationError: the source breaks a rule of the language.
        LoweringError, OutOfResources: the backend cannot make code of it.
        OutsideStageError: ``use_ir_loc`` names a stage that Tilewright has no places of.
    """
    settings = knobs.compilation
    if settings.override:
        specialization = with_override(specialization, _override_of(specialization))
    started = time.perf_counter()
    with _globals_allowed(settings.allow_non_constexpr_globals):
        artifact = compile_kernel(
            specialization,
            backend,
            target,
            anew=settings.always_compile,
            texts=not settings.store_binary_only,
            preparation=located_in_text(specialization, settings.use_ir_loc),
        )
    taken = (time.perf_counter() - started) * 1e6
    if settings.dump_ir and not artifact.cache_hit:
        _dump(specialization, artifact)
    return artifact, _times(artifact, taken)


@contextlib.contextmanager
def _globals_allowed(allowed: bool) -> Any:
    """Let kernels read globals that are no constants, for the length of one compilation."""
    import os

    before = os.environ.get(ALLOW_GLOBALS)
    if allowed and before is None:
        os.environ[ALLOW_GLOBALS] = "1"
    try:
        yield
    finally:
        if allowed and before is None:
            os.environ.pop(ALLOW_GLOBALS, None)


def _times(artifact: Artifact, taken: float) -> knobs.CompileTimes:
    """Split ``taken``, in microseconds, by stage; the remainder is spent on keeping the result."""
    if artifact.cache_hit:
        return knobs.CompileTimes(max(1, int(taken)), [], 0)
    stages = [
        (name, max(1, int(artifact.timings.get(name, 0.0) * 1e3))) for name in ("passes", "lower")
    ]
    frontend = max(1, int(artifact.timings.get("frontend", 0.0) * 1e3))
    return knobs.CompileTimes(
        frontend, stages, max(1, int(taken) - frontend - sum(time_ for _, time_ in stages))
    )


def _override_of(specialization: Specialization) -> str | None:
    from tilewright.compat.triton.runtime.cache import get_override_manager

    source = ASTSource.of(specialization)
    return get_override_manager(source.hash()).get_file(f"{source.name[:150]}.ttir")


def _dump(specialization: Specialization, artifact: Artifact) -> None:
    from tilewright.compat.triton.runtime.cache import get_dump_manager

    source = ASTSource.of(specialization)
    manager = get_dump_manager(source.hash())
    for stage, ending in DUMPED.items():
        text = artifact.code.stages.get(stage)
        if text is not None:
            manager.put(text, f"{source.name[:150]}.{ending}")
