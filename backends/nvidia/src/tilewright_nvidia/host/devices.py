"""Enumeration of the local NVIDIA GPUs, and their targets."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from tilewright.errors import BackendError
from tilewright.gpu_host.devices import listed
from tilewright.gpu_host.driver import Driver
from tilewright.plugins.manifest import Device, Target
from tilewright_nvidia.architectures import (
    ARCHITECTURES,
    Architecture,
    architecture_of,
    capability_of,
    ptx_of_driver,
    target_of,
)
from tilewright_nvidia.host.driver import driver
from tilewright_nvidia.toolchain.installation import driver_version, version_text, why_not


def devices() -> list[Device]:
    """List the supported GPUs; none if there is no driver.

    Properties: arch, compute_capability, driver, and the properties common to all GPU backends.
    """
    return [] if why_not() else listed(driver, _facts)


def _facts(cuda: Driver, index: int) -> Mapping[str, Any] | None:
    row = _architecture(cuda, index)
    if row is None:
        return None
    capability = capability_of(cuda, index)
    return {
        "arch": row.name,
        "compute_capability": f"{capability // 10}.{capability % 10}",
        "driver": f"CUDA {version_text(driver_version())}",
    }


def _architecture(cuda: Driver, index: int) -> Architecture | None:
    """Return a device's architecture; None if the device or the driver is too old."""
    row = architecture_of(capability_of(cuda, index))
    return row if row is not None and row.min_ptx <= ptx_of_driver(driver_version()) else None


def target_of_device(device: Device) -> Target:
    """Return the target of a GPU, or of an architecture that stands in for one.

    The target's PTX version is one that the driver accepts. A device may carry an architecture's
    name, to compile for it without a GPU.

    Raises:
        BackendError: there is no code for it.
    """
    named = ARCHITECTURES.get(device.name)
    if named is not None:
        return target_of(named)
    cuda = driver()
    row = _architecture(cuda, device.index)
    if row is None:
        capability, driven = capability_of(cuda, device.index), version_text(driver_version())
        raise BackendError(
            f"there is no code for {device.name}, of compute capability "
            f"{capability // 10}.{capability % 10}, by a driver for CUDA {driven}"
        )
    found = target_of(row, driver_version())
    limits = {**found.limits, "shared_memory": cuda.attribute(device.index, "shared_memory")}
    return dataclasses.replace(found, limits=limits)


def first_of(cuda: Driver, target: Target) -> int | None:
    """Return the index of the first GPU of the target's architecture; None if there is none."""
    for index in range(int(cuda(cuda.entries.device_count))):
        row = architecture_of(capability_of(cuda, index))
        if row is not None and row.name == target.arch:
            return index
    return None
