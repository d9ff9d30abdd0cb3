"""Families of devices, by which operations choose block sizes."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.plugins.registry import registry
from tilewright.runtime.devices import backend_choice, device_registry
from tilewright_kernels.operations.block_records import Records, records_of

#: Family -> processors of its largest device.
_PROCESSORS = {
    "ampere": 108,
    "ada": 142,
    "hopper": 132,
    "blackwell": 148,
    "cdna2": 104,
    "cdna3": 304,
    "cdna4": 256,
    "rdna3": 48,
    "rdna4": 32,
}


@dataclass(frozen=True)
class Device:
    """Properties of a device that block sizes follow.

    Attributes:
        family: ``"cpu"``, ``"ampere"`` (8.0), ``"ada"`` (8.6, 8.9 and 12.x), ``"hopper"`` (9.0),
            ``"blackwell"`` (10.x), ``"cdna2"``, ``"cdna3"``, ``"cdna4"``, ``"rdna3"`` or
            ``"rdna4"``.
        processors: SMs, CUs (WGPs of RDNA), or cores of a CPU that the process may use.
        target: the family in files of records: ``"sm_90"``, ``"gfx942"``, or the vectors of a CPU,
            such as ``"x86-avx512"``; empty for none.
    """

    family: str
    processors: int
    target: str = ""

    @property
    def records(self) -> Records:
        """The records of measured block sizes for the target."""
        return records_of(self.target)


def device_of(array: Any) -> Device:
    """Return the device that kernels on an array of any framework run on.

    An array in the host's memory is on the device of the backend that is chosen by name, else on
    the CPU; traced arrays of JAX are on its default device.
    """
    if isinstance(array, np.ndarray):
        return _of_the_host()
    if hasattr(array, "stride"):
        # launches refuse devices that no backend serves
        return _torch_device(array.device) if array.device.type == "cuda" else _of_the_host()
    return _jax_device()


def chosen_device(arrays: Sequence[Any]) -> Device | None:
    """Return the device that a choice by name has kernels on arrays run on.

    It is None without a choice, and for arrays that are not in the host's memory.
    """
    if backend_choice.current.get() is None and backend_choice.environment_choice() is None:
        return None
    return None if any(getattr(each, "is_cuda", False) for each in arrays) else _of_the_host()


def _of_the_host() -> Device:
    choice = backend_choice.current.get() or backend_choice.environment_choice()
    if choice is None or not choice.name:
        return _cpu()
    target = backend_choice.default_target()
    return _cpu() if target is None else _of_target(target.kind, target.arch)


@functools.cache
def _of_target(kind: str, architecture: str) -> Device:
    if kind == "cuda":
        digits = re.sub(r"\D", "", architecture)
        return _nvidia((int(digits[:-1]), int(digits[-1])))
    return _amd(architecture) if kind == "hip" else _cpu()


def _nvidia(capability: tuple[int, ...], processors: int = 0) -> Device:
    family = nvidia_family(capability)
    target = f"sm_{capability[0]}{capability[1]}"
    return Device(family, processors or _PROCESSORS[family], target)


def _amd(architecture: str, processors: int = 0) -> Device:
    family = amd_family(architecture)
    return Device(family, processors or _PROCESSORS[family], architecture.split(":")[0])


@functools.cache
def _cpu() -> Device:
    for backend in registry().for_device_kind("cpu"):
        cores = device_registry.find(backend, None).properties.get("cores")
        return Device("cpu", cores or os.cpu_count() or 1, cpu_family())
    return Device("cpu", os.cpu_count() or 1)


def cpu_family() -> str:
    """Return the family of this machine's CPU by its vectors; empty if no backend serves it."""
    for backend in registry().for_device_kind("cpu"):
        target = device_registry.target_of(backend, device_registry.find(backend, None))
        if target.arch != "x86-64":
            return target.arch
        levels = {"+amx-tile": "amx", "+avx512f": "avx512", "+avx2": "avx2"}
        return "x86-" + next((levels[each] for each in levels if each in target.features), "sse")
    return ""


@functools.cache
def _torch_device(place: Any) -> Device:
    import torch

    found = torch.cuda.get_device_properties(place)
    name = getattr(found, "gcnArchName", "") if torch.version.hip else ""
    if name:
        return _amd(name, found.multi_processor_count)
    return _nvidia((found.major, found.minor), found.multi_processor_count)


@functools.cache
def _jax_device() -> Device:
    import jax

    found = jax.devices()[0]
    if found.platform == "cpu":
        return _cpu()
    capability = str(getattr(found, "compute_capability", ""))
    processors = int(getattr(found, "core_count", 0))
    if capability.startswith("gfx"):
        return _amd(capability, processors)
    return _nvidia(tuple(int(each) for each in capability.split(".")[:2]), processors)


def nvidia_family(capability: tuple[int, ...]) -> str:
    """Return the family of a compute capability."""
    if capability[0] == 10 or capability[0] == 11:
        return "blackwell"
    if capability[0] == 9:
        return "hopper"
    return "ampere" if capability == (8, 0) else "ada"


def amd_family(architecture: str) -> str:
    """Return the family of an architecture such as ``"gfx942"``."""
    name = architecture.split(":")[0]
    known = {"gfx90a": "cdna2", "gfx950": "cdna4"}
    if name in known:
        return known[name]
    if name.startswith("gfx94"):
        return "cdna3"
    return "rdna4" if name.startswith("gfx12") else "rdna3"
