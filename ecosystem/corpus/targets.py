"""The targets for which the corpus is compiled."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """One of them, in Triton's terms.

    Attributes:
        name: as tables have it.
        backend, arch, warp: the fields of ``triton.backends.compiler.GPUTarget``.
        code: the stage that figures are read of; empty where none are.
    """

    name: str
    backend: str
    arch: int | str
    warp: int
    code: str


TARGETS = {
    each.name: each
    for each in (
        Target("sm_80", "cuda", 80, 32, "ptx"),
        Target("sm_90a", "cuda", 90, 32, "ptx"),
        Target("sm_100a", "cuda", 100, 32, "ptx"),
        Target("gfx942", "hip", "gfx942", 64, "amdgcn"),
        Target("gfx950", "hip", "gfx950", 64, "amdgcn"),
        Target("gfx1100", "hip", "gfx1100", 32, "amdgcn"),
        Target("gfx1201", "hip", "gfx1201", 32, "amdgcn"),
        Target("cpu", "cpu", "host", 1, ""),
    )
}
