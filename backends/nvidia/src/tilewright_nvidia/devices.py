"""The GPUs of this machine."""

from __future__ import annotations

import dataclasses
import functools

from tilewright.errors import BackendError
from tilewright.plugins.manifest import Device, Target
from tilewright_nvidia.architectures import ARCHITECTURES, Architecture, architecture_of, ptx_of_driver, target_of
from tilewright_nvidia.driver import Driver, driver, driver_version, version_text, why_not

KIND = "cuda"


@functools.cache
def capability_of(cuda: Driver, device: int) -> int:
    """Compute capability, 10 * major + minor."""
    return 10 * cuda.attribute(device, "COMPUTE_CAPABILITY_MAJOR") + cuda.attribute(device, "COMPUTE_CAPABILITY_MINOR")


def devices() -> list[Device]:
    """The GPUs that there is code for; none where there is no driver. Properties: arch, compute_capability, memory_bytes, multiprocessors, l2_bytes,
    shared_memory (bytes of a program), driver."""
    if why_not():
        return []
    try:
        cuda = driver()
        count = int(cuda("cuDeviceGetCount"))
    except BackendError:
        return []
    return [found for found in (_describe(cuda, index) for index in range(count)) if found is not None]


def _describe(cuda: Driver, index: int) -> Device | None:
    row = _architecture(cuda, index)
    if row is None:
        return None
    handle = cuda("cuDeviceGet", index)
    name = cuda("cuDeviceGetName", 128, handle)
    properties = {
        "arch": row.name,
        "compute_capability": f"{capability_of(cuda, index) // 10}.{capability_of(cuda, index) % 10}",
        "memory_bytes": int(cuda("cuDeviceTotalMem", handle)),
        "multiprocessors": cuda.attribute(index, "MULTIPROCESSOR_COUNT"),
        "l2_bytes": cuda.attribute(index, "L2_CACHE_SIZE"),
        "shared_memory": cuda.attribute(index, "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
        "driver": f"CUDA {version_text(driver_version())}",
    }
    text = bytes(name).partition(b"\0")[0].decode(errors="replace") if not isinstance(name, str) else name
    return Device("nvidia", KIND, index, text, properties)


def _architecture(cuda: Driver, index: int) -> Architecture | None:
    """None where the device is too old, or the driver too old for what is written for the device."""
    row = architecture_of(capability_of(cuda, index))
    return row if row is not None and row.least_ptx <= ptx_of_driver(driver_version()) else None


def target_of_device(device: Device) -> Target:
    """The target of a GPU, in the PTX that its driver understands; of an architecture that is named in a GPU's place, to compile for without one.

    Raises:
        BackendError: there is no code for it.
    """
    named = ARCHITECTURES.get(device.name)
    if named is not None:
        return target_of(named)
    cuda = driver()
    row = _architecture(cuda, device.index)
    if row is None:
        raise BackendError(f"there is no code for {device.name}, of compute capability {device.properties.get('compute_capability')}")
    found = target_of(row, driver_version())
    limits = {**found.limits, "shared_memory": cuda.attribute(device.index, "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN")}
    return dataclasses.replace(found, limits=limits)


def first_of(cuda: Driver, target: Target) -> int | None:
    """The first GPU that the target's code is for."""
    for index in range(int(cuda("cuDeviceGetCount"))):
        row = architecture_of(capability_of(cuda, index))
        if row is not None and row.name == target.arch:
            return index
    return None
