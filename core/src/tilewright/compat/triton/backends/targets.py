"""Targets in Triton's terms and in Tilewright's."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

from tilewright.compat.triton import knobs
from tilewright.compat.triton.backends.torch_devices import current_device
from tilewright.errors import BackendError
from tilewright.plugins.manifest import Device, Target
from tilewright.plugins.registry import Backend
from tilewright.runtime.devices import device_registry


@dataclass(frozen=True)
class GPUTarget:
    """The target of a kernel.

    Attributes:
        backend: the kind of device: ``"cuda"``, ``"hip"``, ``"cpu"`` …
        arch: the compute capability as a number (90) for ``"cuda"``, else the backend's own name of
            the architecture.
        warp_size: threads that run in lockstep; 1 on a CPU.
    """

    backend: str
    arch: int | str
    warp_size: int


def target_of(target: Target) -> GPUTarget:
    """A target of Tilewright in Triton's terms."""
    return GPUTarget(target.kind, _arch(target.kind, target.arch), target.warp_size)


@functools.cache
def _arch(kind: str, name: str) -> int | str:
    """An architecture as Triton has it: the compute capability as a number for ``"cuda"``."""
    if kind != "cuda":
        return name
    digits = re.search(r"\d+", name)
    return int(digits[0]) if digits else 0


def overridden(target: GPUTarget) -> GPUTarget:
    """Return the target of compilations for ``target``.

    It has another architecture where ``knobs.runtime.override_arch`` names one.
    """
    arch = knobs.runtime.override_arch
    return (
        target
        if not arch
        else GPUTarget(target.backend, _arch(target.backend, arch), target.warp_size)
    )


def place_of(target: GPUTarget, backend: Backend) -> tuple[Target, Device | None]:
    """Return a backend's target, and its device, for a target in Triton's terms.

    It is the current device, if it is of that kind. The device is None where this machine has none.

    Raises:
        BackendError: the backend does not compile for it.
    """
    present = (
        []
        if backend.manifest.status
        else [
            device for device in device_registry.devices(backend) if device.kind == target.backend
        ]
    )
    current = current_device(backend.manifest.device_kinds[0]) if len(present) > 1 else 0
    for device in sorted(present, key=lambda one: one.index != current):
        found = device_registry.target_of(backend, device)
        if target.backend == "cpu" or target_of(found).arch == target.arch:
            return found, device
    arch = arch_name(backend, target)
    if arch is None:
        raise BackendError(
            f"backend {backend.name!r} does not compile for {target.backend} {target.arch}; it has "
            f"{', '.join(backend.manifest.targets)}"
        )
    return device_registry.named_target(backend, arch), None


def target_for(backend: Backend, target: Target) -> Target:
    """The target of compilations for a device of ``target``; see :func:`overridden`.

    Raises:
        BackendError: the backend does not compile for the architecture.
    """
    arch = knobs.runtime.override_arch
    if not arch or arch == target.arch:
        return target
    name = arch_name(backend, overridden(target_of(target))) or arch
    return device_registry.named_target(backend, name)


def arch_name(backend: Backend, target: GPUTarget) -> str | None:
    """Return the backend's name of an architecture.

    Of those that Triton has one number for, the longest is the most special one.
    """
    names = sorted(backend.manifest.targets, key=len, reverse=True)
    return next((name for name in names if _arch(target.backend, name) == target.arch), None)
